/* The class of kernels that --deterministic takes for a shape, on a device of this test's, whose kernels have a least
 * and a largest number of rows. The backend's own choice is the first in its list that can run a call. */
#include "select/batch_invariance.h"
#include "support/suite.h"

enum { MOST = 4, ANY = 1 << 20 };

typedef struct kernel {
    wf_variant v;
    uint32_t least, most; /* rows */
} kernel;

static wf_variant variants[MOST];
static kernel kernels[MOST];
static size_t n_kernels;
static wf_buf *const some = (wf_buf *)&kernels;

static size_t list_variants(wf_dev *dev, enum wf_op op, const wf_variant **list)
{
    *list = variants;
    return op == WF_OP_GEMM ? n_kernels : 0;
}

static const wf_dev_fns fns = {.variants = list_variants};
static wf_dev dev = {.fns = &fns};

static int pick(wf_dev *d, const wf_call *c, const char *class)
{
    uint32_t rows = c->out[0].rows;
    for (size_t i = 0; i < n_kernels; i++)
        if (rows >= kernels[i].least && rows <= kernels[i].most && (!class || !strcmp(class, variants[i].class)))
            return (int)i;
    return -1;
}

/* Of a product with that many rows. */
static const char *taken(wf_batch_invariance *b, uint32_t rows)
{
    wf_call c = {.op = WF_OP_GEMM};
    c.in[WF_GEMM_X] = (wf_view){some, 0, rows, 64, 64, WF_F32, 0};
    c.in[WF_GEMM_W] = (wf_view){some, 0, 32, 64, 64, WF_F16, 0};
    c.out[WF_GEMM_Y] = (wf_view){some, 0, rows, 32, 32, WF_F32, 0};
    int v = wf_pick_batch_invariant(b, pick, &dev, &c);
    return v < 0 ? "" : variants[v].name;
}

/* The kernels for one row and for many, whichever comes first. */
static void expect(const kernel *list, size_t n, const char *one, const char *many)
{
    n_kernels = n;
    for (size_t i = 0; i < n; i++) kernels[i] = list[i], variants[i] = list[i].v;
    for (int many_first = 0; many_first < 2; many_first++) {
        wf_batch_invariance b = {0};
        if (many_first) assert_string_equal(taken(&b, 1000), many);
        assert_string_equal(taken(&b, 1), one);
        assert_string_equal(taken(&b, 1000), many);
        wf_batch_invariance_reset(&b);
    }
}
#define EXPECT(one, many, ...) expect((kernel[]){__VA_ARGS__}, WF_LEN(((kernel[]){__VA_ARGS__})), one, many)
#define KERNEL(name, tier, class, flags, ...) {{name, tier, 0, class, WF_ARITH_F32, flags}, __VA_ARGS__}

static const uint8_t flag = WF_FOR_ANY_ROWS;

/* Without the flag the class of one row serves all, however slow it is with many. */
static void the_flag_takes_precedence(void **state)
{
    EXPECT("row", "row", KERNEL("row", WF_TIER_SIMD, "row", 0, 1, ANY), KERNEL("few", WF_TIER_SIMD, "both", 0, 1, 64),
           KERNEL("many", WF_TIER_SIMD, "both", 0, 65, ANY));
    EXPECT("few", "many", KERNEL("row", WF_TIER_SIMD, "row", 0, 1, ANY),
           KERNEL("few", WF_TIER_SIMD, "both", flag, 1, 64), KERNEL("many", WF_TIER_SIMD, "both", flag, 65, ANY));
    EXPECT("few", "many", KERNEL("row", WF_TIER_MATRIX, "row", 0, 1, ANY),
           KERNEL("many", WF_TIER_BASE, "both", flag, 65, ANY), KERNEL("few", WF_TIER_BASE, "both", flag, 1, 64));
}

/* A class that runs some numbers of rows only is none, nor is a kernel whose bits depend on the rest of the batch. */
static void the_flag_promises_any_rows(void **state)
{
    EXPECT("row", "row", KERNEL("row", WF_TIER_SIMD, "row", 0, 1, ANY),
           KERNEL("few", WF_TIER_SIMD, "both", flag, 1, 64));
    EXPECT("row", "row", KERNEL("row", WF_TIER_SIMD, "row", 0, 1, ANY),
           KERNEL("both", WF_TIER_SIMD, "both", WF_FOR_ANY_ROWS | WF_BATCH_DEPENDENT, 1, ANY));
}

static void of_two_flagged_the_higher_tier(void **state)
{
    EXPECT("simd", "simd", KERNEL("row", WF_TIER_BASE, "row", 0, 1, ANY),
           KERNEL("base", WF_TIER_BASE, "base", flag, 1, ANY), KERNEL("simd", WF_TIER_SIMD, "simd", flag, 1, ANY));
}

SUITE(batch_invariance, NULL, NULL, CASE(the_flag_takes_precedence), CASE(the_flag_promises_any_rows),
      CASE(of_two_flagged_the_higher_tier))
