/* select.c: see select.h. The files are read at the first call, so that a device that never runs a tuned op reads none. */
#include "select/select.h"
#include "base/file.h"
#include "select/batch_invariance.h"
#include "select/tuned.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAX_VARIANTS 64 /* of an op, which can be dropped one by one */

typedef struct selection {
    wf_selector base;
    wf_tuned_table user, shipped;
    bool loaded;
    bool forced[WF_N_OPS];      /* params.force names it, and takes precedence */
    uint64_t dropped[WF_N_OPS]; /* a bit for each variant */
    wf_batch_invariance invariance;
} selection;

static selection *selection_of(wf_dev *dev)
{
    return (selection *)dev->selector;
}

/* ---- files -------------------------------------------------------------------------------- */

static bool up_to_date(wf_dev *dev, const wf_tuned_table *t, const char *path)
{
    if (!t->kernels || t->kernels == wf_tuned_kernels(dev)) return true;
    wf_log(
        WEFT_LOG_WARN,
        "%s was measured with other kernels than this version of weft has: run `weft tune` again",
        path);
    return false;
}

static void read_if_there(wf_dev *dev, const char *path, wf_tuned_table *out)
{
    if (access(path, F_OK)) return;
    if (wf_tuned_read(path, &dev->info, out))
        wf_log(WEFT_LOG_WARN, "kernel choices are not used: %s", wf_error());
    else if (!up_to_date(dev, out, path))
        wf_tuned_free(out);
    else
        wf_log(WEFT_LOG_DEBUG, "kernel choices: %s", path);
}

/* Shipped files lie beside an installed program, else in the source tree whose build folder it runs from, else where the
 * program was to be installed. */
static bool shipped_path(const char *slug, char *out, size_t cap)
{
    static const char *const places[] = {"../share/weft/tuned", "../../../tuned"};
    char exe[512];
    ssize_t n = readlink("/proc/self/exe", exe, sizeof exe - 1);
    exe[n > 0 ? n : 0] = 0;
    char *slash = strrchr(exe, '/');
    for (size_t i = 0; slash && i < WF_LEN(places); i++) {
        snprintf(out, cap, "%.*s/%s/%s.tune", (int)(slash - exe), exe, places[i], slug);
        if (!access(out, R_OK)) return true;
    }
    snprintf(out, cap, "%s/%s.tune", WEFT_TUNED_DIR, slug);
    return !access(out, R_OK);
}

static void load(wf_dev *dev, selection *s)
{
    char path[1100], slug[160];
    s->loaded = true;
    if (!wf_tuned_user_path(&dev->info, false, path, sizeof path))
        read_if_there(dev, path, &s->user);
    wf_device_slug(&dev->info, slug, sizeof slug);
    if (shipped_path(slug, path, sizeof path)) read_if_there(dev, path, &s->shipped);
}

/* ---- choosing ----------------------------------------------------------------------------- */

static int usable(wf_dev *dev, const wf_call *c, const char *name)
{
    int v = name ? wf_variant_find(dev, c->op, name) : -1;
    if (v < 0 || (v < MAX_VARIANTS && selection_of(dev)->dropped[c->op] >> v & 1)) return -1;
    return dev->fns->supports(dev, c, v) ? v : -1;
}

static int pick(wf_dev *dev, const wf_call *c)
{
    selection *s = selection_of(dev);
    wf_tuned_row want;
    uint32_t size;
    if (dev->params.deterministic) return wf_pick_batch_invariant(&s->invariance, dev, c);
    if (s->forced[c->op] || !wf_tuned_key(c, &want, &size)) return dev->fns->pick(dev, c, NULL);
    if (!s->loaded) load(dev, s);
    int v = usable(dev, c, wf_tuned_find(&s->user, &want, size));
    if (v < 0) v = usable(dev, c, wf_tuned_find(&s->shipped, &want, size));
    return v >= 0 ? v : dev->fns->pick(dev, c, NULL);
}

static void drop(wf_dev *dev, enum wf_op op, int variant)
{
    selection *s = selection_of(dev);
    if (variant >= 0 && variant < MAX_VARIANTS) s->dropped[op] |= 1ull << variant;
    wf_batch_invariance_reset(&s->invariance);
}

uint32_t wf_select_dense_batch(wf_dev *dev)
{
    selection *s = selection_of(dev);
    if (!s) return 0;
    if (!s->loaded) load(dev, s);
    return s->user.dense_batch ? s->user.dense_batch : s->shipped.dense_batch;
}

/* ---- opening, closing --------------------------------------------------------------------- */

/* "op=variant,op=variant"; op "*" is every op. */
static void note_forced(selection *s, const char *force)
{
    while (force && *force) {
        size_t n = strcspn(force, "=,");
        for (int op = 0; op < WF_N_OPS; op++) {
            const char *name = wf_ops[op].name;
            s->forced[op] |=
                (n == 1 && *force == '*') || (strlen(name) == n && !strncmp(name, force, n));
        }
        force += strcspn(force, ",");
        force += *force == ',';
    }
}

static void close_selection(wf_dev *dev)
{
    selection *s = selection_of(dev);
    wf_tuned_free(&s->user);
    wf_tuned_free(&s->shipped);
    wf_batch_invariance_reset(&s->invariance);
    free(s);
    dev->selector = NULL;
}

static weft_status read_named(wf_dev *dev, selection *s, const char *path)
{
    s->loaded = path != NULL;
    if (!path || !strcmp(path, "none")) return WEFT_OK;
    weft_status st = wf_tuned_read(path, &dev->info, &s->user);
    if (!st) up_to_date(dev, &s->user, path);
    return wf_fail_param(st, "tuned");
}

static weft_status attach(wf_dev *dev, const wf_open_params *p)
{
    selection *s = wf_calloc(1, sizeof *s);
    if (!s) return WEFT_ERR_NOMEM;
    s->base = (wf_selector){pick, drop, close_selection};
    dev->selector = &s->base;
    note_forced(s, p->force);
    if (p->deterministic) dev->has_fused_gemm = false; /* it runs other kernels for few rows than for many */
    return read_named(dev, s, p->tuned);
}

weft_status wf_select_open(const char *spec, const wf_open_params *p, wf_dev **out)
{
    const wf_open_params none = {0};
    WF_TRY(wf_dev_open(spec, p, out));
    weft_status s = attach(*out, p ? p : &none);
    if (!s) return WEFT_OK;
    wf_dev_close(*out);
    *out = NULL;
    return s;
}
