/* dataset_json: texts from ShareGPT's JSON and from JSON lines. See dataset.h. */
#include "loadgen/dataset.h"

#include "base/file.h"
#include "base/json.h"

#include <stdlib.h>
#include <string.h>

#define FILE_BYTES ((size_t)4 << 30)
/* vLLM's limits, so that results are comparable. */
enum { LEAST = 4, MOST_IN = 1024, MOST_ALL = 2048 };

/* Without a server-side tokenizer, assumes four bytes per token, as in English text. */
static uint32_t tokens_of(wf_count_fn count, void *user, const char *text)
{
    uint32_t n = count ? count(user, text) : 0;
    return n ? n : (uint32_t)WF_MIN(strlen(text) / 4 + 1, (size_t)UINT32_MAX);
}

/* ---- ShareGPT ----------------------------------------------------------------------------- */

static const char *turn(const wf_json *conversation, size_t i)
{
    const wf_json *turns = wf_json_get(conversation, "conversations");
    return wf_json_text(wf_json_get(wf_json_at(turns, i), "value"));
}

static weft_status add_conversation(const wf_json *c, uint32_t n_out, wf_count_fn count, void *user,
                                    wf_request_specs *out)
{
    const char *prompt = turn(c, 0), *result = turn(c, 1);
    if (!prompt || !result) return WEFT_OK;
    if (strlen(prompt) > 64 * (size_t)MOST_IN) return WEFT_OK; /* too long whatever the tokenizer */
    uint32_t in = tokens_of(count, user, prompt), told = n_out ? n_out : tokens_of(count, user, result);
    bool fits = in >= LEAST && in <= MOST_IN && (n_out || told >= LEAST) && (uint64_t)in + told <= MOST_ALL;
    if (!fits) return WEFT_OK;
    char *text = wf_strdup(prompt);
    return text ? wf_request_specs_add(out, (wf_request_spec){in, told, -1, text}) : WEFT_ERR_NOMEM;
}

/* Fisher-Yates shuffle. */
static size_t *shuffled(size_t n, uint64_t seed)
{
    size_t *order = wf_calloc(n, sizeof *order);
    for (size_t i = 0; order && i < n; i++) order[i] = i;
    for (size_t i = n; order && i > 1; i--) {
        size_t k = wf_random(seed, i) % i, t = order[i - 1];
        order[i - 1] = order[k];
        order[k] = t;
    }
    return order;
}

static weft_status add_conversations(const wf_json *all, size_t n, uint32_t n_out, uint64_t seed,
                                     wf_count_fn count, void *user, wf_request_specs *out)
{
    size_t *order = shuffled(wf_json_count(all), seed);
    weft_status s = order ? WEFT_OK : WEFT_ERR_NOMEM;
    for (size_t i = 0; !s && i < wf_json_count(all) && out->n < n; i++)
        s = add_conversation(wf_json_at(all, order[i]), n_out, count, user, out);
    free(order);
    if (s || out->n) return s;
    return wf_fail(WEFT_ERR_IO, "no conversation has two turns of 4 to 1024 tokens and at most 2048 in total");
}

weft_status wf_sharegpt_read(const char *path, size_t n, uint32_t n_out, uint64_t seed,
                             wf_count_fn count, void *user, wf_request_specs *out)
{
    char *text = NULL;
    size_t len;
    wf_json_error e;
    WF_TRY(wf_read_file(path, FILE_BYTES, &text, &len));
    wf_json *all = wf_json_read(text, len, NULL, &e);
    free(text);
    if (!all) return wf_fail(WEFT_ERR_IO, "%s: line %zu: %s", path, e.line, e.text);
    weft_status s = wf_json_is(all, WF_JSON_LIST) ? add_conversations(all, n, n_out, seed, count, user, out)
                                       : wf_fail(WEFT_ERR_IO, "is not a list of conversations");
    wf_json_free(all);
    return s ? wf_fail_context(s, "%s", path) : WEFT_OK;
}

/* ---- JSON lines --------------------------------------------------------------------------- */

static weft_status add_line(const char *line, size_t len, uint32_t n_out, wf_count_fn count,
                            void *user, wf_request_specs *out)
{
    wf_json_error e;
    wf_json *o = wf_json_read(line, len, NULL, &e);
    const char *prompt = wf_json_text(wf_json_get(o, "prompt"));
    int64_t told = wf_json_int(wf_json_get(o, "output_tokens"));
    char *text = prompt ? wf_strdup(prompt) : NULL;
    weft_status s = WEFT_OK;
    if (!o) s = wf_fail(WEFT_ERR_IO, "%s", e.text);
    else if (!prompt) s = wf_fail(WEFT_ERR_IO, "has no string \"prompt\"");
    else if (!text) s = WEFT_ERR_NOMEM;
    bool use = !n_out && told > 0 && told < 1 << 24;
    uint32_t in = s ? 0 : tokens_of(count, user, prompt);
    wf_json_free(o);
    return s ? s
             : wf_request_specs_add(out, (wf_request_spec){in,
                                         use     ? (uint32_t)told
                                         : n_out ? n_out
                                                 : 256,
                                         -1, text});
}

weft_status wf_custom_read(const char *path, size_t n, uint32_t n_out, wf_count_fn count,
                           void *user, wf_request_specs *out)
{
    char *text = NULL;
    size_t len;
    int at = 0;
    WF_TRY(wf_read_file(path, FILE_BYTES, &text, &len));
    weft_status s = WEFT_OK;
    for (char *p = text; !s && *p && out->n < n; at++) {
        size_t line = strcspn(p, "\n");
        if (strspn(p, " \t\r") < line) s = add_line(p, line, n_out, count, user, out);
        p += line + (p[line] == '\n');
    }
    free(text);
    if (s) return wf_fail_context(s, "%s: line %d", path, at);
    return out->n ? WEFT_OK : wf_fail(WEFT_ERR_IO, "%s contains no requests", path);
}
