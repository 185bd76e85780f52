/* batch_invariance: with `deterministic`, a request gives the same tokens and the same bits of their log probabilities
 * alone and among others, however its prompt is cut, whoever else is in its steps, by whatever plan they run, with a
 * prompt from the prefix cache, with drafts, and after it was preempted. All ways are compared with one: alone, one
 * queue, nothing kept from before.
 *
 * Usage: batch_invariance DEVICE SOURCES   (DEVICE as golden)
 */
#include "support/build_once.h"
#include "support/data.h"
#include "support/skip.h"
#include <weft/debug.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define N        12
#define MOST     (3 * N) /* that run at one time: each request so many times */
#define N_TOKENS 24
#define LONG     5 /* the request whose prompt has more keys than kernels take at a time */
#define N_LONG   450
#define CONTEXT  512

typedef struct answer {
    int32_t ids[N_TOKENS];
    float logprob[N_TOKENS][3];
    int n;
} answer;

static const struct weft_model *model;
static char device[24];
static bool no_kernel_cache;
static const char *kv_dtype;
static int n_failed;

static void on_event(void *user, const struct weft_event *ev)
{
    answer *a = user;
    if (ev->kind != WEFT_EVENT_TOKEN || ev->id < 0 || a->n == N_TOKENS) return;
    a->ids[a->n] = ev->id;
    a->logprob[a->n][0] = ev->logprob;
    for (uint32_t i = 0; i < ev->n_top && i < 2; i++) a->logprob[a->n][1 + i] = ev->top[i].logprob;
    a->n++;
}

/* Prompts of 1 to 90 tokens, and a long one; some draw, some ask for log probabilities, and the greedy ones are fed by
 * the device. */
static enum weft_status submit(struct weft_engine *e, int i, uint32_t max_tokens, answer *a, struct weft_request **r)
{
    int32_t tokens[N_LONG];
    uint32_t n = i == LONG ? N_LONG : 1 + (uint32_t)i * 37 % 90, n_vocab = weft_model_info(model)->n_vocab;
    for (uint32_t k = 0; k < n; k++) tokens[k] = (int32_t)((k * 7919u + (uint32_t)i * 104729u) % n_vocab);
    struct weft_request_params p = {.tokens = tokens, .n_tokens = n, .max_tokens = max_tokens, .ignore_eos = true,
                                    .logprobs = i % 3 > 0, .n_top = 2,
                                    .sampling = {.temperature = i % 2 ? 0.9f : 0, .seed = (uint64_t)i},
                                    .on_event = on_event, .user = a};
    return weft_submit(e, &p, r);
}

/* Requests [from, to) at one time; those from N on are the first ones again. */
static bool run(struct weft_engine *e, int from, int to, answer *a)
{
    struct weft_request *r[MOST] = {0};
    bool ok = true;
    for (int i = from; i < to; i++) ok &= !submit(e, i % N, N_TOKENS, &a[i], &r[i]);
    for (int i = from; i < to && r[i]; i++) ok &= !weft_wait(r[i], 0);
    for (int i = from; i < to; i++) weft_request_free(r[i]);
    return ok;
}

typedef struct way {
    const char *name;
    bool twice, preempts;        /* the requests run twice, and are found in the prefix cache; some are preempted */
    struct weft_engine_params p; /* besides what all have */
} way;

static const struct weft_debug always = {.draft_always = true}, beside = {.beside_always = true},
                               moved = {.draft_always = true, .kv_store_always = true, .kv_load_always = true};

/* Most prompts are cut anywhere, and most wait for their turn. */
static const way ways[] = {
    {"together", false, false, {.n_seqs = 7, .max_batched_tokens = 41, .nano_batches = 1, .no_prefix = true}},
    {"two nano-batches, beside what the host samples",
     false,
     false,
     {.n_seqs = 7, .max_batched_tokens = 41, .nano_batches = 2, .no_prefix = true, .debug = &beside}},
    {"three nano-batches", false, false, {.n_seqs = 9, .max_batched_tokens = 64, .nano_batches = 3, .no_prefix = true}},
    {"prefixes reused", true, false, {.n_seqs = 7, .max_batched_tokens = 41, .nano_batches = 1}},
    {"preempted, beside what the host samples",
     false,
     true,
     {.n_seqs = MOST, .kv_seqs = 1, .max_batched_tokens = 41, .nano_batches = 1, .no_prefix = true, .debug = &beside}},
    {"two nano-batches, preempted, prefixes reused, drafts",
     true,
     true,
     {.n_seqs = MOST, .kv_seqs = 1, .max_batched_tokens = 61, .nano_batches = 2, .draft_tokens = 4, .debug = &always}},
    {"loaded from the host, drafts",
     true,
     false,
     {.n_seqs = 9, .kv_seqs = 1, .max_batched_tokens = 41, .draft_tokens = 4, .kv_host = 64u << 20, .debug = &moved}},
};

enum { ALL = sizeof ways / sizeof *ways, QUEUES = 2 };

static struct weft_engine *open_engine(struct weft_engine_params p)
{
    struct weft_engine *e = NULL;
    p.device = device, p.no_kernel_cache = no_kernel_cache, p.deterministic = true, p.context = CONTEXT;
    p.kv_dtype = kv_dtype;
    return weft_engine_open(model, &p, &e) ? NULL : e;
}

