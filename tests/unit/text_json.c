/* text_json: tokenizers as tokenizer.json describes them. The fixtures of tests/text/data were trained and their ids
 * made with Hugging Face's library (make_tokenizers.py there). What is wrong in a file gives an error that names it. */
#include "base/file.h"
#include "base/json.h"
#include "text/internal.h"
#include "support/suite.h"

#include <sys/stat.h>

static const char *const kinds[] = {"llama3", "qwen2", "gpt4o", "gpt2", "starcoder", "falcon", "deepseek", "word",
                                    "llama2", "mistral", "gemma", "merging", "unigram", "unigram_bytes", "plain"};

static wf_tokenizer *open_kind(const char *name)
{
    char path[128], *text;
    size_t len;
    wf_tokenizer *t;
    snprintf(path, sizeof path, "tests/text/data/%s.json", name);
    assert_ok(wf_read_file(path, 1 << 20, &text, &len));
    if (wf_tokenizer_from_json(text, len, &t)) fail_msg("%s: %s", name, wf_error());
    free(text);
    return t;
}

/* ---- ids --------------------------------------------------------------------------------------- */

static void check_row(const wf_tokenizer *t, const char *kind, const char *line)
{
    wf_json *row = wf_json_read(line, strlen(line), &(wf_json_rules){.flags = WF_JSON_LOOSE}, NULL);
    const wf_json *text = wf_json_at(row, 0), *want = wf_json_at(row, 1);
    int32_t *ids;
    size_t n;
    assert_non_null(wf_json_text(text));
    assert_ok(wf_tokenize(t, text->text, text->n, 0, &ids, &n));
    bool same = n == wf_json_count(want);
    for (size_t i = 0; i < n && same; i++) same = ids[i] == wf_json_int(wf_json_at(want, i));
    if (!same) fail_msg("%s: other ids: %s", kind, line);
    free(ids);
    wf_json_free(row);
}

static void ids_of_kind(const char *kind)
{
    char path[128], *text;
    size_t len, rows = 0;
    wf_tokenizer *t = open_kind(kind);
    snprintf(path, sizeof path, "tests/text/data/%s.ids", kind);
    assert_ok(wf_read_file(path, 1 << 20, &text, &len));
    strtok(text, "\n"); /* the version */
    for (const char *line; (line = strtok(NULL, "\n")); rows++) check_row(t, kind, line);
    assert_int_equal(rows, 150);
    free(text);
    wf_tokenizer_destroy(t);
}

static void ids(void **state)
{
    for (size_t i = 0; i < WF_LEN(kinds); i++) ids_of_kind(kinds[i]);
}

/* Which piece is the first one, behind steps that move, add or remove text. */
static void first_pieces(void **state)
{
    wf_json *file;
    assert_ok(wf_json_load_file("tests/text/data/first.json", 1 << 20, &file));
    const wf_json *rows = wf_json_get(file, "rows");
    assert_int_equal(wf_json_count(rows), 15);
    for (size_t i = 0; i < rows->n; i++) {
        const wf_json *ids = wf_json_get(&rows->list[i], "ids");
        char name[32];
        wf_text text = {0};
        wf_tokenizer *t;
        wf_json_put(&text, wf_json_get(&rows->list[i], "tokenizer"));
        if (wf_tokenizer_from_json(text.data, text.len, &t)) fail_msg("%s: %s", text.data, wf_error());
        snprintf(name, sizeof name, "row %zu", i);
        WF_JSON_EACH(row, ids) {
            wf_text line = {0};
            wf_json_put(&line, row);
            check_row(t, name, line.data);
            free(line.data);
        }
        wf_tokenizer_destroy(t);
        free(text.data);
    }
    wf_json_free(file);
}

/* ---- any bytes ------------------------------------------------------------------------------------ */

static void any_bytes(void **state)
{
    static const char text[] = "a\xff \xc3(\xe2\x82 \xf0\x9f\x98\x80 \xed\xa0\x80z<|both|> \xfe";
    for (size_t i = 0; i < WF_LEN(kinds); i++) {
        wf_tokenizer *t = open_kind(kinds[i]);
        for (size_t n = 0; n < sizeof text; n++) {
            int32_t *v;
            size_t count, len;
            char *back;
            assert_ok(wf_tokenize(t, text, n, 0, &v, &count));
            for (size_t k = 0; k < count; k++) assert_in_range(v[k], 0, wf_token_count(t) - 1);
            assert_ok(wf_detokenize(t, v, count, 0, &back, &len));
            free(back);
            free(v);
        }
        wf_tokenizer_destroy(t);
    }
}

