/* op_test: every op x dtype x shape x variant of one device against the reference, and timed.
 *
 *   op_test DEVICE [--op NAME] [--variant NAME] [--tier NAME] [--seed N] [--bench] [--times] [--jobs N]
 *           [--tiny | --quick | --every | --long]
 *   op_test --devices
 *
 * Inputs are random in each run; the seed that is printed repeats it. Exit code 0: all right, 1: not,
 * 77: no such device. --every: on OpenCL devices of CPUs, too, each variant meets each format and head size that is
 * meant for it (is_meant), and one that misses any fails. A variant must give the same bits twice, and variants of one
 * invariance class the same bits as each other. --bench times each variant in the same loop: one line each. --jobs:
 * processes that share the cases (workers.h), on a GPU by default as many as cores, else one. --times says where they
 * spent their time. Where WEFT_TEST_PART names a part (support/part.h), products meet a part of the formats, and
 * attention of the head sizes.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "verify/check.h"
#include "op/cases.h"
#include "op/workers.h"
#include "support/build_once.h"
#include "support/part.h"
#include "support/skip.h"

typedef struct options {
    const char *device, *tier;
    uint64_t seed;
    enum op_level level;
    int jobs; /* 0: by the device */
    bool times;
} options;

typedef struct session {
    wf_dev *dev, *ref;
    wf_queue *q;
    const char *op, *variant;
    bool bench, all, tiny; /* all: every format with every variant; tiny: nothing but the cases */
    bool every;            /* all, and none may be missed */
    bool normal;           /* on the CPU path each variant that the processor can run has run in the end */
    const options *o;
    op_cases cases;
    uint32_t others; /* cases of another part */
    int worker;
    uint32_t index; /* of the case */
    op_shared *shared;
} session;

/* The first result of a class in a case. */
typedef struct seen {
    const wf_variant *variant;
    uint64_t hash, row_hash;
} seen;

static void complain(session *s, const wf_case *c, const char *variant, const char *what)
{
    char text[160];
    wf_case_text(c, text, sizeof text);
    op_progress(s->shared, true);
    printf("FAIL %s %s [%s] groups %u: %s\n", wf_ops[c->op].name, variant, text, c->max_groups, what);
    fflush(stdout);
    s->shared->failed++;
}

static void print_time(const wf_check *k, const char *variant, const wf_check_result *r)
{
    char text[160];
    wf_case_text(&k->c, text, sizeof text);
    printf("%-10s %-20s %-60s %10.1f us %8.2f GB/s %9.2f GFLOP/s\n", wf_ops[k->c.op].name, variant, text,
           r->median_ns / 1e3, k->bytes / r->median_ns, k->flops / r->median_ns);
}

/* What makes another program of one variant and format: the type of X, whether rows are read by eight, for how many
 * experts there is room, and for how many rows of X. */
enum { TYPE_OF_X = 1, BY_EIGHT = 2, MANY_EXPERTS = 4, SOME_ROWS = 8, MANY_ROWS = 16 };

static uint8_t program_bits(const wf_case *c)
{
    bool eights = c->pad % 8 == 0 && c->k % 8 == 0, rows = eights && c->op == WF_OP_GEMM;
    return (uint8_t)((c->in == WF_F16 ? TYPE_OF_X : 0) | (eights ? BY_EIGHT : 0) |
                     (c->n_experts > 8 ? MANY_EXPERTS : 0) | (rows && c->m > 1 ? SOME_ROWS : 0) |
                     (rows && c->m > 4 ? MANY_ROWS : 0));
}

/* What wf_check_run would compile, by the text that the compiler gets. 0: nothing. */
static uint64_t program_key(session *s, const wf_check *k, int i)
{
    wf_buf stand_in = {s->dev, UINT64_MAX, NULL};
    wf_call c;
    char *text = NULL;
    uint64_t key = 0xcbf29ce484222325u ^ (uint64_t)i;
    if (!s->dev->fns->source || !wf_check_supported_call(k, s->dev, i, &stand_in, &c) ||
        s->dev->fns->source(s->dev, &c, i, &text))
        return 0;
    for (const char *p = text; *p; p++) key = (key ^ (uint8_t)*p) * 0x100000001b3u;
    free(text);
    return key | 1;
}

