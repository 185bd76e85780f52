/* tuned_file.c: files of measured choices — reading, writing, and where they lie. See tuned.h. */
#include "base/file.h"
#include "select/tuned.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#define MAX_BYTES (1u << 20)
#define MAX_ROWS  4096
#define MAX_COSTS 1024
#define HEAD      "weft-tuned 1"

const wf_tuned_kind wf_tuned_kinds[WF_N_TUNED_OPS] = {
    [WF_TUNED_GEMM] = {"gemm", WF_OP_GEMM, {"N", "K"}},
    [WF_TUNED_DECODE] = {"decode_attention", WF_OP_ATTENTION, {"H", "KV", "D", "B"}},
    [WF_TUNED_PREFILL] = {"prefill_attention", WF_OP_ATTENTION, {"H", "KV", "D"}},
    [WF_TUNED_DECODE_ASYNC] = {"decode_attention_async", WF_OP_ATTENTION, {"H", "KV", "D", "B"}},
    [WF_TUNED_PREFILL_ASYNC] = {"prefill_attention_async", WF_OP_ATTENTION, {"H", "KV", "D"}},
};

/* ---- tables ------------------------------------------------------------------------------- */

static bool same_shape(const wf_tuned_row *a, const wf_tuned_row *b)
{
    return a->kind == b->kind && a->dtype == b->dtype && !memcmp(a->key, b->key, sizeof a->key);
}

static size_t index_of(const wf_tuned_table *t, const wf_tuned_row *shape)
{
    size_t i = 0;
    while (i < t->n && !same_shape(&t->rows[i], shape)) i++;
    return i;
}

bool wf_tuned_has(const wf_tuned_table *t, const wf_tuned_row *shape)
{
    return index_of(t, shape) < t->n;
}

weft_status wf_tuned_put(wf_tuned_table *t, const wf_tuned_row *row)
{
    size_t i = index_of(t, row);
    if (i == t->n) {
        if (i >= MAX_ROWS) return wf_fail(WEFT_ERR_FORMAT, "more than %d shapes", MAX_ROWS);
        if (!wf_grow(&t->rows, t->n, &t->cap, sizeof *t->rows)) return WEFT_ERR_NOMEM;
        t->n++;
    }
    t->rows[i] = *row;
    return WEFT_OK;
}

weft_status wf_tuned_put_cost(wf_tuned_table *t, const wf_cost *cost)
{
    size_t i = 0;
    while (i < t->n_costs && (strcmp(t->costs[i].of, cost->of) || strcmp(t->costs[i].name, cost->name))) i++;
    if (i == t->n_costs) {
        if (i >= MAX_COSTS) return wf_fail(WEFT_ERR_FORMAT, "more than %d coefficients", MAX_COSTS);
        if (!wf_grow(&t->costs, t->n_costs, &t->cap_costs, sizeof *t->costs)) return WEFT_ERR_NOMEM;
        t->n_costs++;
    }
    t->costs[i] = *cost;
    return WEFT_OK;
}

void wf_tuned_free(wf_tuned_table *t)
{
    free(t->rows);
    free(t->costs);
    *t = (wf_tuned_table){0};
}

void wf_tuned_forget_kernels(wf_tuned_table *t)
{
    wf_tuned_load load = t->load;
    wf_tuned_free(t);
    t->load = load;
}

/* ---- reading ------------------------------------------------------------------------------ */

static weft_status bad_line(int line, const char *why)
{
    return wf_fail(WEFT_ERR_FORMAT, "line %d: %s", line, why);
}

/* A number of at most 9 digits, not 0. *p moves behind it. */
static bool read_number(const char **p, uint32_t *out)
{
    size_t n = strspn(*p, "0123456789");
    if (!n || n > 9) return false;
    *out = (uint32_t)strtoul(*p, NULL, 10);
    *p += n;
    return *out != 0;
}

/* "N=6144,K=4096": exactly the keys of the row's kind, in their order. */
static bool read_keys(const char *p, wf_tuned_row *r)
{
    const wf_tuned_kind *k = &wf_tuned_kinds[r->kind];
    for (int i = 0; i < 4 && k->keys[i]; i++) {
        size_t n = strlen(k->keys[i]);
        if (i && *p++ != ',') return false;
        if (strncmp(p, k->keys[i], n) || p[n] != '=') return false;
        p += n + 1;
        if (!read_number(&p, &r->key[i])) return false;
    }
    return !*p;
}

