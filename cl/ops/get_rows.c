/* get_rows: table lookup. */
#include "cl/cl.h"

bool wf_cl_configure_get_rows(const cl_caps *caps, const cl_variant *v, const wf_call *c, uint32_t limit,
                     cl_launch *l)
{
    const wf_view *table = &c->in[WF_GET_ROWS_TABLE], *ids = &c->in[WF_GET_ROWS_IDS], *add = &c->in[WF_GET_ROWS_ADD],
                  *y = &c->out[WF_GET_ROWS_Y];
    (void)v;
    if (table->layout != 0) return false;
    l->wtype = wf_dtypes[table->dtype].name;
    wf_cl_group_knobs(l, caps, wf_cl_group(caps, 64, limit));
    wf_cl_columns(l, y->rows, y->cols);
    wf_cl_arg_view(l, table);
    wf_cl_arg_view(l, ids);
    wf_cl_arg_view(l, add);
    wf_cl_arg_out(l, y);
    wf_cl_arg_u32(l, y->rows);
    wf_cl_arg_u32(l, table->rows);
    wf_cl_arg_u32(l, y->cols);
    wf_cl_arg_u64(l, wf_cl_row_bytes(table));
    wf_cl_arg_u32(l, y->stride);
    wf_cl_arg_u32(l, add->stride);
    wf_cl_arg_f32(l, c->p.gain ? c->p.gain : 1);
    return wf_cl_has_format(l->wtype);
}