/* wf_check_run, but no two processes compile one program: the others wait, or with may_wait false are told to come
 * again (*busy). */
static weft_status run_variant(session *s, wf_check *k, int i, bool timed, bool may_wait, bool *busy,
                               wf_check_result *r)
{
    uint64_t key = s->o->jobs > 1 ? program_key(s, k, i) : 0;
    enum op_claim claim = key ? op_claim(s->shared, key, s->worker) : OP_READY;
    *busy = claim == OP_BUSY && !may_wait;
    for (; claim == OP_BUSY && may_wait; claim = op_claim(s->shared, key, s->worker)) wf_sleep_ns(2000000);
    if (*busy) return WEFT_OK;
    weft_status st = wf_check_run(k, s->dev, s->q, i, timed, r);
    if (claim == OP_MINE) op_claimed(s->shared, key);
    return st;
}

static weft_status run_again(session *s, wf_check *k, int i, wf_check_result *r)
{
    bool busy;
    *r = (wf_check_result){0};
    return run_variant(s, k, i, false, true, &busy, r);
}

/* One variant, twice: right, and the same bits again; simulators, which see for themselves what may differ, run it
 * once. */
static bool check_once(session *s, wf_check *k, int i, bool may_wait, bool *busy, wf_check_result *r)
{
    const wf_variant *v = wf_variant_at(s->dev, k->c.op, i);
    wf_check_result again;
    char text[256];
    weft_status st = run_variant(s, k, i, s->bench, may_wait, busy, r);
    if (*busy) return false;
    if (!st && r->supported && r->ok && !s->tiny) st = run_again(s, k, i, &again);
    if (st) complain(s, &k->c, v->name, weft_last_error());
    else if (!r->supported) return false;
    else if (!r->ok) {
        snprintf(text, sizeof text, "%s; %.3g of its tolerance", r->message, r->error);
        complain(s, &k->c, v->name, text);
    } else if (!s->tiny && again.hash != r->hash) complain(s, &k->c, v->name, "two runs differ");
    s->shared->runs++;
    s->shared->per_variant[k->c.op][WF_MIN(i, WF_MAX_VARIANTS - 1)]++;
    if (i < WF_MAX_VARIANTS && !op_coverage_has(&s->shared->coverage, &k->c, i))
        s->shared->program_of[k->c.op][i][k->c.weight] = program_bits(&k->c);
    op_coverage_met(&s->shared->coverage, &k->c, i);
    if (!st && s->bench) print_time(k, v->name, r);
    return !st && r->ok;
}

static void check_class(session *s, const wf_case *c, const wf_variant *v, const wf_check_result *r, seen *list,
                        size_t *n)
{
    char text[128];
    for (size_t i = 0; i < *n; i++) {
        if (strcmp(list[i].variant->class, v->class)) continue;
        if (list[i].hash == r->hash) return;
        snprintf(text, sizeof text, "differs from %s, of the same class \"%s\"", list[i].variant->name, v->class);
        complain(s, c, v->name, text);
        return;
    }
    if (*n < 64) list[(*n)++] = (seen){v, r->hash, r->row_hash};
}

static bool is_product(enum wf_op op)
{
    return op == WF_OP_GEMM || op == WF_OP_GROUPED_GEMM;
}

/* OpenCL drivers of CPUs compile some kernels for seconds. */
static bool compiles_slowly(const session *s)
{
    return s->dev->info.type == WEFT_DEVICE_CPU && !strncmp(s->dev->info.id, "opencl", 6);
}

/* Ways in which kernels read W: numbers as they lie, four or eight at once, and blocks of 32 and of 256. */
static bool is_typical(uint8_t weight)
{
    return weight == WF_F32 || weight == WF_F16 || weight == WF_Q8_0 || weight == WF_Q4_K;
}

