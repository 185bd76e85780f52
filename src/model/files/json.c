/* json: JSON files of a model's folder. See json.h. */
#include "model/files/json.h"
#include "base/file.h"

#include <stdlib.h>

/* reals: a number beyond 64 bits makes all of them reals, so that what has to be an integer is none. */
static weft_status load(const char *text, size_t len, const char *name, bool reals, json_t **out)
{
    json_error_t e;
    *out = json_loadb(text, len, JSON_REJECT_DUPLICATES, &e);
    if (!*out && reals && json_error_code(&e) == json_error_numeric_overflow) *out = json_loadb(text, len, JSON_REJECT_DUPLICATES | JSON_DECODE_INT_AS_REAL, &e);
    if (!*out) return wf_fail(WEFT_ERR_FORMAT, "%s: bad JSON in line %d: %s", name, e.line, e.text);
    if (json_is_object(*out)) return WEFT_OK;
    json_decref(*out);
    *out = NULL;
    return wf_fail(WEFT_ERR_FORMAT, "%s is no JSON object", name);
}

weft_status wf_json_load(const char *text, size_t len, const char *name, json_t **out)
{
    return load(text, len, name, false, out);
}

/* transformers writes 10^30 for "no limit" (model_max_length). */
weft_status wf_json_load_file(const char *path, size_t max, json_t **out)
{
    char *text = NULL;
    size_t len;
    *out = NULL;
    WF_TRY(wf_need_regular(path));
    WF_TRY(wf_read_file(path, max, &text, &len));
    weft_status s = load(text, len, path, true, out);
    free(text);
    return s;
}

/* ---- typed access ------------------------------------------------------------------------------ */

static const json_t *member(const json_t *o, const char *key)
{
    const json_t *v = json_object_get(o, key);
    return json_is_null(v) ? NULL : v;
}

static weft_status not_a(const char *key, const char *what)
{
    return wf_fail(WEFT_ERR_FORMAT, "'%s' is not %s", key, what);
}

weft_status wf_json_u32(const json_t *o, const char *key, uint32_t *out)
{
    const json_t *v = member(o, key);
    json_int_t i = json_integer_value(v);
    if (v && (!json_is_integer(v) || i < 0 || i > UINT32_MAX)) return not_a(key, "an integer of 0 to 2^32 - 1");
    if (v) *out = (uint32_t)i;
    return WEFT_OK;
}

weft_status wf_json_float(const json_t *o, const char *key, float *out)
{
    const json_t *v = member(o, key);
    if (v && !json_is_number(v)) return not_a(key, "a number");
    if (v) *out = (float)json_number_value(v);
    return WEFT_OK;
}

weft_status wf_json_bool(const json_t *o, const char *key, bool *out)
{
    const json_t *v = member(o, key);
    if (v && !json_is_boolean(v)) return not_a(key, "true or false");
    if (v) *out = json_is_true(v);
    return WEFT_OK;
}

weft_status wf_json_str(const json_t *o, const char *key, const char **out)
{
    const json_t *v = member(o, key);
    if (v && !json_is_string(v)) return not_a(key, "a string");
    if (v) *out = json_string_value(v);
    return WEFT_OK;
}

weft_status wf_json_object(const json_t *o, const char *key, json_t **out)
{
    json_t *v = (json_t *)member(o, key);
    *out = v;
    return v && !json_is_object(v) ? not_a(key, "an object") : WEFT_OK;
}

weft_status wf_json_array(const json_t *o, const char *key, json_t **out)
{
    json_t *v = (json_t *)member(o, key);
    *out = v;
    return v && !json_is_array(v) ? not_a(key, "an array") : WEFT_OK;
}
