/* runner: sends requests when they are due and reads the responses, on one thread. */
#include "loadgen/internal.h"

#include "base/progress.h"

#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#define LOOK_MS 100 /* longest wait between checks of the clock and of Ctrl-C */
#define BURST   64  /* most requests started before data is transferred again */

typedef struct drive {
    const wf_target *t;
    wf_load_run *r;
    CURLM *multi;
    uint64_t start_ns;
    size_t next, active, most; /* most: concurrency limit */
    const wf_transaction *refused; /* the first that ended, if its answer is one for all requests; NULL: it is not */
    long status;                   /* of that */
    wf_progress bar;
} drive;

/* ---- memory ------------------------------------------------------------------------------- */

/* Builds all bodies before the clock starts. */
weft_status wf_load_run_init(wf_load_run *r, const wf_target *t, const wf_request_specs *specs)
{
    *r = (wf_load_run){.n = specs->n,
                  .x = wf_calloc(specs->n, sizeof *r->x),
                  .result = wf_calloc(specs->n, sizeof *r->result),
                  .at = wf_calloc(specs->n, sizeof *r->at)};
    if (!r->x || !r->result || !r->at) return WEFT_ERR_NOMEM;
    wf_arrivals(t->p->rate, t->p->burstiness, t->p->seed, r->n, r->at);
    for (size_t i = 0; i < r->n; i++) {
        wf_transaction_init(&r->x[i], &specs->list[i], &r->result[i], t->p->save_detailed);
        if (!(r->x[i].body = wf_prompt_body(t, r->x[i].spec, i)))
            return wf_fail(WEFT_ERR_NOMEM, "out of memory for prompts");
    }
    return WEFT_OK;
}

void wf_load_run_free(wf_load_run *r)
{
    for (size_t i = 0; r->x && i < r->n; i++) wf_transaction_free(&r->x[i]);
    wf_request_results_free(r->result, r->n);
    free(r->x);
    free(r->at);
}

/* ---- beginning ---------------------------------------------------------------------------- */

/* Its connection, if it has one, is free again. */
static void release(drive *d, wf_transaction *x)
{
    if (!x->curl) return;
    curl_multi_remove_handle(d->multi, x->curl);
    curl_easy_cleanup(x->curl);
    x->curl = NULL;
    d->active--;
}

static void end(drive *d, wf_transaction *x, CURLcode result)
{
    long status = 0;
    if (x->curl) curl_easy_getinfo(x->curl, CURLINFO_RESPONSE_CODE, &status);
    release(d, x);
    wf_transaction_end(x, result, status);
    if (!d->r->n_ended++ && wf_target_refuses(status)) d->refused = x, d->status = status;
    free(x->body);
    x->body = NULL;
}

static double now_s(const drive *d) { return (double)(wf_now_ns() - d->start_ns) * 1e-9; }

/* ---- running ------------------------------------------------------------------------------ */

/* Milliseconds until the next request is due. */
static int patience(const drive *d)
{
    if (d->next >= d->r->n || d->active >= d->most) return LOOK_MS;
    double ms = (d->r->at[d->next] - now_s(d)) * 1e3;
    return ms > LOOK_MS ? LOOK_MS : ms > 0 ? (int)ms : 0;
}

static weft_status go(drive *d)
{
    int running;
    while (d->r->n_ended < d->r->n && !(d->t->p->stop && d->t->p->stop())) {
        for (int k = 0; k < BURST && d->next < d->r->n && d->active < d->most && d->r->at[d->next] <= now_s(d); k++) {
            wf_transaction *x = &d->r->x[d->next++];
            CURL *c = curl_easy_init();
            x->result->start_ns = wf_now_ns();
            if (!c) {
                end(d, x, CURLE_OUT_OF_MEMORY);
                continue;
            }
            wf_target_setup(d->t, c, d->t->url);
            curl_easy_setopt(c, CURLOPT_POSTFIELDS, x->body);
            curl_easy_setopt(c, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)strlen(x->body));
            curl_easy_setopt(c, CURLOPT_ERRORBUFFER, x->curl_error);
            curl_easy_setopt(c, CURLOPT_WRITEFUNCTION, wf_transaction_read);
            curl_easy_setopt(c, CURLOPT_WRITEDATA, x);
            curl_easy_setopt(c, CURLOPT_PRIVATE, x);
            x->curl = c;
            d->active++;
            if (curl_multi_add_handle(d->multi, c)) end(d, x, CURLE_FAILED_INIT);
        }
        CURLMcode rc = curl_multi_perform(d->multi, &running);
        int left;
        for (CURLMsg *m; (m = curl_multi_info_read(d->multi, &left));) {
            wf_transaction *x = NULL;
            if (m->msg != CURLMSG_DONE) continue;
            curl_easy_getinfo(m->easy_handle, CURLINFO_PRIVATE, &x);
            end(d, x, m->data.result); /* m is freed with its handle */
        }
        if (d->refused) return wf_target_refused(d->t, d->t->url, d->status, d->refused->error);
        if (!rc && d->r->n_ended < d->r->n) rc = curl_multi_poll(d->multi, NULL, 0, patience(d), NULL);
        if (rc) return wf_fail(WEFT_ERR_INTERNAL, "libcurl: %s", curl_multi_strerror(rc));
        if (d->t->p->quiet) continue;
        wf_progress_note(&d->bar, "%zu of %zu requests, %zu running", d->r->n_ended, d->r->n, d->active);
        wf_progress_update(&d->bar, "bench serve", (double)d->r->n_ended / (double)d->r->n);
    }
    return WEFT_OK;
}

weft_status wf_load_run_execute(wf_load_run *r, const wf_target *t, size_t max_concurrency)
{
    drive d = {.t = t, .r = r, .multi = curl_multi_init(), .most = max_concurrency ? max_concurrency : SIZE_MAX};
    if (!d.multi) return wf_fail(WEFT_ERR_NOMEM, "out of memory for connections");
    /* Each connection takes a file descriptor, and the soft limit is often 1024. */
    struct rlimit files;
    if (!getrlimit(RLIMIT_NOFILE, &files)) files.rlim_cur = files.rlim_max, setrlimit(RLIMIT_NOFILE, &files);
    curl_multi_setopt(d.multi, CURLMOPT_MAXCONNECTS, (long)WF_MIN(d.most, WF_MIN(r->n, 65536u)));
    d.start_ns = wf_now_ns();
    weft_status s = go(&d);
    r->seconds = now_s(&d);
    for (size_t i = 0; i < d.next; i++) release(&d, &r->x[i]); /* still in flight after a stop */
    curl_multi_cleanup(d.multi);
    wf_progress_end(&d.bar);
    return s;
}
