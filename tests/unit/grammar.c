/* grammar: from whatever a mask allows an answer goes on, up to its end; what it allows reads. Schemas are those that
 * lead into corners: few keys, keys of several patterns, bounds that only some digits reach, characters that only
 * escapes can write. Rules, too, have masks that allow all that reads. */
#include "grammar/internal.h"
#include "support/suite.h"

enum { BYTES = 256, BLANKS = 128 /* tokens that begin with one */, STEPS = 250, WALKS = 40 };

static const char *const more_tokens[] = {"{\"", "\":", "\",\"", "\"}", "null", "true", "0.0", "00", "12", "ab", "a\"", "a\",\"", "\",\"\",\"", "\\u00", "\\\"", "]}",
                                          "\n  ", ", ", "é", "\"a\":", "aa", "-1"};

static const char *const schemas[] = {
    "{}",
    "{'propertyNames':{'enum':['a','b']},'additionalProperties':{'type':'integer'}}",
    "{'propertyNames':{'enum':['a','b']},'minProperties':2,'properties':{'a':{}},'type':'object'}",
    "{'patternProperties':{'^(en|de)$':{}},'additionalProperties':false,'minProperties':1,'type':'object'}",
    "{'type':'object','patternProperties':{'^a':false}}",
    "{'type':'object','propertyNames':{'pattern':'^a'},'patternProperties':{'^b':{},'c$':{}},'additionalProperties':false}",
    "{'type':'object','allOf':[{'additionalProperties':{'type':'string'}},{'additionalProperties':{'type':'number'}}]}",
    "{'type':'object','patternProperties':{'a':{'type':'integer'},'b':{'enum':[1,2.5]}},'properties':{'ab':true}}",
    "{'type':'object','patternProperties':{'a*':{'type':'integer'},'aaa*':{'maximum':20}}}",
    "{'type':'object','properties':{'aa':{},'ab':{'type':'null'}},'required':['ab'],'maxProperties':2}",
    "{'type':'object','required':['x'],'properties':{'x':{'const':{'k':[1,null,'é']}}},'additionalProperties':false}",
    "{'anyOf':[{'type':'string','format':'date'},{'type':'string','maxLength':3}]}",
    "{'anyOf':[{'type':'string','minLength':3,'maxLength':5},{'type':'string','pattern':'^[ab]+$'}]}",
    "{'type':'string','pattern':'^\\\\u0001$'}",
    "{'type':'string','pattern':'^[\\n\\\"]{2}$'}",
    "{'type':'string','pattern':'^(?=.*a)(?!.*b).{2,4}$'}",
    "{'enum':['gh','g\\n','\\u0002',1e-5,10,100,1000,null,true]}",
    "{'type':'number','exclusiveMinimum':0,'maximum':0.001}",
    "{'type':'number','exclusiveMinimum':5,'exclusiveMaximum':6}",
    "{'type':'number','minimum':-2.5,'maximum':-1,'multipleOf':0.25}",
    "{'type':'integer','minimum':95,'maximum':1203,'multipleOf':7}",
    "{'type':'integer','minimum':-3,'maximum':2}",
    "{'type':'array','minItems':2,'maxItems':3,'prefixItems':[{'type':'null'}],'items':{'type':'boolean'}}",
    "{'oneOf':[{'required':['a']},{'required':['b']}],'type':'object','properties':{'a':{'const':1},'b':{'const':2}},'additionalProperties':false}",
    "{'type':'object','if':{'required':['a'],'properties':{'a':{'const':1}}},'then':{'required':['b']},'else':{'maxProperties':1}}",
    "{'not':{'type':['object','array','number']}}",
    "{'$defs':{'t':{'type':'object','properties':{'n':{'anyOf':[{'$ref':'#/$defs/t'},{'type':'null'}]}},'required':['n'],'additionalProperties':false}},"
    "'$ref':'#/$defs/t'}",
    "{'$defs':{'t':{'type':'object','properties':{'n':{'$ref':'#/$defs/t'}},'required':['n']}},'type':'object','properties':{'a':{'$ref':'#/$defs/t'},'b':{'type':'null'}},"
    "'patternProperties':{'^c':{'$ref':'#/$defs/t'}},'additionalProperties':{'$ref':'#/$defs/t'}}",
    "{'type':'array','contains':{'enum':[1,'a']},'minContains':2,'maxContains':3,'items':{'enum':[1,'a','b',null]},'maxItems':5}",
    "{'type':'array','prefixItems':[{'enum':['a','b']},{}],'items':{'type':'null'},'contains':{'type':'string','maxLength':1},'minContains':2}",
    "{'items':{'type':'boolean'},'contains':{'type':'array'}}",
    "{'prefixItems':[{'const':1},{'const':1}],'contains':{'enum':[1,null]},'maxContains':1,'items':{'const':2}}",
    "{'type':'array','items':{'type':'string'},'uniqueItems':true}",
    "{'type':'array','items':{'enum':['a','ab','b']},'uniqueItems':true,'minItems':2}",
    "{'type':'array','items':{'type':'string','pattern':'^(a|b+)$'},'uniqueItems':true,'minItems':3}",
    "{'type':'array','items':{'type':'string','maxLength':2},'uniqueItems':true,'minItems':1}",
    "{'type':'object','properties':{'a':{}},'unevaluatedProperties':{'type':'integer'},'required':['aa']}",
};

