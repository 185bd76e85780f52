/* GET_ROWS, the reference: decodes one table row for each id, and adds to it. */
#include <math.h>

#include "cpu/ref/ref.h"

static void add(const wf_call *c, uint32_t m, float *y)
{
    const wf_view *more = &c->in[WF_GET_ROWS_ADD];
    const float *x = wf_cpu_has(more) ? wf_cpu_row(more, m) : NULL;
    double gain = c->p.gain ? c->p.gain : 1;
    if (!x && gain == 1) return;
    for (uint32_t k = 0; k < c->out[WF_GET_ROWS_Y].cols; k++) y[k] = (float)(y[k] * gain + (x ? x[k] : 0));
}

void wf_cpu_ref_get_rows(const wf_cpu_work *w)
{
    const wf_view *table = &w->call->in[WF_GET_ROWS_TABLE], *y = &w->call->out[WF_GET_ROWS_Y];
    const int32_t *ids = wf_cpu_at(&w->call->in[WF_GET_ROWS_IDS]);
    uint32_t begin, end;
    wf_cpu_part(w, y->rows, 1, &begin, &end);
    for (uint32_t m = begin; m < end; m++) {
        float *out = wf_cpu_row(y, m);
        if (ids[m] >= 0 && (uint32_t)ids[m] < table->rows)
            wf_dtypes[table->dtype].decode(wf_cpu_row(table, (uint32_t)ids[m]), out, y->cols);
        else
            for (uint32_t k = 0; k < y->cols; k++) out[k] = NAN;
        add(w->call, m, out);
    }
}