/* Variants of one file have names that begin alike: gemv and gemv_few, tile8 and tile16. */
static bool is_of(const wf_variant *v, const char *file)
{
    size_t n = strcspn(file, "0123456789_");
    return !strncmp(v->name, file, n) && strcspn(v->name, "0123456789_") == n;
}

/* Variants that do not read weights as they lie in the file take only what the device lays out for them. */
static bool takes_format(const session *s, const wf_case *c, int variant)
{
    enum { N = 512 };
    wf_dev *d = s->dev;
    wf_buf stand_in = {d, UINT64_MAX, NULL};
    if (c->op != WF_OP_GEMM || wf_reads_layout(wf_variant_at(d, c->op, variant), 0)) return true;
    wf_view x = {&stand_in, 0, 1, N, N, d->act, 0}, w = {&stand_in, 0, N, N, N, c->weight, 0};
    w.layout = d->fns->weight_layout(d, c->weight, N, N);
    wf_call call = {.op = WF_OP_GEMM, .variant = variant, .in = {x, w}, .out = {x}};
    return wf_reads_layout(wf_variant_at(d, c->op, variant), w.layout) && d->fns->supports(d, &call, variant);
}

/* Those of one file share the formats evenly, as far as the device can run them. */
static bool has_turn(const session *s, const wf_case *c, int variant)
{
    const wf_variant *v, *own = wf_variant_at(s->dev, c->op, variant);
    unsigned before = 0, all = 0;
    for (int i = 0; (v = wf_variant_at(s->dev, c->op, i)); i++)
        if (is_of(v, own->name) && op_coverage_can(s->dev, c->op, i)) all++, before += i < variant;
    return all && c->weight % all == before;
}

/* A product's kernel meets the formats that are typical, and its file every one: a file sees nothing of a format but
 * the functions of quant/ that give one element or eight, and of these expand.clh knows three kinds, so that the
 * tile's size, a number of rows, or where K is cut, cannot meet one format of a kind otherwise than another. */
static bool has_format(const session *s, const wf_case *c, int variant)
{
    return (is_typical(c->weight) || has_turn(s, c, variant)) && takes_format(s, c, variant);
}

/* The asynchronous softmax is of scores and sums, whose number and places follow from the tile: 80 has that of 96 and
 * 128, and as 96 does, leaves work-items without a column; 64 is a power of two as well. */
static bool has_head_size(const session *s, const wf_case *c, int variant)
{
    bool async = wf_variant_at(s->dev, c->op, variant)->flags & WF_ASYNC_SOFTMAX;
    return !async || (c->p.head_dim != 96 && c->p.head_dim != 128);
}

/* Has the variant to meet the case's format or head size? Where programs compile slowly the plain kernel, the op's
 * first, has to with all of them. */
static bool is_meant(const session *s, const wf_case *c, int variant)
{
    if (!compiles_slowly(s) || s->variant || variant == 0) return true;
    return is_product(c->op) ? has_format(s, c, variant) : c->op != WF_OP_ATTENTION || has_head_size(s, c, variant);
}

/* Bits of which a variant meets one choice with a format: none of a simple one, with which it meets all that there is;
 * all of most, by eight. What comes one by one is each format's w_load, as in the plain kernel. */
static uint8_t met_once(const session *s, const wf_case *c, int variant)
{
    const wf_variant *v = wf_variant_at(s->dev, c->op, variant);
    bool tile = is_of(v, "tile");
    if (is_of(v, "dot") || is_of(v, "host") || is_of(v, "rows") || is_of(v, "clblast"))
        return TYPE_OF_X | (is_typical(c->weight) ? 0 : BY_EIGHT | SOME_ROWS | MANY_ROWS);
    if (c->weight == WF_F16 || (!tile && !is_of(v, "gemv"))) return 0;
    return TYPE_OF_X | MANY_EXPERTS | (c->weight == WF_Q4_K ? 0 : BY_EIGHT) |
           (c->weight == WF_Q4_K || tile ? 0 : SOME_ROWS | MANY_ROWS);
}

