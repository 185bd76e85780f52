/* weft/tune.h: measuring and checking. Same conventions as <weft/weft.h>. */
#ifndef WEFT_TUNE_H
#define WEFT_TUNE_H

#include <weft/weft.h>

#ifdef __cplusplus
extern "C" {
#endif

/* One row of `weft bench`: a prompt of n_prompt random tokens, or n_gen tokens after BOS alone, in each of
 * n_seqs sequences at once. */
struct weft_bench_params {
    uint32_t n_prompt, n_gen; /* one of them may be 0 */
    uint32_t n_seqs;          /* 0: 1; at most the engine's */
    uint32_t repeat;          /* 0: 5; one more run goes first and is not counted */
    weft_progress_fn on_progress;
    void *user;
};
struct weft_bench_result {
    double mean, stddev, median; /* tokens a second, of all sequences together */
    uint32_t repeat;
};
WEFT_API enum weft_status weft_bench(struct weft_engine *e, const struct weft_bench_params *p,
                                     struct weft_bench_result *out);

/* One row of `weft selftest`: an op on one dtype and shape with one kernel variant. */
struct weft_selftest_row {
    const char *op, *dtype, *shape, *variant;
    double error, limit; /* largest error over its tolerance's unit; passes when error <= limit */
    bool ok;
    const char *message; /* "" or why it could not run */
};
typedef void (*weft_selftest_fn)(void *user, const struct weft_selftest_row *row);
/* Compares every kernel variant that the device offers with the reference on small shapes drawn
 * from seed. WEFT_OK when all agree. */
WEFT_API enum weft_status weft_selftest(const char *device, const char *tier, uint64_t seed,
                                        weft_selftest_fn fn, void *user);

#ifdef __cplusplus
}
#endif
#endif
