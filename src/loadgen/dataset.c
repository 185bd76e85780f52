/* dataset: lengths from traces or random ones, and arrival times. See dataset.h. */
#include "loadgen/dataset.h"
#include "base/file.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define TRACE_BYTES ((size_t)1 << 30)
#define MOST_TOKENS (1u << 24)

/* ---- lists -------------------------------------------------------------------------------- */

weft_status wf_request_specs_add(wf_request_specs *a, wf_request_spec spec)
{
    if (!wf_grow(&a->list, a->n, &a->cap, sizeof *a->list)) {
        free(spec.text);
        return WEFT_ERR_NOMEM;
    }
    a->list[a->n++] = spec;
    return WEFT_OK;
}

void wf_request_specs_free(wf_request_specs *a)
{
    for (size_t i = 0; i < a->n; i++) free(a->list[i].text);
    free(a->list);
    *a = (wf_request_specs){0};
}

weft_status wf_request_specs_repeat(wf_request_specs *a, size_t n)
{
    for (size_t i = 0; a->n && a->n < n; i++) {
        wf_request_spec again = a->list[i];
        if (again.text && !(again.text = wf_strdup(again.text))) return WEFT_ERR_NOMEM;
        WF_TRY(wf_request_specs_add(a, again));
    }
    return WEFT_OK;
}

/* ---- traces ------------------------------------------------------------------------------- */

struct columns {
    int in, out, time; /* -1: not there */
};

/* Copies field `column` of a line to buf; returns false if the line has no such field. */
static bool field(const char *line, int column, char *buf, size_t cap)
{
    for (; column > 0; column--) {
        line = strchr(line, ',');
        if (!line++) return false;
    }
    if (column < 0) return false;
    wf_copy(buf, WF_MIN(strcspn(line, ",\r\n") + 1, cap), line);
    return true;
}

static struct columns read_heading(const char *line)
{
    struct columns c = {-1, -1, -1};
    char name[64];
    for (int i = 0; field(line, i, name, sizeof name); i++) {
        if (!strcmp(name, "ContextTokens")) c.in = i;
        if (!strcmp(name, "GeneratedTokens")) c.out = i;
        if (!strcmp(name, "TIMESTAMP")) c.time = i;
    }
    return c;
}

static bool read_count(const char *line, int column, uint32_t *out)
{
    char text[32], *end;
    if (!field(line, column, text, sizeof text) || text[0] < '0' || text[0] > '9') return false;
    unsigned long v = strtoul(text, &end, 10);
    *out = (uint32_t)v;
    return !*end && v <= MOST_TOKENS;
}

/* Seconds since 1970 of "2023-11-16 18:15:46.6805900"; negative if it is not a date. */
static double read_time(const char *line, int column)
{
    char text[64];
    struct tm t = {0};
    double seconds;
    if (!field(line, column, text, sizeof text)) return -1;
    int got = sscanf(text, "%d-%d-%d%*1[ T]%d:%d:%lf", &t.tm_year, &t.tm_mon, &t.tm_mday,
                     &t.tm_hour, &t.tm_min, &seconds);
    if (got != 6 || !isfinite(seconds)) return -1;
    t.tm_year -= 1900;
    t.tm_mon--;
    time_t whole = timegm(&t);
    return whole < 0 ? -1 : (double)whole + seconds;
}

static weft_status read_line(const char *line, const struct columns *c, double *first, wf_request_specs *out)
{
    wf_request_spec spec = {.at = read_time(line, c->time)};
    if (!read_count(line, c->in, &spec.n_in) || !read_count(line, c->out, &spec.n_out))
        return wf_fail(WEFT_ERR_IO, "token counts must be numbers from 0 to %u", MOST_TOKENS);
    if (spec.at >= 0 && *first < 0) *first = spec.at;
    if (spec.at >= 0) spec.at = WF_MAX(spec.at - *first, 0);
    return wf_request_specs_add(out, spec);
}

static weft_status parse(char *text, wf_request_specs *out)
{
    struct columns c = {-1, -1, -1};
    double first = -1;
    int at = 1;
    for (char *line = text, *next; line; line = next, at++) {
        next = strchr(line, '\n');
        if (next) *next++ = 0;
        line[strcspn(line, "\r")] = 0;
        if (at == 1) c = read_heading(line);
        if (at == 1 && (c.in < 0 || c.out < 0))
            return wf_fail(WEFT_ERR_IO, "the header line needs the columns ContextTokens and GeneratedTokens");
        weft_status s = at > 1 && *line ? read_line(line, &c, &first, out) : WEFT_OK;
        if (s) return wf_fail_context(s, "line %d", at);
    }
    return out->n ? WEFT_OK : wf_fail(WEFT_ERR_IO, "the file contains no requests");
}

weft_status wf_trace_read(const char *path, wf_request_specs *out)
{
    char *text = NULL;
    size_t len;
    WF_TRY(wf_read_file(path, TRACE_BYTES, &text, &len));
    weft_status s = parse(text, out);
    free(text);
    return s ? wf_fail_context(s, "%s", path) : WEFT_OK;
}

/* ---- random ------------------------------------------------------------------------------- */

static uint32_t around(uint32_t len, double ratio, uint64_t seed, uint64_t i)
{
    double low = floor(len * (1 - ratio)), high = ceil(len * (1 + ratio));
    double v = low + floor((high - low + 1) * wf_random_unit(seed, i));
    return (uint32_t)WF_MIN(WF_MAX(v, 1), (double)MOST_TOKENS);
}

weft_status wf_request_specs_random(size_t n, uint32_t n_in, uint32_t n_out, double ratio, uint64_t seed,
                           wf_request_specs *out)
{
    for (size_t i = 0; i < n; i++)
        WF_TRY(wf_request_specs_add(out, (wf_request_spec){.n_in = around(n_in, ratio, seed, 2 * i),
                                         .n_out = around(n_out, ratio, seed, 2 * i + 1),
                                         .at = -1}));
    return WEFT_OK;
}

/* ---- arrivals ----------------------------------------------------------------------------- */

struct rng {
    uint64_t seed, i;
};

static double uniform(struct rng *d) /* (0, 1] */ { return 1 - wf_random_unit(d->seed, d->i++); }

static double normal(struct rng *d)
{
    double r = sqrt(-2 * log(uniform(d)));
    return r * cos(6.283185307179586 * uniform(d));
}

/* Marsaglia and Tsang 2000, scale 1. A shape below 1 is sampled through shape + 1. */
static double gamma_sample(struct rng *d, double shape)
{
    if (shape < 1) return gamma_sample(d, shape + 1) * pow(uniform(d), 1 / shape);
    double a = shape - 1.0 / 3, c = 1 / sqrt(9 * a);
    for (;;) {
        double x = normal(d), v = 1 + c * x;
        v = v * v * v;
        if (v > 0 && log(uniform(d)) < x * x / 2 + a - a * v + a * log(v)) return a * v;
    }
}

void wf_arrivals(double rate, double burstiness, uint64_t seed, size_t n, double *at)
{
    struct rng d = {seed, 0};
    double now = 0;
    for (size_t i = 0; i < n; i++) {
        at[i] = now;
        if (isfinite(rate)) now += gamma_sample(&d, burstiness) / (rate * burstiness);
    }
}
