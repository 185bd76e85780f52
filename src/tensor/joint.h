/* joint: the formats that devices hold matrices of different formats in, so that these stand in one: K6 and K8, numbers
 * (numbers.h) of that many bits with a scale and a minimum in F16 for each 16 or 32 of them. No file has them. Pure
 * functions. */
#ifndef WF_JOINT_H
#define WF_JOINT_H

#include "tensor/numbers.h"

/* The format of a matrix, as tensors join it: theirs while they have the same, then the narrowest that holds the
 * weights of all as exactly as their scales are in F16. */
typedef struct wf_joint {
    enum wf_dtype dtype;
    uint32_t holders; /* the joint formats that hold all so far, a bit each */
} wf_joint;
wf_joint wf_joint_of(enum wf_dtype);
/* False, and the joint is left as it is: no format holds that one, too. In any order the same tensors join. */
bool wf_joint_add(wf_joint *, enum wf_dtype);

/* n weights of a format as one that holds them, n a multiple of 64 and of the format's block. */
void wf_joint_from(enum wf_dtype from, const uint8_t *src, enum wf_dtype to, uint8_t *dst, uint64_t n);

/* ---- what their files in quant/ are made of ---------------------------------------------------------------------- */

void wf_joint_decode(enum wf_dtype, const void *src, float *dst, size_t n);
void wf_joint_encode(enum wf_dtype, const float *src, void *dst, size_t n);

/* 64 weights to a block; the other way round than `take` of the format's numbers. */
void wf_put_k6(const wf_numbers64 *, uint8_t *block);
void wf_put_k8(const wf_numbers64 *, uint8_t *block);

#endif
