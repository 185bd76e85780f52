/* kv: numbers of a page of keys or values (dev.h, "KV pools"), which has `cols` of them: F16, or Q8_0, the bytes of all
 * blocks and then their scales. For the reference and for tests: kernels have ways of their own. */
#ifndef WF_KV_H
#define WF_KV_H

#include "tensor/tensor.h"

#define WF_KV_BLOCK 32 /* numbers that share a scale */

/* Where the scales of a page in Q8_0 begin that belong to the numbers from `at` on. */
static inline uint16_t *wf_kv_scales(const void *page, uint64_t cols, uint64_t at)
{
    return (uint16_t *)((uint8_t *)page + cols) + at / WF_KV_BLOCK;
}

/* n of them from `at` on; of Q8_0 whole blocks. A block with a number that is not finite becomes NaN. */
void wf_kv_load(enum wf_dtype, const void *page, uint64_t cols, uint64_t at, float *out, uint32_t n);
void wf_kv_store(enum wf_dtype, void *page, uint64_t cols, uint64_t at, const float *x, uint32_t n);
/* "f16" (or NULL, or "auto") and "q8_0"; false: another. */
bool wf_kv_dtype_named(const char *name, enum wf_dtype *out);

#endif
