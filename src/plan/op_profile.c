/* op_profile: measured times of ops: text, and what lies between the measured points. See op_profile.h. */
#include "plan/op_profile.h"

#include "base/file.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define SAME    1e-6 /* shares that differ less do so by being written as text */
#define SLOWEST 1e-3 /* rates are at least this: what runs ends */

/* ---- between the points ------------------------------------------------------------------------------------------ */

const wf_op_times *wf_op_profile_find(const wf_op_profile *p, const char *name)
{
    for (size_t i = 0; i < p->n_ops; i++)
        if (!strcmp(p->ops[i].name, name)) return &p->ops[i];
    return NULL;
}

/* The points of one share are [begin, end). */
typedef struct curve {
    const wf_op_time *begin, *end;
} curve;

static curve curve_at(const wf_op_times *op, const wf_op_time *begin)
{
    curve c = {begin, begin};
    while (c.end < op->times + op->n && c.end->share == begin->share) c.end++;
    return c;
}

/* Below the fewest rows a kernel is no faster, above the most it takes time in proportion. Measured times may fall from
 * one point to the next by noise: each counts as the largest so far. */
static double curve_us(curve c, uint32_t rows)
{
    double before = c.begin->us, at = c.begin->tokens;
    if (!rows) return 0;
    for (const wf_op_time *t = c.begin; t < c.end; t++) {
        double us = WF_MAX(before, t->us);
        if (rows <= t->tokens) return t == c.begin ? us : before + (us - before) * (rows - at) / (t->tokens - at);
        before = us, at = t->tokens;
    }
    return before * rows / at;
}

double wf_op_us(const wf_op_times *op, uint32_t rows)
{
    return op && op->n ? curve_us(curve_at(op, op->times), rows) : 0;
}

double wf_class_rate(const wf_op_profile *p, enum wf_class class, double share)
{
    const wf_share_table *t = &p->together[class];
    double before = 0, at = 0;
    if (!t->n) return class == WF_CLASS_COPY ? 1 : share;
    for (size_t i = 0; i < t->n; i++) {
        /* What varies counts as slow: a plan must not win by noise. */
        double rate = WF_MAX(before, t->points[i].rate - t->points[i].spread);
        if (share <= t->points[i].share)
            return t->points[i].share == at ? rate
                                            : before + (rate - before) * (share - at) / (t->points[i].share - at);
        before = rate, at = t->points[i].share;
    }
    return before;
}

/* Of an op measured at more than one share: between those its rate grows in proportion, as below the least. */
static double alone_rate(const wf_op_times *op, uint32_t rows, double share)
{
    double full = wf_op_us(op, rows), above = 1, at = 1;
    for (curve c = curve_at(op, op->times); c.begin < op->times + op->n; c = curve_at(op, c.end)) {
        double rate = WF_MIN(above, full / curve_us(c, rows)), here = c.begin->share;
        if (here <= share) return here == at ? rate : rate + (above - rate) * (share - here) / (at - here);
        above = rate, at = here;
    }
    return above * share / at;
}