/* Rules, and texts: those that are whole, those that are not, up to a NULL each. */
static const struct {
    const char *rules, *whole[6], *other[6];
} grammars[] = {
    {"root ::= (sum \"=\" num \"\\n\")+\nsum ::= term ([-+*/] term)*\nterm ::= num | \"(\" sum \")\"\nnum ::= [0-9]+",
     {"1=1\n", "((2)+3*4)/5=7\n", "1=1\n2=2\n"}, {"", "1=1", "1+=2\n", "(1=1\n", "1)=1\n"}},
    {"root ::= obj\nval ::= obj | \"[\" ws (val (\",\" ws val)*)? \"]\" ws | str | [0-9]+ ws\n"
     "obj ::= \"{\" ws (str \":\" ws val (\",\" ws str \":\" ws val)*)? \"}\" ws\n"
     "str ::= \"\\\"\" ([^\"\\\\\\x7F\\x00-\\x1F] | \"\\\\\" ([\"\\\\n] | \"u\" [0-9a-f]{4}))* \"\\\"\" ws\nws ::= ([ \\n] ws)?",
     {"{}", "{\"a\": [1, {\"\":[]} ]}\n \n", "{\"\\u00e9\\n\":12,\"é\":\"\"}"}, {"[]", "{\"a\"}", "{\"a\":1,}", "{\"\\x\":1}", "{\"a\":1}}"}},
    {"# a list\nroot ::= item+\n\nitem ::= \"- \" [^\\r\\n\\x85\\u2028]+ \"\\n\" # one\n",
     {"- a\n", "- a é\n- b\n"}, {"- \n", "- a", "-a\n", "- a\xC2\x85\n"}},
    {"root ::= jp+ ([ \\t] jp+)*\njp ::= [ぁ-ゟ] | [\\u30A1-\\u30FF] | [\\U00004e00-\\U00009fff]", {"ひカ 一"}, {"a", "ひ ", "ひ  ひ"}},
    {"root ::= a | b\n  | \"x\"{2}\n  | .{3,4}\na ::= \"(\" a? \")\" b?\nb ::= \"b\" [b]{1,}", {"(())", "(()bb)bb", "xx", "bb", "🙂é)x"}, {"x", "((", "())bb", "b"}},
    {"root ::= (x? y?)* \"!\"\nx ::= \"a\" x \"b\" | \"a\"\ny ::= \"\" | y1 z\ny1 ::= [c]\nz ::= y | never\nnever ::= \"n\" never",
     {"!", "aab!", "aaabccaab!"}, {"b!", "aabb!", "n"}},
    {"root ::= stmt*\nstmt ::= \"if\" ws id \"{\" stmt* \"}\" | id ws? (\"=\" ws? id)? \";\"\nid ::= [a-z]+\nws ::= \" \"+",
     {"", "if aa{ab=aa;if b{}}x;", "iff=if;"}, {"if{}", "a=;", "if a{", "if a;"}},
};

