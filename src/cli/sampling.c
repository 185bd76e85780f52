/* sampling: what holds for a model: its own sampling and weft's defaults, over which the options go; and that as text.
 * See cli.h. */
#include "cli/cli.h"

#include <float.h>
#include <stdio.h>
#include <string.h>

#define FIRST  offsetof(wf_opts, sampling)
#define CHOICE (WEFT_SAMPLING_TEMPERATURE | WEFT_SAMPLING_TOP_K | WEFT_SAMPLING_TOP_P | WEFT_SAMPLING_MIN_P)

/* The fields that a model may state, by their options. */
static const struct {
    unsigned bit;
    const char *option;
} fields[] = {
    {WEFT_SAMPLING_TEMPERATURE, "temp"}, {WEFT_SAMPLING_TOP_K, "top-k"},
    {WEFT_SAMPLING_TOP_P, "top-p"}, {WEFT_SAMPLING_MIN_P, "min-p"}, {WEFT_SAMPLING_REPEAT_PENALTY, "repeat-penalty"},
    {WEFT_SAMPLING_REPEAT_LAST_N, "repeat-last-n"},
};

unsigned wf_model_sampling(const struct weft_model *m, bool chat, struct weft_sampling *s)
{
    unsigned stated = weft_model_sampling(m, s);
    if (!chat || stated & CHOICE) return stated;
    s->temperature = 0.8f; /* without a cut small models write nonsense */
    s->top_k = 40;
    s->top_p = 0.95f;
    s->min_p = 0.05f;
    return stated;
}

struct weft_sampling wf_sampling_of(const wf_opts *o, const struct weft_model *m, bool chat)
{
    struct weft_sampling s;
    wf_model_sampling(m, chat, &s);
    for (size_t i = 0; i < o->n_given; i++) {
        const wf_opt *opt = o->given[i];
        size_t size = opt->kind == WF_OPT_SEED ? sizeof(uint64_t) : sizeof(float);
        if (opt->at >= FIRST && opt->at < FIRST + sizeof s)
            memcpy((char *)&s + (opt->at - FIRST), (const char *)o + opt->at, size);
    }
    if (wf_opts_has(o, "top-p")) s.top_p = WF_MAX(s.top_p, FLT_MIN); /* 0 would be off in the library */
    return s;
}

static const wf_opt *row_of(const char *name)
{
    const wf_opt *row = wf_group_sampling.rows;
    while (strcmp(row->name, name)) row++;
    return row;
}

size_t wf_sampling_print(const struct weft_sampling *s, unsigned which, char *buf, size_t cap)
{
    const wf_opts o = {.sampling = *s};
    char value[32];
    size_t len = 0;
    *buf = 0;
    for (size_t i = 0; i < WF_LEN(fields) && len < cap; i++) {
        if (!(fields[i].bit & which)) continue;
        wf_opt_value(row_of(fields[i].option), &o, value, sizeof value);
        len += (size_t)snprintf(buf + len, cap - len, "%s%s %s", len ? ", " : "", fields[i].option, value);
    }
    return len;
}

void wf_sampling_summary(const struct weft_sampling *s, char *buf, size_t cap)
{
    const float penalties[] = {s->presence_penalty, s->frequency_penalty};
    unsigned on = WEFT_SAMPLING_TEMPERATURE;
    if (s->top_k) on |= WEFT_SAMPLING_TOP_K;
    if (s->top_p != 1) on |= WEFT_SAMPLING_TOP_P;
    if (s->min_p > 0) on |= WEFT_SAMPLING_MIN_P;
    if (s->temperature == 0) on = 0;
    if (s->repeat_penalty != 1) on |= WEFT_SAMPLING_REPEAT_PENALTY;
    if (s->repeat_penalty != 1 && s->repeat_last_n > 0) on |= WEFT_SAMPLING_REPEAT_LAST_N;
    size_t len = s->temperature == 0 ? (size_t)snprintf(buf, cap, on ? "greedy, " : "greedy") : 0;
    len += wf_sampling_print(s, on, buf + len, cap - len);
    for (size_t i = 0; i < WF_LEN(penalties) && len < cap; i++)
        if (penalties[i] != 0)
            len += (size_t)snprintf(buf + len, cap - len, ", %s %g", i ? "frequency-penalty" : "presence-penalty",
                                    penalties[i]);
}
