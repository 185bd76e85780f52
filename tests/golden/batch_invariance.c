/* batch_invariance: with `deterministic`, a request gives the same tokens and the same bits of their log probabilities alone
 * and among others, however its prompt is cut and whoever else is in its steps.
 *
 * Usage: batch_invariance DEVICE   (as golden)
 */
#include "support/build_once.h"
#include "support/data.h"
#include "support/skip.h"
#include <weft/weft.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define N        12
#define N_TOKENS 24

typedef struct answer {
    int32_t ids[N_TOKENS];
    float logprob[N_TOKENS][3];
    int n;
} answer;

static const struct weft_model *model;
static const char *device;
static bool no_kernel_cache;
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

/* Prompts of 1 to 90 tokens; some draw, some ask for log probabilities, and the greedy ones are fed by the device. */
static enum weft_status submit(struct weft_engine *e, int i, answer *a, struct weft_request **r)
{
    int32_t tokens[96];
    uint32_t n = 1 + (uint32_t)i * 37 % 90, n_vocab = weft_model_info(model)->n_vocab;
    for (uint32_t k = 0; k < n; k++) tokens[k] = (int32_t)((k * 7919u + (uint32_t)i * 104729u) % n_vocab);
    struct weft_request_params p = {.tokens = tokens, .n_tokens = n, .max_tokens = N_TOKENS, .ignore_eos = true, .logprobs = i % 3 > 0, .n_top = 2,
                                    .sampling = {.temperature = i % 2 ? 0.9f : 0, .seed = (uint64_t)i}, .on_event = on_event, .user = a};
    return weft_submit(e, &p, r);
}

/* Requests [from, to) at one time. */
static bool run(struct weft_engine *e, int from, int to, answer *a)
{
    struct weft_request *r[N] = {0};
    bool ok = true;
    for (int i = from; i < to; i++) ok &= !submit(e, i, &a[i], &r[i]);
    for (int i = from; i < to && r[i]; i++) ok &= !weft_wait(r[i], 0);
    for (int i = from; i < to; i++) weft_request_free(r[i]);
    return ok;
}

static void compare(const char *what, struct weft_engine_params p)
{
    answer alone[N], together[N];
    struct weft_engine *e = NULL;
    memset(alone, 0, sizeof alone);
    memset(together, 0, sizeof together);
    p.device = device, p.no_kernel_cache = no_kernel_cache, p.deterministic = true, p.context = 128, p.no_prefix = true;
    p.max_batched_tokens = 512;
    bool ok = !weft_engine_open(model, &p, &e);
    for (int i = 0; ok && i < N; i++) ok = run(e, i, i + 1, alone);
    weft_engine_close(e);
    e = NULL;
    p.n_seqs = 7, p.max_batched_tokens = 41; /* prompts are cut anywhere, and most wait for their turn */
    ok = ok && !weft_engine_open(model, &p, &e) && run(e, 0, N, together);
    weft_engine_close(e);
    int differ = ok ? 0 : N;
    for (int i = 0; ok && i < N; i++) differ += memcmp(&alone[i], &together[i], sizeof alone[i]) != 0 || alone[i].n != N_TOKENS;
    n_failed += differ > 0;
    printf("%-6s %s: %s: %d of %d requests differ%s%s\n", differ ? "FAILED" : "ok", device, what, differ, N, ok ? "" : ": ", ok ? "" : weft_last_error());
}

static int check_model(const char *path)
{
    struct weft_model *m = NULL;
    if (weft_model_open(&(struct weft_model_params){.path = path}, &m)) return puts(weft_last_error()), 1;
    model = m;
    compare("one queue", (struct weft_engine_params){0});
    compare("two nano-batches", (struct weft_engine_params){.nano_batches = 2});
    weft_model_close(m);
    return 0;
}

int main(int argc, char **argv)
{
    static struct weft_device_info list[16];
    size_t n = weft_devices(list, 16);
    device = argc > 1 ? argv[1] : "cpu";
    if (!strcmp(device, "opencl")) {
        device = NULL;
        for (size_t i = 0; i < n && i < 16 && !device; i++)
            if (!strncmp(list[i].id, "opencl:", 7)) device = list[i].id;
    }
    for (size_t i = 0; device && i < n && i < 16; i++) no_kernel_cache |= !strcmp(list[i].id, device) && build_once(&list[i]);
    if (!device) return skip_program("no OpenCL device");
    int bad = check_model(WEFT_DEMO);
    const char *path = test_data("stories260K.gguf");
    if (!path) return bad || n_failed ? 1 : skip_program(NO_TEST_DATA);
    return check_model(path) || bad || n_failed;
}
