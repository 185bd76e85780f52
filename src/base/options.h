/* options: where a message of the library names one of its parameters, as weft_engine_params.context, the program names
 * the option that sets it. For the program alone. */
#ifndef WF_OPTIONS_H
#define WF_OPTIONS_H

#include "base/base.h"

void wf_name_options(char *out, size_t cap, const char *message);
const char *wf_last_error(void); /* weft_last_error so; valid until this thread's next call of it */

#endif