static bool is_another_program(const session *s, const wf_case *c, int variant)
{
    uint8_t once = met_once(s, c, variant), bits = program_bits(c);
    if (once & BY_EIGHT & ~bits) return true;
    return op_coverage_has(&s->shared->coverage, c, variant) &&
           (s->shared->program_of[c->op][variant][c->weight] ^ bits) & once;
}

/* Simulators take long for a product: what a file sees of a format that is not typical its first kernel shows. */
static bool shown_by_file(const session *s, const wf_case *c, int variant)
{
    const char *own = wf_variant_at(s->dev, c->op, variant)->name;
    if (s->variant || !is_product(c->op) || is_typical(c->weight)) return false;
    for (int i = 0; i < variant; i++)
        if (is_of(wf_variant_at(s->dev, c->op, i), own) && op_coverage_has(&s->shared->coverage, c, i)) return true;
    return false;
}

/* Without s->every a product's kernel but the plain one meets one format of W for each type of X and Y, others every
 * time. */
static bool left_out(const session *s, const wf_case *c, int variant)
{
    /* Tiles of 128 x 128 for a few numbers take simulators long; races depend on the kind of groups alone. */
    if (s->tiny && is_of(wf_variant_at(s->dev, c->op, variant), "dot"))
        return c->weight != WF_Q4_K && c->weight != WF_Q6_K;
    if (s->tiny && !strncmp(s->dev->info.id, "opencl", 6)) return shown_by_file(s, c, variant);
    if (!compiles_slowly(s) || s->variant || variant == 0 || (s->all && !s->every)) return false;
    if (!s->every)
        return is_product(c->op) &&
               (wf_random(s->o->seed, (uint64_t)variant) + c->weight + c->in + c->out) % WF_N_WEIGHT_DTYPES > 0;
    if (c->n > 8192) return false; /* so wide a W, which few cases have, has tiles of its own */
    return !is_meant(s, c, variant) || is_another_program(s, c, variant);
}

/* Where the class says so, a row alone has the bits that it has among others, by any variant of the class: among
 * others all gave the same. */
static void check_batch_invariance(session *s, const wf_check *k, const seen *first)
{
    wf_check one;
    const wf_variant *w, *v = first->variant;
    if (s->tiny || (compiles_slowly(s) && s->index % 8)) return; /* one row alone is another kernel to compile */
    if ((v->flags & WF_BATCH_DEPENDENT) || !wf_check_one_row(k, k->out[0].view.rows / 2, &one)) return;
    for (int i = 0; (w = wf_variant_at(s->dev, k->c.op, i)) && !s->dev->lost; i++) {
        wf_check_result r;
        if (strcmp(w->class, v->class) || left_out(s, &k->c, i) || run_again(s, &one, i, &r) || !r.supported ||
            r.row_hash == first->row_hash)
            continue;
        char text[128];
        snprintf(text, sizeof text,
                 "a row alone by %s differs from the row among others: class \"%s\" is not batch-invariant", w->name,
                 v->class);
        complain(s, &k->c, v->name, text);
    }
}

/* With any other number of work-groups the bits stay as they are: kernels loop, and where a sum is cut follows from the
 * shape alone. Attention kernels that cut their work evenly over the work-groups say so by their class. With s->every
 * the first cases of a variant meet all numbers, the others one. */
