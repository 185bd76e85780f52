/* overlap_world: the null device for tests of overlap. Its clock knows what each op costs with each share and beside
 * others, and a sensor what it draws. */
#ifndef OVERLAP_WORLD_H
#define OVERLAP_WORLD_H

#include "base/file.h"
#include "support/null_device.h"
#include "plan/milp.h"
#include "lab/overlap.h"

#include <fcntl.h>
#include <math.h>
#include "support/demo.h"

enum { UNITS = 8, SEQS = 8, TOKENS = 64, CONTEXT = 128 };

static char cache[64];

/* ---- worlds ------------------------------------------------------------------------------------------------------ */

static struct world {
    double bend[2];   /* of products and of all else: rate = share ^ bend */
    double beside[2]; /* factors of the time beside others */
    double product, attention;
    uint32_t least_keys,
        most_keys; /* with other contexts attention takes four times as long beside others; 0: with none */
    int kernel; /* so does attention of decodes by any but this variant; 0: by none */
} world;

/* Attention of prompts is bound by compute as well. */
static inline bool is_product(const wf_call *c)
{
    return c->op == WF_OP_GEMM || (c->op == WF_OP_ATTENTION && c->p.max_q != 1);
}

/* What the device has drawn, and for how long, by all that was launched one behind the other. */
static struct drawn {
    double joules;
    uint64_t ns;
} drawn;
enum { STATIC_W = 150, PRODUCT_W = 600, OTHER_W = 400, LIMIT_W = 700 };

/* The same work with a part of the device takes longer, and draws as much besides what is always drawn. */
static inline void draw(const wf_call *c, double alone_ns, uint64_t ns)
{
    drawn.joules += (STATIC_W * (double)ns + ((is_product(c) ? PRODUCT_W : OTHER_W) - STATIC_W) * alone_ns) / 1e9;
    drawn.ns += ns;
}

static inline uint64_t cost(const wf_call *c)
{
    double each = is_product(c) ? world.product : c->op == WF_OP_ATTENTION ? world.attention : 5;
    double share = c->max_groups ? (double)c->max_groups / UNITS : 1, alone = 500 + each * c->out[0].rows;
    uint64_t ns = (uint64_t)(alone / pow(share, world.bend[is_product(c)]));
    draw(c, alone, ns);
    return ns;
}

static inline double beside(const wf_call *c, enum wf_op other)
{
    bool keys = c->p.max_kv >= world.least_keys && (!world.most_keys || c->p.max_kv <= world.most_keys);
    bool slow = !keys || (world.kernel && c->p.max_q == 1 && c->variant != world.kernel);
    return world.beside[is_product(c)] * (c->op == WF_OP_ATTENTION && slow ? 4 : 1);
}

static const wf_null_config clock_of_world = {.fused = true, .cost_ns = cost, .beside = beside, .compute_units = UNITS};

static inline void empty_cache(void)
{
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s/weft/overlap", cache);
    assert_int_equal(system(command), 0);
}

static inline void set_world(struct world w)
{
    world = w;
    wf_null_configure(&clock_of_world);
    empty_cache();
}

/* A world in which a plan of Stage I and II gains, and none of the built-in orders. */
static const struct world gains = {.bend = {0.2, 0.3}, .beside = {1, 1}, .product = 100, .attention = 4000};

static inline void want_programs(void)
{
    if (wf_milp_available()) return;
    printf("skipped: weft was built without CBC\n");
    skip();
}

/* ---- engines ----------------------------------------------------------------------------------------------------- */

static inline struct weft_engine *open_small(uint32_t seqs, uint32_t context, uint32_t tokens, uint32_t contexts)
{
    return demo_engine((struct weft_engine_params){.device = "null", .n_seqs = seqs, .context = context,
                                                   .max_batched_tokens = tokens, .kv_seqs = contexts,
                                                   .nano_batches = 1, .profile = true});
}

static inline struct weft_engine *open_sized(uint32_t seqs, uint32_t nano_batches)
{
    return demo_engine((struct weft_engine_params){.device = "null", .n_seqs = seqs, .context = CONTEXT,
                                                   .max_batched_tokens = TOKENS, .nano_batches = nano_batches,
                                                   .profile = true});
}

static inline struct weft_engine *open_engine(uint32_t nano_batches)
{
    return open_sized(SEQS, nano_batches);
}