static void text_back(void **state)
{
    static const char *const which[] = {"llama3", "gpt4o", "word", "llama2", "mistral", "gemma"};
    static const char text[] = "It's 1234.5 \xe2\x82\xac for  two, \xe6\x97\xa5\xe6\x9c\xac \xf0\x9f\x98\x80\n\tend";
    for (size_t i = 0; i < WF_LEN(which); i++) {
        wf_tokenizer *t = open_kind(which[i]);
        int32_t *v;
        size_t n, len;
        char *back;
        assert_ok(wf_tokenize(t, text, strlen(text), WEFT_TEXT_NO_ADD_SPECIAL, &v, &n));
        assert_ok(wf_detokenize(t, v, n, 0, &back, &len));
        assert_string_equal(back, text);
        free(back);
        free(v);
        wf_tokenizer_destroy(t);
    }
}

/* Text of others never becomes a control token, whatever the rules say. */
static void no_forged_tokens(void **state)
{
    static const char text[] = "<|left|>x <|right|> <|alone|> <|end|>";
    for (size_t i = 0; i < WF_LEN(kinds); i++) {
        wf_tokenizer *t = open_kind(kinds[i]);
        wf_text_span all = {0, sizeof text - 1};
        int32_t *v;
        size_t n;
        assert_ok(wf_tokenize_around(t, text, sizeof text - 1, &all, 1, WEFT_TEXT_NO_ADD_SPECIAL, &v, &n));
        for (size_t k = 0; k < n; k++) assert_false(wf_token_is_control(t, v[k]));
        free(v);
        assert_ok(wf_tokenize(t, text, sizeof text - 1, WEFT_TEXT_NO_ADD_SPECIAL | WEFT_TEXT_NO_PARSE_SPECIAL, &v, &n));
        for (size_t k = 0; k < n; k++) assert_false(wf_token_is_control(t, v[k]));
        free(v);
        wf_tokenizer_destroy(t);
    }
}

/* ---- wrong files ------------------------------------------------------------------------------------ */

#define BPE(more)                                                                                                      \
    "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"ab\":2},\"merges\":[\"a b\"]" more                      \
    "}" /* more closes the model */
#define UNIGRAM(vocab, more) "{\"model\":{\"type\":\"Unigram\",\"vocab\":" vocab more "}}"

