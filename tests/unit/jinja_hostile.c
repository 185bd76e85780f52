/* jinja_hostile: templates that would run for ever, nest without end or fill the memory fail with a message, soon; so
 * do texts that are no templates and data that is no JSON. Every allocation of a rendering fails once, and nothing is
 * left behind (for LeakSanitizer to judge). */
#include "support/wraps.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "jinja/jinja.h"
#include "support/suite.h"

static const struct weft_message turns[] = {
    {"system", "Be brief."}, {"user", "Hello <|im_end|>"}, {"assistant", "Hi"}, {"user", "Who are you?"}};

static weft_status render(const char *text, size_t len, const char *messages, wf_jinja_output *out)
{
    wf_jinja_input in = {.name = "chat template",
                         .text = text,
                         .len = len,
                         .bos = "<s>",
                         .eos = "</s>",
                         .messages = messages,
                         .turns = turns,
                         .n_turns = WF_LEN(turns),
                         .kwargs = "{\"x\": [1, {\"y\": \"z\"}]}",
                         .add_generation_prompt = true};
    return wf_jinja_render(&in, out);
}

static void expect_error(weft_status want, const char *word, const char *text)
{
    wf_jinja_output out;
    weft_status s = render(text, strlen(text), NULL, &out);
    if (s != want || !strstr(wf_error(), word)) fail_msg("%.60s: status %d, %s", text, s, s ? wf_error() : out.text);
    assert_null(out.text);
}

static void endless(void **state)
{
    static const char *const texts[] = {
        "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
        "{% for a in range(99999) %}{% for b in range(99999) %}{{ a * b }}{% endfor %}{% endfor %}",
        "{% set ns = namespace(s='x' * 1000000) %}{% for a in range(99999) %}{% if 'y' in ns.s %}{% endif %}{% endfor "
        "%}",
        "{% set s = 'ab' * 1000000 %}{% for a in range(99999) %}{% set t = s | replace('a', 'bb') | upper %}{% endfor "
        "%}",
        "{% set l = range(99999) | list %}{% for a in range(99999) %}{% set t = l | sort(reverse=true) %}{% endfor %}",
        "{% set l = range(99999) | list %}{% for a in l %}{% if -1 in l %}{% endif %}{% endfor %}",
        "{% set s = 'ab' * 1000000 %}{% for a in range(99999) %}{{ s.count('ba') }}{{ s | length }}{{ s[999999] }}{% "
        "endfor %}",
    };
    for (size_t i = 0; i < WF_LEN(texts); i++) expect_error(WEFT_ERR_FULL, "the template takes more than", texts[i]);
}

static uint64_t asked_ns, longest_ns;

/* Of this thread, whatever else the machine does. */
static uint64_t worked_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static bool ask(void *user)
{
    uint64_t now = worked_ns(), ns = now - asked_ns;
    (void)user;
    if (ns > longest_ns) longest_ns = ns;
    asked_ns = now;
    return false;
}

/* What is one step whatever its length would hold up whoever wants the end: between two questions whether to stop there
 * is a fiftieth of the second that an end may take. */