static inline enum weft_status answer(struct weft_engine *e)
{
    static const int32_t prompt[] = {1, 2, 3};
    struct weft_request_params p = {.tokens = prompt, .n_tokens = 3, .max_tokens = 2, .ignore_eos = true};
    struct weft_request *r = NULL;
    enum weft_status s = weft_submit(e, &p, &r);
    return s ? s : end_of(r);
}

/* Closes the engine. said: what was said, for the caller to free. */
static inline enum weft_status tune_engine(struct weft_engine *e, struct weft_overlap_params p, char **said)
{
    size_t len;
    FILE *f = open_memstream(said, &len);
    enum weft_status s = weft_tune_overlap(e, &p, f, NULL);
    fclose(f);
    weft_engine_close(e);
    return s;
}

static inline enum weft_status tune(struct weft_overlap_params p, char **said)
{
    p.quick = true;
    return tune_engine(open_engine(1), p, said);
}

/* In the way that has to succeed, and nobody wants to know what it says. */
static inline void tune_quietly(void)
{
    char *said;
    assert_ok(tune((struct weft_overlap_params){0}, &said));
    free(said);
}

/* The world that gains, and what tuning keeps in it: tuned once, and taken from there by other tests. */
static inline void set_tuned_world(void)
{
    char kept[80], command[256];
    snprintf(kept, sizeof kept, "%s/gains", cache);
    set_world(gains);
    bool first = access(kept, F_OK);
    if (first) tune_quietly();
    snprintf(command, sizeof command, first ? "cp -r %2$s/weft/overlap %1$s" : "cp -r %1$s %2$s/weft/overlap", kept,
             cache);
    assert_int_equal(system(command), 0);
}

/* The file that was stored. */
static inline void stored(const char *what, char *path, size_t cap)
{
    struct weft_engine *e = open_engine(1);
    assert_ok(wf_stored_path(e->dev, &e->layout.graph, what, path, cap));
    weft_engine_close(e);
}

/* ---- files ------------------------------------------------------------------------------------------------------- */

typedef struct text {
    char v[1 << 16];
} text;

static inline text read_text(const char *path)
{
    text t = {{0}};
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    t.v[fread(t.v, 1, sizeof t.v - 1, f)] = 0;
    fclose(f);
    return t;
}

static inline void spoil(const char *what, const char *t)
{
    char path[600];
    stored(what, path, sizeof path);
    write_text(path, t);
}

/* A plan was kept that is none of this model. */
static inline void keep_damaged_plan(void)
{
    set_tuned_world();
    spoil("plan", "weft-plan 2\nonce nothing 0-end queue 0 kernel auto groups 0\n");
}

/* ---- a sensor ---------------------------------------------------------------------------------------------------- */

#define PCI "0000:19:00.0"

static char sensor[200];
static int energy_file = -1;

static inline void write_number(const char *name, double v)
{
    char path[256], text[32];
    snprintf(path, sizeof path, "%s/%s", sensor, name);
    snprintf(text, sizeof text, "%.0f\n", v);
    write_text(path, text);
}

/* Who reads power asks for the time first, thousands of times: the file stays open, and its number as long as it is. */
static inline uint64_t clock_of_sensor(void)
{
    char text[32];
    int len = snprintf(text, sizeof text, "%020.0f\n", drawn.joules * 1e6);
    assert_int_equal(pwrite(energy_file, text, (size_t)len, 0), len);
    return drawn.ns;
}

static inline void make_sensor(void)
{
    char command[256], path[256];
    wf_null_config c = clock_of_world;
    c.pci = PCI;
    wf_null_configure(&c);
    snprintf(sensor, sizeof sensor, "%s/sys/bus/pci/devices/" PCI "/hwmon/hwmon0", cache);
    snprintf(command, sizeof command, "mkdir -p %s", sensor);
    assert_int_equal(system(command), 0);
    write_number("power1_max", LIMIT_W * 1e6);
    snprintf(path, sizeof path, "%s/energy1_input", sensor);
    if (energy_file >= 0) close(energy_file);
    energy_file = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    clock_of_sensor();
    wf_power_configure(&(wf_power_config){.root = cache, .nvml = "/absent/nvml", .now_ns = clock_of_sensor});
}

/* ---- a program --------------------------------------------------------------------------------------------------- */

static inline int setup(void **state)
{
    snprintf(cache, sizeof cache, "/tmp/weft-overlap-XXXXXX");
    if (!mkdtemp(cache) || setenv("XDG_CACHE_HOME", cache, 1)) return -1;
    return open_demo(state);
}

static inline int teardown(void **state)
{
    close_demo(state);
    wf_null_configure(NULL);
    return remove_folder_at(cache);
}

#endif
