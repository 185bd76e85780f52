/* run: the memory of a run, its limits, and how it fails. */
#include "jinja/internal.h"

#include "base/json.h"

#include <stdio.h>
#include <stdlib.h>

#define ALIGN 16
#define BLOCK ((size_t)64 << 10)
#define POLL  4096 /* steps between two questions whether to stop */

struct wf_jblock {
    struct wf_jblock *next;
    size_t used, size;
};
#define HEAD WF_UP(sizeof(struct wf_jblock), ALIGN)

static void add_block(wf_jrun *r, size_t least)
{
    size_t size = HEAD + WF_MAX(least, BLOCK);
    if (size > r->max_memory - r->memory)
        wf_jfail(r, WEFT_ERR_FULL,
                 "the template takes more than %zu MiB of memory: use another one (weft_chat_params.chat_template)",
                 r->max_memory >> 20);
    struct wf_jblock *b = calloc(1, size);
    if (!b) wf_jfail_plain(r, WEFT_ERR_NOMEM, "out of host memory: %zu bytes for a chat template", size);
    *b = (struct wf_jblock){r->blocks, HEAD, size};
    r->blocks = b;
    r->memory += size;
}

void *wf_jalloc(wf_jrun *r, size_t n, size_t size)
{
    if (n > r->max_memory || size > r->max_memory / WF_MAX(n, 1u))
        n = r->max_memory, size = 1; /* add_block refuses it */
    size_t bytes = WF_UP(n * size, ALIGN);
    if (!r->blocks || r->blocks->size - r->blocks->used < bytes) add_block(r, bytes);
    struct wf_jblock *b = r->blocks;
    b->used += bytes;
    return (char *)b + b->used - bytes;
}

void *wf_jgrow(wf_jrun *r, void *v, size_t n, size_t *cap, size_t size)
{
    if (n < *cap) return v;
    *cap = *cap * 2 + 4;
    void *grown = wf_jalloc(r, *cap, size);
    return n ? memcpy(grown, v, n * size) : grown;
}

void wf_jrun_free(wf_jrun *r)
{
    for (struct wf_jblock *b = r->blocks, *next; b; b = next) {
        next = b->next;
        free(b);
    }
    r->blocks = NULL;
    while (r->n_json) wf_json_free(r->json[--r->n_json]);
}

static void place(const wf_jrun *r, size_t *line, size_t *column)
{
    *line = *column = 1;
    for (size_t i = 0; i < r->at && i < r->len; i++) {
        ++*column;
        if (r->src[i] == '\n') ++*line, *column = 1;
    }
}

void wf_jfail(wf_jrun *r, weft_status s, const char *fmt, ...)
{
    char message[512];
    size_t line, column;
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(message, sizeof message, fmt, ap);
    va_end(ap);
    if (!r->in_template) wf_jfail_plain(r, s, "%s", message);
    place(r, &line, &column);
    wf_jfail_plain(r, s, "%s, line %zu, column %zu: %s", r->in->name, line, column, message);
}

void wf_jfail_plain(wf_jrun *r, weft_status s, const char *fmt, ...)
{
    char message[768], shown[768];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(message, sizeof message, fmt, ap);
    va_end(ap);
    wf_show(shown, sizeof shown, message);
    r->status = wf_fail(s, "%s", shown);
    longjmp(r->failed, 1);
}

void wf_jstep(wf_jrun *r, size_t n)
{
    size_t most = r->in->max_steps ? r->in->max_steps : WF_JINJA_MAX_STEPS;
    size_t before = r->steps / POLL;
    r->steps += n + 1;
    if (r->steps > most)
        wf_jfail(r, WEFT_ERR_FULL,
                 "the template takes more than %zu steps: use another one (weft_chat_params.chat_template)", most);
    weft_status s = r->steps / POLL == before ? WEFT_OK : wf_stop_now();
    if (s) r->status = s, longjmp(r->failed, 1);
}

void wf_jenter(wf_jrun *r)
{
    if (++r->depth > WF_JINJA_MAX_DEPTH)
        wf_jfail(r, WEFT_ERR_FULL,
                 "the template is nested deeper than %d levels: use another one (weft_chat_params.chat_template)",
                 WF_JINJA_MAX_DEPTH);
}
