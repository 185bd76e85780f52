/* nibbles: how blocks of 32 weights with 4 bits each lie in memory. Byte j holds weight j in its low half and weight j
 * + 16 in its high half. */
#ifndef WF_NIBBLES_H
#define WF_NIBBLES_H

#include <stdint.h>

#define WF_NIBBLE_BLOCK 32

static inline void wf_nibbles_unpack(const uint8_t *bytes, int q[WF_NIBBLE_BLOCK])
{
    for (int i = 0; i < WF_NIBBLE_BLOCK / 2; i++) q[i] = bytes[i] & 15, q[i + WF_NIBBLE_BLOCK / 2] = bytes[i] >> 4;
}

static inline void wf_nibbles_pack(const int q[WF_NIBBLE_BLOCK], uint8_t *bytes)
{
    for (int i = 0; i < WF_NIBBLE_BLOCK / 2; i++) bytes[i] = (uint8_t)(q[i] | q[i + WF_NIBBLE_BLOCK / 2] << 4);
}

#endif
