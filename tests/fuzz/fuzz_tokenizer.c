/* fuzz_tokenizer: libFuzzer target. The input describes a small vocabulary and a text; whatever it
 * says, making the tokenizer either fails with a message or gives one that turns the text into ids
 * and those into text without error.
 *
 * Byte 0: kind and flags; then tokens (type, length, bytes) up to an empty one, merges (length,
 * bytes) up to an empty one, special ids, and the rest is the text. */
#include <stdlib.h>
#include <string.h>

#include "text/internal.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define MAX_TEXT (size_t)256 /* each byte may become a token of 255 */

typedef struct input {
    const uint8_t *p, *end;
} input;

static uint8_t take(input *in) { return in->p < in->end ? *in->p++ : 0; }

/* A length byte and that many bytes, less where the input ends. */
static const char *take_text(input *in, uint32_t *len)
{
    *len = take(in);
    *len = (uint32_t)WF_MIN((size_t)*len, (size_t)(in->end - in->p));
    const char *p = (const char *)in->p;
    in->p += *len;
    return p;
}

static void check(const wf_tokenizer *t, const char *text, size_t len, unsigned flags)
{
    int32_t *ids = NULL;
    char *back = NULL, piece[8];
    size_t n = 0, back_len = 0;
    if (wf_tokenize(t, text, len, flags, &ids, &n)) abort();
    for (size_t i = 0; i < n; i++) {
        if (ids[i] < 0 || (uint32_t)ids[i] >= wf_token_count(t)) abort();
        wf_token_piece(t, ids[i], flags, piece, sizeof piece);
    }
    if (wf_detokenize(t, ids, n, flags, &back, &back_len) || back[back_len]) abort();
    free(back);
    free(ids);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static wf_vocab_token tokens[256];
    static wf_vocab_merge merges[256];
    input in = {data, data + size};
    uint8_t kind = take(&in), flags = take(&in);
    size_t names = 0;
    while (wf_pre_at(names)) names++;
    wf_vocab_src src = {.model = kind & 1 ? "llama" : "gpt2",
                        .pre = wf_pre_at((kind >> 1) % names)->name,
                        .tokens = tokens,
                        .merges = merges};
    src.add_bos = (int8_t)(flags % 3) - 1;
    src.add_eos = (int8_t)(flags / 3 % 3) - 1;
    src.add_space_prefix = (int8_t)(flags / 9 % 3) - 1;
    src.ignore_merges = (int8_t)(flags / 27 % 3) - 1;
    src.prepend = (enum wf_prepend)(flags / 81 % 3);
    while (src.n_tokens < WF_LEN(tokens) && in.p < in.end) {
        wf_vocab_token *t = &tokens[src.n_tokens];
        t->type = take(&in) % 8;
        t->score = (float)(int8_t)take(&in);
        t->text = take_text(&in, &t->len);
        if (!t->len) break;
        src.n_tokens++;
    }
    while (src.n_merges < WF_LEN(merges) && in.p < in.end) {
        uint32_t len;
        const char *merge = take_text(&in, &len);
        if (!len) break;
        merges[src.n_merges++] = wf_merge_of(merge, len);
    }
    int32_t *ids[] = {&src.bos, &src.eos, &src.unk, &src.eot, &src.eom};
    for (size_t i = 0; i < WF_LEN(ids); i++) *ids[i] = (int8_t)take(&in);
    wf_tokenizer *t = NULL;
    if (wf_tokenizer_create(&src, &t)) return 0;
    const char *text = (const char *)in.p;
    size_t len = WF_MIN((size_t)(in.end - in.p), MAX_TEXT);
    check(t, text, len, 0);
    check(t, text, len, WEFT_TEXT_NO_PARSE_SPECIAL | WEFT_TEXT_HIDE_SPECIAL);
    wf_tokenizer_destroy(t);
    return 0;
}