static void check_groups(session *s, wf_check *k, int i, uint64_t hash)
{
    static const uint32_t counts[] = {0, 1, 3, 7};
    const wf_variant *v = wf_variant_at(s->dev, k->c.op, i);
    bool early = s->every && s->shared->per_variant[k->c.op][WF_MIN(i, WF_MAX_VARIANTS - 1)] <= 4;
    uint32_t first = (uint32_t)wf_random(s->o->seed, s->index + (uint64_t)i), n = early ? WF_LEN(counts) : 1;
    if (s->tiny || (v->flags & WF_BATCH_DEPENDENT)) return;
    for (uint32_t j = 0; j < n; j++) {
        wf_check other = *k; /* shares data */
        wf_check_result r;
        other.c.max_groups = counts[(first + j) % WF_LEN(counts)];
        if (other.c.max_groups == k->c.max_groups) continue;
        weft_status st = run_again(s, &other, i, &r);
        k->in_flight |= other.in_flight;
        if (st) complain(s, &other.c, v->name, weft_last_error());
        else if (r.supported && r.hash != hash)
            complain(s, &other.c, v->name, "another number of work-groups changes bits");
    }
}

/* What an engine asks of a device: some variant must be able to. */
static bool must_run(const session *s, const wf_case *c)
{
    bool stream = c->op == WF_OP_GET_ROWS || c->op == WF_OP_RMSNORM || c->op == WF_OP_LAYERNORM ||
                  c->op == WF_OP_WEIGHTED_SUM; /* the residual stream has any dtype */
    if ((wf_op_fixed(c->op) || stream || c->op == WF_OP_ROUTER) && !c->norm) return !s->variant;
    const wf_op_info *op = &wf_ops[c->op];
    bool act_in = !(op->in[0].what & WF_OPERAND_ACT) || c->in == s->dev->act;
    bool act_out = !(op->out[0].what & WF_OPERAND_ACT) || c->out == s->dev->act || c->op == WF_OP_GEMM;
    bool fused = c->norm || c->p.silu || c->p.rope; /* what no kernel can do whole is done in parts */
    bool paired = c->op == WF_OP_ROPE_KV && c->p.neox && s->dev->adjacent_pairs; /* rows are loaded in another order */
    return act_in && act_out && !s->variant && !fused && !paired;
}

/* Windows that hide nothing leave each bit as it is without windows. */
static void check_wide_windows(session *s, const wf_check *k, int i, uint64_t hash)
{
    wf_check plain = wf_check_no_windows(k);
    wf_check_result r;
    if (k->c.windows != WF_WINDOWS_WIDE) return;
    if (run_again(s, &plain, i, &r) || r.hash != hash)
        complain(s, &k->c, wf_variant_at(s->dev, k->c.op, i)->name, "differs from the same without windows");
}

/* What is not a number in some sequences' keys does not reach another's rows. */
static void check_poisoned(session *s, const wf_check *k, int i, uint64_t row_hash)
{
    wf_check poisoned;
    wf_check_result r;
    if (s->tiny || !wf_check_poison_other_sequences(k, &poisoned)) return;
    if (run_again(s, &poisoned, i, &r) || r.row_hash != row_hash)
        complain(s, &k->c, wf_variant_at(s->dev, k->c.op, i)->name, "NaN in the keys of other sequences reaches a row");
    if (!poisoned.in_flight) wf_check_poison_free(&poisoned);
}

/* A variant on a case, with all that must hold. False: another process builds its program; come again. */
static bool check_variant(session *s, wf_check *k, int i, bool may_wait, size_t *ran, seen *list, size_t *n)
{
    wf_check_result r;
    bool busy, ok = check_once(s, k, i, may_wait, &busy, &r);
    if (busy) return false;
    *ran += r.supported;
    if (!ok) return true;
    check_class(s, &k->c, wf_variant_at(s->dev, k->c.op, i), &r, list, n);
    check_wide_windows(s, k, i, r.hash);
    check_groups(s, k, i, r.hash);
    check_poisoned(s, k, i, r.row_hash);
    return true;
}

/* Each process begins with other variants, so that all compile, and comes back to those that others compiled
 * meanwhile. */
