/* tool_calls: calls in answers of each kind, well-formed and not, cut at every byte; and which kind the templates of
 * the test data show. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "answers/tool_calls.h"
#include "answers/tool_types.h"
#include "support/data.h"
#include "support/skip.h"
#include "support/suite.h"

/* ---- what comes out, as one line ------------------------------------------------------------------------- */

typedef struct result {
    wf_text line;
    bool text; /* the last thing was text */
} result;

static void on_text(void *user, const char *text, size_t len)
{
    result *r = user;
    assert_true(len > 0);
    if (!r->text) wf_text_add(&r->line, "T:", 2);
    wf_text_add(&r->line, text, len);
    r->text = true;
}

static void on_call(void *user, wf_slice id, wf_slice name, wf_slice arguments)
{
    result *r = user;
    wf_text_add(&r->line, "\1C:", 3);
    wf_text_add(&r->line, id.p ? id.p : "", id.n);
    wf_text_add(&r->line, "|", 1);
    wf_text_add(&r->line, name.p, name.n);
    wf_text_add(&r->line, "|", 1);
    wf_text_add(&r->line, arguments.p, arguments.n);
    wf_text_add(&r->line, "\1", 1);
    r->text = false;
}

/* s of f is a string, and so are items of l, and q of o; x is no string. */
#define TYPES "f\0" "00000011\0" "s\0\2x\0l\1item\0o\1q\0\0" "get_x\0" "00000001\0" /* and the NUL of all strings */
static const wf_text types = {.data = (char *)TYPES, .len = sizeof TYPES};

/* In pieces of this length, behind a first one. Free it. */
static char *take_apart(const char *kind, bool cut, const char *text, size_t len, size_t first, size_t length)
{
    result r = {0};
    wf_call_out out = {.text = on_text, .call = on_call, .user = &r};
    const wf_call_kind *k = wf_call_kind_named(kind);
    assert_non_null(k);
    wf_calls *c = wf_calls_new(k, &types);
    assert_non_null(c);
    wf_text_add(&r.line, "", 0);
    for (size_t at = 0, n; at < len; at += n) {
        n = WF_MIN(at || !first ? length : first, len - at);
        assert_true(wf_calls_feed(c, text + at, n, &out));
    }
    assert_true(wf_calls_end(c, cut, &out));
    wf_calls_free(c);
    return r.line.data;
}

static void expect_at(const char *kind, bool cut, const char *text, size_t first, size_t length, const char *want)
{
    char *got = take_apart(kind, cut, text, strlen(text), first, length);
    if (strcmp(got, want))
        fail_msg("%s, in pieces of %zu and %zu:\n%s\ngives\n%s\nnot\n%s", kind, first, length, text, got, want);
    free(got);
}

static void expect_end(const char *kind, bool cut, const char *text, const char *want)
{
    size_t len = strlen(text);
    expect_at(kind, cut, text, 1, 1, want);
    for (size_t first = 1; first <= len + 1; first++) {
        expect_at(kind, cut, text, first, len, want);
        expect_at(kind, cut, text, first, 3, want);
    }
}

/* Whether the answer ended by itself or was cut. */
static void expect(const char *kind, const char *text, const char *want)
{
    expect_end(kind, false, text, want);
    expect_end(kind, true, text, want);
}

/* ---- answers --------------------------------------------------------------------------------------------- */

#define CALL(id, name, arguments) "\1C:" id "|" name "|" arguments "\1"
#define F                         "{\"name\": \"f\", \"arguments\": {\"x\": 1}}"
#define P                         "{\"name\": \"f\", \"parameters\": {\"x\": 1}}"
#define F1S                       "\"{\\\"x\\\": 1}\""
#define FSX                       CALL("", "f", "{\"s\": \"5\", \"x\": 1}")
#define F1                        CALL("", "f", "{\"x\": 1}")

