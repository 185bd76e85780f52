/* read_answer: takes answers apart, for calls.py: reads records of a chat template, tools as JSON, two prompts and the answer
 * (each its length, a line end, and as many bytes). For each writes a line of JSON: the kinds that the template shows, what the answer is, and as
 * "cut" what else it is in pieces. The answer begins inside thoughts if it has only their end, and one of the prompts ends in what opens them. */
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
    wf_text text, thoughts;
    json_t *calls;
} result;

static void on_text(void *user, const char *text, size_t len)
{
    wf_text_add(&((result *)user)->text, text, len);
}

static void on_thought(void *user, const char *text, size_t len)
{
    wf_text_add(&((result *)user)->thoughts, text, len);
}

static void on_call(void *user, wf_slice id, wf_slice name, wf_slice arguments)
{
    json_t *call = json_array();
    json_array_append_new(call, wf_json_string(id.n ? id.p : "", id.n));
    json_array_append_new(call, wf_json_string(name.p, name.n));
    json_array_append_new(call, wf_json_string(arguments.p, arguments.n));
    json_array_append_new(((result *)user)->calls, call);
}

static json_t *string(wf_text *t)
{
    json_t *s = wf_json_string(t->data ? t->data : "", t->len);
    free(t->data);
    return s;
}

static json_t *take_apart(const wf_answer_style *style, const char *text, size_t len, size_t piece)
{
    result r = {.calls = json_array()};
    const wf_call_out out = {on_text, on_thought, on_call, &r};
    wf_answer *a = wf_answer_new(style);
    bool good = a != NULL;
    for (size_t at = 0; good && at < len; at += piece) good = wf_answer_feed(a, text + at, WF_MIN(piece, len - at), &out);
    if (!good || !wf_answer_end(a, false, &out)) exit(2);
    wf_answer_free(a);
    json_t *all = json_object();
    json_object_set_new(all, "text", string(&r.text));
    json_object_set_new(all, "thoughts", string(&r.thoughts));
    json_object_set_new(all, "calls", r.calls);
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
    json_t *tools = json_loads(part[TOOLS], 0, NULL);
    wf_tool_types_add(&types, tools);
    style.tool_types = &types;
    style.thinking = begins_inside(style.thoughts, part, len);
    json_t *whole = take_apart(&style, part[ANSWER], len[ANSWER], len[ANSWER] + 1);
    for (size_t piece = 1; piece <= 7; piece += 2) {
        json_t *cut = take_apart(&style, part[ANSWER], len[ANSWER], piece);
        if (!json_equal(whole, cut)) json_object_set(whole, "cut", cut);
        json_decref(cut);
    }
    json_object_set_new(whole, "kind", style.calls ? json_string(style.calls->name) : json_null());
    json_object_set_new(whole, "thought_kind", style.thoughts ? json_string(style.thoughts->name) : json_null());
    json_dumpf(whole, stdout, JSON_COMPACT);
    putchar('\n');
    json_decref(whole);
    json_decref(tools);
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