/* "33:matrix64" */
static bool read_step(const char *p, wf_tuned_row *r)
{
    wf_tuned_step *s = &r->step[r->n_steps];
    if (r->n_steps == WF_TUNED_STEPS || !read_number(&p, &s->from) || *p++ != ':') return false;
    if (r->n_steps && s->from <= s[-1].from) return false;
    size_t n = strspn(p, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-");
    if (!n || n >= sizeof s->variant || p[n]) return false;
    wf_copy(s->variant, sizeof s->variant, p);
    r->n_steps++;
    return true;
}

static bool find_kind(const char *word, enum wf_tuned_op *out)
{
    for (int i = 0; i < WF_N_TUNED_OPS; i++) {
        if (strcmp(word, wf_tuned_kinds[i].name)) continue;
        *out = (enum wf_tuned_op)i;
        return true;
    }
    return false;
}

static bool find_dtype(const char *word, uint8_t *out)
{
    for (int i = 0; i < WF_N_DTYPES; i++) {
        if (strcmp(word, wf_dtypes[i].name) || !wf_dtypes[i].decode) continue;
        *out = (uint8_t)i;
        return true;
    }
    return false;
}

static weft_status read_row(char *line, int at, wf_tuned_table *t)
{
    wf_tuned_row r = {0};
    char *save = NULL, *op = strtok_r(line, " \t", &save), *dtype = strtok_r(NULL, " \t", &save);
    char *keys = strtok_r(NULL, " \t", &save);
    if (!find_kind(op, &r.kind))
        return bad_line(at, "is neither load nor cost nor gemm nor decode_attention nor prefill_attention nor one of "
                            "these with _async");
    if (!dtype || !find_dtype(dtype, &r.dtype)) return bad_line(at, "names no storage format");
    if (!keys || !read_keys(keys, &r)) return bad_line(at, "has no shape such as N=6144,K=4096");
    for (char *w; (w = strtok_r(NULL, " \t", &save));)
        if (!read_step(w, &r)) return bad_line(at, "wants SIZE:KERNEL with growing sizes");
    if (!r.n_steps) return bad_line(at, "names no kernel");
    return wf_tuned_put(t, &r);
}

/* What a head line must say; the driver may differ, for kernels rarely change places with it. */
static const struct head {
    const char *title;
    size_t at; /* in struct weft_device_info; units: a number */
    bool strict;
} heads[] = {
    {"device ", offsetof(struct weft_device_info, name), true},
    {"platform ", offsetof(struct weft_device_info, platform), true},
    {"units ", 0, true},
    {"driver ", offsetof(struct weft_device_info, driver), false},
};
#define ALL_STRICT 7u /* the first three */

/* Index of the head line, or -1. */
static int head_of(const char *line)
{
    for (size_t i = 0; i < WF_LEN(heads); i++)
        if (!strncmp(line, heads[i].title, strlen(heads[i].title))) return (int)i;
    return -1;
}

static weft_status check_head(const char *line, int at, int i, const struct weft_device_info *info)
{
    char units[16];
    const char *got = line + strlen(heads[i].title), *want = heads[i].at ? (const char *)info + heads[i].at : units;
    snprintf(units, sizeof units, "%u", info->compute_units);
    if (!strcmp(got, want)) return WEFT_OK;
    if (heads[i].strict)
        return wf_fail(WEFT_ERR_UNSUPPORTED, "line %d is of another device: \"%s\", and this one has \"%s\"", at, line,
                       want);
    wf_log(WEFT_LOG_DEBUG, "kernel choices were measured with %s, and this is %s", line, want);
    return WEFT_OK;
}

static weft_status read_kernels(const char *p, int at, wf_tuned_table *t)
{
    size_t n = strspn(p, "0123456789abcdef");
    if (!n || n > 8 || p[n]) return bad_line(at, "wants a number of up to 8 hexadecimal digits");
    t->kernels = (uint32_t)strtoul(p, NULL, 16);
    return WEFT_OK;
}

/* A word of those that kernels and coefficients are called by, with its end; false: there is none, or it is too long.
 */
static bool read_name(const char **p, char *out, size_t cap)
{
    size_t n = strspn(*p, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-/");
    if (!n || n >= cap) return false;
    memcpy(out, *p, n);
    out[n] = 0;
    *p += n;
    return true;
}

/* A decimal number that print_costs() writes without an exponent. */
static bool read_decimal(const char **p, double *out)
{
    size_t n = strspn(*p, "0123456789."), points = 0;
    for (size_t i = 0; i < n; i++) points += (*p)[i] == '.';
    if (n < points + 1 || n > 15 || points > 1) return false;
    *out = strtod(*p, NULL);
    *p += n;
    return *out >= WF_TUNED_LEAST_COST && *out < 1e7;
}

/* "wgmma latency=0.29,memory=4.1" */
static weft_status read_costs(const char *p, int at, wf_tuned_table *t)
{
    wf_cost c = {.line = (uint32_t)at};
    if (!read_name(&p, c.of, sizeof c.of) || *p != ' ') return bad_line(at, "wants `cost NAME KEY=VALUE,KEY=VALUE`");
    do {
        p++;
        if (!read_name(&p, c.name, sizeof c.name) || *p++ != '=' || !read_decimal(&p, &c.value))
            return bad_line(at, "wants KEY=VALUE, separated by commas: a word, and a number from 0.0001 to 9999999");
        WF_TRY(wf_tuned_put_cost(t, &c));
    } while (*p == ',');
    return *p ? bad_line(at, "has something behind its last KEY=VALUE") : WEFT_OK;
}

/* "1155.4:245.3" */
static weft_status read_load(const char *p, int at, wf_tuned_table *t)
{
    bool good = read_decimal(&p, &t->load.prompt) && *p++ == ':' && read_decimal(&p, &t->load.generated) && !*p;
    return good ? WEFT_OK
                : bad_line(at, "wants the tokens of a prompt and of an answer, such as 1155.4:245.3, each from 0.0001 "
                               "to 9999999");
}

typedef struct reader {
    const struct weft_device_info *info;
    wf_tuned_table *out;
    unsigned seen; /* head lines */
    bool begun;    /* the first line was right */
} reader;

static weft_status read_line(reader *r, char *line, int at)
{
    size_t n = strlen(line);
    while (n && isspace((unsigned char)line[n - 1])) line[--n] = 0;
    line += strspn(line, " \t");
    if (!*line || *line == '#') return WEFT_OK;
    if (!r->begun) {
        r->begun = !strcmp(line, HEAD);
        return r->begun ? WEFT_OK
                        : bad_line(at, "this is no file of `weft tune`: its first line should be \"" HEAD "\"");
    }
    if (!strncmp(line, "kernels ", 8)) return read_kernels(line + 8, at, r->out);
    if (!strncmp(line, "dense_batch ", 12)) {
        const char *p = line + 12;
        bool good = read_number(&p, &r->out->dense_batch) && !*p && r->out->dense_batch <= WF_TUNED_MOST_ROWS;
        return good ? WEFT_OK : bad_line(at, "wants a number of rows, at most 65536");
    }
    int head = head_of(line);
    if (head >= 0 && !r->info) return bad_line(at, "names a device, and this text is for any");
    if (head >= 0) {
        r->seen |= 1u << head;
        return check_head(line, at, head, r->info);
    }
    if ((r->seen & ALL_STRICT) != ALL_STRICT) return bad_line(at, "comes before device, platform and units");
    if (!strncmp(line, "load ", 5)) return read_load(line + 5, at, r->out);
    if (!strncmp(line, "cost ", 5)) return read_costs(line + 5, at, r->out);
    return read_row(line, at, r->out);
}

weft_status wf_tuned_parse(const char *text, const struct weft_device_info *info, wf_tuned_table *out)
{
    reader r = {.info = info, .out = out, .seen = info ? 0 : ALL_STRICT};
    int at = 1;
    *out = (wf_tuned_table){0};
    char *copy = wf_strdup(text);
    weft_status s = copy ? WEFT_OK : WEFT_ERR_NOMEM;
    for (char *line = copy, *next; !s && line; line = next, at++) {
        next = strchr(line, '\n');
        if (next) *next++ = 0;
        s = read_line(&r, line, at);
    }
    if (!s && (r.seen & ALL_STRICT) != ALL_STRICT) s = bad_line(at, "the file ends before device, platform and units");
    if (s) wf_tuned_free(out);
    free(copy);
    return s;
}

weft_status wf_tuned_read(const char *path, const struct weft_device_info *info, wf_tuned_table *out)
{
    char *text = NULL;
    size_t len = 0;
    *out = (wf_tuned_table){0};
    WF_TRY(wf_read_file(path, MAX_BYTES, &text, &len));
    weft_status s = strlen(text) == len ? wf_tuned_parse(text, info, out) : wf_fail(WEFT_ERR_FORMAT, "is no text");
    free(text);
    return s ? wf_fail_context(s, "%s", path) : WEFT_OK;
}

/* ---- writing ------------------------------------------------------------------------------ */

void wf_tuned_shape(const wf_tuned_row *r, char *buf, size_t cap)
{
    const wf_tuned_kind *k = &wf_tuned_kinds[r->kind];
    size_t n = 0;
    for (int i = 0; i < 4 && k->keys[i] && n < cap; i++)
        n += (size_t)snprintf(buf + n, cap - n, "%s%s=%u", i ? "," : "", k->keys[i], r->key[i]);
}

weft_status wf_tuned_may_write(const char *path)
{
    char text[sizeof HEAD] = "";
    struct stat st;
    WF_TRY(wf_output_check(path));
    if (stat(path, &st)) return WEFT_OK;
    FILE *f = S_ISREG(st.st_mode) ? fopen(path, "r+") : NULL;
    bool ours = f && (!fgets(text, 11, f) || !strcmp(text, "weft-tuned"));
    if (f) fclose(f);
    return ours ? WEFT_OK
                : wf_fail(
                      WEFT_ERR_IO,
                      "%s exists and is not a file that `weft tune` wrote: choose another path (weft_tune_params.path)",
                      path);
}

weft_status wf_tuned_write(const char *path, const struct weft_device_info *info, const wf_tuned_table *t)
{
    wf_output out;
    WF_TRY(wf_tuned_may_write(path));
    WF_TRY(wf_output_open(path, &out));
    char shape[64], date[16];
    time_t now = time(NULL);
    struct tm tm;
    strftime(date, sizeof date, "%Y-%m-%d", gmtime_r(&now, &tm));
    fprintf(out.f, HEAD "\n# the fastest kernel from a size on; written by `weft tune`, %s\n", date);
    fprintf(out.f, "device %s\nplatform %s\nunits %u\n", info->name, info->platform, info->compute_units);
    if (*info->driver) fprintf(out.f, "driver %s\n", info->driver); /* CPUs without OpenBLAS have none */
    if (t->kernels) fprintf(out.f, "kernels %08x\n", t->kernels);
    if (t->dense_batch) fprintf(out.f, "dense_batch %u\n", t->dense_batch);
    if (t->load.prompt > 0) fprintf(out.f, "load %.4f:%.4f\n", t->load.prompt, t->load.generated);
    for (const wf_cost *c = t->costs; c < t->costs + t->n_costs; c++) {
        bool begins = c == t->costs || strcmp(c->of, c[-1].of);
        if (begins && c > t->costs) putc('\n', out.f);
        if (begins) fprintf(out.f, "cost %s ", c->of);
        fprintf(out.f, "%s%s=%.8g", begins ? "" : ",", c->name, c->value);
    }
    if (t->n_costs) putc('\n', out.f);
    for (size_t i = 0; i < t->n; i++) {
        const wf_tuned_row *r = &t->rows[i];
        wf_tuned_shape(r, shape, sizeof shape);
        fprintf(out.f, "%s %s %s", wf_tuned_kinds[r->kind].name, wf_dtypes[r->dtype].name, shape);
        for (uint32_t s = 0; s < r->n_steps; s++) fprintf(out.f, " %u:%s", r->step[s].from, r->step[s].variant);
        putc('\n', out.f);
    }
    return wf_output_end(&out, true);
}

/* ---- names -------------------------------------------------------------------------------- */

void wf_device_slug(const struct weft_device_info *i, char *buf, size_t cap)
{
    char all[280];
    size_t n = 0;
    if (i->type == WEFT_DEVICE_GPU) wf_copy(all, sizeof all, i->name);
    else snprintf(all, sizeof all, "%s %s %u", i->platform, i->name, i->compute_units);
    for (const char *p = all; *p && n + 1 < cap; p++) {
        bool plain = isalnum((unsigned char)*p) && !(*p & 0x80);
        if (plain) buf[n++] = (char)tolower((unsigned char)*p);
        else if (n && buf[n - 1] != '-') buf[n++] = '-';
    }
    while (n && buf[n - 1] == '-') n--;
    if (cap) buf[n] = 0;
}

weft_status wf_tuned_user_path(const struct weft_device_info *info, bool make, char *buf, size_t cap)
{
    char dir[900], slug[160];
    WF_TRY(wf_user_dir(WF_DIR_CONFIG, "weft/tuned", make, dir, sizeof dir));
    wf_device_slug(info, slug, sizeof slug);
    if ((size_t)snprintf(buf, cap, "%s/%s.tune", dir, slug) >= cap)
        return wf_fail(WEFT_ERR_ARG, "the path is too long: %s", dir);
    return WEFT_OK;
}
