/* ptx_short: the names under which files that write programs know ptx.h. */
#ifndef WF_PTX_SHORT_H
#define WF_PTX_SHORT_H

#include "cl/ptx.h"

#define emit           wf_ptx_emit
#define label          wf_ptx_label
#define open_scope     wf_ptx_open
#define open_scope_for wf_ptx_open_for
#define close_scope    wf_ptx_close

#endif
