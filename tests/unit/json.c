/* json: the reader against the grammar, its limits and places, the tree, and that what is written is read as it was. */
#include "base/json.h"
#include "support/rows.h"
#include "support/wraps.h"

#include <math.h>

static wf_json *parse(const char *text, unsigned flags, wf_json_error *e)
{
    return wf_json_read(text, strlen(text), &(wf_json_rules){.flags = flags}, e);
}

/* The compact text of what was read. */
static void expect_text(const char *text, unsigned flags, const char *want)
{
    wf_json_error e;
    wf_text t = {0};
    wf_json *v = parse(text, flags, &e);
    if (!v) fail_msg("%s: %s", text, e.text);
    wf_json_put(&t, v);
    assert_string_equal(t.data, want);
    free(t.data);
    wf_json_free(v);
}

static void expect_row(char *const *column)
{
    wf_json_error e = {0};
    if (strcmp(column[0], "bad")) {
        expect_text(column[1], !strcmp(column[0], "loose") ? WF_JSON_LOOSE : 0, column[2]);
        return;
    }
    if (parse(column[1], 0, &e)) fail_msg("was read: %s", column[1]);
    assert_true(e.line && e.column && e.text[0]);
    assert_null(parse(column[1], 0, NULL));
}

static void good_and_bad(void **state)
{
    (void)state;
    each_row("tests/unit/json.txt", 3, expect_row);
    assert_null(wf_json_read("[1\0]", 4, NULL, NULL));
    assert_null(parse("{\"a\":1,\"a\":1}", WF_JSON_UNIQUE, NULL));
    assert_null(parse("\"\\ud800\\u12\"", WF_JSON_LOOSE, NULL));
}

static void places(void **state)
{
    static const struct {
        const char *text, *says, *name;
        int fault;
        size_t line, column;
    } rows[] = {
        {"[\n x", "expected a value", "", WF_JSON_SYNTAX, 2, 2},
        {"{\"a\": 1,\n  b}", "expected a string", "", WF_JSON_SYNTAX, 2, 3},
        {"{\"a\" 1}", "expected :", "a", WF_JSON_SYNTAX, 1, 6},
        {"[1 2]", "expected , or ]", "", WF_JSON_SYNTAX, 1, 4},
        {"{\"a\":1 2}", "expected , or }", "", WF_JSON_SYNTAX, 1, 8},
        {"{\"s\": [1, {\"t\": 1e999}]}", "too large", "s", WF_JSON_TOO_LARGE, 1, 17},
        {"{\"q\": 1, \"seed\": 1e999}", "too large", "seed", WF_JSON_TOO_LARGE, 1, 18},
        {"{\"a\":{\"x\":1,\"x\":2}}", "duplicate key 'x'", "a", WF_JSON_SYNTAX, 1, 18},
        {"[] []", "nothing more", "", WF_JSON_SYNTAX, 1, 4},
        {"{\"n\": \"\\ud800\"}", "surrogates", "n", WF_JSON_SYNTAX, 1, 8},
    };
    (void)state;
    for (size_t i = 0; i < WF_LEN(rows); i++) {
        wf_json_error e;
        assert_null(parse(rows[i].text, WF_JSON_UNIQUE, &e));
        if (!strstr(e.text, rows[i].says)) fail_msg("%s: %s", rows[i].text, e.text);
        assert_string_equal(e.name, rows[i].name);
        assert_int_equal(e.fault, rows[i].fault);
        assert_int_equal(e.line, rows[i].line);
        assert_int_equal(e.column, rows[i].column);
    }
}

static char *nested(const char *open, const char *close, size_t n)
{
    char *text = calloc(n, strlen(open) + strlen(close) + 1), *p = text;
    for (size_t i = 0; i < n; i++) p = stpcpy(p, open);
    for (size_t i = 0; i < n; i++) p = stpcpy(p, close);
    return text;
}