static const struct {
    const char *kind, *text, *want;
} answers[] = {
    {"hermes", "", ""},
    {"hermes", "Hello \n", "T:Hello \n"},
    {"hermes", "<tool_call>\n" F "\n</tool_call>", F1},
    {"hermes", "\n\n<tool_call>" F "</tool_call>\n", F1},
    {"hermes", "Let me look. \n<tool_call>\n" F "\n</tool_call>\n<tool_call>\n" F "\n</tool_call>\n",
     "T:Let me look. \n" F1 F1},
    {"hermes", "<tool_call>" F "</tool_call>\n That was it.", F1 "T:\n That was it."},
    {"hermes", "<tool_call>" F, F1}, /* only what closes it is missing */
    {"hermes", "<tool_call>" F "\n</tool", F1},
    {"hermes", "<tool_call>[" F "," F "]</tool_call>", F1 F1},
    {"hermes",
     "<tool_call>{\"arguments\": {\"b\": \"\\\"}</tool_call>é\", \"a\" : [ {} ] }, \"name\": \"get_x\"}</tool_call>",
     CALL("", "get_x", "{\"b\": \"\\\"}</tool_call>é\", \"a\" : [ {} ] }")},
    {"hermes", "<tool_call>{\"name\": \"other\"}</tool_call>", CALL("", "other", "{}")},
    {"hermes", "<tool_call>{\"name\": \"f\", \"arguments\": null}</tool_call>", CALL("", "f", "{}")},
    {"hermes", "<tool_call>{\"name\": \"f\", \"arguments\": \"\"}</tool_call>", CALL("", "f", "{}")},
    /* the text of an object */
    {"hermes", "<tool_call>{\"name\": \"f\", \"arguments\": " F1S "}</tool_call>", F1},
    {"hermes", "<tool_call>[{\"arguments\": " F1S ", \"name\": \"f\"}, " F "]</tool_call>", F1 F1},
    {"mistral", "[TOOL_CALLS]f[ARGS]" F1S "[TOOL_CALLS]f[ARGS]\"x\"", F1 "T:[TOOL_CALLS]f[ARGS]\"x\""},
    {"llama3_json", "{\"name\": \"f\", \"parameters\": " F1S "}", F1},
    {"apertus", "<|tools_prefix|>[{\"f\": " F1S "}]<|tools_suffix|>", F1},
    {"lfm2", "<|tool_call_start|>{\"name\": \"f\", \"arguments\": " F1S "}<|tool_call_end|>", F1},
    {"kimi_k2",
     "<|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>" F1S "<|tool_call_end|>",
     CALL("functions.f:0", "f", "{\"x\": 1}")},
    /* no calls: text as it is */
    {"hermes", "a < b <tool", "T:a < b <tool"},
    {"hermes", "<tool_call", "T:<tool_call"},
    {"hermes", "<tool_call>", "T:<tool_call>"},
    {"hermes", " <tool_call> no", "T: <tool_call> no"},
    {"hermes", "<tool_call>{}</tool_call>", "T:<tool_call>{}</tool_call>"},
    {"hermes", "x <tool_call>[]</tool_call> ", "T:x <tool_call>[]</tool_call> "},
    {"hermes", "<tool_call>{\"name\": \"f\", \"arguments\": \"x\"}</tool_call>",
     "T:<tool_call>{\"name\": \"f\", \"arguments\": \"x\"}</tool_call>"},
    {"hermes", "<tool_call>{\"name\": \"a b\", \"arguments\": {}}</tool_call>",
     "T:<tool_call>{\"name\": \"a b\", \"arguments\": {}}</tool_call>"},
    {"hermes", "<tool_call>{\"name\": 5, \"arguments\": {}}</tool_call>",
     "T:<tool_call>{\"name\": 5, \"arguments\": {}}</tool_call>"},
    {"hermes", "<tool_call>{'name': 'f'}</tool_call>", "T:<tool_call>{'name': 'f'}</tool_call>"},
    {"hermes", "<tool_call>{\"name\": \"f\", \"arguments\": {\"x\": 01}}</tool_call>",
     "T:<tool_call>{\"name\": \"f\", \"arguments\": {\"x\": 01}}</tool_call>"},
    {"hermes", "<tool_call>" F "}</tool_call>", "T:<tool_call>" F "}</tool_call>"},
    {"hermes", "<tool_call>{\"name\": \"f\"", "T:<tool_call>{\"name\": \"f\""},
    {"hermes", "</tool_call> x", "T:</tool_call> x"},
    {"hermes", "<tool_call>[" F ", 5]</tool_call>", "T:<tool_call>[" F ", 5]</tool_call>"}, /* all of a list or none */
    /* what is none hides no call */
    {"hermes", "<tool_call><tool_call>" F "</tool_call>", "T:<tool_call>" F1},
    {"hermes", "<<tool_call>" F "</tool_call>", "T:<" F1},
    {"hermes", "<tool_call>{]</tool_call><tool_call>" F "</tool_call>", "T:<tool_call>{]</tool_call>" F1},
    {"hermes", "<tool_call>{\"name\n<tool_call>" F "</tool_call>", "T:<tool_call>{\"name\n" F1},
    {"hermes", "<tool_call>" F "</tool_call> <tool_call>oh", F1 "T: <tool_call>oh"},
    {"hermes", " " F "\n", F1}, /* bare */
    {"hermes", F "\n</tool_call>\n<tool_call>" F "</tool_call>", F1 F1},
    {"hermes", F "\nSo it is.", F1 "T:\nSo it is."},
    {"hermes", "Text " F, "T:Text " F},
    {"hermes", "{\"name\": \"Tom\", \"arguments\": {}}", "T:{\"name\": \"Tom\", \"arguments\": {}}"},
    {"hermes", "{ \"x\": " F "}", "T:{ \"x\": " F "}"},
    {"hermes", "{\"name\": \"f\"", "T:{\"name\": \"f\""},
    {"mistral", "[TOOL_CALLS][" F "]", F1},
    {"mistral", "[TOOL_CALLS] [{\"name\": \"f\", \"arguments\": {\"x\": 1}, \"id\": \"abcdefghi\"}, " F "]", F1 F1},
    {"mistral", "Sure.[TOOL_CALLS]f[ARGS]{\"x\": 1}[TOOL_CALLS]get_x[ARGS]{}", "T:Sure." F1 CALL("", "get_x", "{}")},
    {"mistral", "[TOOL_CALLS]f[CALL_ID]abcdefghi[ARGS]{\"x\": 1}", F1},
    {"mistral", "[TOOL_CALLS]f[ARGS][1]", "T:[TOOL_CALLS]f[ARGS][1]"},
    {"mistral", "[TOOL_CALLS]f[ARGS]", "T:[TOOL_CALLS]f[ARGS]"},
    {"mistral", "[TOOL_CALLS][ARGS]{}", "T:[TOOL_CALLS][ARGS]{}"},
    {"mistral", "[TOOL] [1, 2]", "T:[TOOL] [1, 2]"},
    {"llama3_json", P, F1},
    {"llama3_json", "\n" P " ", F1},
    {"llama3_json", "<|python_tag|>" P, F1},
    {"llama3_json", P "; " P, F1 F1},
    {"llama3_json", P ";<|python_tag|>x", F1 "T:;<|python_tag|>x"},
    {"llama3_json", "{\"type\": \"function\", \"name\": \"get_x\", \"parameters\": {}}", CALL("", "get_x", "{}")},
    {"llama3_json", "Text " P, "T:Text " P}, /* only at the beginning */
    {"llama3_json", "{\"name\": \"Tom\", \"parameters\": {}}",
     "T:{\"name\": \"Tom\", \"parameters\": {}}"}, /* JSON that was asked for */
    {"llama3_json", "{\"a\": [1]} " P, "T:{\"a\": [1]} " P},
    {"llama3_json", "{}", "T:{}"},
    {"llama3_json", "{ is a bracket", "T:{ is a bracket"},
    {"llama3_json", "<|python_tag|>print(1)", "T:<|python_tag|>print(1)"},
    {"nemotron", "<TOOLCALL>[" F ", " F "]</TOOLCALL>", F1 F1},
    {"apriel", "I think.\n<tool_calls>[" F "]</tool_calls>\n", "T:I think.\n" F1},
    {"phi4_mini_json", "<|tool_call|>[" F "]<|/tool_call|>", F1},
    {"granite", "<|tool_call|>[" F "]", F1},
    {"granite", "<|tool_call|> " F " more", F1 "T: more"},
    {"firefunction", " functools[" F "]", F1},
    {"firefunction", "functools are", "T:functools are"},
    {"cohere",
     "<|START_ACTION|>[\n    {\"tool_call_id\": \"0\", \"tool_name\": \"f\", \"parameters\": {\"x\": "
     "1}}\n]<|END_ACTION|>",
     F1},
    {"kimi_k2",
     "Hm.<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{\"x\": "
     "1}<|tool_call_end|><|tool_call_begin|>functions.get_x:1"
     "<|tool_call_argument_begin|>{}<|tool_call_end|><|tool_calls_section_end|>",
     "T:Hm." CALL("functions.f:0", "f", "{\"x\": 1}") CALL("functions.get_x:1", "get_x", "{}")},
    {"kimi_k2", "<|tool_calls_section_begin|>x<|tool_calls_section_end|>",
     "T:<|tool_calls_section_begin|>x<|tool_calls_section_end|>"},
    {"deepseek_v31",
     "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{\"x\": 1}<｜tool▁call▁end｜><｜tool▁calls▁end｜>", F1},
    {"deepseek_v31", "é<｜tool▁calls▁end｜>", "T:é<｜tool▁calls▁end｜>"},
    {"deepseek_v3",
     "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n{\"x\": "
     "1}\n```<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>get_x\n```json\n{}\n```"
     "<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
     F1 CALL("", "get_x", "{}")},
};

