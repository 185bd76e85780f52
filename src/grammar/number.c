/* Numbers: bounds, multiples, and whether the digits so far can become one that keeps to them. All is exact: numbers
 * are compared as decimal digits. */
#include "grammar/internal.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- decimal numbers ------------------------------------------------------------------------------------ */

bool dec_read(const char *text, size_t n, dec *out)
{
    *out = (dec){0};
    size_t i = 0;
    bool point = false;
    if (i < n && text[i] == '-') out->negative = true, i++;
    for (; i < n && (isdigit((unsigned char)text[i]) || text[i] == '.'); i++) {
        if (text[i] == '.') {
            point = true;
            continue;
        }
        if (!point) out->point++;
        if (text[i] == '0' && !out->n) {
            out->point--; /* a leading zero */
            continue;
        }
        if (out->n == DEC_DIGITS) {
            if (text[i] != '0') return false;
            continue;
        }
        out->digits[out->n++] = text[i];
    }
    if (i < n && (text[i] | 32) == 'e') out->point += atoi(text + i + 1);
    while (out->n && out->digits[out->n - 1] == '0') out->n--;
    if (!out->n) *out = (dec){0};
    return true;
}

static int compare_size(const dec *a, const dec *b)
{
    if (!a->n || !b->n) return (a->n > 0) - (b->n > 0);
    if (a->point != b->point) return a->point < b->point ? -1 : 1;
    int c = memcmp(a->digits, b->digits, (size_t)WF_MIN(a->n, b->n));
    return c ? c : a->n - b->n;
}

int dec_compare(const dec *a, const dec *b)
{
    if (a->negative != b->negative) return a->negative ? -1 : 1;
    return a->negative ? -compare_size(a, b) : compare_size(a, b);
}

dec dec_of_json(wf_grammar *g, const wf_json *v)
{
    char text[80] = {0};
    wf_text t = {0};
    dec out;
    if (!isfinite(wf_json_number(v))) grammar_fail(g, "a number that is too large");
    wf_json_put(&t, v);
    bool fits = t.data && t.len < sizeof text;
    if (fits) memcpy(text, t.data, t.len);
    size_t n = t.len;
    free(t.data);
    if (!fits || !dec_read(text, n, &out)) grammar_fail(g, "a number with too many digits");
    return out;
}

/* ---- rules ---------------------------------------------------------------------------------------------- */

void number_low(number_rule *r, const dec *d, bool open)
{
    int c = r->has_low ? dec_compare(d, &r->low) : 1;
    if (c > 0) r->low = *d, r->low_open = open;
    if (c == 0) r->low_open |= open;
    r->has_low = true;
}

void number_high(number_rule *r, const dec *d, bool open)
{
    int c = r->has_high ? dec_compare(d, &r->high) : -1;
    if (c < 0) r->high = *d, r->high_open = open;
    if (c == 0) r->high_open |= open;
    r->has_high = true;
}

/* Both as whole numbers of one scale. */
static void multiple_both(wf_grammar *g, number_rule *r, uint64_t m, int scale)
{
    if (!r->multiple) {
        r->multiple = m, r->scale = scale;
        return;
    }
    uint64_t a = r->multiple, b = m;
    int at = WF_MAX(r->scale, scale);
    for (int i = r->scale; i < at; i++)
        if (__builtin_mul_overflow(a, 10u, &a)) grammar_fail(g, "multipleOf is too large");
    for (int i = scale; i < at; i++)
        if (__builtin_mul_overflow(b, 10u, &b)) grammar_fail(g, "multipleOf is too large");
    uint64_t x = a, y = b;
    while (y) {
        uint64_t t = x % y;
        x = y, y = t;
    }
    if (__builtin_mul_overflow(a / x, b, &r->multiple) || r->multiple > 1000000000000000000u)
        grammar_fail(g, "multipleOf is too large");
    r->scale = at;
}

void number_multiple(wf_grammar *g, number_rule *r, const wf_json *v)
{
    dec d = dec_of_json(g, v);
    if (d.negative || !d.n) grammar_fail(g, "multipleOf is not above 0");
    if (d.n > 17 || d.point > 17 || d.point - d.n < -15) grammar_fail(g, "multipleOf has too many digits");
    uint64_t m = 0;
    for (int i = 0; i < d.n; i++) m = m * 10 + (uint64_t)(d.digits[i] - '0');
    for (int i = d.n; i < d.point; i++) m *= 10;
    multiple_both(g, r, m, WF_MAX(0, d.n - d.point));
}

void number_both(wf_grammar *g, number_rule *r, const number_rule *more)
{
    if (more->has_low) number_low(r, &more->low, more->low_open);
    if (more->has_high) number_high(r, &more->high, more->high_open);
    if (more->multiple) multiple_both(g, r, more->multiple, more->scale);
}

