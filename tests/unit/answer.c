/* answer: thoughts, text and calls of answers, cut at every byte; and which kind of thoughts the templates of the test
 * data show. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "answers/answer.h"
#include "support/data.h"
#include "support/skip.h"
#include "support/suite.h"

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

#define R1      "deepseek_r1", NULL
#define BOTH    "deepseek_r1", "hermes"
#define HARMONY "openai_gptoss", "openai"
#define CALL    "<tool_call>{\"name\": \"f\"}</tool_call>"
#define CH      "<|channel|>"
#define MSG     "<|message|>"
#define NEXT    "<|end|><|start|>assistant"
#define K3      "kimi_k3", "kimi_k3"
#define OPEN(t) "<|open|>" t "<|sep|>"
#define SHUT(t) "<|close|>" t "<|sep|>"
#define MUSE    "muse_glimmer", "muse_glimmer"
#define ATEM                                                                                                           \
    "<atem:function_calls>\n<atem:invoke name=\"f\">\n<atem:parameter "                                                \
    "name=\"x\">1</atem:parameter>\n</atem:invoke>\n</atem:function_calls>"
#define SOLAR   "solar_open", "solar_open"
#define FUN     "functionary_v3", "functionary_v3"
#define BLANKS  "                                                                 "

static const row rows[] = {
    {R1, false, "<think>\nHm, 1 < 2.\n\nSo.\n</think>\n\nYes. ", "H:Hm, 1 < 2.\n\nSo.|T:Yes. "},
    {R1, false, "\n<think>\n\n</think>\n\nYes", "T:Yes"},
    {R1, false, " Yes <think>no</think>", "T: Yes <think>no</think>"}, /* only at the beginning */
    {R1, false, "<thin", "T:<thin"},
    {R1, false, "<think> Hm </thi", "H:Hm </thi"},
    {R1, false, "<think>Hm\n", "H:Hm"},
    {R1, false, "<think>a</think>b</think>c", "H:a|T:b</think>c"},
    {R1, false, "<think></think>", ""},
    {R1, false, "<think>a" BLANKS "b</think>" BLANKS "c", "H:a" BLANKS "b|T:c"},
    {R1, false, BLANKS "<think>a", "T:" BLANKS "<think>a"},
    {R1, true, "\nHm\n</think>\nYes", "H:Hm|T:Yes"},
    {R1, true, "<think>Hm</think>Yes", "H:Hm|T:Yes"},
    {R1, true, "Hm", "H:Hm"},
    {R1, true, "<thi", "H:<thi"},
    {"mistral", NULL, false, "[THINK]Hm[/THINK]Yes", "H:Hm|T:Yes"},
    {"cohere", NULL, true, "Hm<|END_THINKING|>Yes", "H:Hm|T:Yes"},
    {NULL, "hermes", false, "<think>" CALL "</think>", "T:<think>|C:f{}|T:</think>"},
    {BOTH, false, "<think>" CALL "</think>\nSo:\n" CALL, "H:" CALL "|T:So:\n|C:f{}"}, /* thoughts have no calls */
    {BOTH, true, "a</think>\n" CALL "\n" CALL "b", "H:a|C:f{}|C:f{}|T:b"},
    {"deepseek_r1", "qwen3_coder", true, "a</think><tool_call><function=f></function></tool_call>", "H:a|C:f{}"},
    /* what ends thoughts and belongs to the answer */
    {"apertus", "apertus", false, "<|inner_prefix|>a<|tools_prefix|>[{\"f\": {}}]<|tools_suffix|>", "H:a|C:f{}"},
    {"apertus", "apertus", false, "<|inner_prefix|>a <|inner_suffix|>b", "H:a|T:b"},
    {"apriel", NULL, true, "a\n[BEGIN FINAL RESPONSE]\nb", "H:a|T:b"},
    {"gemma4", "gemma4", false, "<|channel>thought\na\n<channel|><|tool_call>call:f{x:1}<tool_call|>",
     "H:a|C:f{\"x\": 1}"},
    {"minimax_m3", "minimax_m3", false, "</mm:think>b", "T:b"}, /* there were none */
    {"hy_v3", NULL, false, "<think:opensource>a</think:opensource>b", "H:a|T:b"},
    /* frames */
    {K3, true, "a" SHUT("think") OPEN("response") "b" SHUT("response") SHUT("message"), "H:a|T:b"},
    {K3, true,
     "a" SHUT("think") OPEN("response") SHUT("response") OPEN("tools") OPEN("call tool=\"f\" index=\"1\"") SHUT("call")
         SHUT("tools") SHUT("message"),
     "H:a|C:f{}"},
    {K3, false, "b" SHUT("resp"), "T:b" SHUT("resp")},
    {MUSE, false,
     " to=self<|message|>a<|eom|><|start|>assistant to=f<|message|>" ATEM
     "<|eom|><|start|>assistant to=self<|message|>b<|eom|><|start|>assistant to=user<|message|>c<|eot|>",
     "H:a|C:f{\"x\": 1}|H:b|T:c"},
    {MUSE, false, " to=user<|message|>I go to=" BLANKS, "T:I go to=" BLANKS},
    {MUSE, false, " to=a+b<|message|>c", "T: to=a+b<|message|>c"},
    {SOLAR, false, "<|think|>a<|end|><|begin|>assistant<|content|>b<|end|>", "H:a|T:b"},
    {SOLAR, false,
     "<|think|>a<|end|><|begin|>assistant<|tool_calls|><|tool_call:begin|>i<|tool_call:name|>f<|tool_call:args|>{}<|"
     "tool_call:end|><|calls|>",
     "H:a|C:f{}"},
    {"functionary_v3", "functionary_v3", false, "all\nb>>>f\n{\"x\": 1}", "T:b|C:f{\"x\": 1}"},
    {"functionary_v3", "functionary_v3", false, "f\n{\"x\": 1}>>>all\nb", "C:f{\"x\": 1}|T:b"},
    {"functionary_v3", NULL, false, "all\n1 >>> 2", "T:1 >>> 2"},
    {FUN, false, "hello world", "T:hello world"}, /* what was put before it is not shown */
    {FUN, false, "all", "T:all"},
    {FUN, false, ">>", "T:>>"},
    {FUN, false, "all\n>>>", "T:>>>"},
    {FUN, false, "no b\n{\"x\": 1}>>>f\n{}", "T:no b\n{\"x\": 1}|C:f{}"},
    {FUN, false, "f\n{\"x\": 1} >> 1", "C:f{\"x\": 1}|T: >> 1"},
    {FUN, false, "f\n{\"x\": 1}>>>a b\n{}", "C:f{\"x\": 1}|T:>>>a b\n{}"},
    {FUN, false, "f\n{\"x\": ", "T:f\n{\"x\": "},
    {"functionary_v3", NULL, false, "hello", "T:hello"},
    {"functionary_v3", NULL, false, "al", "T:al"},
    {"functionary_v3", NULL, false, ">>>all\na", "T:a"},
    {"cohere", NULL, true, "a<|END_THINKING|><|START_RESPONSE|>b<|END_RESPONSE|>", "H:a|T:b"},
    /* channels */
    {HARMONY, false, CH "analysis" MSG "Hm." NEXT CH "final" MSG "Yes <|en", "H:Hm.|T:Yes <|en"},
    {HARMONY, false, CH "final" MSG "Yes<|return|>", "T:Yes"},
    {HARMONY, false,
     CH "analysis" MSG "Hm." NEXT CH "commentary to=functions.f <|constrain|>json" MSG "{\"x\": 1}<|call|>",
     "H:Hm.|C:f{\"x\": 1}"},
    {HARMONY, false, " to=functions.f" CH "commentary json" MSG " {\"x\": 1}\n", "C:f{\"x\": 1}"},
    {HARMONY, false, " to=functions.f" CH "commentary" MSG "\"{\\\"x\\\": 1}\"", "C:f{\"x\": 1}"},
    {HARMONY, false, CH "commentary to=functions.get_x " MSG NEXT " to=functions.f" CH "commentary" MSG "{}",
     "C:get_x{}|C:f{}"},
    {HARMONY, false,
     CH "commentary" MSG "I look." NEXT CH "analysis" MSG "a" NEXT CH "analysis" MSG "b" NEXT CH "final" MSG "Yes",
     "T:I look.|H:a\nb|T:\nYes"},
    {HARMONY, false, CH "commentary to=functions.f" MSG "{\"x\": <|call|>", "T:{\"x\": "}, /* no call: text */
    {HARMONY, false, CH "commentary to=functions.a+b" MSG "{}<|call|>", "T:{}"},
    {HARMONY, false, CH "analysis to=python" MSG "1+1<|call|>", "H:1+1"},
    {HARMONY, false, CH "analysis<|mess", ""}, /* a header has nothing for anybody */
    {HARMONY, false, "to be", "T:to be"},
    {HARMONY, false, "to", "T:to"},
    {HARMONY, false, "Just " MSG " text", "T:Just " MSG " text"},
    {HARMONY, false, CH "final" MSG "a<|start|>assistant" CH "final" MSG "b", "T:a\nb"},
    {HARMONY, false, CH "final" MSG "a<|end|> b", "T:a\n b"},
    {"openai_gptoss", NULL, false, CH "analysis" MSG "a" NEXT " to=functions.f" CH "commentary" MSG "{}", "H:a|T:{}"},
    {NULL, "openai", false, CH "analysis" MSG "a" NEXT " to=functions.f" CH "commentary" MSG "{}", "T:a|C:f{}"},
};