static void all_answers(void **state)
{
    for (size_t i = 0; i < WF_LEN(answers); i++) expect(answers[i].kind, answers[i].text, answers[i].want);
}

/* ---- answers with tags ----------------------------------------------------------------------------------- */

#define QWEN(name, parameters)    "<tool_call>\n<function=" name ">\n" parameters "</function>\n</tool_call>"
#define Q(key, value)             "<parameter=" key ">\n" value "\n</parameter>\n"
#define MINIMAX(name, parameters)                                                                                      \
    "<minimax:tool_call>\n<invoke name=\"" name "\">\n" parameters "</invoke>\n</minimax:tool_call>"
#define M(key, value)             "<parameter name=\"" key "\">" value "</parameter>\n"
#define GLM(name, parameters)     "<tool_call>" name "\n" parameters "</tool_call>"
#define G(key, value)             "<arg_key>" key "</arg_key>\n<arg_value>" value "</arg_value>\n"
#define CPM(name, parameters)     "<function name=\"" name "\">" parameters "</function>"
#define P5(key, value)            "<param name=\"" key "\">" value "</param>"

/* want: NULL: the text itself. */
static const struct {
    const char *kind, *text, *want;
} tagged[] = {
    {"qwen3_coder", QWEN("f", Q("x", "1")), F1},
    {"qwen3_coder", "So:\n" QWEN("f", Q("x", "1")) "\n" QWEN("get_x", "") "\n", "T:So:\n" F1 CALL("", "get_x", "{}")},
    {"qwen3_coder", QWEN("f", Q("x", "1")) "\nDone.", F1 "T:\nDone."},
    {"qwen3_coder", "<function=f><parameter=x>1</parameter></function>", F1}, /* without what stands around it */
    {"qwen3_coder", QWEN("f", Q("s", "5") Q("x", "5")), CALL("", "f", "{\"s\": \"5\", \"x\": 5}")}, /* by the type */
    {"qwen3_coder", QWEN("f", Q("s", "\n a\t\"\\ \n")),
     CALL("", "f", "{\"s\": \"\\n a\\t\\\"\\\\ \\n\"}")}, /* one line end on each side is not of the value */
    {"qwen3_coder", QWEN("f", "<parameter=s></parameter>" Q("t", "") Q("u", "\n")),
     CALL("", "f", "{\"s\": \"\", \"t\": \"\", \"u\": \"\\n\"}")},
    {"qwen3_coder",
     QWEN("other", Q("a", "[1, {\"b\": null}]") Q("c", "[1,") Q("d", "True") Q("e", " None ") Q("f", "1.50")),
     CALL("", "other", "{\"a\": [1, {\"b\": null}], \"c\": \"[1,\", \"d\": true, \"e\": null, \"f\": 1.50}")},
    {"qwen3_coder", QWEN("f", Q("x", "1") Q("s", "a") Q("x", "2")),
     CALL("", "f", "{\"s\": \"a\", \"x\": 2}")}, /* the last one counts */
    {"qwen3_coder", QWEN("f", Q("s", "<tool_call>{}</tool_call></function></parameter>b</tool_call><parameter=y>")),
     CALL("", "f", "{\"s\": \"<tool_call>{}</tool_call></function></parameter>b</tool_call><parameter=y>\"}")},
    {"qwen3_coder", QWEN("f", Q("a\"b", "\xc3\xa9")), CALL("", "f", "{\"a\\\"b\": \"\xc3\xa9\"}")},
    {"qwen3_coder", "<tool_call>{\"name\": \"f\"}</tool_call>", NULL},
    {"qwen3_coder", "<function=a b><parameter=x>1</parameter></function>", NULL},
    {"qwen3_coder", "<function=f>\n1</function>", NULL},
    {"qwen3_coder", "<function=f><parameter=>1</parameter></function>", NULL},
    {"qwen3_coder", "<function=f><parameter=x>1</parameter>2</function>", NULL},
    {"qwen3_coder", "<function=f><parameter=x>1</param", NULL},
    {"qwen3_coder", "<function=f><parameter=x>1</parameter><parameter=y>", NULL},
    {"qwen3_coder", "<function=f><parameter=x>1</parameter><", NULL},
    {"qwen3_coder", "<function=f><parameter=x>1</parameter>\n</", F1}, /* cut, but nothing can come in between */
    {"qwen3_coder", "<tool_call>\n<function=f><parameter=x>1</parameter></function>\n</tool_c", F1},
    {"qwen3_coder", "if (a <function= b) </tool_call> x", NULL},
    {"qwen3_coder", "<function=f><function=f><parameter=x>1</parameter></function>",
     "T:<function=f>" F1}, /* what is none hides no call */
    /* end tags are missing before lines that open what is known */
    {"qwen3_coder", QWEN("f", "<parameter=s>\n5\n" Q("x", "1")), FSX},
    {"qwen3_coder", QWEN("f", "<parameter=s>\n5\n<parameter=x>\n1\n") "\n" QWEN("f", Q("x", "1")), FSX F1},
    {"qwen3_coder", "<tool_call>\n<function=f>\n" Q("x", "1") "</tool_call>\n" QWEN("f", Q("x", "1")), F1 F1},
    {"qwen3_coder", "<function=f>\n" Q("x", "1") "<function=get_x>\n</function>", F1 CALL("", "get_x", "{}")},
    {"qwen3_coder", "<tool_call>\n<function=f>\n<parameter=x>\n1\n" QWEN("f", Q("x", "1")), F1 F1},
    {"qwen3_coder", QWEN("f", "<parameter=s>\n5\n<parameter=y>\n1\n</parameter>\n"),
     CALL("", "f", "{\"s\": \"5\\n<parameter=y>\\n1\"}")}, /* it is not known */
    {"qwen3_coder", QWEN("f", Q("s", "a\n<parameter=x>\n1\n</parameter>.")),
     CALL("", "f", "{\"s\": \"a\\n<parameter=x>\\n1\\n</parameter>.\"}")}, /* it is closed within */
    {"qwen3_coder", QWEN("f", Q("s", "a <parameter=x>\n<function=g>")),
     CALL("", "f", "{\"s\": \"a <parameter=x>\\n<function=g>\"}")},
    {"minimax_m2", MINIMAX("f", "<parameter name=\"s\">5\n" M("x", "1")), FSX},
    {"glm45", GLM("f", "<arg_key>s</arg_key>\n<arg_value>5\n" G("x", "1")), FSX},
    {"minimax_m2", MINIMAX("f", M("x", "1")), F1},
    {"minimax_m2",
     "<minimax:tool_call>\n<invoke name=\"f\">" M(
         "x", "1") "</invoke>\n<invoke name=\"get_x\">\n</invoke>\n</minimax:tool_call>",
     F1 CALL("", "get_x", "{}")},
    {"minimax_m2", MINIMAX("f", M("s", "\n1\n")), CALL("", "f", "{\"s\": \"\\n1\\n\"}")},
    {"minimax_m2", "<invoke name='f'></invoke>", NULL},
    {"glm45", GLM("f", G("x", "1")), F1},
    {"glm45", "<tool_call>f<arg_key>x</arg_key><arg_value>1</arg_value></tool_call><tool_call>get_x</tool_call>",
     F1 CALL("", "get_x", "{}")},
    {"glm45", "Hm." GLM("f", G("s", "</arg_value> <arg_value>")),
     "T:Hm." CALL("", "f", "{\"s\": \"</arg_value> <arg_value>\"}")},
    {"glm45", "<tool_call>f<arg_key>x</arg_key>1<arg_value>1</arg_value></tool_call>", NULL},
    {"glm45", "<tool_call>f", NULL},
    {"minicpm5", CPM("f", P5("x", "1")) CPM("get_x", ""), F1 CALL("", "get_x", "{}")},
    {"minicpm5", CPM("f", P5("s", "<![CDATA[<b>\n</param></function>]] >]]>")),
     CALL("", "f", "{\"s\": \"<b>\\n</param></function>]] >\"}")},
    {"minicpm5", CPM("f", P5("x", "\n<![CDATA[[1]]]>\n")), CALL("", "f", "{\"x\": [1]}")},
    {"minicpm5", CPM("f", P5("s", "a<![CDATA[b]]>")), CALL("", "f", "{\"s\": \"a<![CDATA[b]]>\"}")},
};

