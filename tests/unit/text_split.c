/* text_split: how the patterns of pre-tokenizers cut tricky texts. The expected pieces are those of the models' own
 * tokenizers (Hugging Face tokenizers with the patterns of Llama 3's, Qwen 2's ... tokenizer.json). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "text/internal.h"
#include "support/suite.h"

/* Free the pieces. */
static wf_pieces split(const char *name, const char *text, size_t len)
{
    const wf_pre *pre;
    wf_steps steps = {0};
    wf_pieces pieces;
    assert_int_equal(wf_pre_find(name, &pre), WEFT_OK);
    assert_int_equal(wf_pre_steps(pre, &steps), WEFT_OK);
    assert_int_equal(wf_pretokenise(&steps, text, len, 0, &pieces), WEFT_OK);
    wf_steps_free(&steps);
    size_t at = 0;
    for (size_t i = 0; i < pieces.n; at = pieces.v[i++].end)
        assert_true(pieces.v[i].begin == at && pieces.v[i].end > at);
    assert_int_equal(at, len);
    return pieces;
}

/* Pieces are joined by "|"; no text here contains that character. */
static void expect(const char *name, const char *text, const char *expected)
{
    char got[512] = "";
    wf_pieces pieces = split(name, text, strlen(text));
    for (size_t i = 0, n = 0; i < pieces.n; i++)
        n += (size_t)snprintf(got + n, sizeof got - n, "%s%.*s", i ? "|" : "",
                              (int)(pieces.v[i].end - pieces.v[i].begin), text + pieces.v[i].begin);
    assert_string_equal(got, expected);
    wf_pieces_free(&pieces);
}

static const struct {
    const char *text, *llama3, *qwen2, *gpt2;
} cases[] = {
    /* contractions: any case but in GPT-2; a second letter is needed where one belongs */
    {"I'm We'LL they'Ve he'd", "I|'m| We|'LL| they|'Ve| he|'d", "I|'m| We|'LL| they|'Ve| he|'d",
     "I|'m| We|'|LL| they|'|Ve| he|'d"},
    {"IT'S it'x", "IT|'S| it|'x", "IT|'S| it|'x", "IT|'|S| it|'|x"},
    /* digits: by three, one by one, all */
    {"1234567 12", "123|456|7| |12", "1|2|3|4|5|6|7| |1|2", "1234567| 12"},
    {"x1y22", "x|1|y|22", "x|1|y|2|2", "x|1|y|22"},
    {"\xd9\xa3\xd9\xa4\xc2\xbd", "\xd9\xa3\xd9\xa4\xc2\xbd", "\xd9\xa3|\xd9\xa4|\xc2\xbd", "\xd9\xa3\xd9\xa4\xc2\xbd"},
    /* runs of white space: the last one goes with the word; newlines with what stands before them */
    {"a   b", "a|  | b", "a|  | b", "a|  | b"},
    {"a\n\n\nb", "a|\n\n\n|b", "a|\n\n\n|b", "a|\n\n|\n|b"},
    {"a \n \n  b", "a| \n \n| | b", "a| \n \n| | b", "a| \n \n | b"},
    {"end   ", "end|   ", "end|   ", "end|   "},
    {"end\n", "end|\n", "end|\n", "end|\n"},
    {"\t\tx", "\t|\tx", "\t|\tx", "\t|\t|x"},
    {"\r\n\r\nx", "\r\n\r\n|x", "\r\n\r\n|x", "\r\n\r|\n|x"},
    {"\xe3\x80\x80\xc2\xa0x", "\xe3\x80\x80|\xc2\xa0x", "\xe3\x80\x80|\xc2\xa0x", "\xe3\x80\x80|\xc2\xa0|x"},
    /* punctuation takes the newlines behind it and one space before it */
    {"if (x) {\n\n  y;\n}", "if| (|x|)| {\n\n| | y|;\n|}", "if| (|x|)| {\n\n| | y|;\n|}",
     "if| (|x|)| {|\n\n | y|;|\n|}"},
    {"a_b.c", "a|_b|.c", "a|_b|.c", "a|_|b|.|c"},
    /* other scripts */
    {"\xe4\xbd\xa0\xe5\xa5\xbd\xef\xbc\x8c\xe4\xb8\x96", "\xe4\xbd\xa0\xe5\xa5\xbd|\xef\xbc\x8c\xe4\xb8\x96",
     "\xe4\xbd\xa0\xe5\xa5\xbd|\xef\xbc\x8c\xe4\xb8\x96", "\xe4\xbd\xa0\xe5\xa5\xbd|\xef\xbc\x8c|\xe4\xb8\x96"},
    {"\xf0\x9f\x9a\x80\xf0\x9f\x98\xb6\xe2\x80\x8d x", "\xf0\x9f\x9a\x80\xf0\x9f\x98\xb6\xe2\x80\x8d| x",
     "\xf0\x9f\x9a\x80\xf0\x9f\x98\xb6\xe2\x80\x8d| x", "\xf0\x9f\x9a\x80\xf0\x9f\x98\xb6\xe2\x80\x8d| x"},
    /* a combining mark is no letter: it takes the letters behind it as their prefix */
    {"e\xcc\x81t\xc3\xa9", "e|\xcc\x81t\xc3\xa9", "e|\xcc\x81t\xc3\xa9", "e|\xcc\x81|t\xc3\xa9"},
    /* U+180E was a space until Unicode 6.3 */
    {"a\xe1\xa0\x8e" "b", "a|\xe1\xa0\x8e" "b", "a|\xe1\xa0\x8e" "b", "a|\xe1\xa0\x8e|b"},
    /* bytes that are no UTF-8 are neither letter nor space */
    {"a\xff\xfe b\xe4\xbd", "a|\xff\xfe| b|\xe4\xbd", "a|\xff\xfe| b|\xe4\xbd", "a|\xff\xfe| b|\xe4\xbd"},
    {"", "", "", ""},
};

