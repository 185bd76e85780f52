/* tool_calls: calls in answers of each kind, well-formed and not, cut at every byte. jinja/calls.py has which kind a
 * template shows. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "answers/tool_calls.h"
#include "answers/tool_types.h"
#include "support/rows.h"

/* ---- what comes out, as one line ------------------------------------------------------------------------- */

static void on_text(void *line, const char *text, size_t len)
{
    assert_true(len > 0);
    wf_text_add(line, text, len);
}

static void on_call(void *line, wf_slice id, wf_slice name, wf_slice arguments)
{
    wf_text_print(line, "«%.*s|%.*s|%.*s»", (int)id.n, id.n ? id.p : "", (int)name.n, name.p, (int)arguments.n, arguments.p);
}

/* s of f is a string, and so are items of l, and q of o; x is no string. */
#define TYPES "f\0" "00000011\0" "s\0\2x\0l\1item\0o\1q\0\0" "get_x\0" "00000001\0" /* and the NUL of all strings */
static const wf_text types = {.data = (char *)TYPES, .len = sizeof TYPES};

/* In pieces of this length, behind a first one. Free it. */
static char *take_apart(const char *kind, bool cut, const char *text, size_t len, size_t first, size_t length)
{
    wf_text line = {0};
    wf_call_out out = {.text = on_text, .call = on_call, .user = &line};
    const wf_call_kind *k = wf_call_kind_named(kind);
    assert_non_null(k);
    wf_calls *c = wf_calls_new(k, &types);
    assert_non_null(c);
    wf_text_add(&line, "", 0);
    for (size_t at = 0, n; at < len; at += n) {
        n = WF_MIN(at || !first ? length : first, len - at);
        assert_true(wf_calls_feed(c, text + at, n, &out));
    }
    assert_true(wf_calls_end(c, cut, &out));
    wf_calls_free(c);
    return line.data;
}

static void expect_at(const char *kind, bool cut, const char *text, size_t first, size_t length, const char *want)
{
    char *got = take_apart(kind, cut, text, strlen(text), first, length);
    if (strcmp(got, want))
        fail_msg("%s, in pieces of %zu and %zu:\n%s\ngives\n%s\nnot\n%s", kind, first, length, text, got, want);
    free(got);
}

static void expect(const char *kind, bool cut, const char *text, const char *want)
{
    size_t len = strlen(text);
    expect_at(kind, cut, text, 1, 1, want);
    for (size_t first = 1; first <= len + 1; first++) {
        expect_at(kind, cut, text, first, len, want);
        expect_at(kind, cut, text, first, 3, want);
    }
}

/* ---- answers --------------------------------------------------------------------------------------------- */

/* Of a row: kind, answer, and what comes of it. */
static void expect_row(char *const *column)
{
    bool half = !strncmp(column[0], "half ", 5);
    const char *kind = column[0] + (half ? 5 : 0), *want = strcmp(column[2], "=") ? column[2] : column[1];
    expect(kind, false, column[1], want);
    expect(kind, true, column[1], half ? column[1] : want);
}

static void all_answers(void **state)
{
    each_row("tests/unit/tool_calls.txt", 3, expect_row);
}

/* ---- any answer ------------------------------------------------------------------------------------------ */

#define F        "{\"name\": \"f\", \"arguments\": {\"x\": 1}}"
#define P        "{\"name\": \"f\", \"parameters\": {\"x\": 1}}"
#define NS       "]<]minimax[>["
#define E3(t, v) NS "<" t ">" v NS "</" t ">"
#define A3(key, type, value)                                                                                           \
    "<|open|>argument key=\"" key "\" type=\"" type "\"<|sep|>" value "<|close|>argument<|sep|>"
#define GEMMA(c) "<|tool_call>call:" c "<tool_call|>"
#define LFM(c)   "<|tool_call_start|>[" c "]<|tool_call_end|>"

static const char *const words[] = {
    "<tool_call>", "</tool_call>", "{", "}", "[", "]", "\"", "\\", "\"name\": \"f\"", "\"arguments\": {}", ", ", " ",
    "\n", "x", "<", "é", ";", F, P, "[" F "]", "[TOOL_CALLS]", "[ARGS]", "f", "<|python_tag|>",
    "<|tool_calls_section_begin|>", "<|tool_calls_section_end|>", "<|tool_call_begin|>", "<|tool_call_argument_begin|>",
    "<|tool_call_end|>", "{\"x\": 1}", "                                                                 "};

