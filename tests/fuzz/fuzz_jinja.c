/* fuzz_jinja: a template up to the first zero byte, and messages as JSON behind it; none: a conversation of always.
 * Rendering ends soon, either with a message or with UTF-8 whose ranges of data ascend within it. */
#include <stdlib.h>
#include <string.h>

#include "jinja/jinja.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(const wf_jinja_output *out)
{
    size_t at = 0;
    if (strlen(out->text) > out->len || out->text[out->len]) abort();
    for (size_t i = 0, n; i < out->len; i += n)
        if (!(n = wf_utf8_len(out->text + i, out->len - i))) abort();
    for (size_t i = 0; i < out->n_data; at = out->data[i++].end)
        if (out->data[i].begin < at || out->data[i].begin >= out->data[i].end || out->data[i].end > out->len) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct weft_message turns[] = {
        {"system", "S"}, {"user", "Hi \xc3\xa9"}, {"assistant", "A"}, {"user", "B"}};
    const uint8_t *end = size ? memchr(data, 0, size) : NULL;
    size_t len = end ? (size_t)(end - data) : size, rest = end ? size - len - 1 : 0;
    char *messages = calloc(rest + 1, 1);
    if (rest) memcpy(messages, end + 1, rest);
    wf_jinja_input in = {.name = "template", .text = (const char *)data, .len = len, .bos = "<s>", .eos = "</s>",
                         .messages = rest ? messages : NULL, .turns = turns, .n_turns = 4,
                         .tools = "[{\"type\": \"function\", \"function\": {\"name\": \"f\", \"parameters\": {\"a\": "
                                  "[1, 2.5, null, true]}}}]",
                         .kwargs = "{\"enable_thinking\": true}",
                         .add_generation_prompt = true,
                         .now = 1721995200,
                         .max_steps = 50000}; /* loops that run longer reach nothing more, and take most of the time */
    wf_jinja_output out;
    if (wf_jinja_render(&in, &out) == WEFT_OK) check(&out);
    else if (!*wf_error()) abort();
    wf_jinja_output_free(&out);
    free(messages);
    return 0;
}
