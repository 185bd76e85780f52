/* paper_step: figures of single steps, whose ops the device times, and SARATHI's of what they add up to. */
#include "cli/paper.h"

#include <string.h>

int wf_paper_step(wf_paper *p, const wf_paper_engine *e, struct weft_timeline_params q, struct weft_timeline **t)
{
    q.on_progress = wf_on_progress, q.user = p->o->quiet ? NULL : &p->bar;
    weft_status s = weft_timeline(e->e, &q, t);
    wf_progress_end(&p->bar);
    if (wf_interrupted()) return wf_interrupted_exit();
    return s ? wf_say_error(s == WEFT_ERR_UNSUPPORTED ? WEFT_ERR_NODEVICE : s) : 0; /* it does not tell times */
}

void wf_paper_show_step(wf_paper *p, const char *name, struct weft_timeline *t)
{
    p->step_names[p->n_steps] = name;
    p->steps[p->n_steps++] = t;
}

/* ---- times of ops --------------------------------------------------------------------------- */

/* As the paper's table 1 groups them. */
enum { PREPROJ, ATTENTION, POSTPROJ, FFN, OTHERS, N_GROUPS };
static const struct {
    size_t first, last; /* in NanoFlow's table 2 */
} groups[] = {[PREPROJ] = {0, 0}, [ATTENTION] = {4, 5}, [POSTPROJ] = {1, 1}, [FFN] = {2, 3}};

static size_t group_of(const char *name)
{
    size_t at = wf_paper_op(name);
    for (size_t i = 0; i < WF_LEN(groups); i++)
        if (at >= groups[i].first && at <= groups[i].last) return i;
    return OTHERS;
}

typedef struct op_times {
    double us[N_GROUPS];
} op_times;

/* Of one measured step. */
static int time_step(wf_paper *p, const wf_paper_engine *e, uint32_t tokens, uint32_t decodes, uint32_t context, op_times *out)
{
    struct weft_timeline *t = NULL;
    int rc = wf_paper_step(p, e, (struct weft_timeline_params){.tokens = tokens, .decodes = decodes, .context = context, .measure = true}, &t);
    *out = (op_times){{0}};
    for (size_t i = 0; !rc && i < t->measured.n_ops; i++) {
        const struct weft_timeline_op *op = &t->measured.ops[i];
        out->us[group_of(op->name)] += op->end_us - op->begin_us;
    }
    weft_timeline_free(t);
    return rc;
}

static int open_timed(wf_paper *p, uint32_t n_seqs, uint32_t context, uint32_t batch, wf_paper_engine *e)
{
    p->timed = true;
    return wf_paper_open(p, NULL, n_seqs, context, batch, e);
}

static void add_times(op_times *sum, const op_times *t, double n)
{
    for (size_t i = 0; i < N_GROUPS; i++) sum->us[i] += n * t->us[i];
}

/* ---- figure 10: where the time goes ---------------------------------------------------------- */

/* A load of the paper: so many sequences of `all` tokens, the ratio of prompt to generated ones such that all decodes ride on chunks. */
typedef struct setting {
    uint32_t all, n_seqs, chunk;
} setting;

static const setting settings[] = {{1024, 6, 256}, {1024, 18, 256}, {2048, 10, 256}, {3072, 6, 256}, {1024, 18, 512}};

typedef struct counts { /* of the steps that all sequences take */
    uint32_t prompt;    /* tokens of one */
    double decodes;     /* without the one that the prompt gives */
    double chunks;
} counts;

static counts count(const setting *s)
{
    double out = WF_MAX(s->all / (1 + (double)s->chunk / (s->n_seqs - 1)), 2.0);
    counts c = {.prompt = s->all - (uint32_t)out, .decodes = (double)(uint32_t)out - 1};
    c.chunks = (double)s->n_seqs * c.prompt / (s->chunk - s->n_seqs + 1);
    return c;
}

/* Prompts one by one, then all decodes together. */
static int time_apart(wf_paper *p, const wf_paper_engine *e, const setting *s, op_times *sum)
{
    counts c = count(s);
    op_times prompt, decode;
    int rc = time_step(p, e, c.prompt, 0, c.prompt, &prompt);
    if (!rc) rc = time_step(p, e, s->n_seqs, s->n_seqs, s->all, &decode);
    if (rc) return rc;
    add_times(sum, &prompt, s->n_seqs);
    add_times(sum, &decode, c.decodes);
    return 0;
}