static void limits(void **state)
{
    wf_json_error e;
    wf_json *v;
    (void)state;
    for (size_t n = 1; n <= 1000000; n = n < 257 ? n * 16 + n / 256 : n * 10) { /* 1, 16, 256, 257 x 16, ... */
        char *lists = nested("[", "]", n), *objects = nested("{\"a\":{\"b\":", "}}", n);
        v = wf_json_read(lists, strlen(lists), NULL, &e);
        assert_int_equal(v != NULL, n <= WF_JSON_MAX_DEPTH);
        if (!v) assert_int_equal(e.fault, WF_JSON_TOO_DEEP);
        wf_json_free(v);
        assert_int_equal(wf_json_whole(lists, strlen(lists)), n <= 64);
        assert_null(wf_json_read(objects, strlen(objects), NULL, &e)); /* their last value is missing */
        free(lists);
        free(objects);
    }
    const wf_json_rules depth = {.depth = 2}, values = {.values = 4};
    v = wf_json_read("[[],{}]", 7, &depth, &e), assert_non_null(v), wf_json_free(v);
    assert_null(wf_json_read("[[[]]]", 6, &depth, &e));
    v = wf_json_read("[{\"a\":1}]", 9, &values, &e), assert_non_null(v),
    wf_json_free(v); /* the list, the object, a name, its value */
    assert_null(wf_json_read("[{\"a\":1},0]", 11, &values, &e));
    assert_int_equal(e.fault, WF_JSON_TOO_MANY);
    assert_null(wf_json_read("", (size_t)1 << 33, NULL, &e));
    assert_int_equal(e.fault, WF_JSON_TOO_MANY);
}

static void lookup(void **state)
{
    (void)state;
    for (size_t n = 0; n < 3000; n = n < 40 ? n + 1 : n * 3) {
        wf_text t = {0};
        wf_text_print(&t, "{");
        for (size_t i = 0; i < 2 * n; i++)
            wf_json_comma(&t), wf_json_print(&t, "'key%zu':%zu", i % n * 7, i); /* each twice */
        wf_text_print(&t, "}");
        wf_json *v = wf_json_read(t.data, t.len, NULL, NULL);
        assert_int_equal(wf_json_size(v), n);
        size_t at = 0;
        WF_JSON_EACH_MEMBER (m, v) {
            char name[32];
            snprintf(name, sizeof name, "key%zu", at * 7);
            assert_string_equal(m->name.text, name);
            assert_int_equal(m->value.i, n + at++); /* the last one, in the first one's place */
            assert_ptr_equal(wf_json_get(v, name), &m->value);
        }
        assert_int_equal(at, n);
        assert_null(wf_json_get(v, "key"));
        assert_null(wf_json_get(v, ""));
        assert_null(n ? parse(t.data, WF_JSON_UNIQUE, NULL) : NULL);
        wf_json_free(v);
        free(t.data);
    }
}

static void values(void **state)
{
    wf_json *v =
        parse("{\"u\":7,\"f\":1.5,\"b\":true,\"s\":\"x\",\"n\":null,\"l\":[1,\"two\",18446744073709551615],\"o\":{}}",
              0, NULL);
    const wf_json *o;
    uint32_t u = 1;
    float f = 0;
    bool b = false;
    const char *s = NULL;
    (void)state;
    assert_ok(wf_json_u32(v, "u", &u)), assert_int_equal(u, 7);
    assert_ok(wf_json_u32(v, "n", &u)), assert_ok(wf_json_u32(v, "none", &u)), assert_int_equal(u, 7);
    assert_int_equal(wf_json_u32(v, "f", &u), WEFT_ERR_FORMAT);
    assert_ok(wf_json_float(v, "f", &f)), assert_true(f == 1.5f);
    assert_int_equal(wf_json_float(v, "s", &f), WEFT_ERR_FORMAT);
    assert_ok(wf_json_bool(v, "b", &b)), assert_true(b);
    assert_int_equal(wf_json_bool(v, "u", &b), WEFT_ERR_FORMAT);
    assert_ok(wf_json_str(v, "s", &s)), assert_string_equal(s, "x");
    assert_int_equal(wf_json_str(v, "l", &s), WEFT_ERR_FORMAT);
    assert_ok(wf_json_array(v, "l", &o)), assert_int_equal(wf_json_count(o), 3);
    assert_true(wf_json_number(wf_json_at(o, 2)) == 0x1p64), assert_int_equal(wf_json_int(wf_json_at(o, 2)), 0);
    assert_null(wf_json_at(o, 3)), assert_null(wf_json_at(v, 0));
    size_t n = 0;
    WF_JSON_EACH (one, o) n += one->kind;
    assert_int_equal(n, WF_JSON_INT + WF_JSON_STRING + WF_JSON_UINT);
    assert_ok(wf_json_object(v, "o", &o)), assert_non_null(o), assert_int_equal(wf_json_size(o), 0);
    assert_ok(wf_json_object(v, "n", &o)), assert_null(o);
    assert_int_equal(wf_json_object(v, "l", &o), WEFT_ERR_FORMAT);
    assert_null(wf_json_text(NULL)), assert_null(wf_json_get(NULL, "a")), assert_true(wf_json_absent(NULL));
    WF_JSON_EACH (one, wf_json_get(v, "s")) fail();
    wf_json_free(v);
    wf_json_free(NULL);
}