/* ---- ranges of whole numbers, in units of 10^-scale ----------------------------------------------------- */

typedef __int128 wide;
#define WIDE_MAX ((wide)1 << 110)

/* d in units of 10^-scale, rounded down or up; at most WIDE_MAX in size. */
static wide wide_of(const dec *d, int scale, bool up)
{
    wide v = 0;
    bool rest = false;
    for (int i = 0; i < d->n || i < d->point + scale; i++) {
        if (i >= d->point + scale) {
            rest = true; /* digits are left, and the last of them is not 0 */
            break;
        }
        v = v * 10 + (i < d->n ? d->digits[i] - '0' : 0);
        if (v > WIDE_MAX) v = WIDE_MAX;
    }
    if (d->n && d->point + scale < 0) rest = true;
    if (rest && up != d->negative) v++;
    return d->negative ? -v : v;
}

static wide floor_to(wide v, wide m) { return v >= 0 ? v / m * m : -((-v + m - 1) / m * m); }

/* Is there a number of the rule from a to b? */
static bool wide_between(const number_rule *r, int scale, wide m, wide a, wide b)
{
    if (r->has_low) {
        wide low = wide_of(&r->low, scale, true);
        if (r->low_open && low == wide_of(&r->low, scale, false)) low++;
        a = WF_MAX(a, low);
    }
    if (r->has_high) {
        wide high = wide_of(&r->high, scale, false);
        if (r->high_open && high == wide_of(&r->high, scale, true)) high--;
        b = WF_MIN(b, high);
    }
    return floor_to(b, m) >= a && b >= a;
}

/* Whole numbers and multiples have a unit: its scale, and how many of 10^-scale it is. */
static bool has_unit(const number_rule *r, bool whole, int *scale, wide *unit)
{
    *scale = r->multiple ? r->scale : 0;
    *unit = r->multiple ? (wide)r->multiple : 1;
    if (whole && r->multiple) { /* of both: the least common multiple */
        wide one = 1;
        for (int i = 0; i < r->scale; i++) one *= 10;
        wide x = *unit, y = one;
        while (y) {
            wide t = x % y;
            x = y, y = t;
        }
        *unit = *unit / x * one;
    }
    return whole || r->multiple;
}

bool number_none(const number_rule *r, bool whole)
{
    int scale;
    wide unit;
    if (has_unit(r, whole, &scale, &unit)) return !wide_between(r, scale, unit, -WIDE_MAX, WIDE_MAX);
    int c = r->has_low && r->has_high ? dec_compare(&r->low, &r->high) : -1;
    return c > 0 || (c == 0 && (r->low_open || r->high_open));
}

/* ---- a number that is being written --------------------------------------------------------------------- */

static bool in_range(const number_rule *r, const dec *d)
{
    int low = r->has_low ? dec_compare(d, &r->low) : 1, high = r->has_high ? dec_compare(d, &r->high) : -1;
    return (low > 0 || (low == 0 && !r->low_open)) && (high < 0 || (high == 0 && !r->high_open));
}

typedef struct written {
    const char *digits;            /* behind the sign */
    int n, n_whole, n_frac, n_exp; /* -1: no point, no e */
    bool negative, exp_negative, exp_sign;
} written;

static written read_written(const char *text, int n)
{
    written w = {.n_frac = -1, .n_exp = -1};
    int i = n && *text == '-';
    w.negative = i, w.digits = text + i, w.n = n - i;
    for (; i < n && isdigit((unsigned char)text[i]); i++) w.n_whole++;
    if (i < n && text[i] == '.')
        for (w.n_frac = 0, i++; i < n && isdigit((unsigned char)text[i]); i++) w.n_frac++;
    if (i < n && (text[i] | 32) == 'e') {
        w.n_exp = 0, i++;
        if (i < n && (text[i] == '+' || text[i] == '-')) w.exp_sign = true, w.exp_negative = text[i++] == '-';
        for (; i < n; i++) w.n_exp++;
    }
    return w;
}

static bool zero_text(const char *text, int n)
{
    for (int i = 0; i < n; i++)
        if (isdigit((unsigned char)text[i]) && text[i] != '0') return false;
    return true;
}

bool number_complete(const number_rule *r, bool whole, const char *text, int n)
{
    written w = read_written(text, n);
    dec d;
    int scale;
    wide unit;
    if (!w.n_whole || !w.n_frac || !w.n_exp || !dec_read(text, (size_t)n, &d)) return false;
    if (!in_range(r, &d)) return false;
    if (!has_unit(r, whole, &scale, &unit)) return true;
    if (w.n_exp >= 0 || d.n - d.point > scale) return false;
    wide v = wide_of(&d, scale, false);
    return floor_to(v, unit) == v;
}