/* Rules that are refused, and what is said. */
static const char *const refused[][2] = {
    {"a ::= \"x\"", "no rule root"}, {"root ::= a b\na ::= \"x\"", "line 1, column 12: there is no rule b"},
    {"root ::= \"x\"\nroot ::= \"y\"", "line 2, column 1: the rule root is there twice"},
    {"root ::= b? a\nb ::= \"x\"\na ::= \"é\" | b* a", "line 3, column 16: the rule a begins with itself"},
    {"root ::= \"x\" root", "never complete"}, {"root ::= (\"x\"", "line 1, column 14: expected )"},
    {"root ::= [z-a]", "wrong way round"}, {"root ::= []", "without a character"}, {"root ::= \"a", "line 1, column 12: it ends"},
    {"root ::= \"\\q\"", "column 12: an escape \\q"}, {"root ::= \"\\x4\"", "a bad escape"}, {"root ::= +", "nothing stands before +"},
    {"root ::= \"a\"{2,1}", "fewer"}, {"root ::= \"a\"{x}", "a number of times"}, {"root ::= \"a\"{1", "expected }"},
    {"root = \"a\"", "column 6: expected ::="}, {"root ::= \"a\" ;", "column 14: expected a rule"}, {"root ::= <think>", "tokens"},
    {"root ::= \"\\U00110000\"", "above"}, {"root ::= \"\xFF\"", "column 11: it is not valid UTF-8"},
    {"root ::= \"a\"**********", "repetitions of a repetition"},
};

static struct {
    char bytes[BYTES], blanks[BLANKS][2];
    wf_slice all[BYTES + WF_LEN(more_tokens) + BLANKS];
    wf_token_trie *trie;
} tokens;

static int begin(void **state)
{
    (void)state;
    for (int i = 0; i < BYTES; i++) tokens.bytes[i] = (char)i, tokens.all[i] = (wf_slice){&tokens.bytes[i], 1};
    for (size_t i = 0; i < WF_LEN(more_tokens); i++)
        tokens.all[BYTES + i] = (wf_slice){more_tokens[i], strlen(more_tokens[i])};
    for (size_t i = 0; i < BLANKS; i++) {
        tokens.blanks[i][0] = ' ', tokens.blanks[i][1] = (char)i;
        tokens.all[BYTES + WF_LEN(more_tokens) + i] = (wf_slice){tokens.blanks[i], 2};
    }
    assert_ok(wf_token_trie_new(tokens.all, WF_LEN(tokens.all), &tokens.trie));
    return 0;
}

static int end(void **state)
{
    (void)state;
    wf_token_trie_free(tokens.trie);
    return 0;
}

/* All that reads behind n bytes of a text is allowed, and nothing else. */
static void check_mask(wf_grammar *g, wf_match *m, const char *text, size_t n)
{
    uint32_t bits[WF_LEN(tokens.all) / 32 + 1];
    assert_ok(wf_match_mask(m, tokens.trie, bits));
    for (uint32_t i = 0; i < WF_LEN(tokens.all); i++) {
        wf_match *more;
        assert_ok(wf_match_new(g, &more));
        assert_ok(wf_match_read(more, text, n));
        bool reads = !wf_match_read(more, tokens.all[i].p, tokens.all[i].n);
        if (reads != (bits[i / 32] >> (i % 32) & 1)) fail_msg("%.*s: the mask is wrong of %s", (int)n, text, tokens.all[i].p);
        wf_match_free(more);
    }
}

static void rules(void **state)
{
    for (size_t i = 0; i < WF_LEN(grammars); i++) {
        wf_grammar *g;
        assert_ok(wf_grammar_gbnf(grammars[i].rules, strlen(grammars[i].rules), &g));
        for (int other = 0; other < 2; other++)
            for (const char *const *text = other ? grammars[i].other : grammars[i].whole; *text; text++) {
                wf_match *m;
                assert_ok(wf_match_new(g, &m));
                weft_status s = WEFT_OK;
                for (size_t n = 0; s == WEFT_OK; n++) {
                    check_mask(g, m, *text, n);
                    if (!(*text)[n]) break;
                    s = wf_match_read(m, *text + n, 1);
                }
                if ((s == WEFT_OK && wf_match_may_end(m)) == other) fail_msg("%s: %s", grammars[i].rules, *text);
                wf_match_free(m);
            }
        wf_grammar_free(g);
    }
    for (size_t i = 0; i < WF_LEN(refused); i++) {
        wf_grammar *g;
        assert_int_equal(wf_grammar_gbnf(refused[i][0], strlen(refused[i][0]), &g), WEFT_ERR_UNSUPPORTED);
        if (!strstr(weft_last_error(), refused[i][1])) fail_msg("%s: %s", refused[i][0], weft_last_error());
    }
}