/* ---- answers in forms of their own ----------------------------------------------------------------------- */

#define DSML(name, parameters)                                                                                         \
    "\n\n<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"" name "\">\n" parameters                                    \
    "</｜DSML｜invoke>\n</｜DSML｜function_calls>"
#define D(key, string, value)                                                                                          \
    "<｜DSML｜parameter name=\"" key "\" string=\"" string "\">" value "</｜DSML｜parameter>\n"
#define NS                        "]<]minimax[>["
#define M3(name, elements)                                                                                             \
    NS "<tool_call>\n" NS "<invoke name=\"" name "\">" elements NS "</invoke>\n" NS "</tool_call>"
#define E3(tag, value)            NS "<" tag ">" value NS "</" tag ">"
#define K3(name, elements)        "<|open|>call tool=\"" name "\" index=\"1\"<|sep|>" elements "<|close|>call<|sep|>"
#define A3(key, type, value)                                                                                           \
    "<|open|>argument key=\"" key "\" type=\"" type "\"<|sep|>" value "<|close|>argument<|sep|>"
#define GEMMA(call)               "<|tool_call>call:" call "<tool_call|>"
#define GQ(text)                  "<|\"|>" text "<|\"|>"
#define LFM(calls)                "<|tool_call_start|>[" calls "]<|tool_call_end|>"

