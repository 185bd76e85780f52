/* iq3_xxs: 256 weights a block in eight groups of 32, as grid.h says, with an even number of minuses. The eight numbers
 * of a group's entries are bytes; its word has seven signs of each eight weights, and in the upper four bits the scale.
 */
#include "tensor/quant/grid.h"

struct block {
    uint16_t d; /* f16 */
    uint8_t q[WF_SUPER / 4];
    uint8_t words[WF_SUPER / 32][4];
};
_Static_assert(sizeof(struct block) == 98, "IQ3_XXS block");

const uint16_t wf_iq3_xxs_entries[256] = {
#include "tensor/quant/grids/iq3_xxs.def"
};
static const wf_grid grid = {wf_iq3_xxs_entries, WF_LEN(wf_iq3_xxs_entries), 4, 32, 8, wf_iq3_xxs_values, 0.25f, true};

static void put_block(const wf_grid_block *in, void *block)
{
    struct block k = {.d = in->d};
    for (int i = 0; i < WF_SUPER / 4; i++) k.q[i] = (uint8_t)in->entry[i];
    for (int g = 0; g < WF_SUPER / 32; g++) wf_grid_word_put(in->scale[g], in->signs + 4 * g, k.words[g]);
    memcpy(block, &k, sizeof k);
}

WF_GRID_CONVERSIONS(iq3_xxs, IQ3_XXS)
