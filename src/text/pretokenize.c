/* pretokenize: the table of pre-tokenizers.
 *
 * A row lists patterns that apply in sequence: each one splits every piece into its matches and the text between them.
 * A piece is a subject of its own, so look-ahead and `$` see its end. The names are those of tokenizer.ggml.pre;
 * patterns are facts from the models' tokenizer.json files and llama.cpp's src/llama-vocab.cpp.
 *
 * To add one: add a row to rows[], and its patterns above it if they are new. Patterns must take linear time on any
 * text: a part that can scan far and then fail must not be retried one character further on. */
#include "text/internal.h"

#include <stdio.h>
#include <string.h>

#define CONTRACTION "'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD]" /* ASCII only, unlike (?i) */
#define SPACES      "\\s+(?!\\S)|\\s+" /* leaves the last space of a run to the word after it */
#define WORD        "[^\\r\\n\\p{L}\\p{N}]?\\p{L}+"
#define SYMBOLS     " ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*"
#define NEWLINES    "\\s*[\\r\\n]+"

#define GPT2   "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|" SPACES
#define LLAMA3 CONTRACTION "|" WORD "|\\p{N}{1,3}|" SYMBOLS "|" NEWLINES "|" SPACES
#define QWEN2  CONTRACTION "|" WORD "|\\p{N}|" SYMBOLS "|" NEWLINES "|" SPACES

/* Letters that may begin and end a word written in capitals, as o200k and Tekken cut it. */
#define UPPER         "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER         "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define CASED(end)    "[^\\r\\n\\p{L}\\p{N}]?" UPPER "*" LOWER "+" end "|[^\\r\\n\\p{L}\\p{N}]?" UPPER "+" LOWER "*" end
#define SYMBOLS_SLASH " ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*"

#define CJK_KANA     "[\\x{4e00}-\\x{9fa5}\\x{3040}-\\x{309f}\\x{30a0}-\\x{30ff}]+"
#define DEEPSEEK_CJK "[\\x{4e00}-\\x{9fa5}\\x{800}-\\x{4e00}\\x{ac00}-\\x{d7ff}]+"
#define BLOOM        " ?[^(\\s|.,!?\\x{2026}\\x{3002}\\x{ff0c}\\x{3001}\\x{964}\\x{6d4}\\x{60c})]+"
#define DEEPSEEK3                                                                                  \
    "[!\"#$%&'()*+,\\-./"                                                                          \
    ":;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+|"              \
    " ?[\\p{P}\\p{S}]+[\\r\\n]*|" NEWLINES "|" SPACES

