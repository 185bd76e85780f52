/* k_scales: eight scales and eight minima of 6 bits each in 12 bytes, as Q4_K and Q5_K have them. Byte j < 4 holds scale j, byte
 * 4 + j minimum j, with the upper two bits of scale and minimum 4 + j above them; byte 8 + j the lower four of both. */
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

#endif
