/* GET_ROWS, the reference: decodes one table row for each id. */
#include <math.h>

#include "cpu/ref/ref.h"

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
    }
}
