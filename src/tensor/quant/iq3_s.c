/* iq3_s: 256 weights a block in eight groups of 32, as grid.h says, with all signs. Of the nine bits of an entry's number the lower eight
 * are a byte of q, the upper one is bit i % 8 of high[i / 8]. Scales are halves of bytes. */
#include "tensor/quant/grid.h"

struct block {
    uint16_t d; /* f16 */
    uint8_t q[WF_SUPER / 4];
    uint8_t high[WF_SUPER / 32];
    uint8_t signs[WF_SUPER / 8];
    uint8_t scales[WF_SUPER / 64];
};
_Static_assert(sizeof(struct block) == 110, "IQ3_S block");

static const uint16_t entries[512] = {
#include "tensor/quant/grids/iq3_s.def"
};
static const wf_grid grid = {entries, WF_LEN(entries), 4, 32, 8, {1, 3, 5, 7, 9, 11, 13, 15}, 1, false};

static void take(const void *block, wf_grid_block *out)
{
    struct block k;
    memcpy(&k, block, sizeof k);
    out->d = k.d;
    memcpy(out->signs, k.signs, sizeof k.signs);
    wf_grid_halves_take(k.scales, WF_SUPER / 32, out->scale);
    for (int i = 0; i < WF_SUPER / 4; i++) out->entry[i] = (uint16_t)(k.q[i] | (k.high[i / 8] >> i % 8 & 1) << 8);
}

static void put(const wf_grid_block *in, void *block)
{
    struct block k = {.d = in->d};
    memcpy(k.signs, in->signs, sizeof k.signs);
    wf_grid_halves_put(in->scale, WF_SUPER / 32, k.scales);
    for (int i = 0; i < WF_SUPER / 4; i++) {
        k.q[i] = (uint8_t)in->entry[i];
        k.high[i / 8] |= (uint8_t)(in->entry[i] >> 8 << i % 8);
    }
    memcpy(block, &k, sizeof k);
}

void wf_decode_iq3_s(const void *src, float *dst, size_t n)
{
    wf_grid_decode(&grid, sizeof(struct block), take, src, dst, n);
}

void wf_encode_iq3_s(const float *src, void *dst, size_t n)
{
    wf_grid_encode(&grid, sizeof(struct block), put, src, dst, n);
}