/* want: NULL: the text itself. */
static const struct {
    const char *kind, *text, *want;
} formed[] = {
    {"deepseek_v32", "Hm." DSML("f", D("x", "false", "1")), "T:Hm.\n\n" F1},
    {"deepseek_v32", DSML("f", D("x", "true", "1") D("s", "false", "1")),
     CALL("", "f", "{\"x\": \"1\", \"s\": 1}")}, /* the model says the type */
    {"deepseek_v32", DSML("get_x", "\n"), CALL("", "get_x", "{}")},
    {"deepseek_v32", DSML("f", D("s", "true", "</｜DSML｜invoke>\n")),
     CALL("", "f", "{\"s\": \"</｜DSML｜invoke>\\n\"}")},
    {"deepseek_v32", "<｜DSML｜invoke name=\"f\"><｜DSML｜parameter name=\"x\">1</｜DSML｜parameter></｜DSML｜invoke>",
     NULL},
    {"deepseek_v32", "<｜DSML｜invoke name=\"f\">" D("x", "abcdefghijklmnopq", "1"), NULL},
    {"deepseek_v32", "<｜DSML｜invoke name=\"f\"><｜DSML｜parameter name=\"x\" string=\"tr", NULL},
    {"deepseek_v4",
     "<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"f\">\n" D("x", "false",
                                                             "1") "</｜DSML｜invoke>\n</｜DSML｜tool_calls>",
     F1},
    {"muse_glimmer",
     "<atem:function_calls>\n<atem:invoke name=\"f\">\n<atem:parameter "
     "name=\"x\">1</atem:parameter>\n</atem:invoke>\n</atem:function_calls>",
     F1},
    {"hy_v3",
     "<tool_calls:opensource>\n<tool_call:opensource>f<tool_sep:opensource>\n<arg_key:opensource>x</"
     "arg_key:opensource>\n<arg_value:opensource>1</arg_value:opensource>\n"
     "</tool_call:opensource>\n<tool_call:opensource>get_x<tool_sep:opensource>\n</tool_call:opensource>\n</"
     "tool_calls:opensource>",
     F1 CALL("", "get_x", "{}")},
    {"minimax_m3", M3("f", E3("x", "1")), F1},
    {"minimax_m3",
     "Hm." NS "<tool_call>\n" NS "<invoke name=\"f\">" E3("x", "1") NS "</invoke>\n" NS "<invoke name=\"get_x\">" NS
                                                                       "</invoke>\n" NS "</tool_call>\n",
     "T:Hm." F1 CALL("", "get_x", "{}")},
    {"minimax_m3", M3("f", E3("s", "5") E3("t", E3("item", "5") E3("item", E3("a", "<b>") E3("item", "")))),
     CALL("", "f", "{\"s\": \"5\", \"t\": [5, {\"a\": \"<b>\", \"item\": \"\"}]}")},
    {"minimax_m3", M3("f", E3("l", E3("item", "5")) E3("o", E3("q", "5"))),
     CALL("", "f", "{\"l\": [\"5\"], \"o\": {\"q\": \"5\"}}")},               /* by types within */
    {"minimax_m3", M3("f", E3("item", "1")), CALL("", "f", "{\"item\": 1}")}, /* arguments are an object */
    {"minimax_m3", M3("f", NS "<x>1" NS "</y>"), NULL},
    {"minimax_m3", M3("f", E3("l", E3("item", "1") E3("x", "1"))), NULL},
    {"minimax_m3", M3("a b", ""), NULL},
    {"minimax_m3", M3("f", "x"), NULL},
    {"minimax_m3", NS "<invoke name=\"f\">" NS "<invoke name=\"f\">" E3("x", "1") NS "</invoke>",
     "T:" NS "<invoke name=\"f\">" F1},
    /* what is none hides no call */
    {"kimi_k3", "<|open|>tools<|sep|>" K3("f", A3("x", "number", "1")) K3("get_x", "") "<|close|>tools<|sep|>",
     F1 CALL("", "get_x", "{}")},
    {"kimi_k3", K3("f", A3("x", "string", "1") A3("a&amp;&quot;b", "object", "{\"c\": []}")),
     CALL("", "f", "{\"x\": \"1\", \"a&\\\"b\": {\"c\": []}}")},
    {"kimi_k3", K3("f", "<|open|>json type=\"object\"<|sep|>{\"x\": 1}<|close|>json<|sep|>"), F1},
    {"kimi_k3", K3("f", "<|open|>json type=\"object\"<|sep|>1, \"name\": \"g\"<|close|>json<|sep|>"), NULL},
    {"kimi_k3", K3("f", "<|open|>argument key=\"x\"<|sep|>1<|close|>argument<|sep|>"), NULL},
    {"kimi_k3", K3("f", A3("s", "string", "<|close|>call<|sep|>")), CALL("", "f", "{\"s\": \"<|close|>call<|sep|>\"}")},
    {"gemma4", GEMMA("f{x:1}"), F1},
    {"gemma4", "Hm.\n" GEMMA("f{x:1}") GEMMA("get_x{}") "\n", "T:Hm.\n" F1 CALL("", "get_x", "{}")},
    {"gemma4", GEMMA("f{s:" GQ("a\"{}\\ <tool_call|>") ",l:[1,true, None,{" GQ("a b") ":-0.5e1}]}"),
     CALL("", "f", "{\"s\": \"a\\\"{}\\\\ <tool_call|>\", \"l\": [1, true, null, {\"a b\": -0.5e1}]}")},
    {"gemma4", GEMMA("f{ \"x\" : 1}"), F1}, /* JSON, as it should not be */
    {"gemma4", GEMMA("f{\"a\\\"{}:b\":\"x, \\\\\", s :\"\",l:[\"}<tool_call|>\"]}"),
     CALL("", "f", "{\"a\\\"{}:b\": \"x, \\\\\", \"s\": \"\", \"l\": [\"}<tool_call|>\"]}")},
    {"gemma4", GEMMA("f{\n x :1}"), F1},
    {"gemma4", GEMMA("f{a b:1}"), CALL("", "f", "{\"a b\": 1}")},
    {"gemma4", GEMMA("f{'x':1}"), NULL}, /* 'x' is no parameter */
    {"gemma4", GEMMA("f{x\":1}"), NULL},
    {"gemma4", GEMMA("f{\"x\"y:1}"), NULL},
    {"gemma4", GEMMA("f{x:\"\\q\"}"), NULL},
    {"gemma4", GEMMA("f{ :1}"), NULL},
    {"gemma4", GEMMA("f{x:}"), NULL},
    {"gemma4", GEMMA("f{x:one}"), NULL},
    {"gemma4", GEMMA("f{x:1}}"), NULL},
    {"gemma4", GEMMA("f(x=1)"), NULL},
    {"gemma4", "<|tool_call>call:f{x:1", NULL},
    {"gemma4", "<|tool_call>call:f{x:1}", F1},
    {"gemma4", "<|tool_call>call:f{x:1}<tool_", F1},
    {"gemma4", "<|tool_call>call:f{" GEMMA("f{x:1}"), "T:<|tool_call>call:f{" F1},
    {"gemma4", GEMMA("f{x:" GQ("a")) GEMMA("f{x:1}"), "T:<|tool_call>call:f{x:<|\"|>a<|\"|><tool_call|>" F1},
    {"lfm2", LFM("f(x=1)"), F1},
    {"lfm2", "Hm." LFM("f(x=1), get_x()") "\n", "T:Hm." F1 CALL("", "get_x", "{}")},
    {"lfm2", LFM("f(s='it\\'s \\x41\\u00e9\\n\"', t=\"it's\", l=[1, (True, None), {'a': \"b\"}], n=-1.5)"),
     CALL(
         "", "f",
         "{\"s\": \"it's A\303\251\\n\\\"\", \"t\": \"it's\", \"l\": [1, [true, null], {\"a\": \"b\"}], \"n\": -1.5}")},
    {"lfm2", LFM("f(s='it's\nso')"), CALL("", "f", "{\"s\": \"it's\\nso\"}")}, /* without escapes */
    {"lfm2", LFM("f(s='<|tool_call_end|>')"), CALL("", "f", "{\"s\": \"<|tool_call_end|>\"}")},
    {"lfm2", LFM("{\"name\": \"f\", \"arguments\": {\"x\": 1}}"), F1},
    {"lfm2", "<|tool_call_start|>\n {\"name\": \"f\", \"arguments\": {\"x\": 1}}\n<|tool_call_end|>", F1},
    {"lfm2", "<|tool_call_start|>\n[ f(x=1) ]\n<|tool_call_end|>", F1},
    {"lfm2", LFM("f(x=1,), get_x( ), "), F1 CALL("", "get_x", "{}")}, /* last commas */
    {"lfm2", LFM(","), NULL},
    {"lfm2", LFM("f(,)"), NULL},
    {"lfm2", LFM("f(x=1,,)"), NULL},
    {"lfm2", LFM("f(s=\"\"\"x\"\"\", t='''a 'b'\n\"\"\"\\'''c''', u='', v=\"\"\"\"\"\")"),
     CALL("", "f", "{\"s\": \"x\", \"t\": \"a 'b'\\n\\\"\\\"\\\"'''c\", \"u\": \"\", \"v\": \"\"}")},
    {"lfm2", LFM("f(s='''<|tool_call_end|>''')"), CALL("", "f", "{\"s\": \"<|tool_call_end|>\"}")},
    {"lfm2", LFM("f(s='x' 'y')"), NULL}, /* one string in Python, or quotes that lack their backslash */
    {"lfm2", LFM("f(s='x'\n\"y\")"), NULL},
    {"lfm2", LFM("f(s=\"\"x\"\")"), NULL},
    {"lfm2", LFM("f(s='''x''''y')"), NULL},
    {"lfm2", LFM("f(s='\\ud83d\\ude00')"), CALL("", "f", "{\"s\": \"\360\237\230\200\"}")},
    {"lfm2", LFM("f(s='\\ude00\\ud83d\\ud83d\\ude0')"),
     CALL("", "f", "{\"s\": \"\357\277\275\357\277\275\357\277\275\\\\ude0\"}")}, /* surrogates alone */
    {"lfm2", LFM(""), NULL},
    {"lfm2", LFM("f(1)"), NULL},
    {"lfm2", LFM("f(x=y)"), NULL},
    {"lfm2", LFM("f(x=1"), NULL},
    {"lfm2", LFM("f(x=1) g"), NULL},
    {"lfm2", LFM("f(s='\\x00')"), NULL},
    {"apertus", "<|tools_prefix|>[{\"f\": {\"x\": 1}}, {\"get_x\": {}}]<|tools_suffix|>", F1 CALL("", "get_x", "{}")},
    {"apertus", "<|tools_prefix|>[{\"f\": {}, \"get_x\": {}}]<|tools_suffix|>", NULL},
    {"apertus", "<|tools_prefix|>[{}]<|tools_suffix|>", NULL},
    {"solar_open",
     "<|tool_calls|><|tool_call:begin|>a1<|tool_call:name|>f<|tool_call:args|>{\"x\": 1}<|tool_call:end|><|calls|>",
     CALL("a1", "f", "{\"x\": 1}")},
    {"solar_open", "<|tool_call:begin|>f<|tool_call:args|>{\"x\": 1}<|tool_call:end|>", NULL},
    {"gigachat3", "Hm.<|message_sep|>\n\nfunction call<|role_sep|>\n" F "<|message_sep|>\n\n", "T:Hm." F1},
    {"gigachat3", "function call<|role_sep|>\n" F, F1},
    {"gigachat31", "<|function_call|>" F, F1},
    {"functionary_v3", ">>>f\n{\"x\": 1}>>>get_x\n{}", F1 CALL("", "get_x", "{}")},
    {"functionary_v3", ">>> 1 > 0\nTrue", NULL},
    {"command_r", "Sure.\nAction: ```json\n[{\"tool_name\": \"f\", \"parameters\": {\"x\": 1}}]\n```", "T:Sure.\n" F1},
    {"command_r", "Action: ```json\n[{\"tool_name\": \"directly_answer\", \"parameters\": {}}]\n```",
     NULL}, /* none of the tools */
    {"command_r", "Action: none", NULL},
    {"minicpm5", CPM("f", P5("l", "['a', True]") P5("s", "['a']") P5("t", "(1, 2)")),
     CALL("", "f", "{\"l\": [\"a\", true], \"s\": \"['a']\", \"t\": \"(1, 2)\"}")},
};