/* The cased letters as the model's own file lists them; this differs from today's Unicode. */
#define DEEPSEEK_WORD                                                                                                  \
    "\\s?[A-Za-z\\x{b5}\\x{c0}-\\x{d6}\\x{d8}-\\x{f6}\\x{f8}-\\x{1ba}\\x{1bc}-\\x{1bf}\\x{1c4}-\\x{293}"               \
    "\\x{295}-\\x{2af}\\x{370}-\\x{373}\\x{376}\\x{377}\\x{37b}-\\x{37d}\\x{37f}\\x{386}\\x{388}-\\x{38a}\\x{38c}"     \
    "\\x{38e}-\\x{3a1}\\x{3a3}-\\x{3f5}\\x{3f7}-\\x{481}\\x{48a}-\\x{52f}\\x{531}-\\x{556}\\x{10a0}-\\x{10c5}"         \
    "\\x{13a0}-\\x{13f5}\\x{13f8}-\\x{13fd}\\x{1c90}-\\x{1cba}\\x{1cbd}-\\x{1cbf}\\x{1d00}-\\x{1d2b}"                  \
    "\\x{1d6b}-\\x{1d77}\\x{1d79}-\\x{1d9a}\\x{1e00}-\\x{1f15}\\x{1f18}-\\x{1f1d}\\x{1f20}-\\x{1f45}"                  \
    "\\x{1f48}-\\x{1f4d}\\x{1f50}-\\x{1f57}\\x{1f59}\\x{1f5b}\\x{1f5d}\\x{1f5f}-\\x{1f7d}\\x{1f80}-\\x{1fb4}"          \
    "\\x{1fb6}-\\x{1fbc}\\x{1fbe}\\x{1fc2}-\\x{1fc4}\\x{1fc6}-\\x{1fcc}\\x{1fd0}-\\x{1fd3}\\x{1fd6}-\\x{1fdb}"         \
    "\\x{1fe0}-\\x{1fec}\\x{1ff2}-\\x{1ff4}\\x{1ff6}-\\x{1ffc}\\x{2102}\\x{2107}\\x{210a}-\\x{2113}\\x{2115}"          \
    "\\x{2119}-\\x{211d}\\x{2124}\\x{2126}\\x{2128}\\x{212a}-\\x{212d}\\x{212f}-\\x{2134}\\x{2139}"                    \
    "\\x{213c}-\\x{213f}\\x{2145}-\\x{2149}\\x{214e}\\x{2183}\\x{2184}\\x{2c00}-\\x{2c7b}\\x{2c7e}-\\x{2ce4}"          \
    "\\x{2ceb}-\\x{2cee}\\x{2cf2}\\x{2cf3}\\x{a640}-\\x{a66d}\\x{a680}-\\x{a69b}\\x{a722}-\\x{a76f}"                   \
    "\\x{a771}-\\x{a787}\\x{a78b}-\\x{a78e}\\x{ab70}-\\x{abbf}\\x{fb00}-\\x{fb06}\\x{fb13}-\\x{fb17}"                  \
    "\\x{ff21}-\\x{ff3a}\\x{ff41}-\\x{ff5a}\\x{10400}-\\x{1044f}\\x{104b0}-\\x{104d3}\\x{104d8}-\\x{104fb}"            \
    "\\x{10c80}-\\x{10cb2}\\x{10cc0}-\\x{10cf2}\\x{118a0}-\\x{118df}\\x{1e900}-\\x{1e943}]+"
#define DEEPSEEK_PUNCTUATION "\\s?[!-/:-~\\x{ff01}-\\x{ff0f}\\x{ff1a}-\\x{ff5e}\\x{2018}-\\x{201f}\\x{3000}-\\x{3002}]+"
/* The model's \s+$, with a look-behind so that a run of spaces is scanned only once. */
#define SPACES_AT_END "(?<!\\s)\\s++$"

#define MAX_PATTERNS 6
typedef const char *const patterns[MAX_PATTERNS + 1];

static patterns p_default = {"[\\p{P}\\$\\+<=>\\^~\\|]+", GPT2, "\\p{N}+", "[0-9][0-9][0-9]"};
const char wf_pattern_gpt2[] = GPT2;
static patterns p_gpt2 = {wf_pattern_gpt2};
static patterns p_llama3 = {LLAMA3};
static patterns p_qwen2 = {QWEN2};
static patterns p_qwen35 = {
    CONTRACTION "|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|" NEWLINES
                "|" SPACES};
static patterns p_deepseek_llm = {"[\\r\\n]",    DEEPSEEK_WORD, DEEPSEEK_PUNCTUATION,
                                  SPACES_AT_END, DEEPSEEK_CJK,  "\\p{N}+"};
static patterns p_deepseek_coder = {"[\\r\\n]", "\\s?\\p{L}+", "\\s?\\p{P}+", DEEPSEEK_CJK, "\\p{N}"};
static patterns p_deepseek3 = {"\\p{N}{1,3}", CJK_KANA, DEEPSEEK3};
static patterns p_falcon = {"[\\p{P}\\$\\+<=>\\^~\\|`]+", GPT2, "[0-9][0-9][0-9]"};
static patterns p_starcoder = {"\\p{N}", GPT2};
static patterns p_bloom = {BLOOM};
static patterns p_viking = {BLOOM, "\\p{N}"};
static patterns p_tekken = {CASED("") "|\\p{N}|" SYMBOLS_SLASH "|" NEWLINES "|" SPACES};
static patterns p_gpt4o = {CASED("(?:" CONTRACTION ")?") "|\\p{N}{1,3}|" SYMBOLS_SLASH "|" NEWLINES "|" SPACES};
static patterns p_chameleon = {"<sentinel:[0-9]+>",      "(IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z",
                               "([\\t\\n]|    |  )",     "\\p{N}",
                               "[\\p{P}!-/:-@\\[-`{-~]", GPT2};
