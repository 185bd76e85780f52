/* clock: measures the time of a variant. Launches run back to back, so that the gaps between them count, and each
 * one reads another copy of the weights or pages. */
#include "lab/measure.h"
#include "verify/bind.h"

#include <math.h>
#include <stdlib.h>

#define SAMPLE_NS 50e6 /* length of a sample: detecting the end may take 0.2 ms */
#define GLANCE_NS 2e6 /* length of a batch that shows which variants have no chance */
#define HOPELESS  1.5 /* they take so many times the limit */
#define WARM_NS 1e9 /* total time after which batches that warm up end */
#define LONG_NS 2e6  /* runs this long are timed one by one */
#define LAST_NS 10e9 /* total time after which no further sample starts */
/* Launches between two flushes, so that the device never waits for the host. */
#define FLUSH 32
#define SAMPLES 64

static weft_status launch(wf_problem *p, int variant, uint32_t n, double *ns)
{
    uint64_t start = wf_now_ns();
    wf_call c = p->call;
    c.variant = variant;
    for (uint32_t i = 0; i < n; i++) {
        c.in[p->rotated] = p->copy[p->turn++ % p->copies];
        WF_TRY(wf_submit(p->q, &c));
        if (i % FLUSH == 0) WF_TRY(wf_flush(p->q));
    }
    WF_TRY(wf_finish(p->q));
    *ns = (double)(wf_now_ns() - start) / n;
    return WEFT_OK;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *v, uint32_t n)
{
    qsort(v, n, sizeof *v, by_size);
    return (v[n / 2] + v[(n - 1) / 2]) / 2;
}

/* Estimates the time of one run in batches that do not count, until the chip's clock has risen and one is no faster
 * than that before. A single launch is no estimate: the first waits for the driver to load the program (H200: 50 to
 * 800 ms), and of one whose end is waited for, the wait is a part (143 us in place of 61). */
static weft_status warm_up(wf_problem *p, int variant, double sample_ns, double *ns)
{
    double before, spent = 0;
    do {
        before = *ns;
        uint32_t runs = (uint32_t)WF_MIN(sample_ns / before / 2 + 1, 50000.0);
        WF_TRY(launch(p, variant, runs, ns));
        spent += *ns * runs;
    } while (spent < WARM_NS && (spent < sample_ns || before > 1.02 * *ns));
    return WEFT_OK;
}

weft_status wf_clock_variant(wf_problem *p, int variant, const wf_clock *c, double *ns)
{
    double sample[SAMPLES], spent = 0, sample_ns = c->sample_ns > 0 ? c->sample_ns : SAMPLE_NS, limit = c->limit_ns > 0
        ? c->limit_ns : INFINITY;
    uint32_t n = 0, repeat = WF_MIN(c->repeat, SAMPLES);
    /* The first launch, which warms the code caches, and of a long one a second. Is it clear already that the
     * variant is slower than the limit? A single run can tell only if it is long compared to the time it takes to
     * detect its end. */
    WF_TRY(launch(p, variant, 1, ns));
    WF_TRY(*ns > WF_MAX(c->limit_ns, LONG_NS) ? launch(p, variant, 1, ns) : WEFT_OK);
    if (*ns > WF_MAX(limit, LONG_NS)) return WEFT_OK;
    if (c->limit_ns > 0) {
        /* An estimate that is good enough to tell what is far slower. One run comes first, for the wait for the
         * program is in the one before. */
        WF_TRY(launch(p, variant, 1, ns));
        WF_TRY(*ns < GLANCE_NS ? launch(p, variant, (uint32_t)(GLANCE_NS / *ns) + 1, ns) : WEFT_OK);
    }
    if (*ns > HOPELESS * limit) return WEFT_OK;
    if (*ns < sample_ns) WF_TRY(warm_up(p, variant, sample_ns, ns));
    if (*ns > limit) return WEFT_OK;
    uint32_t runs = (uint32_t)WF_MIN(sample_ns / *ns + 1, 100000.0);
    for (; n < repeat && (!n || spent < LAST_NS); n++) {
        WF_TRY(launch(p, variant, runs, &sample[n]));
        spent += sample[n] * runs;
    }
    *ns = median(sample, n);
    return WEFT_OK;
}

weft_status wf_clock_usable(wf_problem *p, int variant, bool *usable)
{
    wf_call c = p->call;
    c.variant = variant;
    *usable = false;
    if (!p->dev->fns->supports(p->dev, &c, variant)) return WEFT_OK;
    int got = -1;
    weft_status s = wf_prepare(p->dev, &c, &got);
    *usable = !s && got == variant;
    return s == WEFT_ERR_UNSUPPORTED ? WEFT_OK : s;
}