static void check_case(session *s, const wf_case *c)
{
    wf_check *k;
    seen list[64];
    size_t n = 0, ran = 0;
    int n_variants = 0, later[WF_MAX_VARIANTS], n_later = 0;
    const wf_variant *v;
    uint64_t began = wf_now_ns();
    if (wf_check_new(s->ref, c, &k)) {
        complain(s, c, "reference", weft_last_error());
        return;
    }
    s->shared->reference_ns += wf_now_ns() - began;
    for (; wf_variant_at(s->dev, c->op, n_variants); n_variants++)
        if (is_meant(s, c, n_variants)) op_coverage_ask(&s->shared->coverage, c, n_variants);
    for (int turn = 0; turn < n_variants && !s->dev->lost; turn++) {
        int i = (turn + s->worker * n_variants / WF_MAX(s->o->jobs, 1)) % n_variants;
        v = wf_variant_at(s->dev, c->op, i);
        if ((s->variant && strcmp(s->variant, v->name)) || left_out(s, c, i)) continue;
        if (!check_variant(s, k, i, n_later == WF_MAX_VARIANTS, &ran, list, &n)) later[n_later++] = i;
    }
    for (int j = 0; j < n_later && !s->dev->lost; j++) check_variant(s, k, later[j], true, &ran, list, &n);
    for (size_t j = 0; j < n && !s->dev->lost; j++) check_batch_invariance(s, k, &list[j]);
    if (!ran && must_run(s, c)) complain(s, c, "-", "no variant can run this");
    wf_check_free(k);
    s->shared->cases++;
}

/* ---- the program ------------------------------------------------------------------------------------ */

static int usage(void)
{
    fprintf(stderr, "usage: op_test --devices | DEVICE [--op NAME] [--variant NAME] [--tier NAME] [--seed N] [--bench] "
                    "[--times] [--jobs N] "
                    "[--tiny | --quick | --every | --long]\n");
    return 2;
}

static bool parse(int argc, char **argv, options *o, session *s)
{
    for (int i = 1; i < argc; i++) {
        const char *a = argv[i], *value = i + 1 < argc ? argv[i + 1] : NULL;
        if (!strcmp(a, "--bench")) s->bench = true;
        else if (!strcmp(a, "--times")) o->times = true;
        else if (!strcmp(a, "--tiny")) o->level = OP_TINY;
        else if (!strcmp(a, "--quick")) o->level = OP_QUICK;
        else if (!strcmp(a, "--every")) s->every = true;
        else if (!strcmp(a, "--long")) o->level = OP_LONG;
        else if (a[0] != '-' && !o->device) o->device = a;
        else if (!value) return false;
        else if (!strcmp(a, "--op")) s->op = value, i++;
        else if (!strcmp(a, "--variant")) s->variant = value, i++;
        else if (!strcmp(a, "--tier")) o->tier = value, i++;
        else if (!strcmp(a, "--seed")) o->seed = strtoull(value, NULL, 0), i++;
        else if (!strcmp(a, "--jobs")) o->jobs = WF_MIN(atoi(value), OP_MOST_WORKERS), i++;
        else return false;
    }
    return o->device != NULL && o->jobs >= 0;
}

/* The device of that id; "first-opencl", for the build's own list of tests: the first OpenCL device. */
static const struct weft_device_info *find_device(const char *id)
{
    static struct weft_device_info all[16];
    bool first = !strcmp(id, "first-opencl");
    size_t n = WF_MIN(wf_dev_list(all, WF_LEN(all)), WF_LEN(all));
    for (size_t i = 0; i < n; i++)
        if (first ? !strncmp(all[i].id, "opencl", 6) : !strcmp(all[i].id, id)) return &all[i];
    return NULL;
}

/* As long as the longest test may take: on a machine with much else to do even a small call can take minutes, where
 * its first launch compiles it. */
#define WATCHDOG_MS (20u * 60 * 1000)

