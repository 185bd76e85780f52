/* select.c: see select.h. The files are read at the first call, so that a device that runs none reads none. */
#include "select/select.h"
#include "base/file.h"
#include "select/batch_invariance.h"
#include "select/tuned.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>


typedef struct selection {
    wf_selector base;
    wf_tuned_table user, shipped;
    bool loaded;
    int forced[WF_N_OPS]; /* the variant that params.force names, which takes precedence; -1: none */
    bool required[WF_N_OPS];                    /* by its op's name, not by "*" */
    /* Of a measured choice that cannot run; the last: that does not exist. */
    bool warned[WF_N_OPS][WF_MAX_VARIANTS + 1];
    uint8_t dropped[WF_N_OPS][WF_MAX_VARIANTS]; /* a bit for each of wf_fusion_of */
    bool any_dropped[WF_N_OPS];
    wf_batch_invariance invariance;
} selection;

static selection *selection_of(wf_dev *dev)
{
    return (selection *)dev->selector;
}

/* ---- what the backend expects times by --------------------------------------------------------- */

/* Texts of tuned/default, embedded by defaults.S. */
extern const char wf_costs_cpu[], wf_costs_opencl_cpu[], wf_costs_opencl_gpu[];

static const char *default_costs(const wf_dev *dev)
{
    if (strncmp(dev->info.id, "opencl", 6)) return wf_costs_cpu;
    return dev->info.type == WEFT_DEVICE_GPU ? wf_costs_opencl_gpu : wf_costs_opencl_cpu;
}

static weft_status set_costs(wf_dev *dev, const wf_tuned_table *t, const char *path)
{
    weft_status s = t->n_costs && dev->fns->set_costs ? dev->fns->set_costs(dev, t->costs, t->n_costs) : WEFT_OK;
    return s ? wf_fail_context(s, "%s", path) : WEFT_OK;
}

static weft_status set_default_costs(wf_dev *dev)
{
    wf_tuned_table t;
    if (!dev->fns->set_costs) return WEFT_OK;
    WF_TRY(wf_tuned_parse(default_costs(dev), NULL, &t));
    weft_status s = set_costs(dev, &t, "tuned/default");
    wf_tuned_free(&t);
    return s;
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
    weft_status s = wf_tuned_read(path, &dev->info, out);
    bool is_old = !s && !up_to_date(dev, out, path);
    if (!s && !is_old) s = set_costs(dev, out, path);
    if (s) wf_log(WEFT_LOG_WARN, "kernel choices are not used: %s", wf_error());
    else if (!is_old) wf_log(WEFT_LOG_DEBUG, "kernel choices: %s", path);
    if (s) wf_tuned_free(out);
    if (is_old) wf_tuned_forget_kernels(out);
}

/* Shipped files lie beside an installed program, else in the source tree whose build folder it runs from, else where
 * the program was to be installed. */
bool wf_tuned_shipped_path(const char *name, char *out, size_t cap)
{
    static const char *const places[] = {"../share/weft/tuned", "../../../tuned"};
    char exe[512];
    ssize_t n = readlink("/proc/self/exe", exe, sizeof exe - 1);
    exe[n > 0 ? n : 0] = 0;
    char *slash = strrchr(exe, '/');
    for (size_t i = 0; slash && i < WF_LEN(places); i++) {
        snprintf(out, cap, "%.*s/%s/%s", (int)(slash - exe), exe, places[i], name);
        if (!access(out, R_OK)) return true;
    }
    snprintf(out, cap, "%s/%s", WEFT_TUNED_DIR, name);
    return !access(out, R_OK);
}

static void load_files(wf_dev *dev, selection *s)
{
    char path[1100], slug[160], name[168];
    s->loaded = true;
    wf_device_slug(&dev->info, slug, sizeof slug);
    snprintf(name, sizeof name, "%s.tune", slug);
    if (wf_tuned_shipped_path(name, path, sizeof path)) read_if_there(dev, path, &s->shipped);
    if (!wf_tuned_user_path(&dev->info, false, path, sizeof path))
        read_if_there(dev, path, &s->user);
}

