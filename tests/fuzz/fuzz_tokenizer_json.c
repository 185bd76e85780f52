/* fuzz_tokenizer_json: a tokenizer.json up to the first zero byte, and a text behind it. Whatever they say, making the
 * tokenizer either fails with a message or gives one that turns the text into ids of its vocabulary and those into
 * text. Only a pattern that takes too many steps may fail later. */
#include <stdlib.h>
#include <string.h>

#include "text/internal.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(const wf_tokenizer *t, const char *text, size_t len, const wf_text_span *plain, size_t n_plain)
{
    int32_t *ids = NULL;
    char *back = NULL;
    size_t n = 0, back_len = 0;
    weft_status s = wf_tokenize_around(t, text, len, plain, n_plain, 0, &ids, &n);
    if (s == WEFT_ERR_UNSUPPORTED && *wf_error()) return;
    if (s) abort();
    for (size_t i = 0; i < n; i++)
        if (ids[i] < 0 || (uint32_t)ids[i] >= wf_token_count(t)) abort();
    for (size_t i = wf_token_adds_bos(t); i < n && n_plain; i++)
        if (wf_token_is_control(t, ids[i]) && ids[i] != t->eos && ids[i] != t->unk)
            abort(); /* all of the text is of others */
    if (wf_detokenize(t, ids, n, 0, &back, &back_len) || back[back_len]) abort();
    free(back);
    free(ids);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *end = size ? memchr(data, 0, size) : NULL;
    size_t json = end ? (size_t)(end - data) : size, len = end ? size - json - 1 : 0;
    const char *text = (const char *)(end ? end + 1 : data);
    wf_tokenizer *t = NULL;
    if (wf_tokenizer_from_json((const char *)data, json, &t)) {
        if (!*wf_error()) abort();
        return 0;
    }
    check(t, text, len, NULL, 0);
    check(t, text, len, &(wf_text_span){0, len}, 1);
    wf_tokenizer_destroy(t);
    return 0;
}
