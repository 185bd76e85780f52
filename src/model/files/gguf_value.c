/* gguf_value: typed access to metadata, and metadata as text. See gguf.h. */
#include "model/files/gguf.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- types ----------------------------------------------------------------------------------- */

static const struct {
    const char *name;
    uint8_t size; /* 0: varies */
} types[WF_GGUF_N_TYPES] = {
    [WF_GGUF_U8] = {"u8", 1},       [WF_GGUF_I8] = {"i8", 1},     [WF_GGUF_U16] = {"u16", 2},
    [WF_GGUF_I16] = {"i16", 2},     [WF_GGUF_U32] = {"u32", 4},   [WF_GGUF_I32] = {"i32", 4},
    [WF_GGUF_F32] = {"f32", 4},     [WF_GGUF_BOOL] = {"bool", 1}, [WF_GGUF_STRING] = {"string", 0},
    [WF_GGUF_ARRAY] = {"array", 0}, [WF_GGUF_U64] = {"u64", 8},   [WF_GGUF_I64] = {"i64", 8},
    [WF_GGUF_F64] = {"f64", 8},
};

const char *wf_gguf_type_name(enum wf_gguf_type t) { return types[t].name; }

size_t wf_gguf_type_size(enum wf_gguf_type t) { return types[t].size; }

const char *wf_str_show(char *buf, size_t cap, wf_str s)
{
    size_t n = WF_MIN(s.len, cap - 4);
    while (n < s.len && n && ((unsigned char)s.data[n] & 0xC0) == 0x80) n--; /* whole characters */
    for (size_t i = 0; i < n; i++) buf[i] = (unsigned char)s.data[i] < 32 || s.data[i] == 127 ? '?' : s.data[i];
    strcpy(buf + n, n < s.len ? "..." : "");
    return buf;
}

/* ---- typed access ---------------------------------------------------------------------------- */

enum { /* types that a key may have */
    FLOAT = 1 << WF_GGUF_F32 | 1 << WF_GGUF_F64,
    INTEGER = 1 << WF_GGUF_U8 | 1 << WF_GGUF_I8 | 1 << WF_GGUF_U16 | 1 << WF_GGUF_I16 | 1 << WF_GGUF_U32 |
              1 << WF_GGUF_I32 | 1 << WF_GGUF_U64 | 1 << WF_GGUF_I64,
};

static enum wf_gguf_type item_type(const wf_gguf_kv *kv) { return kv->type == WF_GGUF_ARRAY ? kv->item : kv->type; }

#define LOAD(T)                                                                                                        \
    do {                                                                                                               \
        T v_;                                                                                                          \
        memcpy(&v_, p, sizeof v_);                                                                                     \
        return v_;                                                                                                     \
    } while (0)

double wf_gguf_num_at(const wf_gguf_kv *kv, uint64_t i)
{
    enum wf_gguf_type t = item_type(kv);
    const uint8_t *p = kv->data + i * types[t].size;
    if (i >= kv->count || !types[t].size) return 0;
    switch (t) {
    case WF_GGUF_F32: LOAD(float);
    case WF_GGUF_F64: LOAD(double);
    case WF_GGUF_U64: LOAD(uint64_t);
    default: return (double)wf_gguf_int_at(kv, i);
    }
}

int64_t wf_gguf_int_at(const wf_gguf_kv *kv, uint64_t i)
{
    enum wf_gguf_type t = item_type(kv);
    const uint8_t *p = kv->data + i * types[t].size;
    if (i >= kv->count) return 0;
    switch (t) {
    case WF_GGUF_U8:
    case WF_GGUF_BOOL: LOAD(uint8_t);
    case WF_GGUF_I8: LOAD(int8_t);
    case WF_GGUF_U16: LOAD(uint16_t);
    case WF_GGUF_I16: LOAD(int16_t);
    case WF_GGUF_U32: LOAD(uint32_t);
    case WF_GGUF_I32: LOAD(int32_t);
    case WF_GGUF_U64: /* above INT64_MAX it becomes negative, so that no caller takes it for a small number */
    case WF_GGUF_I64: LOAD(int64_t);
    default: return 0;
    }
}

/* The entry of a key if it has one of the types. */
static weft_status find_typed(const wf_gguf *g, const char *key, bool required, unsigned fits, const char *wanted,
                              const wf_gguf_kv **out)
{
    *out = wf_gguf_find(g, key);
    if (!*out && required && wf_gguf_broken(g))
        return wf_fail(WEFT_ERR_IO, "%s changed while it was being read", g->path);
    if (!*out && required) return wf_fail(WEFT_ERR_FORMAT, "%s: metadata '%s' is missing", g->path, key);
    if (*out && !(fits >> (*out)->type & 1))
        return wf_fail(WEFT_ERR_FORMAT, "%s: metadata '%s' is of type %s, not %s", g->path, key,
                       types[(*out)->type].name, wanted);
    return WEFT_OK;
}

/* Files of some converters have a number for each layer where all layers have the same. */
static bool same_in_all(const wf_gguf_kv *kv)
{
    bool same = kv && kv->type == WF_GGUF_ARRAY && INTEGER >> kv->item & 1 && kv->count;
    for (uint64_t i = 1; same && i < kv->count; i++) same = wf_gguf_int_at(kv, i) == wf_gguf_int_at(kv, 0);
    return same;
}

