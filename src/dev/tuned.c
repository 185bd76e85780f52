/* tuned.c: the choice between a device's measured table and its backend. Files are looked for when
 * the first call asks, so that a device which is only listed or compared with reads none. */
#include "base/file.h"
#include "dev/front.h"
#include "dev/tuned.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAX_VARIANTS 64 /* of an op, which can be dropped one by one */

struct wf_tuned {
    wf_tuned_table user, shipped;
    bool loaded;
    bool forced[WF_N_OPS];      /* params.force names it, and goes first */
    uint64_t dropped[WF_N_OPS]; /* a bit for each variant */
};

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

/* Shipped files lie beside an installed program, else where it was to be installed, else in the
 * source tree whose build folder it runs from. */
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

static void load(wf_dev *dev)
{
    char path[1100], slug[160];
    struct wf_tuned *t = dev->tuned;
    t->loaded = true;
    if (!wf_tuned_user_path(&dev->info, false, path, sizeof path))
        read_if_there(dev, path, &t->user);
    wf_device_slug(&dev->info, slug, sizeof slug);
    if (shipped_path(slug, path, sizeof path)) read_if_there(dev, path, &t->shipped);
}

/* "op=variant,op=variant"; op "*" is every op. */
static void note_forced(struct wf_tuned *t, const char *force)
{
    while (force && *force) {
        size_t n = strcspn(force, "=,");
        for (int op = 0; op < WF_N_OPS; op++) {
            const char *name = wf_ops[op].name;
            t->forced[op] |=
                (n == 1 && *force == '*') || (strlen(name) == n && !strncmp(name, force, n));
        }
        force += strcspn(force, ",");
        force += *force == ',';
    }
}

weft_status wf_tuned_open(wf_dev *dev, const wf_open_params *p)
{
    dev->tuned = wf_calloc(1, sizeof *dev->tuned);
    if (!dev->tuned) return WEFT_ERR_NOMEM;
    note_forced(dev->tuned, p->force);
    dev->tuned->loaded = p->tuned != NULL;
    if (!p->tuned || !strcmp(p->tuned, "none")) return WEFT_OK;
    weft_status s = wf_tuned_read(p->tuned, &dev->info, &dev->tuned->user);
    if (!s) up_to_date(dev, &dev->tuned->user, p->tuned);
    return wf_fail_named(s, "tuned");
}

void wf_tuned_close(wf_dev *dev)
{
    if (!dev->tuned) return;
    wf_tuned_free(&dev->tuned->user);
    wf_tuned_free(&dev->tuned->shipped);
    free(dev->tuned);
    dev->tuned = NULL;
}

uint32_t wf_tuned_kernels(wf_dev *dev)
{
    static const enum wf_op ops[] = {WF_OP_GEMM, WF_OP_ATTENTION};
    const wf_variant *v;
    uint32_t hash = 0x811c9dc5u; /* FNV-1a */
    for (size_t o = 0; o < WF_LEN(ops); o++)
        for (int i = 0; (v = wf_variant_at(dev, ops[o], i)); i++)
            for (const char *p = v->name;; p++) {
                hash = (hash ^ (uint8_t)*p) * 0x01000193u; /* the end counts, too */
                if (!*p) break;
            }
    return hash ? hash : 1;
}

/* ---- looking up --------------------------------------------------------------------------- */

bool wf_tuned_key(const wf_call *c, wf_tuned_row *row, uint32_t *size)
{
    *row = (wf_tuned_row){0};
    if (c->op == WF_OP_GEMM) {
        row->kind = WF_TUNED_GEMM;
        row->dtype = c->in[1].dtype;
        row->key[0] = c->in[1].rows, row->key[1] = c->in[1].cols;
        *size = c->out[0].rows;
        return true;
    }
    if (c->op != WF_OP_ATTENTION || !c->p.max_q) return false;
    bool decode = c->p.max_q == 1;
    row->kind = (decode ? WF_TUNED_DECODE : WF_TUNED_PREFILL) +
                (c->p.phi_lo < c->p.phi_hi ? WF_TUNED_ASYNC : 0);
    row->dtype = c->in[1].dtype;
    row->key[0] = c->p.n_head, row->key[1] = c->p.n_kv_head, row->key[2] = c->p.head_dim;
    row->key[3] = decode ? c->out[0].rows : 0;
    *size = decode ? c->p.max_kv : c->p.max_q;
    return *size != 0;
}

/* The row of the shape; of several that differ in sequences the one with the most that are not
 * more. */
static const wf_tuned_row *row_for(const wf_tuned_table *t, const wf_tuned_row *want)
{
    const wf_tuned_row *best = NULL;
    for (size_t i = 0; i < t->n; i++) {
        const wf_tuned_row *r = &t->rows[i];
        if (r->kind != want->kind || r->dtype != want->dtype) continue;
        if (memcmp(r->key, want->key, 3 * sizeof *r->key) || r->key[3] > want->key[3]) continue;
        if (!best || r->key[3] > best->key[3]) best = r;
    }
    return best;
}

const char *wf_tuned_find(const wf_tuned_table *t, const wf_tuned_row *want, uint32_t size)
{
    const wf_tuned_row *r = row_for(t, want);
    const char *name = NULL;
    for (uint32_t i = 0; r && i < r->n_steps && r->step[i].from <= size; i++)
        name = r->step[i].variant;
    return name;
}

static int usable(wf_dev *dev, const wf_call *c, const char *name)
{
    int v = name ? wf_variant_find(dev, c->op, name) : -1;
    if (v < 0 || (v < MAX_VARIANTS && dev->tuned->dropped[c->op] >> v & 1)) return -1;
    return dev->fns->supports(dev, c, v) ? v : -1;
}

int wf_pick(wf_dev *dev, const wf_call *c)
{
    struct wf_tuned *t = dev->tuned;
    wf_tuned_row want;
    uint32_t size;
    if (dev->params.deterministic) return wf_pick_batch_invariant(dev, c);
    if (!t || t->forced[c->op] || !wf_tuned_key(c, &want, &size)) return dev->fns->pick(dev, c, NULL);
    if (!t->loaded) load(dev);
    int v = usable(dev, c, wf_tuned_find(&t->user, &want, size));
    if (v < 0) v = usable(dev, c, wf_tuned_find(&t->shipped, &want, size));
    return v >= 0 ? v : dev->fns->pick(dev, c, NULL);
}

uint32_t wf_tuned_dense_batch(wf_dev *dev)
{
    struct wf_tuned *t = dev->tuned;
    if (!t) return 0;
    if (!t->loaded) load(dev);
    return t->user.dense_batch ? t->user.dense_batch : t->shipped.dense_batch;
}

void wf_drop(wf_dev *dev, enum wf_op op, int variant)
{
    if (dev->tuned && variant >= 0 && variant < MAX_VARIANTS)
        dev->tuned->dropped[op] |= 1ull << variant;
    wf_batch_invariance_reset(dev);
    dev->fns->drop(dev, op, variant);
}
