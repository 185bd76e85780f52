/* Compiling side by side: the programs that many calls will want, by as many build helpers as there are cores, into
 * the kernel cache, where binding then finds them.
 *
 * One thread: each helper has one program at a time, and poll() says which have answered. Whatever goes wrong is left
 * to binding, which builds the program again and has all the words for it: a helper that died or hung is not started
 * again, so that the pass ends after at most as many. */
#include "cl/cl.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_HELPERS = 16 };

typedef struct job {
    cl_kern kern; /* what it is built for, and nothing built */
    wf_cache_key key;
    char *source, options[1024];
    bool waits;   /* for a helper */
} job;

typedef struct helper {
    cl_child child;
    job *at; /* NULL: it has none */
    uint64_t deadline;
} helper;

typedef struct pass {
    cl_dev *d;
    job *jobs;
    size_t n, cap, n_wanted, n_ended;
    helper helpers[MOST_HELPERS];
    uint32_t n_helpers, n_built;
} pass;

/* ---- which programs ---------------------------------------------------------------------------------------------- */

static bool is_known(const pass *p, const wf_call *c, const cl_variant *v, const cl_launch *l)
{
    for (const cl_kern *k = p->d->var[c->op][c->variant].kern; k; k = k->next)
        if (wf_cl_kernel_serves(k, l)) return true;
    for (const job *j = p->jobs; j < p->jobs + p->n; j++)
        if (j->kern.variant == v && wf_cl_kernel_serves(&j->kern, l)) return true;
    return false;
}

static bool is_waiting(const pass *p, const wf_cache_key *key)
{
    for (const job *j = p->jobs; j < p->jobs + p->n; j++)
        if (j->waits && !strcmp(j->key.text, key->text)) return true;
    return false;
}

static void note_call(pass *p, const wf_call *c)
{
    cl_launch l;
    const cl_variant *v = wf_cl_variant_at(c->op, c->variant);
    if (!v || !wf_cl_configure(p->d, c->variant, c, &l) || is_known(p, c, v, &l)) return;
    if (!wf_grow(&p->jobs, p->n, &p->cap, sizeof *p->jobs)) return;
    job j = {.source = wf_cl_compose(&p->d->ref.quirks, v, &l)};
    wf_cl_kernel_describe(&j.kern, v, &l);
    wf_cl_options(&p->d->ref.quirks, &l, j.options, sizeof j.options);
    if (j.source) j.key = wf_cl_key(&p->d->ref.info, j.source, j.options);
    j.waits = j.key.text && !wf_cache_has(p->d->cache, &j.key) && !is_waiting(p, &j.key);
    p->n_wanted += j.waits;
    p->jobs[p->n++] = j;
}

/* ---- helpers ----------------------------------------------------------------------------------------------------- */

/* Its end; the program is left to binding. */
static void dismiss_helper(helper *h, const char *why)
{
    wf_log(WEFT_LOG_DEBUG, "a program built side by side with others is put off: %s", why);
    wf_cl_child_kill(&h->child);
    h->at = NULL;
}

static job *next_job(const pass *p)
{
    for (job *j = p->jobs; j < p->jobs + p->n; j++)
        if (j->waits) return j;
    return NULL;
}

/* One without more to do ends while others work: drivers take their time to leave a device. */
static void give_job(pass *p, helper *h)
{
    h->at = next_job(p);
    if (!h->at) {
        wf_cl_child_kill(&h->child);
        return;
    }
    h->at->waits = false;
    h->deadline = wf_cl_child_deadline(p->d);
    if (!wf_cl_child_ask(p->d, &h->child, h->at->source, h->at->options, h->deadline))
        dismiss_helper(h, "the build helper does not listen");
}

/* Says nothing of the program, but that this process cannot have the device beside the others: its memory may be
 * full. */
static bool is_shortage(cl_int err)
{
    return err == CL_OUT_OF_RESOURCES || err == CL_OUT_OF_HOST_MEMORY || err == CL_MEM_OBJECT_ALLOCATION_FAILURE ||
           err == CL_DEVICE_NOT_AVAILABLE || err == CL_DEVICE_NOT_FOUND;
}

static void hear_helper(pass *p, helper *h)
{
    cl_build_reply a = {0};
    job *j = h->at;
    void *data = wf_cl_child_hear(&h->child, &a, h->deadline);
    if (data && is_shortage(a.err)) {
        j->waits = true;
        dismiss_helper(h, wf_cl_error_name(a.err));
    } else if (data) {
        bool built = a.err == CL_SUCCESS && a.size;
        if (built) wf_cache_put(p->d->cache, &j->key, data, a.size);
        p->n_built += built;
        give_job(p, h);
    } else dismiss_helper(h, "the build helper died");
    p->n_ended += !j->waits;
    wf_cl_progress(p->d, (double)p->n_ended / (double)p->n_wanted);
    free(data);
}

static bool is_busy(const pass *p)
{
    for (uint32_t i = 0; i < p->n_helpers; i++)
        if (p->helpers[i].at) return true;
    return false;
}

static void look_at_helpers(pass *p)
{
    struct pollfd pf[MOST_HELPERS];
    for (uint32_t i = 0; i < p->n_helpers; i++)
        pf[i] = (struct pollfd){p->helpers[i].at ? p->helpers[i].child.fd : -1, POLLIN, 0};
    int r = poll(pf, p->n_helpers, WF_CL_LOOK_MS);
    for (helper *h = p->helpers; h < p->helpers + p->n_helpers; h++) {
        if (r > 0 && pf[h - p->helpers].revents) hear_helper(p, h);
        else if (h->at && wf_now_ns() > h->deadline) dismiss_helper(h, "it did not end in time");
    }
}

static void run_helpers(pass *p)
{
    uint32_t most = (uint32_t)WF_MIN(WF_MIN(wf_core_count(), (uint32_t)MOST_HELPERS), p->n_wanted);
    while (p->n_helpers < most && wf_cl_child_start(&p->helpers[p->n_helpers].child)) p->n_helpers++;
    wf_cl_progress(p->d, 0);
    for (helper *h = p->helpers; h < p->helpers + p->n_helpers; h++) give_job(p, h);
    while (is_busy(p) && wf_stop_now() == WEFT_OK) look_at_helpers(p);
    for (helper *h = p->helpers; h < p->helpers + p->n_helpers; h++) wf_cl_child_kill(&h->child);
    for (helper *h = p->helpers; h < p->helpers + p->n_helpers; h++) wf_cl_child_stop(&h->child);
}

static void free_jobs(pass *p)
{
    for (job *j = p->jobs; j < p->jobs + p->n; j++) {
        free(j->key.text);
        free(j->source);
    }
    free(p->jobs);
}

void wf_cl_prebuild(wf_dev *base, const wf_call *calls, size_t n)
{
    cl_dev *d = (cl_dev *)base;
    pass p = {.d = d};
    uint64_t began = wf_now_ns();
    if (base->lost || !*d->cache || d->ref.quirks.no_child || d->child.missing || wf_core_count() < 2 ||
        !wf_cache_can_put(d->cache))
        return;
    for (size_t i = 0; i < n && wf_stop_now() == WEFT_OK; i++) note_call(&p, &calls[i]);
    if (p.n_wanted > 1) run_helpers(&p);
    base->kernel_work.prebuilt += p.n_built;
    d->n_built += p.n_built; /* progress goes on from there */
    if (p.n_built) base->kernel_work.prebuilt_ns += wf_now_ns() - began;
    free_jobs(&p);
}