static void all_formed(void **state)
{
    for (size_t i = 0; i < WF_LEN(formed); i++) {
        char as_text[400];
        snprintf(as_text, sizeof as_text, "T:%s", formed[i].text);
        expect(formed[i].kind, formed[i].text, formed[i].want ? formed[i].want : as_text);
    }
}

/* What follows if nothing closes the call: it is whole if the model ended it so, but parameters may be missing if it
 * was cut. */
static const struct {
    const char *kind, *text, *want;
} unclosed[] = {
    {"qwen3_coder", "<tool_call>\n<function=f>\n" Q("x", "1"), F1},
    {"qwen3_coder", "<function=f><parameter=x>1</parameter>", F1},
    {"qwen3_coder", QWEN("f", "<parameter=x>\n1\n"), F1},
    {"qwen3_coder", "<function=f>\n<parameter=x>\n1\n</function>", F1},
    {"minimax_m2", "<invoke name=\"f\">" M("x", "1"), F1},
    {"glm45", "<tool_call>f" G("x", "1"), F1},
    {"minicpm5", "<function name=\"f\">" P5("x", "<![CDATA[1]]>"), F1},
    {"deepseek_v32", "<｜DSML｜invoke name=\"f\">" D("x", "false", "1"), F1},
    {"minimax_m3", NS "<invoke name=\"f\">" E3("x", "1"), F1},
    {"minimax_m3", NS "<invoke name=\"f\">" E3("x", "1") NS "</inv", F1},
    {"kimi_k3", "<|open|>call tool=\"f\" index=\"1\"<|sep|>" A3("x", "number", "1") "<|cl", F1},
};