static weft_status open_device(session *s)
{
    const options *o = s->o;
    wf_open_params p = {.watchdog_ms = WATCHDOG_MS};
    const struct weft_device_info *found = find_device(o->device);
    WF_TRY(wf_tier_parse(o->tier, &p.tier));
    if (!found && !strcmp(o->device, "first-opencl")) return wf_fail(WEFT_ERR_NODEVICE, "no OpenCL device");
    p.no_kernel_cache = found && build_once(found);
    WF_TRY(wf_dev_open(found ? found->id : o->device, &p, &s->dev));
    p.tier = WF_TIER_BASE;
    if (o->jobs > 1) p.threads = WF_MAX(wf_core_count() / (uint32_t)o->jobs, 1u);
    WF_TRY(wf_dev_open("cpu", &p, &s->ref));
    return wf_queue_create(s->dev, &s->q);
}

/* Of a part of a long test: what costs most is a program for each format, or head size. */
static bool is_left_to_others(const session *s, const wf_case *c)
{
    const char *area = !strncmp(s->dev->info.id, "opencl", 6) ? "cl" : "cpu";
    if (!s->all || (!is_product(c->op) && c->op != WF_OP_ATTENTION)) return false;
    return !is_of_part(area, is_product(c->op) ? c->weight : c->p.head_dim / 16);
}

/* The cases that were asked for. */
static bool select_cases(session *s)
{
    op_cases *all = &s->cases;
    size_t n = 0;
    if (!op_cases_make(s->o->level, s->o->seed, s->dev, all))
        return wf_fail(WEFT_ERR_NOMEM, "no memory for cases"), false;
    for (size_t i = 0; i < all->n; i++) {
        if (s->op && strcmp(s->op, wf_ops[all->list[i].op].name)) continue;
        if (is_left_to_others(s, &all->list[i])) {
            s->others++;
            continue;
        }
        if (s->bench) all->list[i].max_groups = 0; /* time the whole device */
        all->list[n++] = all->list[i];
    }
    all->n = n;
    return true;
}

static void close_device(session *s)
{
    free(s->cases.list);
    wf_queue_destroy(s->q);
    wf_dev_close(s->dev);
    wf_dev_close(s->ref);
}

static weft_status begin(session *s)
{
    weft_status st = open_device(s);
    if (!st && !select_cases(s)) st = WEFT_ERR_NOMEM;
    if (st && st != WEFT_ERR_NODEVICE) fprintf(stderr, "op_test: %s\n", weft_last_error());
    return st;
}

static void check_cases(session *s)
{
    uint64_t began = wf_now_ns();
    while ((s->index = s->shared->next++) < s->cases.n && !s->dev->lost) {
        s->shared->at[s->worker] = (int32_t)s->index;
        check_case(s, &s->cases.list[s->index]);
        if (s->o->jobs == 1) op_progress(s->shared, false);
    }
    s->shared->at[s->worker] = -1;
    s->shared->lost |= s->dev->lost;
    s->shared->compile_ns += s->dev->kernel_work.built_ns;
    s->shared->all_ns += wf_now_ns() - began;
}

/* A process of several. */
static bool worker(void *user, int number)
{
    session *s = user;
    s->worker = number;
    if (begin(s)) return false;
    s->shared->n_cases = (uint32_t)s->cases.n;
    check_cases(s);
    close_device(s);
    return true;
}

static void worker_died(void *user, int32_t index, int signal)
{
    session *s = user;
    printf("FAIL a process died of %s in case %d; --jobs 1 with the same seed tells more\n", strsignal(signal),
           (int)index);
    s->shared->failed++;
}

static void summary(session *s)
{
    const wf_variant *v;
    op_shared *all = s->shared;
    op_progress(all, true);
    for (int op = 0; op < WF_N_OPS; op++) {
        for (int i = 0; (v = wf_variant_at(s->dev, (enum wf_op)op, i)) && i < WF_MAX_VARIANTS; i++) {
            unsigned n = all->per_variant[op][i];
            if (!s->op || !strcmp(s->op, wf_ops[op].name))
                printf("  %-10s %-24s %4u cases%s\n", wf_ops[op].name, v->name, n, n ? "" : ": never run");
        }
        if (s->every || s->normal) all->failed += op_coverage_missed(&all->coverage, s->dev, (enum wf_op)op, s->every);
    }
    if (s->o->times) {
        double compile = (double)all->compile_ns / 1e9, reference = (double)all->reference_ns / 1e9,
               took = (double)all->all_ns / 1e9;
        printf("times: %d processes, %.1f s; of their %.1f s together compilers %.1f, references %.1f, runs and the "
               "rest %.1f\n",
               s->o->jobs, (double)(wf_now_ns() - all->began_ns) / 1e9, took, compile, reference,
               took - compile - reference);
    }
    printf("%u cases, %u runs, %u failed\n", all->cases, all->runs, all->failed);
}

