/* iq3_s: 256 weights a block in eight groups of 32, as grid.h says, with all signs. Of the nine bits of an entry's
 * number the lower eight are a byte of q, the upper one is bit i % 8 of high[i / 8]. Scales are halves of bytes. */
#include "tensor/quant/grid.h"

struct block {
    uint16_t d; /* f16 */
    uint8_t q[WF_SUPER / 4];
    uint8_t high[WF_SUPER / 32];
    uint8_t signs[WF_SUPER / 8];
    uint8_t scales[WF_SUPER / 64];
};
_Static_assert(sizeof(struct block) == 110, "IQ3_S block");

const uint16_t wf_iq3_s_entries[512] = {
#include "tensor/quant/grids/iq3_s.def"
};
static const wf_grid grid = {wf_iq3_s_entries, WF_LEN(wf_iq3_s_entries), 4, 32, 8, wf_iq3_s_values, 1, false};

static void put_block(const wf_grid_block *in, void *block)
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

WF_GRID_CONVERSIONS(iq3_s, IQ3_S)
