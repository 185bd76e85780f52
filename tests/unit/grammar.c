/* grammar: from whatever a mask allows an answer goes on, up to its end; what it allows reads. Schemas are those that
 * lead into corners: few keys, keys of several patterns, bounds that only some digits reach, characters that only
 * escapes can write. */
#include "grammar/grammar.h"
#include "support/suite.h"

enum { BYTES = 256, STEPS = 250, WALKS = 40 };

static const char *const more_tokens[] = {"{\"", "\":", "\",\"", "\"}", "null", "true", "0.0", "00", "12", "ab", "a\"", "\\u00", "\\\"", "]}",
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
};

static struct {
    char bytes[BYTES];
    wf_slice all[BYTES + WF_LEN(more_tokens)];
    wf_token_trie *trie;
} tokens;

static int begin(void **state)
{
    (void)state;
    for (int i = 0; i < BYTES; i++) tokens.bytes[i] = (char)i, tokens.all[i] = (wf_slice){&tokens.bytes[i], 1};
    for (size_t i = 0; i < WF_LEN(more_tokens); i++)
        tokens.all[BYTES + i] = (wf_slice){more_tokens[i], strlen(more_tokens[i])};
    assert_ok(wf_token_trie_new(tokens.all, WF_LEN(tokens.all), &tokens.trie));
    return 0;
}

static int end(void **state)
{
    (void)state;
    wf_token_trie_free(tokens.trie);
    return 0;
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

static void no_dead_ends(void **state)
{
    for (size_t i = 0; i < WF_LEN(schemas); i++) {
        char schema[512];
        wf_grammar *g;
        size_t n = 0;
        for (const char *p = schemas[i]; *p; p++) schema[n++] = *p == '\'' ? '"' : *p;
        schema[n] = 0;
        if (wf_grammar_schema(schema, n, &g)) fail_msg("%s: %s", schema, weft_last_error());
        for (uint64_t seed = 0; seed < WALKS; seed++) walk(g, schema, seed + 1000 * i);
        wf_grammar_free(g);
    }
}

/* What a stranger may send ends with an error, and soon. */
static void hostile(void **state)
{
    static const struct {
        const char *begin, *one, *end;
        size_t times;
        bool regex;
    } rows[] = {
        {"(", "a", ")", 500, true},          {"", "(aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa)", "$", 511, true},
        {"", "(", "", 100000, true},         {"", "\\p{Zl}", "", 300, true},
        {"(", "a|b|", "c)", 2000, true},     {"", "(a|b)*a", "", 500, true},
        {"[[", "", "]]", 1, true},           {"{\"const\":", "[", "1", 200, false},
        {"{\"allOf\":[", "{\"anyOf\":[{\"required\":[\"a\"]},{\"required\":[\"b\"]},{\"minLength\":1}]},", "{}]}", 60, false},
        {"{\"anyOf\":[", "{\"type\":\"number\",\"minimum\":5},", "{}]}", 400, false},
        {"{\"type\":\"string\",\"not\":{\"pattern\":\"", "(a|b)*a.", "\"}}", 30, false},
    };
    for (size_t i = 0; i < WF_LEN(rows); i++) {
        wf_text t = {0};
        wf_grammar *g = NULL;
        wf_text_add(&t, rows[i].begin, strlen(rows[i].begin));
        for (size_t k = 0; k < rows[i].times; k++) wf_text_add(&t, rows[i].one, strlen(rows[i].one));
        wf_text_add(&t, rows[i].end, strlen(rows[i].end));
        (void)(rows[i].regex ? wf_grammar_regex(t.data, t.len, &g) : wf_grammar_schema(t.data, t.len, &g));
        uint32_t bits[WF_LEN(tokens.all) / 32 + 1];
        wf_match *m = NULL;
        if (g) {
            assert_ok(wf_match_new(g, &m));
            (void)wf_match_mask(m, tokens.trie, bits);
        }
        wf_match_free(m);
        wf_grammar_free(g);
        free(t.data);
    }
}

SUITE(grammar, begin, end, CASE(no_dead_ends), CASE(hostile))
