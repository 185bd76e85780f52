/* inputs: a batch's arrays as they lie on the device, and how large these and the states are. */
#include "exec/internal.h"

#include <string.h>

static bool is_needed(const wf_exec *e, enum wf_input i, bool sampled)
{
    switch (wf_inputs[i].needed) {
    case WF_NEEDED_BY_BIDIRECTIONAL: return e->g->bidirectional;
    case WF_NEEDED_BY_ADAPTED: return e->g->adapted;
    case WF_NEEDED_BY_SAMPLED:
    case WF_NEEDED_BY_LATE: return sampled;
    default: return true;
    }
}

/* Of one table. */
static uint64_t input_bytes(const wf_exec *e, const wf_step_shape *st, enum wf_input i, bool sampled)
{
    return is_needed(e, i, sampled) ? wf_input_bytes(i, st->n_tokens, st->n_seqs, st->n_pages, st->n_logits,
                                                  st->n_adjusted, st->n_allowed) : 0;
}

uint64_t wf_inputs_greedy_bytes(const wf_exec *e, const wf_step_shape *st)
{
    uint64_t bytes = 0;
    for (enum wf_input i = 0; i < WF_N_INPUTS; i++)
        bytes += wf_input_tables(i, wf_kv_layout_tables(&e->g->kv)) * input_bytes(e, st, i, false);
    return bytes;
}

void wf_inputs_pack(wf_exec *e, wf_submission *now)
{
    wf_step_shape *st = &now->f->step;
    uint8_t *staging = now->f->staging.data;
    uint64_t at = 0;
    for (enum wf_input i = 0; i < WF_N_INPUTS; i++) {
        uint64_t bytes = input_bytes(e, st, i, now->b->sampled), pitch = WF_UP(bytes, (uint64_t)e->dev->align);
        uint32_t tables = wf_input_tables(i, wf_kv_layout_tables(&e->g->kv));
        st->input_at[i] = at;
        st->table_pitch[i] = pitch;
        for (uint32_t t = 0; t < tables && bytes && wf_inputs[i].needed != WF_NEEDED_BY_LATE; t++, at += pitch) {
            memcpy(staging + at, wf_batch_table(now->b, i, t), bytes);
            now->upload_bytes = at + bytes;
        }
    }
}

weft_status wf_inputs_late(wf_exec *e, const wf_submission *now, wf_queue *q, wf_event *const *waits, uint32_t n_waits)
{
    wf_inflight *f = now->f;
    uint64_t at = f->step.input_at[WF_INPUT_ALLOWED], bytes = now->b->n_allowed * sizeof(uint32_t);
    memcpy((uint8_t *)f->staging.data + at, now->b->in[WF_INPUT_ALLOWED], bytes);
    return wf_write(q, e->inputs.buf, e->inputs.offset + at, (uint8_t *)f->staging.data + at, bytes, waits, n_waits,
                    f->late);
}

uint64_t wf_inputs_bytes(const wf_limits *l, uint64_t align)
{
    uint64_t bytes = 0;
    for (enum wf_input i = 0; i < WF_N_INPUTS; i++)
        bytes += wf_input_tables(i, wf_limits_tables(l)) * WF_UP(wf_input_most_bytes(i, l), align);
    return bytes;
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