static void all_tagged(void **state)
{
    for (size_t i = 0; i < WF_LEN(tagged); i++) {
        char as_text[400];
        snprintf(as_text, sizeof as_text, "T:%s", tagged[i].text);
        expect(tagged[i].kind, tagged[i].text, tagged[i].want ? tagged[i].want : as_text);
    }
    for (size_t i = 0; i < WF_LEN(unclosed); i++) {
        char as_text[400];
        snprintf(as_text, sizeof as_text, "T:%s", unclosed[i].text);
        expect_end(unclosed[i].kind, false, unclosed[i].text, unclosed[i].want);
        expect_end(unclosed[i].kind, true, unclosed[i].text, as_text);
    }
}

/* ---- any answer ------------------------------------------------------------------------------------------ */

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
        bool calls = strchr(whole, 1);
        n_calls[seed % WF_LEN(kinds)] += calls;
        if (strcmp(whole, cut) || strcmp(whole, bytes))
            fail_msg("%s: %s\ngives\n%s\n%s\n%s", kind, t.data, whole, cut, bytes);
        if (!calls) assert_string_equal(whole + 2, t.data);
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
    bool call = *got == 1;
    if (!call) assert_string_equal(got + 2, t.data);
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
            assert_int_equal(!strncmp(got, "\1C:|f|{\"p0\": 0", 14), n <= WF_MAX_PARAMETERS);
            if (n > WF_MAX_PARAMETERS) assert_string_equal(got + 2, t.data);
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
    assert_int_equal(strncmp(got, "\1C:|f|{\"l\": [\"1\", \"1\"", 20), 0);
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
        result r = {0};
        wf_call_out out = {.text = on_text, .call = on_call, .user = &r};
        wf_calls *c = wf_calls_new(wf_call_kind_named(rows[k][0]), &types);
        size_t len = strlen(rows[k][1]), n = 2400000 / len;
        for (size_t i = 0; i < n; i++) assert_true(wf_calls_feed(c, rows[k][1], len, &out));
        assert_true(r.line.len + WF_CALL_MAX + 100 > n * len); /* only so much is held back */
        assert_true(wf_calls_end(c, true, &out));
        assert_int_equal(r.line.len, 2 + n * len);
        wf_calls_free(c);
        free(r.line.data);
    }
}