static void in_place(void **state)
{
    static const char text[] = " {\"a\\n\": [1, 2], \"b\":\"}\\\"\"} tail";
    const char *at = text + 2, *end = text + sizeof text - 1;
    wf_slice name, value;
    wf_json_progress p = {0};
    (void)state;
    assert_ptr_equal(wf_json_end(text, end), strstr(text, " tail"));
    assert_true(wf_json_next(&at, end, &name, &value));
    assert_memory_equal(name.p, "a\\n", name.n), assert_memory_equal(value.p, "[1, 2]", value.n);
    assert_true(wf_json_next(&at, end, &name, &value));
    assert_memory_equal(name.p, "b", name.n), assert_memory_equal(value.p, "\"}\\\"\"", value.n);
    assert_false(wf_json_next(&at, end, &name, &value));
    size_t closed = 1;
    while (!wf_json_closes(&p, text[closed])) closed++;
    assert_ptr_equal(text + closed + 1, strstr(text, " tail"));
    for (size_t n = 1; n < closed; n++) assert_null(wf_json_end(text, text + n)); /* cut anywhere */
    assert_true(wf_json_whole("\"\\ud800\"", 8)), assert_false(wf_json_whole("\"\\u0000\"", 8)),
        assert_false(wf_json_whole("1 2", 3)), assert_false(wf_json_whole("", 0));
}

static void written(void **state)
{
    wf_text t = {0};
    const char *volatile none = NULL; /* the compiler is not to know */
    (void)state;
    wf_json_print(&t,
                  "{'s':%s,'n':%s,'cut':%.*s,'t':%hhd,'f':%hhd,'i':%d,'u':%u,'ll':%lld,'llu':%llu,'z':%zu,'g':%g,'g9':%"
                  ".9g,'inf':%g,'list':[",
                  "a\"\\/\n\x01\xFF\xC3\xA9", none, 2, "abc", true, false, -1, UINT32_MAX, (long long)INT64_MIN,
                  (unsigned long long)UINT64_MAX, (size_t)5, 0.1, (double)0.1f, (double)INFINITY);
    for (int i = 0; i < 3; i++) wf_json_comma(&t), wf_json_print(&t, "%d", i);
    wf_json_print(&t, "]}");
    assert_string_equal(
        t.data, "{\"s\":\"a\\\"\\\\/"
                "\\n\\u0001\xEF\xBF\xBD\xC3\xA9\",\"n\":null,\"cut\":\"ab\",\"t\":true,\"f\":false,\"i\":-1,\"u\":"
                "4294967295,\"ll\":-9223372036854775808,"
                "\"llu\":18446744073709551615,\"z\":5,\"g\":0.1,\"g9\":0.100000001,\"inf\":null,\"list\":[0,1,2]}");
    free(t.data);
    for (uint64_t i = 0; i < 20000; i++) { /* any real, and any with few digits */
        uint64_t bits = wf_random(1, i);
        double x, few = (double)(int64_t)bits / (double)(1ull << (i % 64));
        memcpy(&x, &bits, sizeof x);
        wf_text r = {0};
        wf_json_print(&r, "[%g,%g,%lld]", isfinite(x) ? x : 0, few, (long long)bits);
        wf_json *v = parse(r.data, 0, NULL);
        assert_true(wf_json_at(v, 0)->real == (isfinite(x) ? x : 0) && wf_json_at(v, 1)->real == few &&
                    wf_json_at(v, 2)->i == (int64_t)bits);
        wf_json_free(v);
        free(r.data);
    }
}

/* Wherever memory ends, there is a whole result or none, and nothing is left behind. */
static void no_memory(void **state)
{
    static const char text[] = "{\"a\":[1,2,{\"b\":\"text\\n\"}],\"c\":{\"1\":1,\"2\":2,\"3\":3,\"4\":4,\"5\":5,\"6\":"
                               "6,\"7\":7,\"8\":8,\"9\":9}}";
    (void)state;
    for (int k = 0, done = 0; !done; k++) {
        wf_json_error e = {0};
        wf_text t = {0};
        atomic_store(&test_alloc_countdown, k);
        wf_json *v = wf_json_read(text, strlen(text), NULL, &e);
        if (v) wf_json_put(&t, v);
        done = atomic_exchange(&test_alloc_countdown, -1) >= 0;
        if (!v) assert_int_equal(e.fault, WF_JSON_NO_MEMORY);
        if (v && !t.failed) assert_string_equal(t.data, text);
        if (done) assert_true(v && !t.failed && k > 3);
        free(t.data);
        wf_json_free(v);
    }
}

SUITE(json, NULL, NULL, CASE(good_and_bad), CASE(places), CASE(limits), CASE(lookup), CASE(values), CASE(in_place),
      CASE(written), CASE(no_memory))