static const char *const tag_words[] = {
    "<function=f>", "<function=f><parameter=x>", "</parameter></function>", "<parameter=x>", "</parameter>",
    "</function>", "<invoke name=\"f\">", "<parameter name=\"x\">", "<invoke name=\"f\"><parameter name=\"x\">",
    "</parameter></invoke>", "</invoke>", "<tool_call>f", "<tool_call>f<arg_key>x</arg_key><arg_value>",
    "</arg_value></tool_call>", "<arg_key>x</arg_key>", "<arg_value>", "</arg_value>", "<function name=\"f\">",
    "<param name=\"x\">", "<![CDATA[", "]]>", "</param>", "<function name=\"f\"><param name=\"x\">",
    "</param></function>", "<tool_call>", "</tool_call>", " ", "\n", "x", "<", "1",
    "                                                                 "};

static const char *const form_words[] = {
    "<｜DSML｜invoke name=\"f\">", "<｜DSML｜parameter name=\"x\" string=\"", "true\">", "</｜DSML｜parameter>",
    "</｜DSML｜invoke>", NS, "<x>", "</x>", NS "<invoke name=\"f\">", NS "</invoke>", NS "<x>1" NS "</x>", NS "<item>",
    NS "</item>", "<|open|>call tool=\"f\" index=\"1\"<|sep|>", A3("x", "number", "1"),
    "<|open|>json type=\"object\"<|sep|>{}<|close|>json<|sep|>", "<|close|>call<|sep|>", "<|tool_call>call:f", "{x:1}",
    "{x:", "}", "<|\"|>", "<tool_call|>", GEMMA("f{x:1}"), LFM("f(x=1)"), "<|tool_call_start|>[", "f(x=1)", "f(x=", "'",
    ")", "]<|tool_call_end|>", "[", "]", ", ", "1", " ", "\n", "<"};

static wf_text some_answer(uint64_t seed, const wf_call_kind *k)
{
    wf_text t = {0};
    bool forms = k->form || k->tags.string;
    const char *const *list = forms ? form_words : k->tags.key ? tag_words : words;
    size_t n_list = forms ? WF_LEN(form_words) : k->tags.key ? WF_LEN(tag_words) : WF_LEN(words);
    for (size_t i = 0, n = 1 + wf_random(seed, 0) % 14; i < n; i++) {
        const char *w = list[wf_random(seed, i + 1) % n_list];
        wf_text_add(&t, w, strlen(w));
    }
    return t;
}

/* Where it is cut makes no difference, and what has no calls comes out as it went in. */
static void any_answer(void **state)
{
    static const char *const kinds[] = {"hermes",     "mistral", "llama3_json", "kimi_k2",      "qwen3_coder",
                                        "minimax_m2", "glm45",   "minicpm5",    "deepseek_v32", "minimax_m3",
                                        "kimi_k3",    "gemma4",  "lfm2"};
    size_t n_calls[WF_LEN(kinds)] = {0};
    for (uint64_t seed = 0; seed < 97500; seed++) {
        const char *kind = kinds[seed % WF_LEN(kinds)];
        wf_text t = some_answer(seed, wf_call_kind_named(kind));
        size_t first = wf_random(seed, 100) % (t.len + 1), length = 1 + wf_random(seed, 101) % t.len;
        char *whole = take_apart(kind, seed & 8, t.data, t.len, t.len, 1),
             *cut = take_apart(kind, seed & 8, t.data, t.len, first, length),
             *bytes = take_apart(kind, seed & 8, t.data, t.len, 1, 1);
        bool calls = strstr(whole, "«");
        n_calls[seed % WF_LEN(kinds)] += calls;
        if (strcmp(whole, cut) || strcmp(whole, bytes))
            fail_msg("%s: %s\ngives\n%s\n%s\n%s", kind, t.data, whole, cut, bytes);
        if (!calls) assert_string_equal(whole, t.data);
        free(whole);
        free(cut);
        free(bytes);
        free(t.data);
    }
    for (size_t i = 0; i < WF_LEN(kinds); i++)
        if (n_calls[i] < 20) fail_msg("%s: calls in %zu answers", kinds[i], n_calls[i]);
}