/* The numbers that begin with these digits are those from *low to *high once k more digits of the whole part come. */
static void reach(const written *w, int k, dec *low, dec *high)
{
    char a[3 * NUMBER_MAX], b[3 * NUMBER_MAX];
    int n = 0;
    for (; n < w->n_whole; n++) a[n] = b[n] = w->digits[n];
    for (int i = 0; i < k; i++, n++) a[n] = '0', b[n] = '9';
    a[n] = b[n] = '.', n++;
    for (int i = 0; i < w->n_frac; i++, n++) a[n] = b[n] = w->digits[w->n_whole + 1 + i];
    int same = n;
    for (int more = n; n < more + DEC_DIGITS - 2 && n < same + 30; n++) b[n] = '9';
    dec_read(a, (size_t)same, low);
    if (!dec_read(b, (size_t)n, high)) high->n = DEC_DIGITS;
    if (w->negative) {
        dec t = *low;
        *low = *high, *high = t;
        low->negative = high->negative = true;
        if (!high->n) high->negative = false;
    }
}

static bool overlaps(const number_rule *r, const dec *low, const dec *high)
{
    int a = r->has_high ? dec_compare(low, &r->high) : -1, b = r->has_low ? dec_compare(high, &r->low) : 1;
    return (a < 0 || (a == 0 && !r->high_open)) && (b > 0 || (b == 0 && !r->low_open));
}

/* The same for numbers with a unit: from low to high without what is behind the digits that the unit has. */
static bool overlaps_unit(const number_rule *r, int scale, wide unit, const written *w, int k)
{
    wide a = 0, b;
    int digits = 0;
    for (int i = 0; i < w->n_whole; i++, digits++) a = a * 10 + (w->digits[i] - '0');
    for (int i = 0; i < w->n_frac; i++, digits++) a = a * 10 + (w->digits[w->n_whole + 1 + i] - '0');
    int more = w->n_frac >= 0 ? scale - w->n_frac : k + scale;
    if (more < 0 || digits + more > 30) return false;
    b = a;
    for (int i = 0; i < more; i++) a *= 10, b = b * 10 + 9;
    return w->negative ? wide_between(r, scale, unit, -b, -a) : wide_between(r, scale, unit, a, b);
}

static bool exponent_fits(const number_rule *r, bool whole, const written *w, const char *text, int n)
{
    int scale;
    wide unit;
    if (has_unit(r, whole, &scale, &unit) || w->n_exp > 3) return false;
    const char *e = text + n;
    while ((*--e | 32) != 'e') {}
    if (!number_complete(r, whole, text, (int)(e - text))) return false;
    bool zero = zero_text(text, (int)(e - text));
    static const dec none = {0};
    bool smaller = zero || (w->negative ? !r->has_high || dec_compare(&r->high, &none) >= 0
                                        : !r->has_low || dec_compare(&r->low, &none) <= 0);
    bool larger = zero || (w->negative ? !r->has_low : !r->has_high);
    if (w->n_exp == 0 && !w->exp_sign) return smaller || larger;
    if (w->exp_negative) return smaller && !(w->n_exp && !number_complete(r, whole, text, n));
    return larger;
}

bool number_may_go_on(const number_rule *r, bool whole, const char *text, int n)
{
    written w = read_written(text, n);
    static const dec none = {0};
    if (n >= NUMBER_MAX - 1) return number_complete(r, whole, text, n); /* nothing has room behind it */
    if (!w.n) return !r->has_low || dec_compare(&r->low, &none) < 0;
    if (w.n_whole > 1 && w.digits[0] == '0') return false;
    if (w.n_exp >= 0) return exponent_fits(r, whole, &w, text, n);
    if (!r->has_low && !r->has_high && !r->multiple) return !whole || w.n_frac < 0;
    int scale, most = w.n_frac >= 0 || w.digits[0] == '0' ? 0 : WF_MIN(40, NUMBER_MAX - w.n_whole);
    wide unit;
    bool units = has_unit(r, whole, &scale, &unit);
    /* else it could go on without end, and never be one */
    if (w.n_frac > 20 && !number_complete(r, whole, text, n)) return false;
    if (units && w.n_frac >= 0 && (whole || w.n_frac > scale || scale == 0)) return false;
    for (int k = 0; k <= most; k++) {
        dec low, high;
        reach(&w, k, &low, &high);
        if (units ? overlaps_unit(r, scale, unit, &w, k) : overlaps(r, &low, &high)) return true;
        if (w.negative ? r->has_low && dec_compare(&high, &r->low) < 0 : r->has_high && dec_compare(&low, &r->high) > 0)
            return false;
    }
    return false;
}