/* One answer of tokens sampled from those that are allowed; behind some steps what closes goes first. */
static void walk(wf_grammar *g, const char *schema, uint64_t seed)
{
    wf_match *m;
    wf_text text = {0};
    assert_ok(wf_match_new(g, &m));
    for (size_t step = 0; step < STEPS && !wf_match_over(m); step++) {
        uint32_t bits[WF_LEN(tokens.all) / 32 + 1], may[WF_LEN(tokens.all)], n = 0;
        assert_ok(wf_match_mask(m, tokens.trie, bits));
        for (uint32_t i = 0; i < WF_LEN(tokens.all); i++)
            if (bits[i / 32] >> (i % 32) & 1) may[n++] = i;
        if (!n && !wf_match_may_end(m)) fail_msg("%s: nothing goes on behind %s", schema, text.data ? text.data : "");
        if (!n || (wf_match_may_end(m) && wf_random_unit(seed, 2 * step) < 0.2)) break;
        uint32_t id = may[(size_t)(wf_random_unit(seed, 2 * step + 1) * n)];
        static const char closing[] = ",:]}\"";
        for (size_t i = 0; step > 20 && closing[i]; i++)
            if (bits[closing[i] / 32] >> (closing[i] % 32) & 1) id = (uint32_t)closing[i];
        wf_text_add(&text, tokens.all[id].p, tokens.all[id].n);
        if (wf_match_read(m, tokens.all[id].p, tokens.all[id].n))
            fail_msg("%s: a token that is allowed does not read: %s", schema, text.data);
    }
    if (wf_match_may_end(m) && !wf_json_whole(text.data, text.len)) fail_msg("%s: no JSON: %s", schema, text.data);
    free(text.data);
    wf_match_free(m);
}

static size_t quoted(const char *text, char out[512])
{
    size_t n = 0;
    for (const char *p = text; *p; p++) out[n++] = *p == '\'' ? '"' : *p;
    out[n] = 0;
    return n;
}

static void no_dead_ends(void **state)
{
    for (size_t i = 0; i < 2 * WF_LEN(schemas); i++) {
        char schema[512];
        wf_grammar *g;
        size_t n = quoted(schemas[i / 2], schema);
        if (wf_grammar_schema(schema, n, i % 2, &g)) fail_msg("%s: %s", schema, weft_last_error());
        for (uint64_t seed = 0; seed < WALKS; seed++) walk(g, schema, seed + 1000 * (i / 2));
        wf_grammar_free(g);
    }
}

/* Which keys stay of those that no schema names. */
static void closed_objects(void **state)
{
    static const struct {
        const char *schema, *text;
        bool stays;
    } rows[] = {
        {"{'properties':{'a':{}}}", "{'a':1}", true},
        {"{'properties':{'a':{}}}", "{'a':1,'b':2}", false},
        {"{'properties':{}}", "{'b':2}", false},
        {"{'type':'object'}", "{'b':2}", true},
        {"{'properties':{'a':{}},'additionalProperties':true}", "{'b':2}", true},
        {"{'properties':{'a':{}},'additionalProperties':{'type':'integer'}}", "{'b':2}", true},
        {"{'properties':{'a':{}},'patternProperties':{'^b':{}}}", "{'bb':2}", true},
        {"{'properties':{'a':{}},'patternProperties':{'^b':{}}}", "{'c':2}", false},
        {"{'properties':{'a':{}},'required':['b']}", "{'b':2}", true},
        {"{'properties':{'a':{}},'minProperties':2}", "{'a':1,'b':2}", true},
        {"{'properties':{'a':false,'b':{}},'minProperties':2}", "{'b':1,'c':2}", true},
        {"{'allOf':[{'properties':{'a':{}}},{'properties':{'b':{}}}]}", "{'a':1,'b':2}", true},
        {"{'allOf':[{'properties':{'a':{}}},{'additionalProperties':true}]}", "{'c':1}", true},
        {"{'properties':{'a':{'properties':{'b':{}}}}}", "{'a':{'c':1}}", false},
        {"{'oneOf':[{'properties':{'a':{'type':'null'}},'required':['a']},{'required':['b'],'properties':{'b':{}}}]}", "{'a':null}", true},
    };
    for (size_t i = 0; i < 2 * WF_LEN(rows); i++) {
        char schema[512], text[512];
        wf_grammar *g;
        wf_match *m;
        assert_ok(wf_grammar_schema(schema, quoted(rows[i / 2].schema, schema), i % 2, &g));
        assert_ok(wf_match_new(g, &m));
        bool reads = wf_match_read(m, text, quoted(rows[i / 2].text, text)) == WEFT_OK && wf_match_may_end(m);
        if (reads != (rows[i / 2].stays || i % 2 == 0)) fail_msg("%s, closed %zu: %s", schema, i % 2, text);
        wf_match_free(m);
        wf_grammar_free(g);
    }
}