/* ---- limits ---------------------------------------------------------------------------------------------- */

/* A call of `len` bytes behind its head, in pieces of `piece`. Returns whether it is one; if not, it is text, and
 * whole. */
static bool long_call(const char *kind, const char *head, const char *start, const char *finish, const char *tail,
                      size_t len, size_t piece)
{
    wf_text t = {0};
    wf_text_print(&t, "%s%s", head, start);
    for (size_t i = strlen(start) + strlen(finish); i < len; i++) wf_text_add(&t, "a", 1);
    wf_text_print(&t, "%s%s", finish, tail);
    char *got = take_apart(kind, false, t.data, t.len, piece, piece);
    bool call = !strncmp(got, "«", 2);
    if (!call) assert_string_equal(got, t.data);
    free(got);
    free(t.data);
    return call;
}

static void long_calls(void **state)
{
    static const struct {
        const char *kind, *head, *start, *finish, *tail;
    } rows[] = {{"hermes", "<tool_call>", "{\"name\": \"f\", \"arguments\": {\"x\": \"", "\"}}", "</tool_call>"},
                {"glm45", "<tool_call>", "f<arg_key>x</arg_key><arg_value>", "</arg_value></tool_call>", ""},
                {"gemma4", "<|tool_call>call:", "f{x:<|\"|>", "<|\"|>}", "<tool_call|>"}};
    for (size_t k = 0; k < WF_LEN(rows); k++)
        for (size_t i = 0; i < 8; i++) {
            size_t len = WF_CALL_MAX - strlen(rows[k].head) - 4 + i;
            const size_t pieces[] = {len, 1000 + i, 1};
            for (size_t p = 0; p < WF_LEN(pieces); p++)
                assert_int_equal(
                    long_call(rows[k].kind, rows[k].head, rows[k].start, rows[k].finish, rows[k].tail, len, pieces[p]),
                    i <= 4);
        }
}

/* As many parameters as a call may have, or calls a list, and one more. */
static void many_parameters(void **state)
{
    static const struct {
        const char *kind, *head, *one, *tail;
    } rows[] = {
        {"qwen3_coder", "<function=f>", "<parameter=p%u>%u</parameter>", "</function>"},
        {"minimax_m3", NS "<invoke name=\"f\">", E3("p%u", "%u"), NS "</invoke>"},
        {"kimi_k3", "<|open|>call tool=\"f\" index=\"1\"<|sep|>", A3("p%u", "number", "%u"), "<|close|>call<|sep|>"},
        {"lfm2", "<|tool_call_start|>[", "f(p%u=%u), ", "]<|tool_call_end|>"}};
    assert_int_equal(WF_MAX_CALLS, WF_MAX_PARAMETERS);
    for (size_t k = 0; k < WF_LEN(rows); k++)
        for (unsigned n = WF_MAX_PARAMETERS; n <= WF_MAX_PARAMETERS + 1; n++) {
            wf_text t = {0};
            wf_text_print(&t, "%s", rows[k].head);
            for (unsigned i = 0; i < n; i++) wf_text_print(&t, rows[k].one, i, i, i);
            wf_text_print(&t, "%s", rows[k].tail);
            char *got = take_apart(rows[k].kind, false, t.data, t.len, t.len, 1);
            assert_int_equal(!strncmp(got, "«|f|{\"p0\": 0", 13), n <= WF_MAX_PARAMETERS);
            if (n > WF_MAX_PARAMETERS) assert_string_equal(got, t.data);
            free(got);
            free(t.data);
        }
}

/* Lists within a parameter may be longer. */
static void many_items(void **state)
{
    wf_text t = {0};
    wf_text_print(&t, "%s", NS "<invoke name=\"f\">" NS "<l>");
    for (unsigned i = 0; i < 4 * WF_MAX_PARAMETERS; i++) wf_text_print(&t, "%s", E3("item", "1"));
    wf_text_print(&t, "%s", NS "</l>" NS "</invoke>");
    char *got = take_apart("minimax_m3", false, t.data, t.len, t.len, 1);
    assert_int_equal(strncmp(got, "«|f|{\"l\": [\"1\", \"1\"", 19), 0);
    free(got);
    free(t.data);
}

