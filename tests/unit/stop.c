/* stop: where a text ends by a stop text, for texts that come in pieces. */
#include "engine/engine.h"
#include "support/suite.h"

typedef struct row {
    const char *stops[2], *pieces[8];
    bool include;
    const char *want;
} row;

static const row rows[] = {
    {{"ab", "abc"}, {"xabcd"}, true, "xabc"}, /* of those that begin at one place the longest */
    {{"abc", "ab"}, {"xabcd"}, true, "xabc"},
    {{"ab", "abc"}, {"xabcd"}, false, "x"},
    {{"ab", "abc"}, {"xa", "bcd"}, true, "xabc"},
    {{"ab", "abc"}, {"x", "a", "b", "c", "d"}, true, "xab"}, /* the first that is complete */
    {{"bc", "ab"}, {"xabc"}, true, "xab"},                   /* the one that begins first */
    {{"abd", "zz"}, {"xa", "b", "abd", "y"}, false, "xab"},  /* a false start before it */
    {{"aab", "zz"}, {"a", "a", "a", "b"}, false, "a"},
    {{"abc", "zz"}, {"xa", "b"}, false, "xab"}, /* the end of the text shows what was held back */
};

static void check(const row *r)
{
    wf_stop s;
    char text[64] = "";
    const char *out;
    size_t n;
    bool found = false;
    assert_ok(wf_stop_init(&s, r->stops, 2, r->include));
    for (size_t i = 0; i < WF_LEN(r->pieces) && r->pieces[i] && !found; i++) {
        assert_ok(wf_stop_add(&s, true, r->pieces[i], strlen(r->pieces[i]), &out, &n, &found));
        strncat(text, out, n);
    }
    n = wf_stop_end(&s, &out);
    strncat(text, out, n);
    assert_string_equal(text, r->want);
    wf_stop_free(&s);
}

static void test_rows(void **state)
{
    for (size_t i = 0; i < WF_LEN(rows); i++) check(&rows[i]);
}

SUITE(stop, NULL, NULL, CASE(test_rows))
