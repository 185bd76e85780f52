/* answer: thoughts, text and calls of answers, cut at every byte. jinja/calls.py has which kind a template shows. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "answers/answer.h"
#include "support/rows.h"

/* ---- what comes out, as one line ------------------------------------------------------------------------- */

typedef struct result {
    wf_text line;
    char last; /* what the last thing was */
} result;

static void put(result *r, char what, const char *text, size_t len)
{
    assert_true(len > 0);
    if (r->last != what) wf_text_print(&r->line, "%s%c:", r->last ? "|" : "", what);
    wf_text_add(&r->line, text, len);
    r->last = what;
}

static void on_text(void *user, const char *text, size_t len) { put(user, 'T', text, len); }

static void on_thought(void *user, const char *text, size_t len) { put(user, 'H', text, len); }

static void on_call(void *user, wf_slice id, wf_slice name, wf_slice arguments)
{
    result *r = user;
    if (r->last) r->last = 1; /* each call by itself */
    put(r, 'C', name.p, name.n);
    put(r, 'C', arguments.p, arguments.n);
}

typedef struct row {
    const char *thoughts, *calls; /* NULL: not recognised */
    bool inside;
    const char *text, *want;
} row;

/* In pieces of this length, behind a first one. Free it. */
static char *take_apart(const row *t, size_t first, size_t length)
{
    result r = {0};
    wf_call_out out = {on_text, on_thought, on_call, &r};
    const wf_text no_types = {0};
    wf_answer_style style = {.calls = t->calls ? wf_call_kind_named(t->calls) : NULL,
                             .thoughts = t->thoughts ? wf_thought_kind_named(t->thoughts) : NULL,
                             .thinking = t->inside,
                             .tool_types = &no_types};
    wf_answer *a = wf_answer_new(&style);
    assert_non_null(a);
    wf_text_add(&r.line, "", 0);
    for (size_t at = 0, len = strlen(t->text), n; at < len; at += n) {
        n = WF_MIN(at ? length : first, len - at);
        assert_true(wf_answer_feed(a, t->text + at, n, &out));
    }
    assert_true(wf_answer_end(a, true, &out));
    wf_answer_free(a);
    return r.line.data;
}

static void expect(const row *t)
{
    size_t len = strlen(t->text);
    for (size_t first = 1; first <= len + 1; first++)
        for (size_t length = 1; length <= len; length += length < 3 ? 1 : len) {
            char *got = take_apart(t, first, length);
            if (strcmp(got, t->want))
                fail_msg("in pieces of %zu and %zu:\n%s\ngives\n%s\nnot\n%s", first, length, t->text, got, t->want);
            free(got);
        }
}

/* ---- answers --------------------------------------------------------------------------------------------- */

static void expect_row(char *const *column)
{
    expect(&(row){strcmp(column[0], "-") ? column[0] : NULL, strcmp(column[1], "-") ? column[1] : NULL, *column[2] == '+',
                  column[3], column[4]});
}

static void all_answers(void **state)
{
    each_row("tests/unit/answer.txt", 5, expect_row);
}

/* ---- any answer ------------------------------------------------------------------------------------------ */

#define BOTH    "deepseek_r1", "hermes"
#define HARMONY "openai_gptoss", "openai"
#define CH      "<|channel|>"
#define MSG     "<|message|>"
#define NEXT    "<|end|><|start|>assistant"
#define K3      "kimi_k3", "kimi_k3"
#define OPEN(t) "<|open|>" t "<|sep|>"
#define SHUT(t) "<|close|>" t "<|sep|>"

static const char *const words[] = {
    "<think>", "</think>", "<tool_call>", "</tool_call>", "{\"name\": \"f\"}", "<|channel|>", "analysis", "commentary",
    "final", "<|message|>", "<|end|>", "<|start|>", "assistant", "to=functions.f", "<|call|>", "{}", " ", "\n", "x",
    "<", "<|", "\xc3\xa9", CH "analysis" MSG, NEXT CH "final" MSG, NEXT " to=functions.f" CH "commentary" MSG "{}",
    "<tool_call>{\"name\": \"f\"}</tool_call>", "                                                                 ", OPEN("think"), SHUT("think"), OPEN("response"), SHUT("response"),
    OPEN("call tool=\"f\" index=\"1\"") SHUT("call"), " to=self<|message|>", "<|eom|><|start|>assistant", " to=user",
    "<atem:function_calls>\n<atem:invoke name=\"f\">\n<atem:parameter name=\"x\">1</atem:parameter>\n</atem:invoke>\n"
    "</atem:function_calls>", ">>>", "all\n", "f\n{}"};

/* Where it is cut makes no difference. */
static void any_answer(void **state)
{
    static const row kinds[] = {
        {BOTH, false, "", ""}, {BOTH, true, "", ""}, {HARMONY, false, "", ""}, {"openai_gptoss", NULL, false, "", ""},
        {K3, false, "", ""},   {K3, true, "", ""},   {"muse_glimmer", "muse_glimmer", false, "", ""},    {"functionary_v3", "functionary_v3", false, "", ""}};
    size_t n_thoughts = 0, n_calls = 0;
    for (uint64_t seed = 0; seed < 70000; seed++) {
        wf_text t = {0};
        for (size_t i = 0, n = 1 + wf_random(seed, 0) % 14; i < n; i++)
            wf_text_print(&t, "%s", words[wf_random(seed, i + 1) % WF_LEN(words)]);
        row r = kinds[seed % WF_LEN(kinds)];
        r.text = t.data;
        char *whole = take_apart(&r, t.len, 1),
             *pieces = take_apart(&r, 1 + wf_random(seed, 100) % t.len, 1 + wf_random(seed, 101) % 4);
        if (strcmp(whole, pieces)) fail_msg("%s\ngives\n%s\n%s", t.data, whole, pieces);
        n_thoughts += strstr(whole, "H:") != NULL;
        n_calls += strstr(whole, "C:f") != NULL;
        free(whole);
        free(pieces);
        free(t.data);
    }
    assert_true(n_thoughts > 1000 && n_calls > 1000);
}

/* Neither a header without an end nor the body of a call takes more memory than they may. */
static void long_messages(void **state)
{
    static const char *const starts[] = {CH "analysis", "<|start|>", " <|start|>",
                                         CH "commentary to=functions.f" MSG "{"};
    for (size_t k = 0; k < WF_LEN(starts); k++) {
        wf_text t = {0};
        wf_text_print(&t, "%s", starts[k]);
        for (size_t i = 0; i <= WF_CALL_MAX; i++) wf_text_add(&t, "a", 1);
        const row r = {HARMONY, false, t.data, NULL};
        char *whole = take_apart(&r, t.len, 1), *pieces = take_apart(&r, 7, 4096);
        assert_string_equal(whole, pieces);
        assert_int_equal(strlen(whole), 2 + t.len - (k == 3 ? strlen(starts[k]) - 1 : 0));
        free(whole);
        free(pieces);
        free(t.data);
    }
}

SUITE(answer, NULL, NULL, CASE(all_answers), CASE(any_answer), CASE(long_messages))