static void all_answers(void **state)
{
    for (size_t i = 0; i < WF_LEN(rows); i++) expect(&rows[i]);
}

/* ---- any answer ------------------------------------------------------------------------------------------ */

static const char *const words[] = {
    "<think>", "</think>", "<tool_call>", "</tool_call>", "{\"name\": \"f\"}", "<|channel|>", "analysis", "commentary",
    "final", "<|message|>", "<|end|>", "<|start|>", "assistant", "to=functions.f", "<|call|>", "{}", " ", "\n", "x",
    "<", "<|", "\xc3\xa9", CH "analysis" MSG, NEXT CH "final" MSG, NEXT " to=functions.f" CH "commentary" MSG "{}",
    CALL, BLANKS, OPEN("think"), SHUT("think"), OPEN("response"), SHUT("response"),
    OPEN("call tool=\"f\" index=\"1\"") SHUT("call"), " to=self<|message|>", "<|eom|><|start|>assistant", " to=user",
    ATEM, ">>>", "all\n", "f\n{}"};

/* Where it is cut makes no difference. */
static void any_answer(void **state)
{
    static const row kinds[] = {
        {BOTH, false, "", ""}, {BOTH, true, "", ""}, {HARMONY, false, "", ""}, {"openai_gptoss", NULL, false, "", ""},
        {K3, false, "", ""},   {K3, true, "", ""},   {MUSE, false, "", ""},    {FUN, false, "", ""}};
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

static void kinds_of_templates(void **state)
{
    static const char *const files[][2] = {
        {"Qwen-Qwen3-0.6B", "deepseek_r1"}, {"deepseek-ai-DeepSeek-R1-Distill-Qwen-32B", "deepseek_r1"},
        {"GLM-4.7-Flash", "deepseek_r1"}, {"MiniMax-M2", "deepseek_r1"}, {"StepFun3.5-Flash", "deepseek_r1"},
        {"mistralai-Ministral-3-14B-Reasoning-2512", "mistral"}, {"Cohere2MoE", "cohere"},
        {"openai-gpt-oss-120b", "openai_gptoss"}, {"MiniMax-M3", "minimax_m3"}, {"Kimi-K3", "kimi_k3"},
        {"google-gemma-4-31B-it", "gemma4"}, {"muse-glimmer", "muse_glimmer"}, {"tencent-Hy3", "hy_v3"},
        {"upstage-Solar-Open-100B", "solar_open"}, {"Apertus-8B-Instruct", "apertus"},
        {"Apriel-1.6-15b-Thinker-fixed", "apriel"}, {"meetkai-functionary-medium-v3.2", "functionary_v3"},
        {"CohereForAI-c4ai-command-r7b-12-2024-tool_use", "cohere"}, {"Qwen-Qwen2.5-7B-Instruct", ""},
        {"meta-llama-Llama-3.1-8B-Instruct", ""}, {"Qwen3-Coder", ""}};
    if (!test_data("templates/Qwen-Qwen3-0.6B.jinja")) SKIP_TEST(NO_TEST_DATA);
    for (size_t i = 0; i < WF_LEN(files); i++) {
        char path[160], *text;
        size_t len;
        snprintf(path, sizeof path, "templates/%s.jinja", files[i][0]);
        assert_int_equal(wf_read_file(test_data(path), 1 << 20, &text, &len), WEFT_OK);
        const wf_thought_kind *k = wf_thought_kind_of(text);
        assert_string_equal(k ? k->name : "", files[i][1]);
        free(text);
    }
}

SUITE(answer, NULL, NULL, CASE(all_answers), CASE(any_answer), CASE(long_messages), CASE(kinds_of_templates))
