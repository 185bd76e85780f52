/* tool_types: what answers are read with of the tools of a request: their names, and which parameters are strings. As one text, of each tool
 * its name, those parameters, and an empty word, each with the NUL behind it. */
#ifndef WF_TOOL_TYPES_H
#define WF_TOOL_TYPES_H

#include "serve/internal.h"

/* tools: as requests have them, and checked. */
void wf_tool_types_add(wf_text *types, const json_t *tools);
/* The parameters of this tool that are strings, up to the empty word; NULL: there is no such tool. */
const char *wf_tool_strings(const wf_text *types, wf_slice tool);
bool wf_tool_string_in(const char *strings, wf_slice parameter); /* strings: NULL is allowed */

#endif
