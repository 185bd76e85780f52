/* k_scales: scales of 6 bits in few bytes.
 *
 * Q4_K and Q5_K have eight scales and eight minima in 12 bytes. Byte j < 4 holds scale j, byte 4 + j minimum j, with
 * the upper two bits of scale and minimum 4 + j above them; byte 8 + j the lower four of both. Q3_K has 16 scales + 32
 * there: group g has the lower four bits in byte g % 8, in the low half for g < 8, and the upper two at bit g / 4 * 2
 * of byte 8 + g % 4. IQ4_XS has eight scales + 32: the lower four bits are halves of four bytes, the upper two bits 2 g
 * of a word in front of them. */
#ifndef WF_K_SCALES_H
#define WF_K_SCALES_H

#include <stdint.h>
#include <string.h>

/* Four bytes at a time. */
static inline void wf_k_scales_unpack(const void *bytes, uint8_t scale[8], uint8_t min[8])
{
    uint32_t w[3], out[2][2];
    memcpy(w, bytes, sizeof w);
    for (int i = 0; i < 2; i++) {
        out[i][0] = w[i] & 0x3f3f3f3f;
        out[i][1] = (w[2] >> 4 * i & 0x0f0f0f0f) | (w[i] >> 2 & 0x30303030);
    }
    memcpy(scale, out[0], 8);
    memcpy(min, out[1], 8);
}

/* One of them, for readers that take a group at a time: what was just stored in fours would have to be waited for. */
static inline void wf_k_scale_at(const uint8_t *bytes, uint32_t i, uint8_t *scale, uint8_t *min)
{
    uint32_t j = i % 4, both = bytes[8 + j];
    *scale = (uint8_t)(i < 4 ? bytes[j] & 63 : (both & 15) | bytes[j] >> 6 << 4);
    *min = (uint8_t)(i < 4 ? bytes[4 + j] & 63 : both >> 4 | bytes[4 + j] >> 6 << 4);
}

static inline void wf_k_scales_pack(const uint8_t scale[8], const uint8_t min[8], uint8_t *bytes)
{
    for (int j = 0; j < 4; j++) {
        bytes[j] = (uint8_t)(scale[j] | scale[4 + j] >> 4 << 6);
        bytes[4 + j] = (uint8_t)(min[j] | min[4 + j] >> 4 << 6);
        bytes[8 + j] = (uint8_t)((scale[4 + j] & 15) | min[4 + j] << 4);
    }
}

/* Scale g of Q3_K's 16. */
static inline int wf_q3_k_scale_at(const uint8_t *bytes, uint32_t g)
{
    return (bytes[g % 8] >> g / 8 * 4 & 15) + ((bytes[8 + g % 4] >> g / 4 * 2 & 3) << 4) - 32;
}

/* Scale g of IQ4_XS's eight. */
static inline int wf_iq4_xs_scale_at(const uint8_t *bytes, uint32_t g)
{
    return (bytes[2 + g / 2] >> g % 2 * 4 & 15) + ((bytes[g / 4] >> g % 4 * 2 & 3) << 4) - 32;
}

#endif