static void hash_row(wf_blake2b *b, const wf_tuned_row *r)
{
    const uint32_t numbers[] = {r->kind, r->dtype, r->key[0], r->key[1], r->key[2], r->key[3], r->n_steps};
    wf_blake2b_field(b, numbers, sizeof numbers);
    for (const wf_tuned_step *x = r->step; x < r->step + r->n_steps; x++) {
        wf_blake2b_field(b, &x->from, sizeof x->from);
        wf_blake2b_field(b, x->variant, strlen(x->variant));
    }
}

/* By which a class is chosen where nothing was measured. */
static void hash_cost(wf_blake2b *b, const wf_cost *c)
{
    wf_blake2b_field(b, c->of, strlen(c->of));
    wf_blake2b_field(b, c->name, strlen(c->name));
    wf_blake2b_field(b, &c->value, sizeof c->value);
}

void wf_select_hash(wf_dev *dev, wf_blake2b *b)
{
    selection *s = selection_of(dev);
    const wf_tuned_table *const tables[] = {&s->user, &s->shipped};
    if (!s->loaded) load_files(dev, s);
    for (size_t i = 0; i < WF_LEN(tables); i++) {
        wf_blake2b_field(b, &tables[i]->n, sizeof tables[i]->n);
        for (const wf_tuned_row *r = tables[i]->rows; r < tables[i]->rows + tables[i]->n; r++) hash_row(b, r);
        wf_blake2b_field(b, &tables[i]->n_costs, sizeof tables[i]->n_costs);
        for (const wf_cost *c = tables[i]->costs; c < tables[i]->costs + tables[i]->n_costs; c++) hash_cost(b, c);
    }
    wf_blake2b_field(b, s->dropped, sizeof s->dropped);
}

/* ---- choosing ----------------------------------------------------------------------------- */

static bool is_dropped(wf_dev *dev, const wf_call *c, int variant)
{
    return variant >= WF_MAX_VARIANTS || selection_of(dev)->dropped[c->op][variant] >> wf_fusion_of(c) & 1;
}

static void forget_classes(wf_dev *dev)
{
    wf_batch_invariance_reset(&selection_of(dev)->invariance);
}

/* What is wrong as the plain kernel is not used in any way; a fused kernel that fails is dropped alone. */
static void drop_variant(wf_dev *dev, const wf_call *c, int variant)
{
    selection *s = selection_of(dev);
    if (variant < 0 || variant >= WF_MAX_VARIANTS) return;
    s->dropped[c->op][variant] |= wf_is_fused(c) ? (uint8_t)(1u << wf_fusion_of(c)) : UINT8_MAX;
    s->any_dropped[c->op] = true;
    forget_classes(dev);
}

static bool is_usable(wf_dev *dev, const wf_call *c, const char *class, int variant)
{
    if (variant < 0 || (class && strcmp(wf_variant_at(dev, c->op, variant)->class, class))) return false;
    return !is_dropped(dev, c, variant) && dev->fns->supports(dev, c, variant);
}

/* The forced variant, or the best that the backend offers and that was not dropped; of this class where it is not NULL.
 */
static int pick_in(wf_dev *dev, const wf_call *c, const char *class)
{
    wf_candidate_kernel offered[WF_MAX_VARIANTS];
    const selection *s = selection_of(dev);
    int forced = s->forced[c->op];
    if (is_usable(dev, c, class, forced)) return forced;
    if (forced >= 0 && wf_is_fused(c)) return -1; /* in pieces, of which one is as asked */
    size_t n = dev->fns->rank(dev, c, class, offered, s->any_dropped[c->op] ? WF_MAX_VARIANTS : 1);
    for (size_t i = 0; i < n; i++)
        if (!is_dropped(dev, c, offered[i].variant)) return offered[i].variant;
    return -1;
}

bool wf_depends_on_batch(wf_dev *dev, enum wf_op op, int variant)
{
    return dev->params.deterministic && wf_variant_at(dev, op, variant)->flags & WF_BATCH_DEPENDENT;
}