/* ---- kinds ----------------------------------------------------------------------------------------------- */

static void kinds_of_templates(void **state)
{
    static const struct {
        const char *file, *kind;
    } rows[] = {
        {"Qwen-Qwen2.5-7B-Instruct", "hermes"}, {"Qwen-Qwen3-0.6B", "hermes"},
        {"NousResearch-Hermes-3-Llama-3.1-8B-tool_use", "hermes"},
        {"NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use", "hermes"}, {"Bielik-11B-v3.0-Instruct", "hermes"},
        {"MiMo-VL", "hermes"}, {"Reka-Edge", "hermes"}, {"ibm-granite-granite-4.0", "hermes"},
        {"ibm-granite-granite-3.3-2B-Instruct", "granite"}, {"meta-llama-Llama-3.1-8B-Instruct", "llama3_json"},
        {"meta-llama-Llama-3.2-3B-Instruct", "llama3_json"}, {"mistralai-Mistral-Nemo-Instruct-2407", "mistral"},
        {"Mistral-Small-3.2-24B-Instruct-2506", "mistral"}, {"mistralai-Ministral-3-14B-Reasoning-2512", "mistral"},
        {"unsloth-mistral-Devstral-Small-2507", "mistral"}, {"NVIDIA-Nemotron-Nano-v2", "nemotron"},
        {"Apriel-1.6-15b-Thinker-fixed", "apriel"}, {"fireworks-ai-llama-3-firefunction-v2", "firefunction"},
        {"CohereForAI-c4ai-command-r7b-12-2024-tool_use", "cohere"}, {"Cohere2MoE", "cohere"},
        {"Kimi-K2-Instruct", "kimi_k2"}, {"Kimi-K2-Thinking", "kimi_k2"}, {"deepseek-ai-DeepSeek-V3.1", "deepseek_v31"},
        {"deepseek-ai-DeepSeek-R1-Distill-Qwen-32B", "deepseek_v3"}, {"llama-cpp-deepseek-r1", "deepseek_v3"},
        {"Qwen3-Coder", "qwen3_coder"}, {"StepFun3.5-Flash", "qwen3_coder"}, {"GLM-4.7-Flash", "glm45"},
        {"MiniMax-M2", "minimax_m2"}, {"openai-gpt-oss-120b", "openai"}, {"Spark2.5", "glm45"},
        {"inclusionai-ling-3.0-flash", "glm45"}, {"poolside-Laguna-XS.2", "glm45"}, {"openbmb-MiniCPM5-1B", "minicpm5"},
        {"deepseek-ai-DeepSeek-V3.2", "deepseek_v32"}, {"deepseek-ai-DeepSeek-V4", "deepseek_v4"},
        {"MiniMax-M3", "minimax_m3"}, {"Kimi-K3", "kimi_k3"}, {"google-gemma-4-31B-it", "gemma4"},
        {"LFM2.5-8B-A1B", "lfm2"}, {"LFM2.5-Instruct", "lfm2"}, {"muse-glimmer", "muse_glimmer"},
        {"tencent-Hy3", "hy_v3"}, {"upstage-Solar-Open-100B", "solar_open"}, {"Apertus-8B-Instruct", "apertus"},
        {"GigaChat3-10B-A1.8B", "gigachat3"}, {"GigaChat3.1-10B-A1.8B", "gigachat31"},
        {"meetkai-functionary-medium-v3.2", "functionary_v3"},
        {"CohereForAI-c4ai-command-r-plus-tool_use", "command_r"}, {"google-gemma-2-2b-it", ""},
        {"microsoft-Phi-3.5-mini-instruct", ""}};
    if (!test_data("templates/Qwen-Qwen3-0.6B.jinja")) SKIP_TEST(NO_TEST_DATA);
    for (size_t i = 0; i < WF_LEN(rows); i++) {
        char path[160], *text;
        size_t len;
        snprintf(path, sizeof path, "templates/%s.jinja", rows[i].file);
        assert_int_equal(wf_read_file(test_data(path), 1 << 20, &text, &len), WEFT_OK);
        const wf_call_kind *k = wf_call_kind_of(text);
        if (strcmp(k ? k->name : "", rows[i].kind))
            fail_msg("%s: %s, not %s", rows[i].file, k ? k->name : "none", rows[i].kind);
        free(text);
    }
}

SUITE(tool_calls, NULL, NULL, CASE(all_answers), CASE(all_tagged), CASE(all_formed), CASE(any_answer), CASE(long_calls),
      CASE(many_parameters), CASE(many_items), CASE(many_strings), CASE(many_tools), CASE(many_openings),
      CASE(kinds_of_templates))