static void add_tools(wf_text *types, wf_text *json)
{
    wf_json *tools = wf_json_read(json->data, json->len, NULL, NULL);
    assert_non_null(tools);
    wf_tool_types_add(types, tools);
    wf_json_free(tools);
    free(json->data);
}

/* Two tools with more strings than are kept of one: each has its first ones. */
static void many_strings(void **state)
{
    wf_text t = {0}, text = {0};
    wf_text_print(&text, "[");
    for (int k = 0; k < 2; k++) {
        wf_json_comma(&text);
        wf_json_print(&text, "{'function':{'name':%s,'parameters':{'properties':{", k ? "g" : "f");
        for (int i = 0; i <= WF_TOOL_STRINGS_MAX; i++)
            wf_json_comma(&text), wf_json_print(&text, "'p%d':{'type':'string'}", i);
        wf_text_print(&text, "}}}}");
    }
    wf_text_print(&text, "]");
    add_tools(&t, &text);
    const char *strings = wf_tool_strings(&t, (wf_slice){"g", 1});
    unsigned n = 0;
    for (const char *at = strings; at && *at; at += strlen(at) + 1) n++;
    assert_int_equal(n, WF_TOOL_STRINGS_MAX);
    assert_true(wf_tool_string_in(strings, (wf_slice){"p0", 2}));
    free(t.data);
}

/* Each of many tools is found, with what is its own, and no other name is. */
static void many_tools(void **state)
{
    wf_text t = {0}, text = {0};
    char name[16];
    wf_text_print(&text, "[");
    for (int i = 0; i < 1500; i++) {
        wf_json_comma(&text);
        wf_json_print(&text, "{'function':{'name':'f%d','parameters':{'properties':{", i);
        if (i % 3) wf_json_print(&text, "'p%d':{'type':'string'}", i);
        wf_text_print(&text, "}}}}");
    }
    wf_text_print(&text, "]");
    add_tools(&t, &text);
    for (int i = 0; i < 1500; i++) {
        size_t n = (size_t)snprintf(name, sizeof name, "f%d", i);
        const char *strings = wf_tool_strings(&t, (wf_slice){name, n});
        assert_non_null(strings);
        name[0] = 'p';
        assert_int_equal(wf_tool_string_in(strings, (wf_slice){name, n}), i % 3 != 0);
        assert_null(wf_tool_strings(&t, (wf_slice){name, n}));
    }
    assert_null(wf_tool_strings(&t, (wf_slice){"00000001", 8}));
    free(t.data);
}

/* Openings without an end take no more time or memory than their text. */
static void many_openings(void **state)
{
    static const char *const rows[][2] = {{"hermes", "<tool_call>{"},
                                          {"glm45", "<tool_call>f<arg_key>x</arg_key><arg_value>"},
                                          {"qwen3_coder", "<function=f>"},
                                          {"gemma4", "<|tool_call>call:f{x:<|\"|>"},
                                          {"gemma4", "<|tool_call>call:f{x:<|\"|><tool_call|>"},
                                          {"gemma4", "<|tool_call>call:f{x:[[[[<tool_call|>"},
                                          {"lfm2", "<|tool_call_start|>[f(x=' "},
                                          {"minimax_m3", NS "<invoke name=\"f\">" NS "<x>"}};
    for (size_t k = 0; k < WF_LEN(rows); k++) {
        wf_text line = {0};
        wf_call_out out = {.text = on_text, .call = on_call, .user = &line};
        wf_calls *c = wf_calls_new(wf_call_kind_named(rows[k][0]), &types);
        size_t len = strlen(rows[k][1]), n = 2400000 / len;
        for (size_t i = 0; i < n; i++) assert_true(wf_calls_feed(c, rows[k][1], len, &out));
        assert_true(line.len + WF_CALL_MAX + 100 > n * len); /* only so much is held back */
        assert_true(wf_calls_end(c, true, &out));
        assert_int_equal(line.len, n * len);
        wf_calls_free(c);
        free(line.data);
    }
}

SUITE(tool_calls, NULL, NULL, CASE(all_answers), CASE(any_answer), CASE(long_calls),
      CASE(many_parameters), CASE(many_items), CASE(many_strings), CASE(many_tools), CASE(many_openings))