static void three_families(void **state)
{
    for (size_t i = 0; i < WF_LEN(cases); i++) {
        expect("llama-bpe", cases[i].text, cases[i].llama3);
        expect("qwen2", cases[i].text, cases[i].qwen2);
        expect("gpt-2", cases[i].text, cases[i].gpt2);
    }
}

static void other_families(void **state)
{
    expect("starcoder", "x = 123", "x| =| |1|2|3");
    expect("falcon", "a<=1234 b", "a|<=|123|4| b");
    expect("default", "a+1234", "a|+|123|4");
    expect("deepseek-llm", "a\n\nb 12  ", "a|\n|\n|b| |12|  ");
    expect("deepseek-llm", "    \xe4\xb8\xad", "    |\xe4\xb8\xad");
    expect("deepseek-llm", "x \xe3\x80\x80y", "x| |\xe3\x80\x80|y");
    expect("deepseek-coder", "foo(12)\n", "foo|(|1|2|)|\n");
    expect("deepseek-v3", "12345 #if \xe3\x81\x82\xe4\xb8\xad", "123|45| #|if| |\xe3\x81\x82\xe4\xb8\xad");
    expect("tekken", "HelloWORLD it's 12", "Hello|WORLD| it|'s| |1|2");
    expect("gpt-4o", "HelloWORLD it's 1234", "Hello|WORLD| it's| |123|4");
    expect("bloom", "Hi, you", "Hi|,| you");
    expect("qwen35", "e\xcc\x81t", "e\xcc\x81t");
    expect("seed-coder", "a!\nb", "a|!|\n|b");
    expect("chameleon", "ab  c1", "ab|  |c|1");
}

/* Every row compiles and loses no byte of a text with a bit of everything. */
static void every_name(void **state)
{
    static const char text[] =
        "Hi, it's 12345\n\n  x\xff\xe4\xbd\xa0\xcc\x81\xf0\x9f\x9a\x80 IMGIMGABZ <sentinel:1>\t ";
    size_t names = 0;
    for (const wf_pre *pre; (pre = wf_pre_at(names)); names++) {
        wf_pieces pieces = split(pre->name, text, sizeof text - 1);
        assert_true(pieces.n > 3);
        wf_pieces_free(&pieces);
        for (size_t k = 0; k < names; k++) assert_string_not_equal(wf_pre_at(k)->name, pre->name);
    }
    assert_true(names > 20);
}

static void unknown_name(void **state)
{
    const wf_pre *pre;
    assert_error(wf_pre_find("klingon-bpe", &pre), WEFT_ERR_UNSUPPORTED, "klingon-bpe");
    assert_says("tokenizer.ggml.pre");
    assert_says("llama-bpe");
    assert_says(wf_pre_at(0)->name);
}

SUITE(text_split, NULL, NULL, CASE(three_families), CASE(other_families), CASE(every_name), CASE(unknown_name))
