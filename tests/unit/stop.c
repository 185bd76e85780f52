/* stop: where a text ends by a stop text, for texts that come in pieces. */
#include "engine/engine.h"
#include "support/suite.h"

typedef struct row {
    const char *stops[2], *pieces[8];
    bool include;
    const char *want;
    size_t found; /* the number of the text; 0: none is complete */
} row;

static const row rows[] = {
    {{"ab", "abc"}, {"xabcd"}, true, "xabc", 2}, /* of those that begin at one place the longest */
    {{"abc", "ab"}, {"xabcd"}, true, "xabc", 1},
    {{"ab", "abc"}, {"xabcd"}, false, "x", 2},
    {{"ab", "abc"}, {"xa", "bcd"}, true, "xabc", 2},
    {{"ab", "abc"}, {"x", "a", "b", "c", "d"}, true, "xab", 1}, /* the first that is complete */
    {{"bc", "ab"}, {"xabc"}, true, "xab", 2},                   /* the one that begins first */
    {{"abd", "zz"}, {"xa", "b", "abd", "y"}, false, "xab", 1},  /* a false start before it */
    {{"aab", "zz"}, {"a", "a", "a", "b"}, false, "a", 1},
    {{"abc", "zz"}, {"xa", "b"}, false, "xab", 0}, /* the end of the text shows what was held back */
};

static void check(const row *r)
{
    wf_stop s;
    char text[64] = "";
    const char *out;
    size_t n;
    assert_ok(wf_stop_init(&s, r->stops, 2, r->include));
    for (size_t i = 0; i < WF_LEN(r->pieces) && r->pieces[i] && !s.found; i++) {
        assert_ok(wf_stop_add(&s, true, r->pieces[i], strlen(r->pieces[i]), &out, &n));
        strncat(text, out, n);
    }
    n = wf_stop_end(&s, &out);
    strncat(text, out, n);
    assert_string_equal(text, r->want);
    assert_int_equal(s.found, r->found);
    wf_stop_free(&s);
}

static void test_rows(void **state)
{
    for (size_t i = 0; i < WF_LEN(rows); i++) check(&rows[i]);
}

SUITE(stop, NULL, NULL, CASE(test_rows))