void wf_cannot_run_text(wf_dev *dev, enum wf_op op, int variant, const char *what, char *text, size_t cap)
{
    wf_kernel_about a = {.needs = ""};
    if (dev->fns->about) dev->fns->about(dev, op, variant, &a);
    if (wf_depends_on_batch(dev, op, variant))
        a.needs = "determinism off (weft_engine_params.deterministic), for the bits of a row depend on the batch";
    snprintf(text, cap, "kernel '%s' cannot run '%s' on %s%s%s%s", wf_variant_at(dev, op, variant)->name, what,
             dev->info.name, *a.needs ? " (it needs " : "", a.needs, *a.needs ? ")" : "");
}

/* Once for each kernel. One that was dropped has been warned about; a call in pieces has no kernel that runs it whole.
 */
static void pass_over(wf_dev *dev, const wf_call *c, const char *name, int v)
{
    char text[384];
    bool *warned = &selection_of(dev)->warned[c->op][v < 0 ? WF_MAX_VARIANTS : v];
    if (*warned || wf_is_fused(c) || (v >= 0 && is_dropped(dev, c, v))) return;
    *warned = true;
    if (v >= 0) wf_cannot_run_text(dev, c->op, v, wf_ops[c->op].name, text, sizeof text);
    else snprintf(text, sizeof text, "%s has no kernel '%s' for %s", dev->info.name, name, wf_ops[c->op].name);
    wf_log(WEFT_LOG_WARN, "kernel choices: %s with %u rows; another is taken. Run `weft tune` again", text,
           c->out[0].rows);
}

/* The variant that was measured as the fastest; -1: the backend decides. */
static int pick_tuned(wf_dev *dev, const wf_call *c, const wf_tuned_row *want, uint32_t size)
{
    const selection *s = selection_of(dev);
    const wf_tuned_table *const tables[] = {&s->user, &s->shipped};
    for (size_t i = 0; i < WF_LEN(tables); i++) {
        const char *name = wf_tuned_find(tables[i], want, size);
        if (name && !strcmp(name, WF_TUNED_AUTO)) return -1;
        int v = name ? wf_variant_find(dev, c->op, name) : -1;
        if (is_usable(dev, c, NULL, v)) return v;
        if (name) pass_over(dev, c, name, v);
    }
    return -1;
}

static int pick_variant(wf_dev *dev, const wf_call *c)
{
    selection *s = selection_of(dev);
    wf_tuned_row want;
    uint32_t size;
    if (!s->loaded) load_files(dev, s); /* also the costs that rank() goes by */
    if (dev->params.deterministic) return wf_pick_batch_invariant(&s->invariance, pick_in, dev, c);
    if (s->forced[c->op] >= 0 || !wf_tuned_key(c, &want, &size)) return pick_in(dev, c, NULL);
    int v = pick_tuned(dev, c, &want, size);
    return v >= 0 ? v : pick_in(dev, c, NULL);
}

static int forced_of(wf_dev *dev, enum wf_op op)
{
    return selection_of(dev)->forced[op];
}

static int required_of(wf_dev *dev, enum wf_op op)
{
    return selection_of(dev)->required[op] ? selection_of(dev)->forced[op] : -1;
}

uint32_t wf_select_dense_batch(wf_dev *dev)
{
    selection *s = selection_of(dev);
    if (!s) return 0;
    if (!s->loaded) load_files(dev, s);
    return s->user.dense_batch ? s->user.dense_batch : s->shipped.dense_batch;
}

wf_tuned_load wf_select_load(wf_dev *dev)
{
    selection *s = selection_of(dev);
    if (!s->loaded) load_files(dev, s);
    return s->user.load;
}

static double device_cost(const wf_tuned_table *t, const char *name)
{
    for (const wf_cost *c = t->costs; c < t->costs + t->n_costs; c++)
        if (!strcmp(c->of, "device") && !strcmp(c->name, name)) return c->value;
    return 0;
}