static patterns p_bailing = {"'(?:[sSdDmMtT]|[lL][lL]|[vV][eE]|[rR][eE])|" WORD "|\\p{N}|" SYMBOLS
                             "|\\s*[\\r\\n]|" SPACES};
static patterns p_seed_coder = {CONTRACTION "|" WORD "|\\p{N}| ?[^\\s\\p{L}\\p{N}\\r\\n]+|" NEWLINES "|" SPACES};
static patterns p_minicpm5 = {"\\p{N}{1,3}", CONTRACTION "|" WORD "|\\p{N}+|" SYMBOLS "|" NEWLINES "|" SPACES};

static const wf_pre rows[] = {
    {"default", p_default}, {"gpt-2", p_gpt2}, {"llama-bpe", p_llama3, true, true}, {"llama3", p_llama3, true, true},
    {"llama-v3", p_llama3, true, true}, {"qwen2", p_qwen2}, {"qwen35", p_qwen35}, {"deepseek-llm", p_deepseek_llm},
    {"deepseek-coder", p_deepseek_coder}, {"deepseek-v3", p_deepseek3}, {"deepseek-r1-qwen", p_qwen2},
    {"starcoder", p_starcoder}, {"refact", p_starcoder}, {"falcon", p_falcon}, {"falcon3", p_llama3, true, true},
    {"falcon-h1", p_llama3, true, true}, {"mpt", p_gpt2}, {"smollm", p_starcoder}, {"command-r", p_starcoder},
    {"tekken", p_tekken, true, true}, {"gpt-4o", p_gpt4o}, {"llama4", p_gpt4o}, {"olmo", p_gpt2}, {"phi-2", p_gpt2},
    {"dbrx", p_llama3}, {"smaug-bpe", p_llama3}, {"stablelm2", p_qwen2}, {"codeshell", p_starcoder}, {"jais", p_gpt2},
    {"exaone", p_starcoder}, {"exaone4", p_gpt2}, {"minerva-7b", p_starcoder}, {"mellum", p_gpt2},
    {"mellum2", p_starcoder}, {"trillion", p_gpt2}, {"granite-docling", p_gpt2}, {"gigachat", p_gpt2},
    {"glm4", p_llama3}, {"chatglm-bpe", p_llama3}, {"megrez", p_qwen2}, {"hunyuan", p_qwen2},
    {"hunyuan-dense", p_deepseek3}, {"solar-open", p_qwen2}, {"grok-2", p_qwen2}, {"pixtral", p_llama3, true, true},
    {"lfm2", p_llama3, true, true}, {"bloom", p_bloom}, {"gpt3-finnish", p_bloom}, {"poro-chat", p_bloom},
    {"viking", p_viking}, {"bailingmoe", p_bailing}, {"seed-coder", p_seed_coder},
    {"minicpm5", p_minicpm5, true, false}, {"minimax-m2", p_gpt4o}, {"chameleon", p_chameleon, false, true}};

const wf_pre *wf_pre_at(size_t i) { return i < WF_LEN(rows) ? &rows[i] : NULL; }

weft_status wf_pre_find(const char *name, const wf_pre **out)
{
    if (!*name) {
        wf_log(WEFT_LOG_WARN, "tokenizer.ggml.pre is missing: splitting text by the 'default' patterns");
        name = "default";
    }
    for (size_t i = 0; i < WF_LEN(rows); i++)
        if (!strcmp(rows[i].name, name)) return *out = &rows[i], WEFT_OK;
    char known[768] = "";
    for (size_t i = 0, n = 0; i < WF_LEN(rows) && n < sizeof known; i++)
        n += (size_t)snprintf(known + n, sizeof known - n, "%s%s", i ? ", " : "", rows[i].name);
    return wf_fail(WEFT_ERR_UNSUPPORTED,
                   "tokenizer.ggml.pre is '%.64s', a pre-tokenizer that weft does not know; it knows %s", name, known);
}

weft_status wf_pre_steps(const wf_pre *p, wf_steps *out)
{
    for (const char *const *pattern = p->patterns; *pattern; pattern++) {
        wf_step step = {.kind = WF_STEP_SPLIT, .split = WF_SPLIT_ISOLATED};
        WF_TRY(wf_regex_open(*pattern, &step.regex));
        WF_TRY(wf_steps_add(out, step));
    }
    return WEFT_OK;
}