double wf_op_rate(const wf_op_profile *p, const wf_op_times *op, uint32_t rows, double share, bool alone)
{
    bool measured = op && op->n && rows && op->times[op->n - 1].share < 1;
    double together = wf_class_rate(p, op ? op->class : WF_CLASS_COMPUTE, share);
    double rate = measured ? alone_rate(op, rows, share) : share >= 1 ? 1 : together;
    return WF_MAX(alone ? rate : WF_MIN(rate, together), SLOWEST);
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */

static weft_status read_class(const char *word, enum wf_class *out)
{
    for (size_t c = 0; c < WF_N_CLASSES; c++)
        if (!strcmp(word, wf_class_name((enum wf_class)c))) {
            *out = (enum wf_class)c;
            return WEFT_OK;
        }
    return wf_fail(WEFT_ERR_FORMAT, "class '%s': want compute, memory, network, copy or host", word);
}

static weft_status add_op(wf_op_profile *p, const char *name, enum wf_class class)
{
    wf_op_times op = {.class = class};
    if (wf_op_profile_find(p, name)) return wf_fail(WEFT_ERR_FORMAT, "the op '%s' for the second time", name);
    if (!wf_grow(&p->ops, p->n_ops, &p->cap_ops, sizeof op)) return WEFT_ERR_NOMEM;
    wf_copy(op.name, sizeof op.name, name);
    p->ops[p->n_ops++] = op;
    return WEFT_OK;
}

static bool is_share(double x)
{
    return x >= 0 && x <= 1;
}

static bool is_amount(double x)
{
    return x >= 0 && x < 1e12;
}

static weft_status add_time(wf_op_profile *p, const char *name, const wf_op_time *t)
{
    wf_op_times *op = (wf_op_times *)wf_op_profile_find(p, name);
    if (!op) return wf_fail(WEFT_ERR_FORMAT, "no line 'op %s CLASS' before this one", name);
    bool fits = t->tokens && is_share(t->share) && t->share > 0 && is_amount(t->us) && t->us > 0 &&
                is_amount(t->spread);
    if (!fits) return wf_fail(WEFT_ERR_FORMAT, "want tokens from 1, a share above 0 and up to 1, and a time above 0");
    size_t at = op->n;
    while (at && (op->times[at - 1].share < t->share ||
                  (op->times[at - 1].share == t->share && op->times[at - 1].tokens > t->tokens)))
        at--;
    if (at && op->times[at - 1].share == t->share && op->times[at - 1].tokens == t->tokens)
        return wf_fail(WEFT_ERR_FORMAT, "the same point for the second time");
    if (!wf_grow(&op->times, op->n, &op->cap, sizeof *t)) return WEFT_ERR_NOMEM;
    memmove(op->times + at + 1, op->times + at, (op->n - at) * sizeof *t);
    op->times[at] = *t;
    op->n++;
    return WEFT_OK;
}

weft_status wf_op_profile_add_rate(wf_op_profile *p, enum wf_class class, const wf_share_rate *r)
{
    wf_share_table *t = &p->together[class];
    if (!is_share(r->share) || !is_share(r->rate) || !is_amount(r->spread))
        return wf_fail(WEFT_ERR_FORMAT, "want a share and a rate from 0 to 1");
    if (t->n == WF_MAX_SHARES) return wf_fail(WEFT_ERR_FORMAT, "more than %d shares of a class", WF_MAX_SHARES);
    size_t at = t->n;
    while (at && t->points[at - 1].share > r->share) at--;
    if (at && t->points[at - 1].share == r->share)
        return wf_fail(WEFT_ERR_FORMAT, "the same share for the second time");
    memmove(t->points + at + 1, t->points + at, (t->n - at) * sizeof *r);
    t->points[at] = *r;
    t->n++;
    return WEFT_OK;
}

weft_status wf_op_profile_add_time(wf_op_profile *p, const char *name, enum wf_class class, const wf_op_time *t)
{
    if (!wf_op_profile_find(p, name)) WF_TRY(add_op(p, name, class));
    return add_time(p, name, t);
}

bool wf_op_profile_has_time(const wf_op_profile *p, const char *name, uint32_t tokens, double share)
{
    const wf_op_times *op = wf_op_profile_find(p, name);
    for (size_t i = 0; op && i < op->n; i++)
        if (op->times[i].tokens == tokens && fabs(op->times[i].share - share) < SAME) return true;
    return false;
}

bool wf_op_profile_has_rate(const wf_op_profile *p, enum wf_class class, double share)
{
    for (size_t i = 0; i < p->together[class].n; i++)
        if (fabs(p->together[class].points[i].share - share) < SAME) return true;
    return false;
}

/* ---- energy ------------------------------------------------------------------------------------------------------ */

bool wf_op_profile_has_energy(const wf_op_profile *p, const char *name, uint32_t tokens, double share)
{
    for (const wf_op_energy *e = p->energies; e < p->energies + p->n_energies; e++)
        if (!strcmp(e->name, name) && e->tokens == tokens && fabs(e->share - share) < SAME) return true;
    return false;
}

weft_status wf_op_profile_add_energy(wf_op_profile *p, const wf_op_energy *e)
{
    const wf_energy_point *x = &e->each;
    bool fits = e->tokens && is_share(e->share) && e->share > 0 && is_amount(x->joules) && x->joules > 0 &&
                is_amount(x->seconds) && x->seconds > 0;
    if (!fits || !(x->flops >= 0 && x->flops < 1e24 && x->bytes >= 0 && x->bytes < 1e24))
        return wf_fail(
            WEFT_ERR_FORMAT,
            "want tokens from 1, a share above 0 and up to 1, joules and a time above 0, flops and bytes below 1e24");
    if (wf_op_profile_has_energy(p, e->name, e->tokens, e->share))
        return wf_fail(WEFT_ERR_FORMAT, "the same energy for the second time");
    if (!wf_grow(&p->energies, p->n_energies, &p->cap_energies, sizeof *e)) return WEFT_ERR_NOMEM;
    p->energies[p->n_energies++] = *e;
    return WEFT_OK;
}

bool wf_op_profile_fit_energy(wf_op_profile *p)
{
    wf_energy e = {.idle = p->energy.idle, .power_limit = p->energy.power_limit, .quick = p->energy.quick};
    wf_energy_point *points = wf_calloc(WF_MAX(p->n_energies, (size_t)1), sizeof *points);
    for (size_t i = 0; points && i < p->n_energies; i++)
        points[i] = p->energies[i].each, e.quick |= p->energies[i].quick;
    bool told = points && p->n_energies && wf_energy_fit(points, p->n_energies, &e);
    free(points);
    p->energy = e;
    return told;
}

/* What may follow a measured number: nothing, or the mark. */
static bool read_mark(const char *rest, bool *quick)
{
    *quick = !strncmp(rest, "quick", 5);
    if (*quick) rest += 5;
    return !rest[strspn(rest, " \t")];
}

/* ---- lines ------------------------------------------------------------------------------------------------------- */

/* "NAME rest of the line" into a text. */
static bool read_text(const char *line, const char *name, char *out, size_t cap)
{
    size_t len = strlen(name), end;
    line += strspn(line, " \t");
    if (strncmp(line, name, len) || line[len] != ' ') return false;
    wf_copy(out, cap, line + len + strspn(line + len, " \t"));
    for (end = strlen(out); end && strchr(" \t\r", out[end - 1]);) out[--end] = 0;
    return true;
}

/* The same as it may be shown, whatever the file has there. */
static bool read_label(const char *line, const char *name, char *out, size_t cap)
{
    char text[256];
    if (!read_text(line, name, text, sizeof text)) return false;
    wf_show(out, cap, text);
    return true;
}

/* "NAME N" into a number; *bad: it is none, or not from 1 to a million. */
static bool read_number(const char *line, const char *name, uint32_t *out, bool *bad)
{
    char text[24], *rest;
    if (!read_text(line, name, text, sizeof text)) return false;
    unsigned long n = strtoul(text, &rest, 10);
    *bad = *rest || rest == text || *text == '-' || n < 1 || n > 1000000;
    *out = (uint32_t)n;
    return true;
}

/* 0: no number of tokens. */
static uint32_t whole_tokens(double tokens)
{
    return tokens >= 1 && tokens <= 1e6 && tokens == (uint32_t)tokens ? (uint32_t)tokens : 0;
}

static weft_status read_line(void *user, char *line)
{
    wf_op_profile *p = user;
    char name[24], word[24];
    int end = 0;
    double tokens;
    wf_op_time t = {0};
    wf_share_rate r = {0};
    enum wf_class class = WF_N_CLASSES;
    bool bad = false;
    if (sscanf(line, " made-for %32[0-9a-f] %32[0-9a-f] %n", p->device_key, p->model_key, &end) == 2 && end &&
        !line[end])
        return WEFT_OK;
    if (read_label(line, "device", p->device, sizeof p->device) || read_label(line, "model", p->model, sizeof p->model))
        return WEFT_OK;
    if (read_number(line, "groups", &p->groups, &bad) || read_number(line, "tile", &p->tile, &bad) ||
        read_number(line, "context", &p->context, &bad))
        return bad ? wf_fail(WEFT_ERR_FORMAT, "want a whole number from 1 to 1000000") : WEFT_OK;
    if (sscanf(line, " op %23s %23s %n", name, word, &end) == 2 && end && !line[end]) {
        WF_TRY(read_class(word, &class));
        return add_op(p, name, class);
    }
    if (sscanf(line, " time %23s tokens %lf share %lf us %lf spread %lf %n", name, &tokens, &t.share, &t.us, &t.spread,
               &end) == 5 &&
        end && read_mark(line + end, &t.quick)) {
        t.tokens = whole_tokens(tokens);
        return add_time(p, name, &t);
    }
    if (sscanf(line, " together %23s share %lf rate %lf spread %lf %n", word, &r.share, &r.rate, &r.spread, &end) ==
            4 &&
        end && read_mark(line + end, &r.quick)) {
        WF_TRY(read_class(word, &class));
        return wf_op_profile_add_rate(p, class, &r);
    }
    wf_op_energy o = {.share = 0};
    wf_energy_point *x = &o.each;
    if (sscanf(line, " energy %23s tokens %lf share %lf joules %lf us %lf gflop %lf mb %lf %n", o.name, &tokens,
               &o.share, &x->joules, &x->seconds, &x->flops, &x->bytes, &end) == 7 &&
        end && read_mark(line + end, &o.quick)) {
        o.tokens = whole_tokens(tokens);
        x->seconds /= 1e6, x->flops *= 1e9, x->bytes *= 1e6;
        return wf_op_profile_add_energy(p, &o);
    }
    wf_energy e = {.idle = 0};
    if (sscanf(line, " power idle %lf static %lf limit %lf flop %lf byte %lf %n", &e.idle, &e.static_power,
               &e.power_limit, &e.flop, &e.byte, &end) == 5 &&
        end && read_mark(line + end, &e.quick)) {
        e.flop /= 1e12, e.byte /= 1e12;
        if (!is_amount(e.idle) || !is_amount(e.static_power) || !is_amount(e.power_limit) || !is_amount(e.flop) ||
            !is_amount(e.byte))
            return wf_fail(WEFT_ERR_FORMAT, "want watts and picojoules from 0");
        return p->energy = e, WEFT_OK;
    }
    return wf_fail(WEFT_ERR_FORMAT, "want device, model, made-for, groups, tile, context, 'op NAME CLASS', 'time NAME "
                                    "tokens N share R us T spread S [quick]', "
                                    "'together CLASS share R rate P spread S [quick]', 'energy NAME tokens N share R "
                                    "joules J us T gflop F mb B [quick]' or 'power idle W static W limit W flop PJ "
                                    "byte PJ [quick]'");
}

weft_status wf_op_profile_load(const char *path, wf_op_profile *out)
{
    *out = (wf_op_profile){.groups = 1, .tile = 1, .context = 1};
    WF_TRY(wf_read_lines(path, WF_OP_PROFILE_HEAD, read_line, out));
    /* What a time is a part of has to be known. */
    if (!out->n_ops) return wf_fail(WEFT_ERR_FORMAT, "%s: no op", path);
    for (const wf_op_times *op = out->ops; op < out->ops + out->n_ops; op++)
        if (!op->n || op->times[0].share != 1)
            return wf_fail(WEFT_ERR_FORMAT, "%s: no time of '%s' with the whole device (share 1)", path, op->name);
    return WEFT_OK;
}

/* ---- writing ----------------------------------------------------------------------------------------------------- */

static const char *mark_of(bool quick)
{
    return quick ? " quick" : "";
}

static void write_energy(const wf_op_profile *p, FILE *f)
{
    const wf_energy *c = &p->energy;
    for (const wf_op_energy *e = p->energies; e < p->energies + p->n_energies; e++)
        fprintf(f, "energy %s tokens %u share %.10g joules %.10g us %.10g gflop %.10g mb %.10g%s\n", e->name, e->tokens,
                e->share, e->each.joules, e->each.seconds * 1e6, e->each.flops / 1e9, e->each.bytes / 1e6,
                mark_of(e->quick));
    if (c->idle > 0 || c->static_power > 0 || c->power_limit > 0)
        fprintf(f, "power idle %.10g static %.10g limit %.10g flop %.10g byte %.10g%s\n", c->idle, c->static_power,
                c->power_limit, c->flop * 1e12, c->byte * 1e12, mark_of(c->quick));
}

void wf_op_profile_write(const wf_op_profile *p, FILE *f)
{
    fputs(WF_OP_PROFILE_HEAD "\n", f);
    if (*p->device) fprintf(f, "device %s\n", p->device);
    if (*p->model) fprintf(f, "model %s\n", p->model);
    if (*p->device_key && *p->model_key) fprintf(f, "made-for %s %s\n", p->device_key, p->model_key);
    fprintf(f, "groups %u\ntile %u\ncontext %u\n", p->groups, p->tile, p->context);
    for (const wf_op_times *op = p->ops; op < p->ops + p->n_ops; op++) {
        fprintf(f, "op %s %s\n", op->name, wf_class_name(op->class));
        for (const wf_op_time *t = op->times; t < op->times + op->n; t++)
            fprintf(f, "time %s tokens %u share %.10g us %.10g spread %.10g%s\n", op->name, t->tokens, t->share, t->us,
                    t->spread, mark_of(t->quick));
    }
    for (size_t c = 0; c < WF_N_CLASSES; c++)
        for (size_t i = 0; i < p->together[c].n; i++) {
            const wf_share_rate *r = &p->together[c].points[i];
            fprintf(f, "together %s share %.10g rate %.10g spread %.10g%s\n", wf_class_name((enum wf_class)c), r->share,
                    r->rate, r->spread, mark_of(r->quick));
        }
    write_energy(p, f);
}

weft_status wf_op_profile_save(const wf_op_profile *p, const char *path)
{
    wf_output out;
    WF_TRY(wf_not_a_model(path));
    WF_TRY(wf_output_open(path, &out));
    wf_op_profile_write(p, out.f);
    return wf_output_end(&out, true);
}

void wf_op_profile_print(const wf_op_profile *p, FILE *f)
{
    fprintf(f, "%s, %s: %u work-groups, contexts of %u\n\n%-20s %-8s %7s %6s %10s %9s\n",
            *p->device ? p->device : "a device", *p->model ? p->model : "a model", p->groups, p->context, "op", "class",
            "tokens", "share", "us", "spread");
    for (const wf_op_times *op = p->ops; op < p->ops + p->n_ops; op++)
        for (const wf_op_time *t = op->times; t < op->times + op->n; t++)
            fprintf(f, "%-20s %-8s %7u %6.2f %10.1f %9.1f%s\n", op->name, wf_class_name(op->class), t->tokens, t->share,
                    t->us, t->spread, mark_of(t->quick));
    for (size_t c = 0; c < WF_N_CLASSES; c++) {
        if (p->together[c].n)
            fprintf(f, "\n%s beside another class: share of the device, part of the full rate\n",
                    wf_class_name((enum wf_class)c));
        for (size_t i = 0; i < p->together[c].n; i++) {
            const wf_share_rate *r = &p->together[c].points[i];
            fprintf(f, "%6.2f %6.2f +- %.2f  %.*s\n", r->share, r->rate, r->spread, (int)(r->rate * 50 + 0.5),
                    "##################################################");
        }
    }
    if (p->n_energies)
        fprintf(f, "\n%-29s %7s %6s %10s %9s\n", "energy of an op, again and again", "tokens", "share", "joules",
                "watts");
    for (const wf_op_energy *e = p->energies; e < p->energies + p->n_energies; e++)
        fprintf(f, "%-32s %7u %6.2f %10.4g %9.1f%s\n", e->name, e->tokens, e->share, e->each.joules,
                e->each.joules / e->each.seconds, mark_of(e->quick));
    if (p->energy.flop > 0)
        fprintf(f, "\n%.3g pJ a flop, %.3g pJ a byte, %.1f W static\n", p->energy.flop * 1e12, p->energy.byte * 1e12,
                p->energy.static_power);
}

/* ---- without a trial's ------------------------------------------------------------------------------------------- */

/* Keeps those of the n items of a list that are not quick; n becomes how many these are. */
#define DROP_QUICK(list, n)                                        \
    do {                                                           \
        size_t kept_ = 0;                                          \
        for (size_t i_ = 0; i_ < (n); i_++)                        \
            if (!(list)[i_].quick) (list)[kept_++] = (list)[i_];   \
        (n) = kept_;                                               \
    } while (0)

void wf_op_profile_drop_quick(wf_op_profile *p)
{
    size_t kept = 0;
    for (wf_op_times *op = p->ops; op < p->ops + p->n_ops; op++) {
        DROP_QUICK(op->times, op->n);
        if (op->n && op->times[0].share == 1) p->ops[kept++] = *op;
        else free(op->times);
    }
    p->n_ops = kept;
    for (size_t c = 0; c < WF_N_CLASSES; c++) DROP_QUICK(p->together[c].points, p->together[c].n);
    DROP_QUICK(p->energies, p->n_energies);
    if (p->energy.quick) p->energy = (wf_energy){.idle = 0};
}

void wf_op_profile_free(wf_op_profile *p)
{
    for (size_t i = 0; i < p->n_ops; i++) free(p->ops[i].times);
    free(p->ops);
    free(p->energies);
    *p = (wf_op_profile){0};
}
