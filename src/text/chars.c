/* chars: what counts as a space and as part of a word where added tokens are found and text is stripped: the classes \s
 * and \w of Rust's regex, which Hugging Face's tokenizers use (Unicode's White_Space; Alphabetic, marks, digits,
 * connectors and joiners). */
#include "text/internal.h"

#include <utf8proc.h>

static utf8proc_int32_t char_at(const char *p, size_t len, size_t *n)
{
    utf8proc_int32_t c = -1;
    *n = len ? wf_utf8_len(p, len) : 0;
    if (*n) utf8proc_iterate((const uint8_t *)p, (utf8proc_ssize_t)*n, &c);
    return c;
}

static utf8proc_int32_t char_before(const char *p, size_t len, size_t *n)
{
    for (size_t k = 1; k <= 4 && k <= len; k++) {
        utf8proc_int32_t c = char_at(p + len - k, k, n);
        if (c >= 0 && *n == k) return c;
    }
    *n = 0;
    return -1;
}

static bool is_space(utf8proc_int32_t c)
{
    return (c >= 9 && c <= 13) || c == ' ' || c == 0x85 || c == 0xa0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200a) ||
           c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000;
}

/* Alphabetic, beside letters and letter numbers, are the circled and squared ones. */
static bool is_word(utf8proc_int32_t c)
{
    if (c < 0) return false;
    if ((c >= 0x24b6 && c <= 0x24e9) || (c >= 0x1f130 && c <= 0x1f149) || (c >= 0x1f150 && c <= 0x1f169) ||
        (c >= 0x1f170 && c <= 0x1f189))
        return true;
    utf8proc_category_t k = utf8proc_category(c);
    bool letter = k >= UTF8PROC_CATEGORY_LU && k <= UTF8PROC_CATEGORY_LO,
         mark = k >= UTF8PROC_CATEGORY_MN && k <= UTF8PROC_CATEGORY_ME;
    return letter || mark || k == UTF8PROC_CATEGORY_ND || k == UTF8PROC_CATEGORY_NL || k == UTF8PROC_CATEGORY_PC ||
           c == 0x200c || c == 0x200d;
}

size_t wf_space_at(const char *p, size_t len)
{
    size_t n;
    return is_space(char_at(p, len, &n)) ? n : 0;
}

size_t wf_space_before(const char *p, size_t len)
{
    size_t n;
    return is_space(char_before(p, len, &n)) ? n : 0;
}

bool wf_word_at(const char *p, size_t len)
{
    size_t n;
    return is_word(char_at(p, len, &n));
}

bool wf_word_before(const char *p, size_t len)
{
    size_t n;
    return is_word(char_before(p, len, &n));
}