static void polls(void **state)
{
    static const char *const texts[] = {
        "{% for a in r %}{% if s == t %}{% endif %}{% endfor %}",
        "{% for a in r %}{% if s < t %}{% endif %}{% endfor %}",
        "{% for a in r %}{% if [s] == [t] %}{% endif %}{% endfor %}",
        "{% for a in r %}{{ s.startswith(t) }}{{ s.endswith(t) }}{% endfor %}",
        "{% for a in r %}{{ s.startswith((t, t, t)) }}{{ s.removeprefix(t) | length }}{% endfor %}",
        "{% for a in r %}{{ {s: 1}[t] }}{{ d.get(t) }}{{ t in d }}{% endfor %}",
        "{% set d = {s: 1} %}{% for a in r %}{{ dict(**d) | length }}{% endfor %}",
        "{% set x = 'a' * 100000 ~ 'b' %}{% for a in r %}{{ s.rfind(x) }}{{ s.rsplit(x, 1) | length }}{% endfor %}",
        "{% for a in r %}{{ (s ~ 'b').strip('b' ~ s) }}{{ s.rpartition('b' ~ s) | length }}{% endfor %}",
        "{% for a in r %}{{ (' ' * 1000000) | int }}{{ (' ' * 1000000) | float }}{% endfor %}",
        "{% for a in r %}{{ s.isalpha() }}{{ s is upper }}{{ s | wordcount }}{{ s.center(5) | length }}{% endfor %}",
        "{% for a in r %}{{ s | truncate }}{{ s.find('b') }}{{ s.split('b') | length }}{{ s.splitlines() | length }}{% "
        "endfor %}",
        "{% for a in r %}{{ f(*s) }}{% endfor %}",
        "{% for a in r %}{{ s | striptags | length }}{{ ('<' * 1000000) | striptags | length }}{% endfor %}",
        "{% for a in r %}{{ s | list | groupby(0) | length }}{% endfor %}",
    };
    wf_stop_by(ask, NULL);
    for (size_t i = 0; i < WF_LEN(texts); i++) {
        char all[512];
        snprintf(all, sizeof all,
                 "{%% set r = range(99999) %%}{%% set s = 'a' * 1000000 %%}{%% set t = s ~ '' %%}{%% set d = {'k': 1} "
                 "%%}{%% macro f() %%}{%% endmacro %%}%s",
                 texts[i]);
        asked_ns = worked_ns(), longest_ns = 0;
        expect_error(WEFT_ERR_FULL, "the template takes more than", all);
        if (longest_ns > 200000000) fail_msg("%s: nothing was asked for %.2f s", texts[i], (double)longest_ns * 1e-9);
    }
    wf_stop_by(NULL, NULL);
}

static void huge(void **state)
{
    static const char *const texts[] = {
        "{{ 'x' * 999999999999 }}",
        "{{ [1] * 999999999 }}",
        "{% set ns = namespace(s='x') %}{% for a in range(60) %}{% set ns.s = ns.s + ns.s %}{% endfor %}",
        "{% set ns = namespace(l=[1]) %}{% for a in range(60) %}{% set ns.l = ns.l + ns.l %}{% endfor %}",
        "{% for a in range(99999) %}{{ 'x' * 100000 }}{% endfor %}",
        "{% set ns = namespace(l=[]) %}{% for a in range(99999) %}{% set ns.l = [ns.l, ns.l] %}{% endfor %}{{ ns.l }}",
    };
    for (size_t i = 0; i < WF_LEN(texts); i++) expect_error(WEFT_ERR_FULL, "the template", texts[i]);
    expect_error(WEFT_ERR_FULL, "a range has at most", "{{ range(100001) }}");
    expect_error(WEFT_ERR_ARG, "too large", "{{ '%99999d' % 1 }}");
    expect_error(WEFT_ERR_ARG, "64 bits", "{{ 99999 ** 99999 }}");
}

/* n times open, the middle, n times close. */
static char *nested(const char *open, const char *middle, const char *close, size_t n)
{
    size_t len = n * (strlen(open) + strlen(close)) + strlen(middle) + 1, at = 0;
    char *text = malloc(len);
    for (size_t i = 0; i < n; i++) at += strlen(strcpy(text + at, open));
    at += strlen(strcpy(text + at, middle));
    for (size_t i = 0; i < n; i++) at += strlen(strcpy(text + at, close));
    text[at] = 0;
    return text;
}

