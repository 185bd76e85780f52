/* inputs: a batch's arrays as they lie on the device, and how large these and the states are. */
#include "exec/internal.h"

#include <string.h>

enum { SAMPLING_FLOATS = 3, SEED_INTS = 5 }; /* a row of SAMPLE's parameters, see dev.h */

/* As SAMPLE reads it. */
static void pack_row(const wf_sampling_params *p, float params[SAMPLING_FLOATS], int32_t seed[SEED_INTS])
{
    params[0] = p->temperature, params[1] = p->top_p, params[2] = p->min_p;
    seed[0] = p->top_k;
    seed[1] = (int32_t)(uint32_t)p->seed, seed[2] = (int32_t)(uint32_t)(p->seed >> 32);
    seed[3] = (int32_t)(uint32_t)p->counter, seed[4] = (int32_t)(uint32_t)(p->counter >> 32);
}

/* Slots and pages: of each page table. */
static uint32_t tables_of(const wf_exec *e, enum wf_input i)
{
    return i == WF_INPUT_SLOT || i == WF_INPUT_PAGES ? wf_kv_layout_tables(&e->g->kv) : 1;
}

static bool is_sampling(enum wf_input i)
{
    return i == WF_INPUT_SAMPLING || i == WF_INPUT_SEEDS;
}

static uint64_t bytes_of(const wf_exec *e, const wf_step_shape *st, enum wf_input i)
{
    if ((i == WF_INPUT_LAST || i == WF_INPUT_TYPE) && !e->g->bidirectional) return 0; /* nothing reads them */
    if (i == WF_INPUT_ADAPTER && !e->g->adapted) return 0;
    return (uint64_t)wf_step_rows(st, i) * e->g->values[e->g->inputs[i]].cols * sizeof(int32_t);
}

uint64_t wf_inputs_greedy_bytes(const wf_exec *e, const wf_step_shape *st)
{
    uint64_t bytes = 0;
    for (enum wf_input i = 0; i < WF_N_INPUTS; i++)
        if (!is_sampling(i)) bytes += tables_of(e, i) * bytes_of(e, st, i);
    return bytes;
}

void wf_inputs_pack(wf_exec *e, wf_submission *now)
{
    uint8_t *staging = now->f->staging.data;
    uint64_t at = 0;
    for (enum wf_input i = 0; i < WF_N_INPUTS; i++) {
        uint64_t bytes = bytes_of(e, &now->f->step, i), pitch = WF_UP(bytes, (uint64_t)e->dev->align);
        bool sampling = is_sampling(i);
        uint32_t tables = tables_of(e, i);
        now->f->step.input_at[i] = at;
        now->f->step.table_pitch[i] = pitch;
        for (uint32_t t = 0; t < tables && !sampling; t++)
            memcpy(staging + at + t * pitch, wf_batch_table(now->b, i, t), bytes);
        if (!sampling || now->io->sampling) now->upload_bytes = at + (tables - 1) * pitch + bytes;
        at += tables * pitch;
    }
    if (now->io->sampling) {
        float *params = (float *)(staging + now->f->step.input_at[WF_INPUT_SAMPLING]);
        int32_t *seeds = (int32_t *)(staging + now->f->step.input_at[WF_INPUT_SEEDS]);
        for (uint32_t i = 0; i < now->b->n_logits; i++)
            pack_row(&now->io->sampling[i], params + i * SAMPLING_FLOATS, seeds + i * SEED_INTS);
    }
}

uint64_t wf_inputs_bytes(const wf_limits *l, uint64_t align)
{
    uint64_t tables = wf_limits_tables(l),
             words = (7 + tables) * l->step_tokens + l->seqs + 1 + tables * l->seqs * l->seq_pages;
    words += (1ull + SAMPLING_FLOATS + SEED_INTS) * l->logit_rows;
    return words * sizeof(int32_t) + (WF_N_INPUTS + 2 * (tables - 1)) * align;
}

/* As many rows are sampled at a time as there is memory for changed logits. */
uint32_t wf_state_rows(const wf_limits *l, enum wf_state s)
{
    if (s == WF_STATE_RECOMPUTED) return 1;
    return s == WF_STATE_LOGITS ? WF_MIN(l->logit_rows, l->seqs) : l->logit_rows;
}

uint64_t wf_states_bytes(const wf_limits *l, uint32_t n_vocab, uint32_t n_layers)
{
    return 4 * (l->logit_rows + (uint64_t)wf_state_rows(l, WF_STATE_LOGITS) * n_vocab + n_layers);
}
