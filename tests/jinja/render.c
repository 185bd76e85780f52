/* render: renders what it reads from standard input, for compare.py: records of template, messages, tools, further
 * arguments (each its length, a line end, and as many bytes; 0: none) and whether the answer is to begin. For each
 * writes "ok LENGTH RANGES\n", its text and the ranges that came with the data, or "error LENGTH\n" and the message.
 * Fails if it worked for a fifth of a second without asking whether to stop. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "jinja/jinja.h"

#define N_PARTS 5

static uint64_t asked_ns, longest_ns;

static bool ask(void *user)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t); /* whatever else the machine does */
    uint64_t now = (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
    if (!user && now - asked_ns > longest_ns) longest_ns = now - asked_ns;
    asked_ns = now;
    return false;
}

static char *read_part(size_t *len)
{
    if (scanf("%zu", len) != 1 || getchar() != '\n') return NULL;
    char *text = calloc(*len + 1, 1);
    if (!text || fread(text, 1, *len, stdin) != *len) exit(2);
    return text;
}

static void print(weft_status s, const wf_jinja_output *out)
{
    if (s) {
        printf("error %zu\n%s", strlen(wf_error()), wf_error());
        return;
    }
    printf("ok %zu", out->len);
    for (size_t i = 0; i < out->n_data; i++) printf(" %zu %zu", out->data[i].begin, out->data[i].end);
    printf("\n");
    fwrite(out->text, 1, out->len, stdout);
}

int main(void)
{
    for (;;) {
        char *part[N_PARTS];
        size_t len[N_PARTS];
        for (size_t i = 0; i < N_PARTS; i++)
            if (!(part[i] = read_part(&len[i]))) return i ? 2 : 0;
        wf_jinja_input in = {.name = "template",
                             .text = part[0],
                             .len = len[0],
                             .bos = "<s>",
                             .eos = "</s>",
                             .messages = len[1] ? part[1] : "[]",
                             .tools = len[2] ? part[2] : NULL,
                             .kwargs = len[3] ? part[3] : NULL,
                             .add_generation_prompt = len[4] > 0,
                             .now = 1721995200};
        wf_jinja_output out;
        ask(&in);
        wf_stop_by(ask, NULL);
        weft_status s = wf_jinja_render(&in, &out);
        ask(NULL);
        print(s, &out);
        if (longest_ns > 200000000) return fprintf(stderr, "%.60s: asked after %.2f s\n", in.text, longest_ns * 1e-9), 3;
        wf_jinja_output_free(&out);
        for (size_t i = 0; i < N_PARTS; i++) free(part[i]);
    }
}
