/* iq2_xs: 256 weights a block in 16 groups of 16, as grid.h says, with an even number of minuses. For each eight
 * weights there are 16 bits: nine of the entry's number, then seven signs. Scales are halves of bytes. */
#include "tensor/quant/grid.h"

struct block {
    uint16_t d; /* f16 */
    uint16_t q[WF_SUPER / 8];
    uint8_t scales[WF_SUPER / 32];
};
_Static_assert(sizeof(struct block) == 74, "IQ2_XS block");

const uint16_t wf_iq2_xs_entries[512] = {
#include "tensor/quant/grids/iq2_xs.def"
};
static const wf_grid grid = {wf_iq2_xs_entries, WF_LEN(wf_iq2_xs_entries), 8, 16, 3, wf_iq2_values, 0.125f, true};

static void put_block(const wf_grid_block *in, void *block)
{
    struct block k = {.d = in->d};
    wf_grid_halves_put(in->scale, WF_SUPER / 16, k.scales);
    for (int i = 0; i < WF_SUPER / 8; i++) k.q[i] = (uint16_t)(in->entry[i] | (in->signs[i] & 127) << 9);
    memcpy(block, &k, sizeof k);
}

WF_GRID_CONVERSIONS(iq2_xs, IQ2_XS)