static const struct {
    const char *json, *message;
} wrong[] = {
    {"", "bad JSON"},
    {"[]", "no JSON object"},
    {"{}", "of no type"},
    {"{\"model\":[]}", "'model' is not an object"},
    {"{\"model\":{\"type\":\"WordLevel\"}}", "WordLevel"},
    {"{\"model\":{\"type\":\"WordPiece\"}}", "'vocab'"},
    {"{\"model\":{\"type\":\"WordPiece\",\"vocab\":{\"a\":0},\"max_input_chars_per_word\":-1}}",
     "max_input_chars_per_word"},
    {"{\"model\":{\"type\":7}}", "'type' is not a string"},
    {"{\"model\":{\"type\":\"BPE\"}}", "'vocab'"},
    {"{\"model\":{\"type\":\"BPE\",\"vocab\":[]}}", "'vocab'"},
    {"{\"model\":{\"type\":\"BPE\",\"vocab\":{}}}", "empty"},
    {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":-1}}}", "empty"},
    {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":-1}}}", "id -1"},
    {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":9223372036854775807}}}", "9223372036854775807"},
    {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":0}}}", "same id"},
    {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"a\":1}}}", "duplicate"},
    {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":\"0\"}}}", "no integer"},
    {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[\"a\"]}}", "two texts"},
    {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[7]}}", "two texts"},
    {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[[\"a\"]]}}", "two texts"},
    {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[[\"a\",\"a\",\"a\"]]}}", "two texts"},
    {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":{}}}", "'merges'"},
    {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0}}}", "'merges' of the model is missing"},
    {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[\"a a a\"]}}", "two texts"},
    {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[{\"a\":\"a\"}]}}", "two texts"},
    {BPE(",\"dropout\":0.1}"), "dropout"},
    {BPE(",\"merge_backwards\":true}"), "'merge_backwards' of the model"},
    {BPE(",\"merge_backwards\":\"no\"}"), "a GGUF file of the model"},
    {BPE("},\"normalizer\":{\"type\":\"NFC\",\"upper\":true}"), "'upper' of NFC"},
    {BPE("},\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Digits\",\"most\":3}]}"),
     "'most' of Digits"},
    {BPE("},\"decoder\":{}"), "'of no type'"},
    {BPE("},\"decoder\":{\"type\":\"WordPiece\",\"joined\":true}"), "'joined' of WordPiece"},
    {BPE("},\"decoder\":{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"CTC\"}]}"), "decoder 'CTC'"},
    {BPE("},\"decoder\":{\"type\":\"ByteLevel\",\"bits\":7}"), "'bits' of ByteLevel"},
    {BPE("},\"decoder\":{\"type\":\"Metaspace\",\"replacement\":\"_\"}"), "in place of '_'"},
    {BPE("},\"decoder\":{\"type\":\"Metaspace\",\"replacement\":\"\xe2\x96\x81\",\"prepend_scheme\":\"last\"}"),
     "'last'"},
    {BPE("},\"decoder\":{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"a\"},\"content\":\" \"}"),
     "in place of 'a pattern'"},
    {BPE("},\"decoder\":{\"type\":\"Replace\",\"pattern\":{\"String\":\"\xe2\x96\x81\"},\"content\":\"-\"}"),
     "writes '-'"},
    {BPE("},\"decoder\":{\"type\":\"Strip\",\"content\":\"a\",\"start\":1}"), "strips 'a'"},
    {BPE("},\"decoder\":{\"type\":\"Strip\",\"content\":\" \",\"stop\":1}"), "1 at the end"},
    {BPE(",\"end_of_word_suffix\":\"</w>\"}"), "end_of_word_suffix"},
    {BPE(",\"byte_fallback\":1}"), "byte_fallback"},
    {BPE("},\"added_tokens\":[{\"id\":3}]"), "'added_tokens'"},
    {BPE("},\"added_tokens\":[{\"content\":\"x\"}]"), "'added_tokens'"},
    {BPE("},\"added_tokens\":[{\"id\":-3,\"content\":\"x\"}]"), "id -3"},
    {BPE("},\"added_tokens\":[{\"id\":1e9,\"content\":\"x\"}]"), "'added_tokens'"},
    {BPE("},\"added_tokens\":[{\"id\":4194304,\"content\":\"x\"}]"), "4194304"},
    {BPE("},\"added_tokens\":{}"), "'added_tokens' is not an array"},
    {BPE("},\"normalizer\":{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"AA==\"}"),
     "is no table of SentencePiece"},
    {BPE("},\"normalizer\":{\"type\":\"Replace\",\"content\":\"\"}"), "'pattern'"},
    {BPE("},\"normalizer\":{\"type\":\"Sequence\"}"), "'normalizers'"},
    {BPE("},\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[7]}"), "'type'"},
    {BPE("},\"pre_tokenizer\":{\"type\":\"UnicodeScripts\"}"), "UnicodeScripts"},
    {BPE("},\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"(\"},\"behavior\":\"Isolated\"}"),
     "does not compile"},
    {BPE("},\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"[a&&b]\"},\"behavior\":\"Isolated\"}"),
     "intersections"},
    {BPE("},\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"\\\\h\"},\"behavior\":\"Isolated\"}"),
     "\\h"},
    {BPE("},\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"a{2}+\"},\"behavior\":\"Isolated\"}"),
     "repetition"},
    {BPE("},\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"String\":\"a\"},\"behavior\":\"Sideways\"}"),
     "Sideways"},
    {BPE("},\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"\"}"), "'replacement'"},
    {BPE("},\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"_\",\"prepend_scheme\":\"last\"}"), "last"},
    {BPE("},\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"__\"}"), "'replacement' is '__'"},
    {BPE("},\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"_\",\"add_prefix_space\":false,\"prepend_"
         "scheme\":\"first\"}"),
     "'prepend_scheme' is 'first'"},
    {BPE("},\"post_processor\":{\"type\":\"BertProcessing\"}"), "'cls' and 'sep'"},
    {BPE("},\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"x\"}}]}"),
     "'x' has no single id"},
    {BPE("},\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"x\"}}],"
         "\"special_tokens\":{\"x\":{\"ids\":[7]}}}"),
     "7"},
    {UNIGRAM("{}", ""), "'vocab'"},
    {UNIGRAM("[]", ""), "empty"},
    {UNIGRAM("[[\"a\"]]", ""), "entry 0"},
    {UNIGRAM("[[\"a\",\"0\"]]", ""), "entry 0"},
    {UNIGRAM("[7]", ""), "entry 0"},
    {UNIGRAM("[[\"a\",-1.5]]", ",\"unk_id\":1"), "'unk_id' is 1"},
};

static void wrong_files(void **state)
{
    for (size_t i = 0; i < WF_LEN(wrong); i++) {
        wf_tokenizer *t = NULL;
        const char *json = wrong[i].json;
        if (!wf_tokenizer_from_json(json, strlen(json), &t)) fail_msg("%s was read", json);
        if (!strstr(wf_error(), wrong[i].message)) fail_msg("%s: '%s' lacks '%s'", json, wf_error(), wrong[i].message);
    }
}

/* Fields that switch nothing on are no reason to refuse a file, and a decoder's older form of "never" is that. */
static void harmless_files(void **state)
{
    static const char *const files[] = {
        BPE(",\"merge_backwards\":false,\"most\":0,\"named\":\"\",\"list\":[],\"nothing\":null}"),
        BPE("},\"decoder\":{\"type\":\"Metaspace\",\"replacement\":\"\xe2\x96\x81\",\"str_rep\":\"\xe2\x96\x81\",\"add_"
            "prefix_space\":false}"),
        BPE("},\"decoder\":null")};
    for (size_t i = 0; i < WF_LEN(files); i++) {
        wf_tokenizer *t;
        char *back;
        size_t len;
        if (wf_tokenizer_from_json(files[i], strlen(files[i]), &t)) fail_msg("%s: %s", files[i], wf_error());
        assert_ok(wf_detokenize(t, (int32_t[]){2, 0}, 2, 0, &back, &len));
        assert_string_equal(back, "aba");
        free(back);
        wf_tokenizer_destroy(t);
    }
}

static bool count_asked(void *times)
{
    ++*(size_t *)times;
    return false;
}

static bool say_stop(void *user)
{
    (void)user;
    return true;
}

/* A pattern of a file that would take exponential time ends in an error: all places where it may begin, each of which
 * may take little, share what it may take, 256 steps a byte. Long runs that a pattern of a real file goes through again
 * and again are none of these. Whoever may want the end is asked every 2^18 steps. */
static void slow_pattern(void **state)
{
#define SPLIT(pattern)                                                                                                 \
    BPE("},\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"" pattern "\"},\"behavior\":\"Isolated\"}")
    static const struct {
        const char *json;
        bool bad;
    } rows[] = {{SPLIT("(a|aa)+$|(a+)+b"), true},
                {SPLIT("a*a*a*a*[bd]"), true},
                {SPLIT("a*[bd]"), true},
                {SPLIT("(?:a|a){10}[bd]"), true},
                {SPLIT("(?:a?){40}a{40}[bd]|(a*)*[bd]"), true},
                {SPLIT("(?=(a+))(a|b|ab)*d|(x+x+)+y|(a+)+$"), true},
                {SPLIT("a?[^a]a+|\\\\s+(?!\\\\S)|a+c"), false},
                {SPLIT("x\\\\p{N}+|c$"), false}};
    char text[4000];
    memset(text, 'a', sizeof text);
    text[sizeof text - 1] = 'c';
    for (size_t i = 0; i < WF_LEN(rows); i++) {
        wf_tokenizer *t;
        int32_t *v = NULL;
        size_t n;
        size_t n_asked = 0;
        assert_ok(wf_tokenizer_from_json(rows[i].json, strlen(rows[i].json), &t));
        wf_stop_by(count_asked, &n_asked);
        weft_status s = wf_tokenize(t, text, sizeof text, 0, &v, &n);
        wf_stop_by(NULL, NULL);
        if (rows[i].bad) assert_error(s, WEFT_ERR_UNSUPPORTED, "too many steps");
        else assert_ok(s);
        free(v);
        if (rows[i].bad) {
            assert_in_range(n_asked, sizeof text * 256 >> 18, SIZE_MAX);
            wf_stop_by(say_stop, NULL);
            assert_int_equal(wf_tokenize(t, text, sizeof text, 0, &v, &n), WEFT_ERR_CANCELLED);
            wf_stop_by(NULL, NULL);
        }
        wf_tokenizer_destroy(t);
    }
}

/* Added tokens that are looked for in normalised text come after those that are not, however long they are (tokenizers'
 * added_vocabulary.rs). */
static void normalised_later(void **state)
{
#define ADDED(normaliser)                                                                                              \
    "{" normaliser "\"added_tokens\":[{\"id\":4,\"content\":\"ab\",\"normalized\":false},{\"id\":5,\"content\":"       \
                   "\"abc\",\"normalized\":true}],"                                                                    \
    "\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"c\":2,\"x\":3},\"merges\":[]}}"
    static const char *const files[] = {ADDED(""), ADDED("\"normalizer\":{\"type\":\"NFC\"},")};
    static const struct {
        const char *text;
        size_t n;
        int32_t ids[5];
    } rows[] = {
        {"xabcx", 4, {3, 4, 2, 3}}, {"abc", 2, {4, 2}}, {"acab", 3, {0, 2, 4}}, {"xabxabc", 5, {3, 4, 3, 4, 2}}};
    for (size_t i = 0; i < WF_LEN(files); i++) {
        wf_tokenizer *t;
        assert_ok(wf_tokenizer_from_json(files[i], strlen(files[i]), &t));
        for (size_t k = 0; k < WF_LEN(rows); k++) {
            int32_t *v;
            size_t n;
            assert_ok(wf_tokenize(t, rows[k].text, strlen(rows[k].text), 0, &v, &n));
            if (n != rows[k].n || memcmp(v, rows[k].ids, n * sizeof *v))
                fail_msg("%s: other ids: %zu, the second one %d", rows[k].text, n, v[1]);
            free(v);
        }
        wf_tokenizer_destroy(t);
    }
}

/* Characters that the vocabulary lacks become bytes, also where the file lists these among its added tokens, and are
 * text again. */
static void added_bytes(void **state)
{
    static const char file[] =
        "{\"added_tokens\":[{\"id\":1,\"content\":\"<0x48>\",\"special\":true},{\"id\":2,\"content\":\"<0x49>\"}],"
        "\"model\":{\"type\":\"BPE\",\"byte_fallback\":true,\"vocab\":{\"a\":0,\"<0x48>\":1,\"<0x49>\":2},\"merges\":[]"
        "},\"decoder\":{\"type\":\"ByteFallback\"}}";
    static const int32_t want[] = {1, 0, 2};
    wf_tokenizer *t;
    int32_t *v;
    size_t n;
    char piece[8];
    assert_ok(wf_tokenizer_from_json(file, strlen(file), &t));
    assert_ok(wf_tokenize(t, "HaI", 3, 0, &v, &n));
    assert_int_equal(n, 3);
    assert_memory_equal(v, want, sizeof want);
    assert_int_equal(wf_token_piece(t, 1, WEFT_TEXT_HIDE_SPECIAL, piece, sizeof piece), 1);
    assert_int_equal(piece[0], 'H');
    free(v);
    wf_tokenizer_destroy(t);
}

/* Gemma's runs of spaces are added tokens, written with U+2581: those stand for text that has this character, and real
 * spaces merge to them; both become spaces again. The ids are those of tokenizers 0.23. */
static void added_spaces(void **state)
{
#define RUN "\xe2\x96\x81"
    static const char file[] =
        "{\"added_tokens\":[{\"id\":4,\"content\":\"" RUN RUN "\"},{\"id\":5,\"content\":\"" RUN RUN RUN "\"}],"
        "\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},\"content\":\"" RUN "\"},"
        "\"decoder\":{\"type\":\"Replace\",\"pattern\":{\"String\":\"" RUN "\"},\"content\":\" \"},"
        "\"model\":{\"type\":\"BPE\",\"vocab\":{\"x\":0,\"y\":1,\"" RUN "\":2,\"" RUN "x\":3,\"" RUN RUN
        "\":4,\"" RUN RUN RUN "\":5},\"merges\":[\"" RUN RUN " " RUN "\",\"" RUN " " RUN "\",\"" RUN " x\"]}}";
    static const struct {
        const char *text, *back;
        size_t n;
        int32_t ids[4];
    } rows[] = {{"x x", "x x", 2, {0, 3}},          {"x" RUN "x", "x x", 2, {0, 3}},
                {"y  x", "y  x", 3, {1, 4, 0}},     {"y" RUN RUN "x", "y  x", 3, {1, 4, 0}},
                {"y" RUN " x", "y  x", 3, {1, 4, 0}}, {RUN RUN " x", "   x", 2, {4, 3}},
                {"  " RUN "y", "   y", 2, {5, 1}},  {RUN RUN " " RUN "y", "    y", 3, {4, 4, 1}},
                {"    y", "    y", 3, {5, 2, 1}}};
    wf_tokenizer *t;
    assert_ok(wf_tokenizer_from_json(file, strlen(file), &t));
    for (size_t i = 0; i < WF_LEN(rows); i++) {
        int32_t *v;
        size_t n, len;
        char *back;
        assert_ok(wf_tokenize(t, rows[i].text, strlen(rows[i].text), 0, &v, &n));
        if (n != rows[i].n || memcmp(v, rows[i].ids, n * sizeof *v)) fail_msg("'%s': other ids", rows[i].text);
        assert_ok(wf_detokenize(t, v, n, 0, &back, &len));
        assert_string_equal(back, rows[i].back);
        free(back);
        free(v);
    }
    wf_tokenizer_destroy(t);
}

/* Steps that each double the text end in an error before they take the memory of the machine. */
static void growing_text(void **state)
{
    static const char step[] = "{\"type\":\"Replace\",\"pattern\":{\"String\":\"o\"},\"content\":\"oo\"}";
    static const char cut[] =
        "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":false}"; /* a space becomes two bytes above
                                                                                      127, as each of those */
    for (int pre = 0; pre < 2; pre++) {
        char json[8192];
        int n = snprintf(json, sizeof json, "{\"%s\":{\"type\":\"Sequence\",\"%s\":[",
                         pre ? "pre_tokenizer" : "normalizer", pre ? "pretokenizers" : "normalizers");
        for (int i = 0; i < 60; i++)
            n += snprintf(json + n, sizeof json - (size_t)n, "%s%s", i ? "," : "", pre ? cut : step);
        snprintf(json + n, sizeof json - (size_t)n,
                 "]},\"model\":{\"type\":\"BPE\",\"vocab\":{\"o\":0},\"merges\":[]}}");
        wf_tokenizer *t;
        int32_t *v;
        size_t count;
        assert_ok(wf_tokenizer_from_json(json, strlen(json), &t));
        assert_error(wf_tokenize(t, "so so", 5, 0, &v, &count), WEFT_ERR_UNSUPPORTED, "longer than");
        wf_tokenizer_destroy(t);
    }
}

/* A word of a megabyte, where the file allows one, takes as long as its pieces do, and can be stopped; where it says
 * nothing, the word is unknown. Whatever a text becomes, its tokens may be fewer than its bytes by any factor. */
static void long_word(void **state)
{
#define WORD_PIECE(more)                                                                                               \
    "{\"model\":{\"type\":\"WordPiece\",\"unk_token\":\"u\",\"vocab\":{\"u\":0,\"a\":1,\"##a\":2,\"##aa\":3}" more "}}"
    static const char *const files[] = {WORD_PIECE(""), WORD_PIECE(",\"max_input_chars_per_word\":4294967295")};
    enum { SIZE = 1 << 20, PIECES = 1 + SIZE / 2 };
    size_t asked[2] = {0};
    char *text = malloc(SIZE);
    assert_non_null(text);
    memset(text, 'a', SIZE);
    for (size_t i = 0; i < WF_LEN(files); i++) {
        wf_tokenizer *t;
        int32_t *v;
        size_t n;
        assert_ok(wf_tokenizer_from_json(files[i], strlen(files[i]), &t));
        assert_int_equal(wf_token_longest(t), 0);
        wf_stop_by(count_asked, &asked[i]);
        assert_ok(wf_tokenize(t, text, SIZE, 0, &v, &n));
        wf_stop_by(NULL, NULL);
        assert_int_equal(n, i ? PIECES : 1);
        assert_int_equal(v[n - 1], i ? 2 : 0);
        free(v);
        wf_tokenizer_destroy(t);
    }
    assert_in_range(asked[1], asked[0] + PIECES / 4096, SIZE_MAX);
    free(text);
}

/* Texts of a pair, as files say it: one for which weft makes other pairs is read, and has none. */
static void pairs(void **state)
{
#define SPECIAL(name, type) "{\"SpecialToken\":{\"id\":\"" name "\",\"type_id\":" type "}}"
#define TEXT(name, type) "{\"Sequence\":{\"id\":\"" name "\",\"type_id\":" type "}}"
#define PAIR(single, pair)                                                                                             \
    BPE("},\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[" single "],\"pair\":[" pair                \
        "],\"special_tokens\":{\"a\":{\"ids\":[0]},\"b\":{\"ids\":[1]},\"c\":{\"ids\":[0,1]}}}")
#define ONE SPECIAL("a", "0") "," TEXT("A", "0") "," SPECIAL("b", "0")
    static const struct {
        const char *json;
        size_t n, second;
        int32_t ids[8];
    } rows[] = {
        {PAIR(ONE, ONE "," TEXT("B", "1") "," SPECIAL("b", "1")), 5, 3, {0, 2, 1, 2, 1}},
        {PAIR(ONE, ONE "," SPECIAL("b", "0") "," TEXT("B", "0") "," SPECIAL("b", "0")), 6, 0, {0, 2, 1, 1, 2, 1}},
        {PAIR(TEXT("A", "0") "," SPECIAL("b", "0"),
              TEXT("A", "0") "," SPECIAL("b", "0") "," TEXT("B", "1") "," SPECIAL("b", "1")), 4, 2, {2, 1, 2, 1}},
        {PAIR(ONE, ONE "," TEXT("B", "1")), 0, 0, {0}},
        {PAIR(ONE, ONE "," SPECIAL("a", "1") "," TEXT("B", "1") "," SPECIAL("b", "1")), 0, 0, {0}},
        {PAIR(ONE, ONE "," TEXT("B", "1") "," SPECIAL("b", "0")), 0, 0, {0}},
        {PAIR(ONE, ONE "," TEXT("B", "2") "," SPECIAL("b", "2")), 0, 0, {0}},
        {PAIR(ONE, ONE "," TEXT("B", "1") "," SPECIAL("c", "1")), 0, 0, {0}},
        {PAIR(ONE, ONE "," TEXT("A", "1") "," SPECIAL("b", "1")), 0, 0, {0}},
        {PAIR(ONE, TEXT("A", "0") "," SPECIAL("b", "0") "," TEXT("B", "1") "," SPECIAL("b", "1")), 0, 0, {0}},
        {PAIR(ONE, TEXT("A", "0") "," TEXT("B", "1")), 0, 0, {0}},
        {PAIR(ONE, "7,{},[],null"), 0, 0, {0}},
        {PAIR(ONE, ""), 0, 0, {0}}};
    for (size_t i = 0; i < WF_LEN(rows); i++) {
        wf_tokenizer *t;
        int32_t *v;
        size_t n, second;
        if (wf_tokenizer_from_json(rows[i].json, strlen(rows[i].json), &t)) fail_msg("row %zu: %s", i, wf_error());
        weft_status s = wf_tokenize_pair(t, "ab", 2, "ab", 2, &v, &n, &second);
        if (!rows[i].n) assert_error(s, WEFT_ERR_UNSUPPORTED, "makes pairs of texts that weft does not");
        else if (s || n != rows[i].n || second != rows[i].second || memcmp(v, rows[i].ids, n * sizeof *v))
            fail_msg("row %zu: %zu tokens, the second text at %zu", i, n, second);
        free(v);
        wf_tokenizer_destroy(t);
    }
}

SUITE(text_json, NULL, NULL, CASE(ids), CASE(first_pieces), CASE(any_bytes), CASE(text_back), CASE(no_forged_tokens),
      CASE(wrong_files), CASE(harmless_files), CASE(slow_pattern), CASE(normalised_later), CASE(growing_text),
      CASE(added_bytes), CASE(added_spaces), CASE(long_word), CASE(pairs))
