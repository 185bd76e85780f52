/* iq2_xxs: 256 weights a block in eight groups of 32, as grid.h says, with an even number of minuses. A group is four
 * bytes, the numbers of its entries, and a word as in IQ3_XXS. */
#include "tensor/quant/grid.h"

struct block {
    uint16_t d; /* f16 */
    struct {
        uint8_t q[4], word[4];
    } groups[WF_SUPER / 32];
};
_Static_assert(sizeof(struct block) == 66, "IQ2_XXS block");

const uint16_t wf_iq2_xxs_entries[256] = {
#include "tensor/quant/grids/iq2_xxs.def"
};
static const wf_grid grid = {wf_iq2_xxs_entries, WF_LEN(wf_iq2_xxs_entries), 8, 32, 3, wf_iq2_values, 0.125f, true};

static void put_block(const wf_grid_block *in, void *block)
{
    struct block k = {.d = in->d};
    for (int g = 0; g < WF_SUPER / 32; g++) {
        for (int i = 0; i < 4; i++) k.groups[g].q[i] = (uint8_t)in->entry[4 * g + i];
        wf_grid_word_put(in->scale[g], in->signs + 4 * g, k.groups[g].word);
    }
    memcpy(block, &k, sizeof k);
}

WF_GRID_CONVERSIONS(iq2_xxs, IQ2_XXS)