/* What each request gives alone, in steps that hold its whole prompt. */
static bool run_alone(answer *a)
{
    struct weft_engine *e = open_engine(
        (struct weft_engine_params){.max_batched_tokens = CONTEXT, .nano_batches = 1, .no_prefix = true});
    bool ok = e;
    for (int i = 0; ok && i < N; i++) ok = run(e, i, i + 1, a);
    weft_engine_close(e);
    return ok;
}

/* Answers of one token each, after which all answers seem to be short: too many requests are admitted, and some are
 * preempted. */
static bool run_short(struct weft_engine *e)
{
    answer ignored = {.n = 0};
    bool ok = true;
    for (int i = 0; ok && i < 8 * N; i++) {
        struct weft_request *r = NULL;
        if (i % N == LONG) continue;
        ok = !submit(e, i % N, 1, &ignored, &r) && !weft_wait(r, 0);
        weft_request_free(r);
    }
    return ok;
}

/* Did the engine do what it is there for? A way that does not would compare nothing. */
static bool did(const struct weft_engine *e, const way *w)
{
    struct weft_stats s;
    weft_engine_stats(e, &s);
    if (w->preempts && !s.preempted) return printf("%s: nothing was preempted\n", w->name), false;
    if (w->p.draft_tokens && !s.draft_accepted) return printf("%s: no draft was accepted\n", w->name), false;
    struct weft_kv_tier_stats host;
    weft_engine_kv_tier_stats(e, WEFT_KV_TIER_HOST, &host);
    if (w->p.kv_host && (!host.hits || !host.loaded_bytes || host.failed))
        return printf("%s: nothing was loaded\n", w->name), false;
    if (w->twice && !s.prefix_hits && !w->p.kv_host) return printf("%s: no prefix was reused\n", w->name), false;
    return true;
}

static bool run_together(const way *w, answer *a)
{
    struct weft_engine *e = open_engine(w->p);
    int n = w->preempts ? MOST : N;
    bool ok = e && (!w->preempts || run_short(e)) && run(e, 0, n, a);
    if (ok && w->twice) {
        memset(a, 0, MOST * sizeof *a);
        ok = run(e, 0, n, a);
    }
    if (!ok) printf("%s: %s\n", w->name, weft_last_error());
    ok = ok && did(e, w);
    weft_engine_close(e);
    return ok;
}

static void compare(const char *name, const way *w, const answer *alone)
{
    answer together[MOST];
    memset(together, 0, sizeof together);
    bool ok = run_together(w, together);
    int differ = 0, n = w->preempts ? MOST : N;
    for (int i = 0; i < n; i++)
        differ += memcmp(&alone[i % N], &together[i], sizeof *alone) != 0 || alone[i % N].n != N_TOKENS;
    n_failed += !ok || differ;
    printf("%-6s %s: %s, %s: %d of %d requests differ\n", ok && !differ ? "ok" : "FAILED", device, name, w->name,
           differ, n);
}

/* n: of the ways, the first ones. kv: of keys and values, as of kv_dtype. */
static int check_model(const char *name, const char *path, size_t n, const char *kv)
{
    answer alone[N];
    struct weft_model *m = NULL;
    memset(alone, 0, sizeof alone);
    if (weft_model_open(&(struct weft_model_params){.path = path}, &m)) return puts(weft_last_error()), 1;
    model = m;
    kv_dtype = kv;
    bool ok = run_alone(alone);
    for (size_t i = 0; ok && i < n; i++) compare(name, &ways[i], alone);
    if (!ok) puts(weft_last_error());
    weft_model_close(m);
    return !ok;
}

/* Blocks that several kernels take, for few rows and for many; in the KV cache, too. */
static int check_quantised(const char *sources, const char *type)
{
    char from[1024], to[] = "/tmp/weft-invariance-XXXXXX";
    int fd = mkstemp(to);
    snprintf(from, sizeof from, "%s/models/demo.gguf", sources);
    bool made = fd >= 0 &&
                !weft_convert(&(struct weft_convert_params){.path = from, .out = to, .type = type, .force = true},
                              NULL);
    int bad = made ? check_model(type, to, ALL, "q8_0") : (puts(weft_last_error()), 1);
    if (fd >= 0) close(fd), unlink(to);
    return bad;
}

static int check_experts(const char *sources, size_t n)
{
    char path[1024];
    snprintf(path, sizeof path, "%s/tests/model/data/mixtral", sources);
    return check_model("mixtral", path, n, NULL);
}

int main(int argc, char **argv)
{
    bool found = device_named(argc > 1 ? argv[1] : "cpu", device, &no_kernel_cache);
    if (argc < 3 || !found) return skip_program("no OpenCL device");
    const bool cpu = !strcmp(device, "cpu");
    const size_t n_ways = cpu ? ALL : QUEUES; /* kernels that are compiled for a model take the time */
    int bad = check_model("demo", WEFT_DEMO, ALL, NULL) + check_experts(argv[2], n_ways) +
              (cpu ? check_quantised(argv[2], "Q4_K_M") : check_model("KV in q8_0", WEFT_DEMO, QUEUES, "q8_0"));
    const char *path = test_data("stories260K.gguf");
    if (!path) return bad || n_failed ? 1 : skip_program(NO_TEST_DATA);
    return check_model("stories260K", path, n_ways, NULL) || bad || n_failed;
}