static void deep(void **state)
{
    static const char *const parts[][3] = {
        {"{% if 1 %}", "", "{% endif %}"}, {"{% for x in [1] %}", "", "{% endfor %}"},
        {"{% set x %}", "", "{% endset %}"}, {"{% macro m() %}", "", "{% endmacro %}"}, {"{{ (", "", ""},
        {"{{ [", "", ""}, {"{{ {1:", "", ""}, {"{{ -", "1 }}", ""}, {"{{ not ", "1 }}", ""}};
    for (size_t i = 0; i < WF_LEN(parts); i++) {
        char *text = i < 4 ? nested(parts[i][0], parts[i][1], parts[i][2], 20000)
                           : nested(parts[i][0] + 3, "1", "", 20000);
        char *whole = nested("{{ ", text, " }}", 1);
        expect_error(WEFT_ERR_FULL, "nested deeper", i < 4 ? text : whole);
        free(whole);
        free(text);
    }
    expect_error(WEFT_ERR_FULL, "nested deeper", "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}");
    expect_error(WEFT_ERR_FULL, "nested deeper",
                 "{% set ns = namespace(l=[]) %}{% for a in range(9999) %}{% set ns.l = [ns.l] %}{% endfor %}{{ ns.l "
                 "== ns.l }}{{ ns.l }}{{ ns.l | tojson }}");
    char *chain = nested("", "{{ x", "", 1), *long_chain = nested(".a", "", "", 20000), *all = malloc(60000);
    strcat(strcat(strcpy(all, chain), long_chain), " }}");
    expect_error(WEFT_ERR_UNSUPPORTED, "a shorter chain", all);
    free(chain), free(long_chain), free(all);
}

static void places(void **state)
{
    expect_error(WEFT_ERR_UNSUPPORTED, "line 3, column 8: expected a name, found '='", "a\n\n{% for = %}");
    expect_error(WEFT_ERR_UNSUPPORTED, "line 2, column 4: expected a statement", "{{ 1 }}\n{% import 'x' %}");
    expect_error(WEFT_ERR_ARG, "line 1, column 8: 'nope' is undefined", "{{ nope.x }}");
    expect_error(WEFT_ERR_ARG, "refuses the conversation: no\\x1b", "{{ raise_exception('no\\x1b') }}");
    expect_error(WEFT_ERR_UNSUPPORTED, "there is no filter 'frob'", "{{ 1 | frob }}");
    wf_jinja_output out;
    assert_error(render("a\xff", 2, NULL, &out), WEFT_ERR_UNSUPPORTED, "UTF-8 at byte 1");
    static const char *const bad[] = {
        "", "[", "[{]", "{}", "[1]", "[{\"role\": \"a}]", "[{\"a\": 01}]", "[{}] x", "[{\"a\": \"\\u12\"}]",
        "[{\"a\": \"\xff\"}]"};
    for (size_t i = 0; i < WF_LEN(bad); i++)
        if (render("x", 1, bad[i], &out) != WEFT_ERR_ARG) fail_msg("%s", bad[i]);
    char *deep_json = nested("[", "", "]", 100000);
    assert_int_equal(render("x", 1, deep_json, &out), WEFT_ERR_FULL);
    free(deep_json);
    assert_int_equal(render("{{ messages[0].a }}", 19, "[{\"a\": 99999999999999999999}]", &out),
                     WEFT_OK); /* more than 64 bits */
    assert_string_equal(out.text, "99999999999999999999");
    wf_jinja_output_free(&out);
}

static void no_memory(void **state)
{
    static const char text[] = "{% for m in messages %}{{ m.role | upper }}: {{ m.content | replace('l', 'LL') }}\n{% "
                               "endfor %}{{ x | tojson(indent=2) }}{{ 'x' * 300000 }}{{ range(5000) | list }}";
    for (int i = 0;; i++) {
        wf_jinja_output out;
        test_alloc_countdown = i;
        weft_status s = render(text, sizeof text - 1, NULL, &out);
        bool reached = test_alloc_countdown < 0;
        test_alloc_countdown = -1;
        assert_int_equal(s, reached ? WEFT_ERR_NOMEM : WEFT_OK);
        wf_jinja_output_free(&out);
        if (!reached) {
            assert_true(i > 5);
            return;
        }
        assert_says("out of host memory");
    }
}

SUITE(jinja_hostile, NULL, NULL, CASE(endless), CASE(polls), CASE(huge), CASE(deep), CASE(places), CASE(no_memory))