weft_status wf_gguf_u32(const wf_gguf *g, const char *key, bool required, uint32_t *out)
{
    const wf_gguf_kv *kv = wf_gguf_find(g, key);
    if (!same_in_all(kv)) WF_TRY(find_typed(g, key, required, INTEGER, "an integer", &kv));
    if (!kv) return WEFT_OK;
    int64_t v = wf_gguf_int_at(kv, 0);
    if (v < 0 || v > UINT32_MAX) {
        char text[32];
        wf_gguf_print(kv, text, sizeof text);
        return wf_fail(WEFT_ERR_FORMAT, "%s: metadata '%s' is %s, out of range", g->path, key, text);
    }
    *out = (uint32_t)v;
    return WEFT_OK;
}

weft_status wf_gguf_f32(const wf_gguf *g, const char *key, bool required, float *out)
{
    const wf_gguf_kv *kv;
    WF_TRY(find_typed(g, key, required, FLOAT, "a float", &kv));
    if (!kv) return WEFT_OK;
    double v = wf_gguf_num_at(kv, 0);
    if (!isfinite(v) || fabs(v) > 3.4e38)
        return wf_fail(WEFT_ERR_FORMAT, "%s: metadata '%s' is %g, out of range", g->path, key, v);
    *out = (float)v;
    return WEFT_OK;
}

weft_status wf_gguf_bool(const wf_gguf *g, const char *key, bool required, bool *out)
{
    const wf_gguf_kv *kv;
    WF_TRY(find_typed(g, key, required, 1 << WF_GGUF_BOOL, "bool", &kv));
    if (kv) *out = kv->data[0] != 0;
    return WEFT_OK;
}

weft_status wf_gguf_str(const wf_gguf *g, const char *key, bool required, wf_str *out)
{
    const wf_gguf_kv *kv;
    WF_TRY(find_typed(g, key, required, 1 << WF_GGUF_STRING, "string", &kv));
    if (kv) *out = (wf_str){(const char *)kv->data, kv->bytes};
    return WEFT_OK;
}

/* Lengths were checked on opening, but the file may have changed since. */
static bool next_string(const wf_gguf_kv *kv, const uint8_t **at, wf_str *out)
{
    const uint8_t *end = kv->data + kv->bytes;
    uint64_t len;
    if (end - *at < 8) return false;
    memcpy(&len, *at, 8);
    if (len > (uint64_t)(end - *at) - 8) return false;
    *out = (wf_str){(const char *)*at + 8, (size_t)len};
    *at += 8 + len;
    return true;
}

weft_status wf_gguf_strings(const wf_gguf *g, const char *key, bool required, uint64_t *count,
                            weft_status (*fn)(void *user, uint64_t i, wf_str s), void *user)
{
    const wf_gguf_kv *kv;
    WF_TRY(find_typed(g, key, required, 1 << WF_GGUF_ARRAY, "an array of strings", &kv));
    if (!kv) return WEFT_OK;
    if (kv->item != WF_GGUF_STRING)
        return wf_fail(WEFT_ERR_FORMAT, "%s: metadata '%s' is an array of %s, not of strings", g->path, key,
                       types[kv->item].name);
    if (count) *count = kv->count;
    if (!fn) return WEFT_OK;
    const uint8_t *at = kv->data;
    for (uint64_t i = 0; i < kv->count; i++) {
        wf_str s;
        if (!next_string(kv, &at, &s))
            return wf_fail(WEFT_ERR_IO, "%s: metadata '%s' changed since the file was opened", g->path, key);
        WF_TRY(fn(user, i, s));
    }
    return WEFT_OK;
}

/* ---- printing -------------------------------------------------------------------------------- */

static size_t print_number(const wf_gguf_kv *kv, uint64_t i, char *buf, size_t cap)
{
    enum wf_gguf_type t = item_type(kv);
    int64_t v = wf_gguf_int_at(kv, i);
    int n = FLOAT >> t & 1     ? snprintf(buf, cap, "%g", wf_gguf_num_at(kv, i))
            : t == WF_GGUF_BOOL ? snprintf(buf, cap, "%s", v ? "true" : "false")
            : t == WF_GGUF_U64  ? snprintf(buf, cap, "%" PRIu64, (uint64_t)v)
                                : snprintf(buf, cap, "%" PRId64, v);
    return n < 0 ? 0 : (size_t)n;
}

#define SHOW_ITEMS 6

static void print_array(const wf_gguf_kv *kv, char *buf, size_t cap)
{
    const uint8_t *at = kv->data;
    size_t n = (size_t)snprintf(buf, cap, "[");
    for (uint64_t i = 0; i < kv->count && i < SHOW_ITEMS && n < cap; i++) {
        wf_str s;
        n += (size_t)snprintf(buf + n, cap - n, "%s", i ? ", " : "");
        if (n >= cap) break;
        if (kv->item != WF_GGUF_STRING) n += print_number(kv, i, buf + n, cap - n);
        else if (next_string(kv, &at, &s)) n += (size_t)snprintf(buf + n, cap - n, "\"%s\"", WF_SHOW(s));
    }
    if (n < cap && kv->count > SHOW_ITEMS)
        n += (size_t)snprintf(buf + n, cap - n, ", ... %" PRIu64 " in all", kv->count);
    if (n < cap) snprintf(buf + n, cap - n, "]");
}

void wf_gguf_print(const wf_gguf_kv *kv, char *buf, size_t cap)
{
    if (cap == 0) return;
    if (kv->type == WF_GGUF_ARRAY) print_array(kv, buf, cap);
    else if (kv->type != WF_GGUF_STRING) print_number(kv, 0, buf, cap);
    else if (cap < 5) buf[0] = 0;
    else wf_str_show(buf, cap, (wf_str){(const char *)kv->data, kv->bytes});
}
