/* log: lines of the log and messages are whole, or end in "…" behind a whole character. */
#include "base/base.h"
#include "base/options.h"
#include "support/suite.h"

static char line[8192];

static void keep(void *user, enum weft_log_level level, const char *text)
{
    wf_copy(line, sizeof line, text);
}

/* Is got all of want, or its longest beginning of whole characters with the sign behind it? */
static void is_cut(const char *got, const char *want, size_t cap)
{
    size_t n = strlen(got), sign = strlen(WF_CUT);
    assert_true(n < cap);
    assert_int_equal(wf_utf8_valid(got, n), n);
    if (strlen(want) < cap) {
        assert_string_equal(got, want);
        return;
    }
    assert_true(n >= sign && n + 4 > cap - 1);
    assert_string_equal(got + n - sign, WF_CUT);
    assert_memory_equal(got, want, n - sign);
}

/* Characters of one to four bytes, at every place of the end. */
static void every_length(void **state)
{
    static const char text[] = "aé…😀bü–🧵 and so on, é…😀";
    char shown[64], named[64];
    for (size_t cap = 5; cap < sizeof shown; cap++) {
        wf_show(shown, cap, text);
        is_cut(shown, text, cap);
        wf_name_options(named, cap, text);
        is_cut(named, text, cap);
    }
}

static void options_for_parameters(void **state)
{
    char named[128];
    wf_name_options(named, sizeof named,
                    "take weft_cost_params.n_devices, weft_cost_params.devices or weft_model_params.path");
    assert_string_equal(named, "take --tp, WEFT_DEVICE_TABLE or -m FILE");
}

static void escapes_are_whole(void **state)
{
    char shown[12];
    wf_show(shown, sizeof shown, "\x1b\x1b");
    assert_string_equal(shown, "\\x1b\\x1b");
    wf_show(shown, sizeof shown, "\x1b\x1b\x1b");
    assert_string_equal(shown, "\\x1b\\x1b" WF_CUT);
    wf_show(shown, sizeof shown, "\x1b\x1b" "abc");
    assert_string_equal(shown, "\\x1b\\x1b" "abc");
    wf_show(shown, 11, "\x1b\x1b" "abc");
    assert_string_equal(shown, "\\x1b" WF_CUT);
    wf_show(shown, 3, "abcd");
    assert_string_equal(shown, "ab"); /* no room for the sign */
}

static void long_lines(void **state)
{
    char text[2048] = "";
    weft_log_to(keep, NULL, WEFT_LOG_WARN);
    for (size_t n = 0; n + 3 < sizeof text; n += 3) {
        wf_log(WEFT_LOG_WARN, "%s", text);
        is_cut(line, text, 1024);
        is_cut((wf_fail(WEFT_ERR_ARG, "%s", text), weft_last_error()), text, 1024);
        is_cut(wf_last_error(), text, 1024);
        memcpy(text + n, "€", 4);
    }
    weft_log_to(NULL, NULL, WEFT_LOG_WARN);
}

SUITE(log, NULL, NULL, CASE(every_length), CASE(options_for_parameters), CASE(escapes_are_whole), CASE(long_lines))