static int print_devices(void)
{
    struct weft_device_info all[16];
    size_t n = WF_MIN(wf_dev_list(all, WF_LEN(all)), WF_LEN(all));
    for (size_t i = 0; i < n; i++) printf("%s\n", all[i].id);
    return 0;
}

/* Which kind a device is only a process of its own may ask: drivers that are open do not survive a fork. */
static int print_kind(const char *device)
{
    session s = {.o = &(options){.device = device, .jobs = 1}};
    weft_status st = open_device(&s);
    printf("%s\n", st ? "none" : s.dev->info.type == WEFT_DEVICE_GPU ? "gpu" : "other");
    close_device(&s);
    return 0;
}

static int default_jobs(const options *o, const session *s)
{
    char exe[512], command[1100], kind[16] = "";
    ssize_t n = readlink("/proc/self/exe", exe, sizeof exe - 1);
    if (o->level == OP_TINY || s->bench || !strcmp(o->device, "cpu") || n <= 0 || strchr(o->device, '\'')) return 1;
    exe[n] = 0;
    snprintf(command, sizeof command, "'%s' --kind '%s' 2>/dev/null", exe, o->device);
    FILE *f = popen(command, "r");
    bool gpu = f && fgets(kind, sizeof kind, f) && !strncmp(kind, "gpu", 3);
    if (f) pclose(f);
    return gpu ? (int)WF_MIN(wf_core_count(), (uint32_t)OP_MOST_WORKERS) : 1;
}

int main(int argc, char **argv)
{
    session s = {0};
    if (argc == 2 && !strcmp(argv[1], "--devices")) return print_devices();
    if (argc == 3 && !strcmp(argv[1], "--kind")) return print_kind(argv[2]);
    options o = {.seed = (uint64_t)time(NULL) * 1000003u ^ wf_now_ns(), .level = OP_NORMAL};
    bool good = true;
    s.o = &o;
    if (!parse(argc, argv, &o, &s)) return usage();
    s.all = s.every || o.level != OP_NORMAL;
    s.tiny = o.level == OP_TINY;
    s.normal = o.level == OP_NORMAL && !s.variant && !o.tier && !strcmp(o.device, "cpu");
    s.shared = op_shared_new();
    if (!s.shared) return 1;
    if (!o.jobs) o.jobs = default_jobs(&o, &s);
    s.shared->began_ns = wf_now_ns();
    if (o.jobs > 1) {
        printf("%s by %d processes, seed %llu\n", o.device, o.jobs, (unsigned long long)o.seed);
        setenv("WEFT_CLBUILD", "none", 1); /* each compiles by itself, with no helper beside it */
        good = op_workers_run(s.shared, o.jobs, worker, worker_died, &s);
    }
    weft_status st = begin(&s);
    if (st == WEFT_ERR_NODEVICE) return skip_program(weft_last_error());
    if (st) return 1;
    s.shared->n_cases = (uint32_t)s.cases.n;
    printf("%s (%s), seed %llu", s.dev->info.id, s.dev->info.name, (unsigned long long)o.seed);
    if (s.others) printf(", %u cases left to other parts: WEFT_TEST_PART=%s", s.others, getenv("WEFT_TEST_PART"));
    printf("\n");
    fflush(stdout);
    if (o.jobs == 1) check_cases(&s);
    summary(&s);
    good = good && (s.shared->runs || s.others) && !s.shared->failed && !s.shared->lost;
    close_device(&s);
    return good ? 0 : 1;
}
