/* iq2_s: 256 weights a block in 16 groups of 16, as grid.h says, with all signs. Of the ten bits of an entry's number
 * the lower eight are a byte of q, the upper two bits 2 (i % 4) of high[i / 4]. Scales are halves of bytes. */
#include "tensor/quant/grid.h"

struct block {
    uint16_t d; /* f16 */
    uint8_t q[WF_SUPER / 8];
    uint8_t signs[WF_SUPER / 8];
    uint8_t high[WF_SUPER / 32];
    uint8_t scales[WF_SUPER / 32];
};
_Static_assert(sizeof(struct block) == 82, "IQ2_S block");

const uint16_t wf_iq2_s_entries[1024] = {
#include "tensor/quant/grids/iq2_s.def"
};
static const wf_grid grid = {wf_iq2_s_entries, WF_LEN(wf_iq2_s_entries), 8, 16, 3, wf_iq2_values, 0.125f, false};

static void put_block(const wf_grid_block *in, void *block)
{
    struct block k = {.d = in->d};
    memcpy(k.signs, in->signs, sizeof k.signs);
    wf_grid_halves_put(in->scale, WF_SUPER / 16, k.scales);
    for (int i = 0; i < WF_SUPER / 8; i++) {
        k.q[i] = (uint8_t)in->entry[i];
        k.high[i / 4] |= (uint8_t)(in->entry[i] >> 8 << i % 4 * 2);
    }
    memcpy(block, &k, sizeof k);
}

WF_GRID_CONVERSIONS(iq2_s, IQ2_S)
