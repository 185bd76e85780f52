/* op_test: every op x dtype x shape x variant of one device against the reference, and timed.
 *
 *   op_test DEVICE [--op NAME] [--variant NAME] [--tier NAME] [--seed N] [--bench] [--tiny | --quick | --every | --long]
 *   op_test --devices
 *
 * Inputs are random in each run; the seed that is printed repeats it. Exit code 0: all right, 1: not,
 * 77: no such device. --every: on OpenCL devices of CPUs, too, each variant meets each format and head size that is meant for it (is_meant), and one
 * that misses any fails. A variant must give the same bits twice, and variants of one invariance class
 * the same bits as each other. --bench times each variant in the same loop: one line each.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "verify/check.h"
#include "op/cases.h"
#include "op/coverage.h"
#include "support/build_once.h"
#include "support/skip.h"

typedef struct session {
    wf_dev *dev, *ref;
    wf_queue *q;
    const char *op, *variant;
    bool bench, all, tiny; /* all: every format with every variant; tiny: nothing but the cases */
    bool every;            /* all, and none may be missed */
    bool normal;           /* on the CPU path each variant that the processor can run has run in the end */
    uint64_t seed;
    unsigned cases, runs, failed;
    unsigned per_variant[WF_N_OPS][WF_MAX_VARIANTS]; /* runs */
    op_coverage coverage;
    uint8_t program_of[WF_N_OPS][WF_MAX_VARIANTS][WF_N_WEIGHT_DTYPES]; /* program_bits of the first case that ran */
} session;

typedef struct seen {
    const char *class;
    const char *variant;
    uint64_t hash;
} seen;

static void complain(session *s, const wf_case *c, const char *variant, const char *what)
{
    char text[160];
    wf_case_text(c, text, sizeof text);
    printf("FAIL %s %s [%s] groups %u: %s\n", wf_ops[c->op].name, variant, text, c->max_groups, what);
    fflush(stdout);
    s->failed++;
}

static void print_time(const wf_check *k, const char *variant, const wf_check_result *r)
{
    char text[160];
    wf_case_text(&k->c, text, sizeof text);
    printf("%-10s %-20s %-60s %10.1f us %8.2f GB/s %9.2f GFLOP/s\n", wf_ops[k->c.op].name, variant, text,
           r->median_ns / 1e3, k->bytes / r->median_ns, k->flops / r->median_ns);
}

/* What makes another program of one variant and format: the type of X, whether rows are read by eight, for how many experts there is room, and for how
 * many rows of X. */
enum { TYPE_OF_X = 1, BY_EIGHT = 2, MANY_EXPERTS = 4, SOME_ROWS = 8, MANY_ROWS = 16 };

static uint8_t program_bits(const wf_case *c)
{
    bool eights = c->pad % 8 == 0 && c->k % 8 == 0, rows = eights && c->op == WF_OP_GEMM;
    return (uint8_t)((c->in == WF_F16 ? TYPE_OF_X : 0) | (eights ? BY_EIGHT : 0) | (c->n_experts > 8 ? MANY_EXPERTS : 0) | (rows && c->m > 1 ? SOME_ROWS : 0) |
                     (rows && c->m > 4 ? MANY_ROWS : 0));
}

/* One variant, twice: right, and the same bits again; simulators, which see for themselves what may differ, run it once. */
static bool check_once(session *s, wf_check *k, int i, wf_check_result *r)
{
    const wf_variant *v = wf_variant_at(s->dev, k->c.op, i);
    wf_check_result again;
    char text[256];
    weft_status st = wf_check_run(k, s->dev, s->q, i, s->bench, r);
    if (!st && r->supported && r->ok && !s->tiny) st = wf_check_run(k, s->dev, s->q, i, false, &again);
    if (st) complain(s, &k->c, v->name, weft_last_error());
    else if (!r->supported) return false;
    else if (!r->ok) {
        snprintf(text, sizeof text, "%s; %.3g of its tolerance", r->message, r->error);
        complain(s, &k->c, v->name, text);
    } else if (!s->tiny && again.hash != r->hash) complain(s, &k->c, v->name, "two runs differ");
    s->runs++;
    s->per_variant[k->c.op][WF_MIN(i, WF_MAX_VARIANTS - 1)]++;
    if (i < WF_MAX_VARIANTS && !op_coverage_has(&s->coverage, &k->c, i)) s->program_of[k->c.op][i][k->c.weight] = program_bits(&k->c);
    op_coverage_met(&s->coverage, &k->c, i);
    if (!st && s->bench) print_time(k, v->name, r);
    return !st && r->ok;
}

