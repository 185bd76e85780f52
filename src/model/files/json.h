/* json: JSON files of a model's folder, through jansson. They come from strangers: size, nesting and repeated keys are limited, and
 * values that are missing or of another type are errors that name the key. */
#ifndef WF_MODEL_JSON_H
#define WF_MODEL_JSON_H

#include "base/base.h"

#include <jansson.h>

/* Parses an object; the caller owns it (json_decref). name is for messages. */
weft_status wf_json_load(const char *text, size_t len, const char *name, json_t **out);
/* The same from a regular file of at most max bytes. */
weft_status wf_json_load_file(const char *path, size_t max, json_t **out);

/* Typed access to a member of an object. Absent or null: *out does not change. Errors name the key, not the file. */
weft_status wf_json_u32(const json_t *o, const char *key, uint32_t *out);
weft_status wf_json_float(const json_t *o, const char *key, float *out);
weft_status wf_json_bool(const json_t *o, const char *key, bool *out);
weft_status wf_json_str(const json_t *o, const char *key, const char **out);
/* NULL where it is absent or null. */
weft_status wf_json_object(const json_t *o, const char *key, json_t **out);
weft_status wf_json_array(const json_t *o, const char *key, json_t **out);

#endif
