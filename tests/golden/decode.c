/* decode: generates greedily after a prompt of ids, through the cache, and prints for each token its id, and the ids
 * and log probabilities of the most likely ones: for tests that compare them with a reference.
 *
 * Usage: decode MODEL DEVICE ID,ID,... COUNT
 */
#include "support/build_once.h"
#include <weft/debug.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void on_event(void *user, const struct weft_event *ev)
{
    (void)user;
    if (ev->kind == WEFT_EVENT_DONE && *ev->message) fprintf(stderr, "%s\n", ev->message);
    if (ev->kind != WEFT_EVENT_TOKEN || ev->id < 0) return;
    printf("%d", ev->id);
    for (uint32_t i = 0; i < ev->n_top; i++) printf(" %d:%.6f", ev->top[i].id, ev->top[i].logprob);
    printf("\n");
}

static size_t read_ids(char *text, int32_t *out, size_t cap)
{
    size_t n = 0;
    for (char *one = strtok(text, ","); one && n < cap; one = strtok(NULL, ",")) out[n++] = atoi(one);
    return n;
}

static bool compiles_twice(const char *device)
{
    struct weft_device_info list[64];
    size_t n = weft_devices(list, 64);
    for (size_t i = 0; i < n && i < 64; i++)
        if (!strcmp(list[i].id, device)) return build_once(&list[i]);
    return false;
}

int main(int argc, char **argv)
{
    int32_t ids[512];
    struct weft_model *m = NULL;
    struct weft_engine *e = NULL;
    struct weft_request *q = NULL;
    if (argc != 5) return 2;
    struct weft_engine_params p = {.device = argv[2], .no_kernel_cache = compiles_twice(argv[2]),
                                   .debug = &(struct weft_debug){.poison = true}, .page_tokens = 16, .context = 256};
    struct weft_request_params rp = {.tokens = ids, .n_tokens = read_ids(argv[3], ids, 512),
                                     .max_tokens = (uint32_t)atoi(argv[4]), .ignore_eos = true, .logprobs = true,
                                     .n_top = WEFT_MAX_TOP, .on_event = on_event};
    int status = weft_model_open(&(struct weft_model_params){.path = argv[1]}, &m);
    if (!status) status = weft_engine_open(m, &p, &e);
    if (!status) status = weft_submit(e, &rp, &q);
    if (!status) status = weft_wait(q, 0);
    if (status) fprintf(stderr, "%s\n", weft_last_error());
    weft_request_free(q);
    weft_engine_close(e);
    weft_model_close(m);
    return status ? 1 : 0;
}