static void check_class(session *s, const wf_case *c, const wf_variant *v, uint64_t hash, seen *list,
                        size_t *n)
{
    char text[128];
    for (size_t i = 0; i < *n; i++) {
        if (strcmp(list[i].class, v->class)) continue;
        if (list[i].hash == hash) return;
        snprintf(text, sizeof text, "differs from %s, of the same class \"%s\"", list[i].variant, v->class);
        complain(s, c, v->name, text);
        return;
    }
    if (*n < 64) list[(*n)++] = (seen){v->class, v->name, hash};
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
    return !strncmp(v->name, file, 4);
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

/* A product's kernel meets the formats that are typical, and its file every one: a file sees nothing of a format but the functions of quant/ that give one
 * element or eight, and of these expand.clh knows three kinds, so that the tile's size, a number of rows, or where K is cut, cannot meet one format of a
 * kind otherwise than another. */
static bool has_format(const session *s, const wf_case *c, int variant)
{
    return is_typical(c->weight) || has_turn(s, c, variant);
}

/* The asynchronous softmax is of scores and sums, whose number and places follow from the tile: 80 has that of 96 and 128, and as 96 does, leaves work-items
 * without a column; 64 is a power of two as well. */
static bool has_head_size(const session *s, const wf_case *c, int variant)
{
    bool async = wf_variant_at(s->dev, c->op, variant)->flags & WF_ASYNC_SOFTMAX;
    return !async || (c->p.head_dim != 96 && c->p.head_dim != 128);
}

/* Has the variant to meet the case's format or head size? Where programs compile slowly the plain kernel, the op's first, has to with all of them. */
static bool is_meant(const session *s, const wf_case *c, int variant)
{
    if (!compiles_slowly(s) || s->variant || variant == 0) return true;
    return is_product(c->op) ? has_format(s, c, variant) : c->op != WF_OP_ATTENTION || has_head_size(s, c, variant);
}

/* Bits of which a variant meets one choice with a format: none of a simple one, with which it meets all that there is; all of most, by eight. What comes one
 * by one is each format's w_load, as in the plain kernel. */
static uint8_t met_once(const session *s, const wf_case *c, int variant)
{
    const wf_variant *v = wf_variant_at(s->dev, c->op, variant);
    bool tile = is_of(v, "tile");
    if (c->weight == WF_F16 || (!tile && !is_of(v, "gemv"))) return 0;
    return TYPE_OF_X | MANY_EXPERTS | (c->weight == WF_Q4_K ? 0 : BY_EIGHT) | (c->weight == WF_Q4_K || tile ? 0 : SOME_ROWS | MANY_ROWS);
}

static bool is_another_program(const session *s, const wf_case *c, int variant)
{
    uint8_t once = met_once(s, c, variant), bits = program_bits(c);
    if (once & BY_EIGHT & ~bits) return true;
    return op_coverage_has(&s->coverage, c, variant) && (s->program_of[c->op][variant][c->weight] ^ bits) & once;
}

/* Without s->every a product's kernel but the plain one meets one format of W for each type of X and Y, others every time. */
static bool left_out(const session *s, const wf_case *c, int variant)
{
    if (!compiles_slowly(s) || s->variant || variant == 0 || (s->all && !s->every)) return false;
    if (!s->every) return is_product(c->op) && (wf_random(s->seed, (uint64_t)variant) + c->weight + c->in + c->out) % WF_N_WEIGHT_DTYPES > 0;
    if (c->n > 8192) return false; /* so wide a W, which few cases have, has tiles of its own */
    return !is_meant(s, c, variant) || is_another_program(s, c, variant);
}

/* Where the class says so, a row alone has the bits that it has among others, by any variant of the class. */
static void check_batch_invariance(session *s, const wf_check *k, const wf_variant *v, uint64_t row_hash)
{
    wf_check one;
    const wf_variant *w;
    if (s->tiny || (compiles_slowly(s) && s->cases % 8)) return; /* one row alone is another kernel to compile */
    if ((v->flags & WF_BATCH_DEPENDENT) || !wf_check_one_row(k, k->out[0].view.rows / 2, &one)) return;
    for (int i = 0; (w = wf_variant_at(s->dev, k->c.op, i)) && !s->dev->lost; i++) {
        wf_check_result r = {0};
        if (strcmp(w->class, v->class) || left_out(s, &k->c, i)) continue;
        weft_status st = wf_check_run(&one, s->dev, s->q, i, false, &r);
        if (st || !r.supported || r.row_hash == row_hash) continue;
        char text[128];
        snprintf(text, sizeof text, "a row alone by %s differs from the row among others: class \"%s\" is not batch-invariant", w->name, v->class);
        complain(s, &k->c, v->name, text);
    }
}

/* With any other number of work-groups the bits stay as they are: kernels loop, and where a sum is cut follows from the shape alone.
 * Attention kernels that cut their work evenly over the work-groups say so by their class. */
static void check_groups(session *s, wf_check *k, int i, uint64_t hash)
{
    static const uint32_t counts[] = {0, 1, 3, 7};
    const wf_variant *v = wf_variant_at(s->dev, k->c.op, i);
    uint32_t first = (uint32_t)wf_random(s->seed, s->cases + (uint64_t)i), n = s->every ? WF_LEN(counts) : 1;
    if (s->tiny || (v->flags & WF_BATCH_DEPENDENT)) return;
    for (uint32_t j = 0; j < n; j++) {
        wf_check other = *k; /* shares data */
        wf_check_result r = {0};
        other.c.max_groups = counts[(first + j) % WF_LEN(counts)];
        if (other.c.max_groups == k->c.max_groups) continue;
        weft_status st = wf_check_run(&other, s->dev, s->q, i, false, &r);
        k->in_flight |= other.in_flight;
        if (st) complain(s, &other.c, v->name, weft_last_error());
        else if (r.supported && r.hash != hash) complain(s, &other.c, v->name, "another number of work-groups changes bits");
    }
}

/* What an engine asks of a device: some variant must be able to. */
static bool must_run(const session *s, const wf_case *c)
{
    bool stream = c->op == WF_OP_GET_ROWS || c->op == WF_OP_RMSNORM || c->op == WF_OP_LAYERNORM || c->op == WF_OP_WEIGHTED_SUM; /* the residual stream has any dtype */
    if ((wf_op_fixed(c->op) || stream || c->op == WF_OP_ROUTER) && !c->norm) return !s->variant;
    const wf_op_info *op = &wf_ops[c->op];
    bool act_in = !(op->in[0].what & WF_OPERAND_ACT) || c->in == s->dev->act;
    bool act_out = !(op->out[0].what & WF_OPERAND_ACT) || c->out == s->dev->act || c->op == WF_OP_GEMM;
    bool fused = c->norm || c->p.silu || c->p.rope; /* what no kernel can do whole is done in parts */
    return act_in && act_out && !s->variant && !fused;
}

/* Windows that hide nothing leave each bit as it is without windows. */
static void check_wide_windows(session *s, const wf_check *k, int i, uint64_t hash)
{
    wf_check plain = wf_check_no_windows(k);
    wf_check_result r = {0};
    if (k->c.windows != WF_WINDOWS_WIDE) return;
    if (wf_check_run(&plain, s->dev, s->q, i, false, &r) || r.hash != hash)
        complain(s, &k->c, wf_variant_at(s->dev, k->c.op, i)->name, "differs from the same without windows");
}

/* What is not a number in some sequences' keys does not reach another's rows. */
static void check_poisoned(session *s, const wf_check *k, int i, uint64_t row_hash)
{
    wf_check poisoned;
    wf_check_result r = {0};
    if (s->tiny || !wf_check_poison_other_sequences(k, &poisoned)) return;
    if (wf_check_run(&poisoned, s->dev, s->q, i, false, &r) || r.row_hash != row_hash)
        complain(s, &k->c, wf_variant_at(s->dev, k->c.op, i)->name, "NaN in the keys of other sequences reaches a row");
    if (!poisoned.in_flight) wf_check_poison_free(&poisoned);
}

static void check_case(session *s, const wf_case *c)
{
    wf_check *k;
    seen list[64];
    size_t n = 0, ran = 0;
    const wf_variant *v;
    if (s->op && strcmp(s->op, wf_ops[c->op].name)) return;
    if (wf_check_new(s->ref, c, &k)) {
        complain(s, c, "reference", weft_last_error());
        return;
    }
    for (int i = 0; (v = wf_variant_at(s->dev, c->op, i)); i++)
        if (is_meant(s, c, i)) op_coverage_ask(&s->coverage, c, i);
    for (int i = 0; (v = wf_variant_at(s->dev, c->op, i)) && !s->dev->lost; i++) {
        wf_check_result r;
        if ((s->variant && strcmp(s->variant, v->name)) || left_out(s, c, i)) continue;
        bool ok = check_once(s, k, i, &r);
        ran += r.supported;
        if (ok) check_class(s, c, v, r.hash, list, &n);
        if (ok) check_wide_windows(s, k, i, r.hash);
        if (ok) check_groups(s, k, i, r.hash);
        if (ok) check_poisoned(s, k, i, r.row_hash);
        if (ok) check_batch_invariance(s, k, v, r.row_hash);
    }
    if (!ran && must_run(s, c)) complain(s, c, "-", "no variant can run this");
    s->cases++;
    wf_check_free(k);
}

/* ---- the program ------------------------------------------------------------------------------------ */

typedef struct options {
    const char *device, *tier;
    uint64_t seed;
    enum op_level level;
} options;

static int usage(void)
{
    fprintf(stderr, "usage: op_test --devices | DEVICE [--op NAME] [--variant NAME] [--tier NAME] [--seed N] [--bench] "
                    "[--tiny | --quick | --every | --long]\n");
    return 2;
}

static bool parse(int argc, char **argv, options *o, session *s)
{
    for (int i = 1; i < argc; i++) {
        const char *a = argv[i], *value = i + 1 < argc ? argv[i + 1] : NULL;
        if (!strcmp(a, "--bench")) s->bench = true;
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
        else return false;
    }
    return o->device != NULL;
}

/* The device of that id; "first-opencl", for the build's own list of tests: the first OpenCL device. */
static const struct weft_device_info *find_device(const char *id)
{
    static struct weft_device_info all[16];
    bool first = !strcmp(id, "first-opencl");
    size_t n = WF_MIN(wf_dev_list(all, WF_LEN(all)), WF_LEN(all));
    for (size_t i = 0; i < n; i++) {
        if (first ? !strncmp(all[i].id, "opencl", 6) : !strcmp(all[i].id, id)) return &all[i];
    }
    return NULL;
}

/* As long as the longest test may take: on a machine with much else to do even a small call can take minutes, where its first launch compiles it. */
#define WATCHDOG_MS (20u * 60 * 1000)

static weft_status open_device(const options *o, session *s)
{
    wf_open_params p = {.watchdog_ms = WATCHDOG_MS};
    const struct weft_device_info *found = find_device(o->device);
    WF_TRY(wf_tier_parse(o->tier, &p.tier));
    if (!found && !strcmp(o->device, "first-opencl")) return wf_fail(WEFT_ERR_NODEVICE, "no OpenCL device");
    p.no_kernel_cache = found && build_once(found);
    WF_TRY(wf_dev_open(found ? found->id : o->device, &p, &s->dev));
    p.tier = WF_TIER_BASE;
    WF_TRY(wf_dev_open("cpu", &p, &s->ref));
    return wf_queue_create(s->dev, &s->q);
}

static void summary(session *s)
{
    const wf_variant *v;
    for (int op = 0; op < WF_N_OPS; op++) {
        for (int i = 0; (v = wf_variant_at(s->dev, (enum wf_op)op, i)) && i < WF_MAX_VARIANTS; i++) {
            unsigned n = s->per_variant[op][i];
            if (!s->op || !strcmp(s->op, wf_ops[op].name)) {
                printf("  %-10s %-24s %4u cases%s\n", wf_ops[op].name, v->name, n, n ? "" : ": never run");
            }
        }
        if (s->every || s->normal) s->failed += op_coverage_missed(&s->coverage, s->dev, (enum wf_op)op, s->every);
    }
    printf("%u cases, %u runs, %u failed\n", s->cases, s->runs, s->failed);
}

static int print_devices(void)
{
    struct weft_device_info all[16];
    size_t n = WF_MIN(wf_dev_list(all, WF_LEN(all)), WF_LEN(all));
    for (size_t i = 0; i < n; i++) printf("%s\n", all[i].id);
    return 0;
}

int main(int argc, char **argv)
{
    session s = {0};
    if (argc == 2 && !strcmp(argv[1], "--devices")) return print_devices();
    options o = {.seed = (uint64_t)time(NULL) * 1000003u ^ wf_now_ns(), .level = OP_NORMAL};
    op_cases cases;
    if (!parse(argc, argv, &o, &s)) return usage();
    s.all = s.every || o.level != OP_NORMAL;
    s.tiny = o.level == OP_TINY;
    s.normal = o.level == OP_NORMAL && !s.variant && !o.tier && !strcmp(o.device, "cpu");
    s.seed = o.seed;
    weft_status st = open_device(&o, &s);
    if (st == WEFT_ERR_NODEVICE) return skip_program(weft_last_error());
    if (st) fprintf(stderr, "op_test: %s\n", weft_last_error());
    if (!st && !op_cases_make(o.level, o.seed, s.dev, &cases)) st = WEFT_ERR_NOMEM;
    if (!st) {
        printf("%s (%s), seed %llu\n", s.dev->info.id, s.dev->info.name, (unsigned long long)o.seed);
        for (size_t i = 0; i < cases.n && !s.dev->lost; i++) {
            if (s.bench) cases.list[i].max_groups = 0; /* time the whole device */
            check_case(&s, &cases.list[i]);
        }
        summary(&s);
        free(cases.list);
    }
    bool good = !st && s.runs && !s.failed && !s.dev->lost;
    wf_queue_destroy(s.q);
    wf_dev_close(s.dev);
    wf_dev_close(s.ref);
    return good ? 0 : 1;
}
