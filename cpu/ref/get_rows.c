/* GET_ROWS, the reference: decodes one table row for each id, and adds to it. */
#include <math.h>

#include "cpu/ref/ref.h"

wf_cpu_scratch_size wf_cpu_ref_get_rows_scratch(const wf_call *c)
{
    return (wf_cpu_scratch_size){.per_thread = sizeof(float) * c->out[WF_GET_ROWS_Y].cols};
}

void wf_cpu_ref_get_rows(const wf_cpu_work *w)
{
    const wf_view *table = &w->call->in[WF_GET_ROWS_TABLE], *y = &w->call->out[WF_GET_ROWS_Y],
                  *more = &w->call->in[WF_GET_ROWS_ADD];
    const int32_t *ids = wf_cpu_at(&w->call->in[WF_GET_ROWS_IDS]);
    const double gain = w->call->p.gain ? w->call->p.gain : 1;
    float *row = w->per_thread;
    uint32_t begin, end;
    wf_cpu_part(w, y->rows, 1, &begin, &end);
    for (uint32_t m = begin; m < end; m++) {
        if (ids[m] >= 0 && (uint32_t)ids[m] < table->rows)
            wf_dtypes[table->dtype].decode(wf_cpu_row(table, (uint32_t)ids[m]), row, y->cols);
        else
            for (uint32_t k = 0; k < y->cols; k++) row[k] = NAN;
        for (uint32_t k = 0; k < y->cols; k++)
            wf_cpu_set(y, wf_cpu_row(y, m), k, (float)(row[k] * gain + wf_cpu_more(more, m, k)));
    }
}
