/* layout: q8_0x16, Q8_0 weights with 16 rows interleaved.
 *
 *   strip   16 rows: consecutive groups of 64 columns
 *   group   1,088 bytes: 2 x 16 scales, one per row and block of 32 columns, then 16 lines of 64 bytes;
 *           line i holds columns 4i to 4i + 3 of each row
 *
 * Lanes are rows, so there are no horizontal sums, the scales of a block are one load, and each line starts at a cache
 * line. Rows past the last are zero. A block takes 34 bytes, as in the file.
 */
#include <string.h>

#include "cpu/ops/ops.h"

enum { LINE = 64, BLOCK = 34, IN_BLOCK = 32 };

/* Only where both kernels for it run. */
uint8_t wf_cpu_weight_layout(wf_dev *base, enum wf_dtype dtype, uint32_t rows, uint32_t cols)
{
    (void)rows;
    if (dtype != WF_Q8_0 || cols % WF_Q8_0X16_K || !wf_cpu_has_amx() || base->params.tier < WF_TIER_MATRIX) return 0;
    return WF_CPU_Q8_0X16;
}

uint64_t wf_cpu_weight_bytes(wf_dev *dev, uint8_t layout, enum wf_dtype dtype, uint32_t rows, uint32_t cols)
{
    (void)dev, (void)layout, (void)dtype;
    return WF_UP((uint64_t)rows, WF_Q8_0X16_ROWS) / WF_Q8_0X16_ROWS * wf_q8_0x16_bytes(cols);
}

/* Packs block h of row r into a group. */
static void pack_block(const char *src, char *group, uint32_t h, uint32_t r)
{
    char *line = group + LINE + h * IN_BLOCK / 4 * LINE + 4 * r;
    memcpy(group + (h * WF_Q8_0X16_ROWS + r) * 2, src, 2);
    for (uint32_t i = 0; i < IN_BLOCK / 4; i++) memcpy(line + i * LINE, src + 2 + 4 * i, 4);
}

void wf_cpu_weight_pack(wf_dev *dev, uint8_t layout, enum wf_dtype dtype, uint32_t rows, uint32_t cols, const void *src,
                        void *dst)
{
    size_t row_bytes = wf_dtype_bytes(dtype, cols), groups = cols / WF_Q8_0X16_K;
    memset(dst, 0, wf_cpu_weight_bytes(dev, layout, dtype, rows, cols));
    for (uint32_t row = 0; row < rows; row++) {
        const char *from = (const char *)src + row * row_bytes;
        char *to = (char *)dst + row / WF_Q8_0X16_ROWS * wf_q8_0x16_bytes(cols);
        for (size_t g = 0; g < groups; g++, to += WF_Q8_0X16_GROUP)
            for (uint32_t h = 0; h < 2; h++, from += BLOCK) pack_block(from, to, h, row % WF_Q8_0X16_ROWS);
    }
}

void wf_cpu_q8_0x16_row(const wf_view *w, uint32_t row, float *out)
{
    const char *group = (const char *)wf_cpu_at(w) + row / WF_Q8_0X16_ROWS * wf_q8_0x16_bytes(w->cols);
    uint32_t r = row % WF_Q8_0X16_ROWS;
    for (uint32_t k = 0; k < w->cols; k += IN_BLOCK, out += IN_BLOCK) {
        char block[BLOCK];
        uint32_t h = k / IN_BLOCK % 2;
        const char *line = group + LINE + h * IN_BLOCK / 4 * LINE + 4 * r;
        memcpy(block, group + (h * WF_Q8_0X16_ROWS + r) * 2, 2);
        for (uint32_t i = 0; i < IN_BLOCK / 4; i++) memcpy(block + 2 + 4 * i, line + i * LINE, 4);
        wf_dtypes[w->dtype].decode(block, out, IN_BLOCK);
        group += h * WF_Q8_0X16_GROUP;
    }
}