static void ceilings_of(const wf_tuned_table *t, wf_ceilings *out)
{
    *out = (wf_ceilings){device_cost(t, "read") * 1e9,
                         {[WF_ARITH_F32] = device_cost(t, "f32") * 1e12,
                          [WF_ARITH_F16] = device_cost(t, "f16") * 1e12,
                          [WF_ARITH_Q8] = device_cost(t, "q8") * 1e12}};
}

void wf_select_ceilings(wf_dev *dev, wf_ceilings *out)
{
    selection *s = selection_of(dev);
    if (!s->loaded) load_files(dev, s);
    ceilings_of(device_cost(&s->user, "read") > 0 ? &s->user : &s->shipped, out);
}

void wf_select_expected_ceilings(wf_dev *dev, wf_ceilings *out)
{
    wf_tuned_table t;
    wf_select_ceilings(dev, out);
    if (out->read > 0 || wf_tuned_parse(default_costs(dev), NULL, &t)) return;
    ceilings_of(&t, out);
    wf_tuned_free(&t);
}

/* ---- opening, closing --------------------------------------------------------------------- */

static bool is_word(const char *name, const char *text, size_t n)
{
    return strlen(name) == n && !strncmp(name, text, n);
}

/* The number of the variant of that name, of n characters; -1: none. */
static int find_word(wf_dev *dev, enum wf_op op, const char *text, size_t n)
{
    const wf_variant *v;
    for (int i = 0; (v = wf_variant_at(dev, op, i)); i++)
        if (is_word(v->name, text, n)) return i;
    return -1;
}

/* One "op=variant" of n characters; op "*" is every op that has such a variant. A wrong name would measure something
 * else. */
static weft_status force_one(wf_dev *dev, selection *s, const char *text, size_t n)
{
    const char *equals = memchr(text, '=', n), *name = equals ? equals + 1 : text + n;
    size_t op_n = equals ? (size_t)(equals - text) : n;
    bool found = false;
    for (int op = 0; equals && op < WF_N_OPS; op++) {
        int v = is_word("*", text, op_n) || is_word(wf_ops[op].name, text, op_n)
                    ? find_word(dev, op, name, n - op_n - 1)
                    : -1;
        if (v >= 0) s->forced[op] = v, s->required[op] = !is_word("*", text, op_n), found = true;
    }
    if (found) return WEFT_OK;
    return wf_fail(WEFT_ERR_ARG,
                   "force: \"%.*s\" names no kernel variant of %s (`weft kernels` lists them); write op=variant, for "
                   "example gemm=%s",
                   (int)n, text, dev->info.id, wf_variant_at(dev, WF_OP_GEMM, 0)->name);
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

static weft_status attach_selection(wf_dev *dev, const wf_open_params *p)
{
    selection *s = wf_calloc(1, sizeof *s);
    if (!s) return WEFT_ERR_NOMEM;
    s->base = (wf_selector){pick_variant, drop_variant, is_dropped,     forget_classes,
                            forced_of,    required_of,  close_selection};
    dev->selector = &s->base;
    WF_TRY(set_default_costs(dev));
    const char *force = dev->params.force;
    for (int op = 0; op < WF_N_OPS; op++) s->forced[op] = -1;
    while (force && *force) {
        size_t n = strcspn(force, ",");
        if (n) WF_TRY(force_one(dev, s, force, n));
        force += n + (force[n] == ',');
    }
    s->loaded = p->tuned != NULL;
    if (!p->tuned || !strcmp(p->tuned, "none")) return WEFT_OK;
    weft_status st = wf_tuned_read(p->tuned, &dev->info, &s->user);
    if (!st) st = set_costs(dev, &s->user, p->tuned);
    if (!st) up_to_date(dev, &s->user, p->tuned);
    return wf_fail_param(st, "tuned");
}

weft_status wf_select_open(const char *spec, const wf_open_params *p, wf_dev **out)
{
    const wf_open_params none = {0};
    WF_TRY(wf_dev_open(spec, p, out));
    weft_status s = attach_selection(*out, p ? p : &none);
    if (!s) return WEFT_OK;
    wf_dev_close(*out);
    *out = NULL;
    return s;
}
