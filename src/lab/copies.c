/* copies: how fast pages of KV go to the tiers below the device and back (exec/moves.c has the same queues, memory and
 * sizes), one way at a time and both ways at once. */
#include "lab/measure.h"

#include <stdlib.h>

enum { PAGE = 2 << 20, PIECES = 256, MOST_REPEATS = 64 }; /* PAGE: 16 tokens of Llama-3-8B in F16 */

typedef struct direction {
    wf_queue *q;
    wf_buf *device;
    wf_host host;
} direction;

typedef struct copies {
    wf_dev *dev;
    direction ways[2]; /* up, down */
    uint32_t n;        /* pages each way */
} copies;

static weft_status open_copies(wf_dev *dev, copies *c)
{
    *c = (copies){.dev = dev, .n = (uint32_t)WF_MAX(WF_MIN(dev->max_alloc / PAGE, (uint64_t)PIECES), 1u)};
    for (direction *w = c->ways; w < c->ways + 2; w++) {
        WF_TRY(wf_copy_queue_create(dev, &w->q));
        WF_TRY(wf_buf_create(dev, (uint64_t)c->n * PAGE, &w->device));
        WF_TRY(wf_host_create(dev, (uint64_t)c->n * PAGE, &w->host));
    }
    return WEFT_OK;
}

static weft_status copy_page(copies *c, bool down, uint32_t i)
{
    direction *w = &c->ways[down];
    uint64_t at = (uint64_t)i * PAGE;
    void *host = (uint8_t *)w->host.data + at;
    return down ? wf_read(w->q, w->device, at, host, PAGE, NULL, 0, NULL)
                : wf_write(w->q, w->device, at, host, PAGE, NULL, 0, NULL);
}

/* mask: 1 up, 2 down, 3 both. */
static weft_status run_copies(copies *c, int mask, double *ns)
{
    uint64_t began_ns = wf_now_ns();
    for (uint32_t i = 0; i < c->n; i++)
        for (int down = 0; down < 2; down++)
            if (mask >> down & 1) WF_TRY(copy_page(c, down, i));
    for (int down = 0; down < 2; down++)
        if (mask >> down & 1) WF_TRY(wf_flush(c->ways[down].q));
    for (int down = 0; down < 2; down++)
        if (mask >> down & 1) WF_TRY(wf_finish(c->ways[down].q));
    *ns = (double)(wf_now_ns() - began_ns);
    return WEFT_OK;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The median of some runs after one that does not count. */
static weft_status clock_copies(copies *c, int mask, uint32_t repeat, double *ns)
{
    double runs[MOST_REPEATS];
    uint32_t n = WF_MIN(repeat, (uint32_t)MOST_REPEATS);
    WF_TRY(run_copies(c, mask, ns));
    for (uint32_t i = 0; i < n; i++) WF_TRY(run_copies(c, mask, &runs[i]));
    qsort(runs, n, sizeof *runs, by_size);
    *ns = runs[n / 2];
    return WEFT_OK;
}

weft_status wf_bench_copies(wf_dev *dev, const struct weft_ceilings *top, uint32_t repeat, weft_op_fn on_row,
                            void *user)
{
    static const char *const shapes[] = {"up", "down", "both ways"};
    copies c;
    double ns = 0;
    weft_status s = open_copies(dev, &c);
    for (int mask = 1; mask <= 3 && s == WEFT_OK; mask++) {
        double bytes = (double)c.n * PAGE * (mask == 3 ? 2 : 1);
        if ((s = clock_copies(&c, mask, repeat, &ns))) break;
        on_row(user, &(struct weft_op_row){.device = &dev->info, .ceilings = top, .op = "kv_copy", .dtype = "bytes",
                                           .shape = shapes[mask - 1], .variant = "queue", .message = "", .picked = true,
                                           .median_us = ns * 1e-3, .rate = bytes / ns, .unit = "GB/s",
                                           .ceiling_pct = -1});
    }
    for (direction *w = c.ways; w < c.ways + 2; w++) {
        if (w->q) wf_finish(w->q), wf_queue_destroy(w->q); /* after a failure some may be in flight */
        if (w->host.data) wf_host_destroy(c.dev, &w->host);
        if (w->device) wf_buf_destroy(w->device);
    }
    return s;
}