static weft_status closed_schema(const char *schema, size_t n, wf_grammar **out)
{
    return wf_grammar_schema(schema, n, true, out);
}

/* What a stranger may send ends with an error, and soon. */
static void hostile(void **state)
{
    static const struct {
        const char *begin, *one, *end;
        size_t times;
        enum { SCHEMA, REGEX, GBNF } kind;
    } rows[] = {
        {"(", "a", ")", 500, REGEX},         {"", "(aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa)", "$", 511, REGEX},
        {"", "(", "", 100000, REGEX},        {"", "\\p{Zl}", "", 300, REGEX},
        {"(", "a|b|", "c)", 2000, REGEX},    {"", "(a|b)*a", "", 500, REGEX},
        {"[[", "", "]]", 1, REGEX},          {"{\"const\":", "[", "1", 200, SCHEMA},
        {"root ::= ", "(", "", 100000, GBNF}, {"root ::= ", "root ", "", 5000, GBNF},
        {"root ::= \"", "aaaaaaaa", "\"", 100000, GBNF}, {"root ::= a\na ::= ", "\"a\" | a? ", "", 300, GBNF},
        {"root ::= a{1000}\na ::= ", "(\"a\" a){900} | ", "\"a\"", 40, GBNF},
        {"root ::= a\na ::= ", "\"a\" a? a? | \"a\" a | ", "\"b\"", 100, GBNF},
        {"root ::= ", "r ", "\nr ::= [^a]{1,3} | \"[\" root \"]\"", 2000, GBNF},
        {"{\"allOf\":[", "{\"anyOf\":[{\"required\":[\"a\"]},{\"required\":[\"b\"]},{\"minLength\":1}]},", "{}]}", 60, SCHEMA},
        {"{\"anyOf\":[", "{\"type\":\"number\",\"minimum\":5},", "{}]}", 400, SCHEMA},
        {"{\"type\":\"string\",\"not\":{\"pattern\":\"", "(a|b)*a.", "\"}}", 30, SCHEMA},
    };
    for (size_t i = 0; i < WF_LEN(rows); i++) {
        wf_text t = {0};
        wf_grammar *g = NULL;
        wf_text_add(&t, rows[i].begin, strlen(rows[i].begin));
        for (size_t k = 0; k < rows[i].times; k++) wf_text_add(&t, rows[i].one, strlen(rows[i].one));
        wf_text_add(&t, rows[i].end, strlen(rows[i].end));
        weft_status (*const compile[])(const char *, size_t, wf_grammar **) = {closed_schema, wf_grammar_regex, wf_grammar_gbnf};
        (void)compile[rows[i].kind](t.data, t.len, &g);
        uint32_t bits[WF_LEN(tokens.all) / 32 + 1];
        wf_match *m = NULL;
        if (g) {
            assert_ok(wf_match_new(g, &m));
            for (int n = 0; n < 20 && !wf_match_mask(m, tokens.trie, bits) && !wf_match_read(m, "a", 1); n++) {}
        }
        wf_match_free(m);
        wf_grammar_free(g);
        free(t.data);
    }
}

/* What one takes is given back when it is freed, also where it could not be made. */
static void memory_of_all_is_bounded(void **state)
{
    static const char one[] = "{'type':'object','properties':{'a':{'type':'string'}}}";
    enum { MANY = 64 };
    wf_grammar *g[MANY] = {NULL};
    char text[sizeof one];
    size_t most = grammar_most_bytes;
    int n = 0;
    for (size_t i = 0; i < sizeof one; i++) text[i] = one[i] == '\'' ? '"' : one[i];
    grammar_most_bytes = 2 << 20;
    for (int again = 0; again < 2; again++) {
        weft_status s = WEFT_OK;
        int before = n;
        for (n = 0; n < MANY && s == WEFT_OK; n += s == WEFT_OK) s = wf_grammar_schema(text, strlen(text), true, &g[n]);
        assert_int_equal(s, WEFT_ERR_NOMEM);
        assert_non_null(strstr(weft_last_error(), "try again later"));
        assert_true(n > 1 && (!again || n == before));
        for (int i = 0; i < n; i++) wf_grammar_free(g[i]);
    }
    grammar_most_bytes = most;
}

SUITE(grammar, begin, end, CASE(memory_of_all_is_bounded), CASE(no_dead_ends), CASE(closed_objects), CASE(rules),
      CASE(hostile))
