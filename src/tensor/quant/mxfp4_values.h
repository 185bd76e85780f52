/* mxfp4_values: what a block of MXFP4 is made of (OCP Microscaling Formats 1.0): floats of four bits and a power of
 * two. */
#ifndef WF_MXFP4_VALUES_H
#define WF_MXFP4_VALUES_H

#include <stdint.h>
#include <string.h>

/* Twice what the 16 codes stand for: sign, two bits of exponent, one of fraction. */
static const int8_t wf_mxfp4_doubled[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

/* 2^(e - 128), which the doubled values are multiplied with; below two it is subnormal. */
static inline float wf_mxfp4_scale(uint8_t e)
{
    uint32_t bits = e < 2 ? 0x200000u << e : (uint32_t)(e - 1) << 23;
    float scale;
    memcpy(&scale, &bits, sizeof scale);
    return scale;
}

#endif
