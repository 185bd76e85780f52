/* tool_types: what answers are read with of the tools of a request: their names, and which parameters are strings. As
 * one text, of each tool its name, how many bytes follow in hexadecimal, those parameters, and an empty word, each with
 * the NUL behind it. Strings within parameters stand there as paths: the names of what they are in, and their own, with
 * WF_TOOL_WITHIN between them; items of lists are "item". Those that are no strings have WF_TOOL_OTHER before them. Of
 * a tool only so many are kept, since each value in an answer is looked up among them. */
#ifndef WF_TOOL_TYPES_H
#define WF_TOOL_TYPES_H

#include "base/json.h"

#define WF_TOOL_NAME_MAX 64 /* bytes of a function's, as in OpenAI's API */
#define WF_TOOL_STRINGS_MAX 1024 /* of a tool; others are left to what the model writes */
#define WF_TOOL_WITHIN "\1"
#define WF_TOOL_OTHER "\2"
#define WF_TOOL_PATH_MAX 128 /* bytes of a path; longer ones are left out */
bool wf_tool_name_good(const char *name, size_t len);

/* tools: as requests have them, and checked. */
void wf_tool_types_add(wf_text *types, const wf_json *tools);
/* The parameters of this tool that are strings, up to the empty word; NULL: there is no such tool. */
const char *wf_tool_strings(const wf_text *types, wf_slice tool);
bool wf_tool_string_in(const char *strings, wf_slice parameter); /* strings: NULL is allowed */
bool wf_tool_declares(const char *strings, wf_slice parameter);  /* as a string or not; the same */

#endif