/* Chunks of which each carries a decode of every other sequence; what is left of the decodes goes together. */
static int time_riding(wf_paper *p, const wf_paper_engine *e, const setting *s, op_times *sum)
{
    counts c = count(s);
    op_times hybrid, decode;
    double left = c.decodes - c.chunks * (s->n_seqs - 1) / s->n_seqs;
    int rc = time_step(p, e, s->chunk, s->n_seqs - 1, s->all, &hybrid);
    if (!rc) rc = time_step(p, e, s->n_seqs, s->n_seqs, s->all, &decode);
    if (rc) return rc;
    add_times(sum, &hybrid, c.chunks);
    add_times(sum, &decode, WF_MAX(left, 0));
    return 0;
}

static int add_groups(wf_paper *p, const setting *s, const setting *paper, const char *how, const op_times *t)
{
    char name[64];
    int rc = 0;
    snprintf(name, sizeof name, "%u of %u, chunks of %u: %s", paper->n_seqs, paper->all, paper->chunk, how);
    for (size_t i = 0; i < N_GROUPS && !rc; i++) rc = wf_paper_add(p, name, (double)i, (double)i, t->us[i] / 1e3 / s->n_seqs);
    return rc;
}

static int add_setting(wf_paper *p, const wf_paper_engine *e, const setting *paper)
{
    setting s = {wf_paper_length(p, paper->all), WF_MIN(paper->n_seqs, e->n_seqs), 0};
    op_times apart = {{0}}, riding = {{0}};
    s.chunk = WF_MAX(wf_paper_length(p, paper->chunk), 2 * s.n_seqs);
    int rc = time_apart(p, e, &s, &apart);
    if (!rc) rc = time_riding(p, e, &s, &riding);
    if (!rc) rc = add_groups(p, &s, paper, "apart", &apart);
    return rc ? rc : add_groups(p, &s, paper, "riding", &riding);
}

int wf_paper_breakdown(wf_paper *p)
{
    enum { LONGEST = 3072, SEQS = 18 };
    wf_paper_engine e;
    const uint32_t few = p->o->paper.quick ? 1 : WF_LEN(settings);
    int rc = wf_paper_fit(p, LONGEST);
    if (!rc) rc = open_timed(p, p->o->paper.quick ? settings[0].n_seqs : SEQS, wf_paper_length(p, LONGEST), wf_paper_length(p, LONGEST), &e);
    if (rc) return rc;
    for (size_t i = 0; i < few && !rc; i++) rc = add_setting(p, &e, &settings[i]);
    weft_engine_close(e.e);
    return rc ? rc : wf_paper_note(p, "each kind of step is measured once more than it is timed, and counted as often as the loads take it; chunks as at the end of a prompt");
}

/* ---- figure 13a: attention in chunks ---------------------------------------------------------- */

/* A prompt in chunks, the last of which may be shorter. */
static int time_chunks(wf_paper *p, const wf_paper_engine *e, uint32_t all, uint32_t chunk, op_times *sum)
{
    int rc = 0;
    *sum = (op_times){{0}};
    for (uint32_t at = 0; at < all && !rc; at += chunk) {
        op_times t;
        uint32_t n = WF_MIN(chunk, all - at);
        rc = time_step(p, e, n, 0, at + n, &t);
        if (!rc) add_times(sum, &t, 1);
    }
    return rc;
}

int wf_paper_chunked_attention(wf_paper *p)
{
    static const uint32_t chunks[] = {64, 128, 256, 320, 512};
    wf_paper_engine e;
    op_times whole, t;
    int rc = wf_paper_fit(p, 1024);
    uint32_t all = rc ? 0 : wf_paper_length(p, 1024);
    if (!rc) rc = open_timed(p, 1, all, all, &e);
    if (rc) return rc;
    rc = time_chunks(p, &e, all, all, &whole);
    for (size_t i = 0; i < WF_LEN(chunks) && !rc; i += p->o->paper.quick ? WF_LEN(chunks) - 1 : 1) {
        uint32_t chunk = wf_paper_length(p, chunks[i]);
        rc = time_chunks(p, &e, all, chunk, &t);
        if (!rc) rc = wf_paper_add(p, "attention", chunk, chunks[i], t.us[ATTENTION] / whole.us[ATTENTION]);
        if (!rc) rc = wf_paper_add(p, "all ops", chunk, chunks[i], (t.us[PREPROJ] + t.us[ATTENTION] + t.us[POSTPROJ] + t.us[FFN] + t.us[OTHERS]) /
                                   (whole.us[PREPROJ] + whole.us[ATTENTION] + whole.us[POSTPROJ] + whole.us[FFN] + whole.us[OTHERS]));
    }
    weft_engine_close(e.e);
    return rc;
}
