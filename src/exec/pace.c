/* pace: how long calls are expected to take, and so how many rows a kernel takes at a time. See program.h. */
#include "dev/front.h"
#include "dev/roofline.h"
#include "exec/program.h"

double wf_binding_us(wf_dev *dev, const wf_call *call, const wf_binding *b)
{
    double sum = 0;
    for (size_t i = 0; i < b->n; i++) {
        wf_call piece = wf_piece_of(call, (enum wf_piece)b->part[i].piece);
        double us = wf_expected_us(dev, &piece, b->part[i].b.variant);
        if (us <= 0) return 0;
        sum += us;
    }
    return sum;
}

/* The smallest power of two that is not less, as its exponent. */
static uint32_t size_of(uint32_t rows)
{
    uint32_t size = 0;
    while (size + 1 < WF_N_SIZES && rows > 1u << size) size++;
    return size;
}

void wf_note_us(const wf_bind_to *to, const wf_command *c, uint32_t context, uint32_t rows, const wf_call *call,
                const wf_binding *b)
{
    const wf_kernels *k = c->kernels;
    if (rows & (rows - 1) && rows != k->max_rows) return;
    double us = wf_binding_us(to->dev, call, b);
    k->us[context][size_of(rows)] = (float)(us > 0 ? us : wf_modest_us(to->dev, call));
}

double wf_rows_us(const wf_command *c, uint32_t context, uint32_t rows)
{
    return c->kernels->us[context][size_of(rows)];
}

/* One at least: a row is not cut. */
uint32_t wf_rows_at_once(const wf_command *c, uint32_t context)
{
    const float *us = c->kernels->us[context];
    uint32_t most = WF_MIN(c->max_rows, c->kernels->max_rows), size = size_of(most);
    while (size && us[size] > WF_SUBMISSION_US) size--;
    return WF_MIN(most, 1u << size);
}
