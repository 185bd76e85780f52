/* gguf_bad: malformed files. Each must give an error whose message names what is wrong, and leave nothing behind; a
 * good file must open afterwards. Cases are rows of a table: a file in words, their argument, and a piece of the
 * message. */
#include "support/gguf_check.h"
#include "support/rows.h"

/* ---- files in words -------------------------------------------------------------------------- */

/* `$` stands for the argument of a case. Words, and what follows them: good; patch AT SIZE: the argument there; head
 * TENSORS ENTRIES; key NAME TYPE; array NAME TYPE COUNT; tensor NAME DIMENSIONS TYPE OFFSET; str TEXT; u8, u16, u32,
 * u64 NUMBER; hex BYTES; zero, fill, less N: zeros, letters n, fewer bytes; end N: so many bytes of data, aligned. */
static void put_tensor(bytes *b, const char *name, const char *dims, uint64_t type, uint64_t at, uint64_t arg)
{
    uint64_t d[4];
    uint32_t n = 0;
    for (const char *p = dims; p; p = strchr(p, ',') ? strchr(p, ',') + 1 : NULL)
        d[n++] = *p == '$' ? arg : strtoull(p, NULL, 0);
    gguf_tensor(b, name, n, d, (uint32_t)type, at);
}

static void put_hex(bytes *b, const char *hex)
{
    for (unsigned byte; sscanf(hex, "%2x", &byte) == 1; hex += 2) bytes_u8(b, (uint8_t)byte);
}

static void build(bytes *b, const char *words, uint64_t arg)
{
    char text[200], *rest = text, *w, *name;
    uint64_t x;
    wf_copy(text, sizeof text, words);
#define WORD   strtok_r(NULL, " ", &rest)
#define NUMBER (*(w = WORD) == '$' ? arg : strtoull(w, NULL, 0))
    for (char *what = strtok_r(text, " ", &rest); what; what = WORD) {
        if (!strcmp(what, "good")) gguf_good(b);
        else if (!strcmp(what, "patch")) x = NUMBER, memcpy(b->data + x, &arg, NUMBER);
        else if (!strcmp(what, "head")) x = NUMBER, gguf_head(b, 3, x, NUMBER);
        else if (!strcmp(what, "key")) name = WORD, gguf_key(b, name, (uint32_t)NUMBER);
        else if (!strcmp(what, "array")) name = WORD, x = NUMBER, gguf_array(b, name, (uint32_t)x, NUMBER);
        else if (!strcmp(what, "tensor")) {
            const char *dims = (name = WORD, WORD);
            x = NUMBER, put_tensor(b, name, dims, x, NUMBER, arg);
        } else if (!strcmp(what, "str")) bytes_str(b, WORD);
        else if (*what == 'u') x = NUMBER, bytes_put(b, &x, strtoul(what + 1, NULL, 10) / 8);
        else if (!strcmp(what, "hex")) put_hex(b, WORD);
        else if (!strcmp(what, "zero")) bytes_zero(b, NUMBER);
        else if (!strcmp(what, "fill")) x = NUMBER, bytes_zero(b, x), memset(b->data + b->len - x, 'n', x);
        else if (!strcmp(what, "less")) b->len -= NUMBER;
        else if (!strcmp(what, "end")) bytes_align(b, 32), bytes_zero(b, NUMBER);
        else fail_msg("%s", what);
    }
}

/* ---- the table ------------------------------------------------------------------------------- */

static int n_bad;

static void try_row(char *const *column)
{
    bytes b = {0};
    uint8_t *copy;
    wf_gguf *g = (wf_gguf *)&b; /* must become NULL on failure */
    weft_status want = !strcmp(column[2], "ok") ? WEFT_OK : *column[2] == 'f' ? WEFT_ERR_FORMAT : WEFT_ERR_UNSUPPORTED;
    build(&b, column[0], strtoull(column[1], NULL, 10));
    weft_status s = gguf_open_copy(b.data, b.len, &g, &copy);
    const char *message = s ? wf_error() : "";
    if (s != want || (s != WEFT_OK) != (g == NULL) || !strstr(message, column[3]) ||
        (s && !strstr(message, "memory.gguf: "))) {
        print_error("%s with %s: %s \"%s\", expected %s \"%s\"\n", column[0], column[1], weft_status_name(s), message,
                    column[2], column[3]);
        n_bad++;
    }
    if (!s) wf_gguf_close(g);
    free(copy);
    bytes_free(&b);
}

static void table(void **state)
{
    each_row("tests/unit/gguf_bad.txt", 4, try_row);
    gguf_good_opens();
    assert_int_equal(n_bad, 0);
}

SUITE(gguf_bad, NULL, NULL, CASE(table))
