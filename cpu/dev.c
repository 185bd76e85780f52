/* The CPU backend: memory is host memory, a queue is a thread team, an event is an atomic. Weights have the file's row
 * layout or are 16-row interleaved (layout.c). The kernels are listed in variants.def.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include "base/memory_left.h"
#include "cpu/blas.h"
#include "cpu/cpu.h"
#include "cpu/ops/ops.h"
#include "cpu/ref/ref.h"
#include "cpu/variants.h"

/* ---- variants -------------------------------------------------------------------------------- */

#define MAX_VARIANTS ((size_t)32)

typedef struct variant_row {
    enum wf_op op;
    wf_cpu_variant v;
} variant_row;

static const variant_row rows[] = {
#define XL(layout_, op_, name_, tier_, class_, arith_, flags_, run_, rank_, scratch_)              \
    {WF_OP_##op_, {{name_, WF_TIER_##tier_, 1u << layout_, class_, WF_ARITH_##arith_, flags_}, run_, rank_, scratch_}},
#define X(...) XL(0, __VA_ARGS__)
#define XG(id, name, tier, class, arith, flags, ...)                                                                   \
    X(GROUPED_GEMM, name, tier, class, arith, flags, wf_cpu_grouped_##id, wf_cpu_rank_grouped_##id,                    \
      wf_cpu_grouped_scratch_##id)
#include "cpu/variants.def"
};

/* The rows sorted by op, once. */
static struct {
    wf_cpu_variant list[WF_N_OPS][MAX_VARIANTS];
    wf_variant pub[WF_N_OPS][MAX_VARIANTS];
    size_t n[WF_N_OPS];
} table;
static pthread_once_t table_once = PTHREAD_ONCE_INIT;

static void fill_table(void)
{
    for (size_t i = 0; i < WF_LEN(rows); i++) {
        size_t op = rows[i].op, n = table.n[op]++;
        table.list[op][n] = rows[i].v;
        table.pub[op][n] = rows[i].v.pub;
    }
}

const wf_cpu_variant *wf_cpu_variant_of(enum wf_op op, size_t *n)
{
    pthread_once(&table_once, fill_table);
    *n = table.n[op];
    return table.list[op];
}

static size_t list_variants(wf_dev *dev, enum wf_op op, const wf_variant **list)
{
    size_t n;
    (void)dev;
    wf_cpu_variant_of(op, &n);
    *list = table.pub[op];
    return n;
}

static uint32_t rank_of(const wf_dev *dev, const wf_call *c, int variant)
{
    size_t n;
    const wf_cpu_variant *list = wf_cpu_variant_of(c->op, &n);
    if (variant < 0 || (size_t)variant >= n || list[variant].pub.tier > dev->params.tier) return 0;
    if (c->op == WF_OP_GEMM && !wf_reads_layout(&list[variant].pub, c->in[WF_GEMM_W].layout)) return 0;
    bool around = c->op == WF_OP_ATTENTION && c->in[WF_ATTENTION_AROUND].buf;
    if (around && !(list[variant].pub.flags & WF_REFERENCE)) return 0;
    return list[variant].rank(c);
}

static bool supports_call(wf_dev *dev, const wf_call *c, int variant)
{
    return rank_of(dev, c, variant) > 0;
}

typedef struct ranked {
    uint32_t rank;
    wf_candidate_kernel kernel;
} ranked;

/* Is its time known, and by coefficients of its own? Without the device's rates it is not. */
static bool is_measured(const wf_cpu_dev *d, const wf_call *c, const wf_candidate_kernel *k)
{
    return k->us > 0 && wf_roofline_measured(&d->roofline, c->op, k->variant);
}

/* Does a come before b? Those that were measured themselves by expected time, then the others by rank. */
static bool comes_before(const wf_cpu_dev *d, const wf_call *c, const ranked *a, const ranked *b)
{
    bool measured = is_measured(d, c, &a->kernel);
    if (measured != is_measured(d, c, &b->kernel)) return measured;
    return measured ? a->kernel.us < b->kernel.us : a->rank > b->rank;
}

/* The best first; among equals the order of the list. */
static size_t rank_variants(wf_dev *dev, const wf_call *c, const char *class, wf_candidate_kernel *out, size_t cap)
{
    wf_cpu_dev *d = (wf_cpu_dev *)dev;
    ranked all[MAX_VARIANTS];
    size_t n, found = 0;
    const wf_cpu_variant *list = wf_cpu_variant_of(c->op, &n);
    const double share = c->max_groups ? WF_MAX(1.0, (double)d->threads / c->max_groups) : 1;
    for (size_t v = 0; v < n; v++) {
        ranked r = {class && strcmp(class, list[v].pub.class) ? 0 : rank_of(dev, c, (int)v), {.variant = (int)v}};
        size_t at = found;
        if (!r.rank) continue;
        r.kernel.us = (float)wf_roofline_us(&d->roofline, &d->base, c, (int)v, share);
        for (; at && comes_before(d, c, &r, &all[at - 1]); at--) all[at] = all[at - 1];
        all[at] = r;
        found++;
    }
    for (size_t i = 0; i < WF_MIN(found, cap); i++) out[i] = all[i].kernel;
    return WF_MIN(found, cap);
}

static weft_status set_costs(wf_dev *dev, const wf_cost *list, size_t n)
{
    wf_cpu_dev *d = (wf_cpu_dev *)dev;
    wf_roofline next = d->roofline;
    for (const wf_cost *c = list; c < list + n; c++)
        if (!wf_roofline_set(&next, dev, c))
            return wf_fail(WEFT_ERR_FORMAT, "line %u: cost %s %s=%g is none that the CPU has (src/select/tuned.h)",
                           c->line, c->of, c->name, c->value);
    d->roofline = next;
    return WEFT_OK;
}

/* Kernels are functions: there is nothing to build. */
static weft_status bind_variant(wf_dev *dev, const wf_call *c, int variant, wf_bound *out)
{
    size_t n;
    (void)dev;
    *out = (wf_bound){variant, (void *)(wf_cpu_variant_of(c->op, &n) + variant)}; /* read-only */
    return WEFT_OK;
}

/* Code of this build, but for OpenBLAS. */
static bool kernel_id(wf_dev *dev, const wf_bound *b, char *buf, size_t cap)
{
    (void)dev;
    (void)b;
    wf_copy(buf, cap, wf_blas_config());
    return true;
}

/* ---- failures -------------------------------------------------------------------------------- */

void wf_cpu_fail(wf_cpu_dev *dev, weft_status s, const char *message)
{
    pthread_mutex_lock(&dev->mutex);
    if (!atomic_load(&dev->failed)) {
        dev->failed_status = s;
        wf_copy(dev->message, sizeof(dev->message), message);
        atomic_store(&dev->failed, true);
    }
    pthread_mutex_unlock(&dev->mutex);
}

weft_status wf_cpu_check(wf_cpu_dev *dev)
{
    if (!atomic_load(&dev->failed)) return WEFT_OK;
    pthread_mutex_lock(&dev->mutex);
    weft_status s = wf_fail(dev->failed_status, "%s", dev->message);
    pthread_mutex_unlock(&dev->mutex);
    return s;
}

/* ---- the device ------------------------------------------------------------------------------ */

static void read_name(char *name, size_t cap)
{
    char line[256];
    wf_copy(name, cap, "CPU");
    FILE *f = fopen("/proc/cpuinfo", "r");
    while (f && fgets(line, sizeof(line), f)) {
        char *colon = strchr(line, ':');
        if (strncmp(line, "model name", 10) || !colon) continue;
        colon[strcspn(colon, "\n")] = '\0';
        wf_copy(name, cap, colon + 1 + strspn(colon + 1, " "));
        break;
    }
    if (f) fclose(f);
}

static size_t list_devices(struct weft_device_info *out, size_t cap)
{
    struct sysinfo si;
    if (cap == 0) return 1;
    *out = (struct weft_device_info){.type = WEFT_DEVICE_CPU};
    wf_copy(out->id, sizeof(out->id), "cpu");
    wf_copy(out->platform, sizeof(out->platform), "weft cpu");
    wf_copy(out->version, sizeof(out->version), "weft " WF_VERSION);
    read_name(out->name, sizeof(out->name));
    if (sysinfo(&si) == 0) out->memory = (uint64_t)si.totalram * si.mem_unit;
    out->max_alloc = out->memory;
    out->available = wf_memory_left();
    out->compute_units = wf_core_count();
    out->max_group = 1;
    wf_cpu_describe(out);
    return 1;
}

weft_status wf_cpu_team_of(wf_cpu_dev *dev, wf_cpu_team **out)
{
    if (!dev->pool) WF_TRY(wf_cpu_pool_take(dev->threads, &dev->pool));
    return wf_cpu_team_create(dev->pool, &dev->skip, out);
}

static void close_dev(wf_dev *base)
{
    wf_cpu_dev *dev = (wf_cpu_dev *)base;
    wf_cpu_pool_leave(dev->pool);
    pthread_mutex_destroy(&dev->mutex);
    free(dev);
}

static const wf_dev_fns fns = {
    .close = close_dev,
    .buf_create = wf_cpu_buf_create,
    .buf_destroy = wf_cpu_buf_destroy,
    .buf_wrap = wf_cpu_buf_wrap,
    .queue_create = wf_cpu_queue_create,
    .queue_destroy = wf_cpu_queue_destroy,
    .event_create = wf_cpu_event_create,
    .event_destroy = wf_cpu_event_destroy,
    .write = wf_cpu_write,
    .read = wf_cpu_read,
    .copy_rows = wf_cpu_copy_rows,
    .fill = wf_cpu_fill,
    .submit = wf_cpu_submit,
    .launch = wf_cpu_launch,
    .mark = wf_cpu_mark,
    .flush = wf_cpu_flush,
    .wait = wf_cpu_wait,
    .poll = wf_cpu_poll,
    .resume = wf_cpu_resume,
    .times = wf_cpu_event_times,
    .variants = list_variants,
    .supports = supports_call,
    .rank = rank_variants,
    .set_costs = set_costs,
    .bind = bind_variant,
    .kernel_id = kernel_id,
    .about = wf_cpu_about,
    .weight_layout = wf_cpu_weight_layout,
    .weight_bytes = wf_cpu_weight_bytes,
    .weight_pack = wf_cpu_weight_pack,
    .measure = wf_cpu_measure,
};

/* With a thread on each of 16 cores the engine's own took the place of one, and all waited for that (1.1B, Q4_0, one
 * sequence: 16 threads 114 and 117 tokens/s, 15 153 and 150, 14 154, 12 158 and 153; 16 sequences: 895 and 794, 1,062
 * and 928, 812 and 1,013). Of few cores one is too much. */
uint32_t wf_cpu_usual_threads(uint32_t cores)
{
    enum { MANY = 16 };
    return cores >= MANY ? cores - 1 : cores;
}

static weft_status open_dev(size_t i, const wf_open_params *p, wf_dev **out)
{
    (void)i;
    wf_cpu_dev *dev = wf_calloc(1, sizeof(*dev));
    if (!dev) return WEFT_ERR_NOMEM;
    dev->base = (wf_dev){.fns = &fns, .params = *p, .align = 32, .act = WF_F32};
    list_devices(&dev->base.info, 1);
    dev->base.max_alloc = dev->base.info.max_alloc;
    const long cache = sysconf(_SC_LEVEL3_CACHE_SIZE);
    dev->base.cache = cache > 0 ? (uint64_t)cache : 0;
    if (p->max_alloc) dev->base.max_alloc = WF_MIN(dev->base.max_alloc, p->max_alloc);
    dev->threads = WF_MIN(p->threads ? p->threads : wf_cpu_usual_threads(wf_core_count()), WF_CPU_MOST_THREADS);
    pthread_mutex_init(&dev->mutex, NULL);
    wf_blas_setup();
    *out = &dev->base;
    return WEFT_OK;
}

const wf_backend wf_backend_cpu = {.name = "cpu", .list = list_devices, .open = open_dev};
