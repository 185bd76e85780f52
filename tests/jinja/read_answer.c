/* read_answer: takes answers apart, for calls.py: reads records of a chat template, tools as JSON, two prompts and the
 * answer (each its length, a line end, and as many bytes). For each writes a line of JSON: the kinds that the template
 * shows, what the answer is, and as "cut" what else it is in pieces. The answer begins inside thoughts if it has only
 * their end, and one of the prompts ends in what opens them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "answers/answer.h"
#include "answers/tool_types.h"

enum { TEMPLATE, TOOLS, PROMPT, OTHER_PROMPT, ANSWER, N_PARTS };

static char *read_part(size_t *len)
{
    if (scanf("%zu", len) != 1 || getchar() != '\n') return NULL;
    char *text = calloc(*len + 1, 1);
    if (!text || fread(text, 1, *len, stdin) != *len) exit(2);
    return text;
}

/* ---- what comes out -------------------------------------------------------------------------------------- */

typedef struct result {
    wf_text text, thoughts, calls;
} result;

static void on_text(void *user, const char *text, size_t len) { wf_text_add(&((result *)user)->text, text, len); }

static void on_thought(void *user, const char *text, size_t len)
{
    wf_text_add(&((result *)user)->thoughts, text, len);
}

static void on_call(void *user, wf_slice id, wf_slice name, wf_slice arguments)
{
    wf_text *calls = &((result *)user)->calls;
    wf_json_print(calls, calls->len ? ",[" : "[");
    wf_json_print(calls, "%.*s,%.*s,%.*s]", (int)id.n, id.n ? id.p : "", (int)name.n, name.p, (int)arguments.n,
                  arguments.p);
}

/* The members of an object. */
static wf_text take_apart(const wf_answer_style *style, const char *text, size_t len, size_t piece)
{
    result r = {0};
    const wf_call_out out = {on_text, on_thought, on_call, &r};
    wf_answer *a = wf_answer_new(style);
    bool good = a != NULL;
    for (size_t at = 0; good && at < len; at += piece)
        good = wf_answer_feed(a, text + at, WF_MIN(piece, len - at), &out);
    if (!good || !wf_answer_end(a, false, &out)) exit(2);
    wf_answer_free(a);
    wf_text all = {0};
    wf_json_print(&all, "'text':"), wf_json_put_string(&all, r.text.data, r.text.len);
    wf_json_print(&all, ",'thoughts':"), wf_json_put_string(&all, r.thoughts.data, r.thoughts.len);
    wf_json_print(&all, ",'calls':["), wf_text_add(&all, r.calls.data, r.calls.len), wf_json_print(&all, "]");
    free(r.text.data);
    free(r.thoughts.data);
    free(r.calls.data);
    return all;
}

/* ---- one record ------------------------------------------------------------------------------------------ */

static bool ends_in(const char *text, size_t len, const char *end)
{
    size_t n = strlen(end);
    while (len && wf_is_blank(text[len - 1])) len--;
    return len >= n && !memcmp(text + len - n, end, n);
}

static bool begins_inside(const wf_thought_kind *k, char *const *part, const size_t *len)
{
    if (!k || !k->open || strstr(part[ANSWER], k->open) || !strstr(part[ANSWER], k->close)) return false;
    return ends_in(part[PROMPT], len[PROMPT], k->open) || ends_in(part[OTHER_PROMPT], len[OTHER_PROMPT], k->open);
}

static void print(char *const *part, const size_t *len)
{
    wf_answer_style style = {.calls = wf_call_kind_of(part[TEMPLATE]), .thoughts = wf_thought_kind_of(part[TEMPLATE])};
    wf_text types = {0};
    wf_json *tools = wf_json_read(part[TOOLS], len[TOOLS], NULL, NULL);
    wf_tool_types_add(&types, tools);
    style.tool_types = &types;
    style.thinking = begins_inside(style.thoughts, part, len);
    wf_text whole = take_apart(&style, part[ANSWER], len[ANSWER], len[ANSWER] + 1), names = {0};
    printf("{%s,", whole.data);
    for (size_t piece = 1, told = 0; piece <= 7; piece += 2) {
        wf_text cut = take_apart(&style, part[ANSWER], len[ANSWER], piece);
        if (strcmp(whole.data, cut.data) && !told++) printf("\"cut\":{%s},", cut.data);
        free(cut.data);
    }
    wf_json_print(&names, "'kind':%s,'thought_kind':%s}", style.calls ? style.calls->name : NULL,
                  style.thoughts ? style.thoughts->name : NULL);
    puts(names.data);
    free(whole.data);
    free(names.data);
    wf_json_free(tools);
    free(types.data);
}

int main(void)
{
    for (;;) {
        char *part[N_PARTS];
        size_t len[N_PARTS];
        for (size_t i = 0; i < N_PARTS; i++)
            if (!(part[i] = read_part(&len[i]))) return i ? 2 : 0;
        print(part, len);
        for (size_t i = 0; i < N_PARTS; i++) free(part[i]);
    }
}
