/* gguf: opens and parses the file. See gguf.h; values are read in gguf_value.c.
 *
 * Parsing takes one pass over header, metadata and tensor list. Each step takes its bytes from a cursor that knows what
 * remains, so no count from the file is trusted before its bytes exist. Names are indexed by sorting, which finds
 * duplicates and is O(n log n) for any names. */
#include "model/files/gguf.h"
#include "model/files/folder.h"
#include "model/files/gguf_split.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define MAX_NAME   64    /* bytes of a tensor name, as the format's specification says */
#define MAX_KEY    65535 /* likewise of a key */
#define MAX_ALIGN  (1u << 20)
#define MIN_KV     13 /* bytes: key length, type, 1 byte of value */
#define MIN_TENSOR 32 /* bytes: name length, dims, one dim, type, offset */

/* Both metadata and tensors begin with their name, so one index serves both. */
_Static_assert(offsetof(wf_gguf_kv, key) == 0 && offsetof(wf_gguf_tensor, name) == 0, "names first");
typedef struct name_index {
    const wf_str **kv, **tensors; /* sorted by name */
} name_index;

/* ---- cursor ---------------------------------------------------------------------------------- */

typedef struct cursor {
    const uint8_t *at, *start, *end;
} cursor;

static uint64_t remaining(const cursor *c) { return (uint64_t)(c->end - c->at); }

static weft_status take(cursor *c, uint64_t n, const char *what, const uint8_t **out)
{
    *out = c->at;
    if (n > remaining(c))
        return wf_fail(WEFT_ERR_FORMAT,
                       "%s needs %" PRIu64 " bytes at byte %zu, but only %" PRIu64 " remain; is the file cut short?",
                       what, n, (size_t)(c->at - c->start), remaining(c));
    c->at += n;
    return WEFT_OK;
}

static weft_status take_u32(cursor *c, const char *what, uint32_t *out)
{
    const uint8_t *p;
    WF_TRY(take(c, 4, what, &p));
    memcpy(out, p, 4);
    return WEFT_OK;
}

static weft_status take_u64(cursor *c, const char *what, uint64_t *out)
{
    const uint8_t *p;
    WF_TRY(take(c, 8, what, &p));
    memcpy(out, p, 8);
    return WEFT_OK;
}

static weft_status take_str(cursor *c, const char *what, wf_str *out)
{
    uint64_t len;
    const uint8_t *p;
    WF_TRY(take_u64(c, what, &len));
    WF_TRY(take(c, len, what, &p));
    *out = (wf_str){(const char *)p, (size_t)len};
    return WEFT_OK;
}

/* ---- values ---------------------------------------------------------------------------------- */

static weft_status take_type(cursor *c, enum wf_gguf_type *out)
{
    uint32_t t;
    WF_TRY(take_u32(c, "its type", &t));
    if (t >= WF_GGUF_N_TYPES) return wf_fail(WEFT_ERR_FORMAT, "value type %" PRIu32 " does not exist", t);
    *out = (enum wf_gguf_type)t;
    return WEFT_OK;
}

static weft_status take_bools(cursor *c, uint64_t n)
{
    const uint8_t *p;
    WF_TRY(take(c, n, "its value", &p));
    for (uint64_t i = 0; i < n; i++)
        if (p[i] > 1) return wf_fail(WEFT_ERR_FORMAT, "a bool is %d, neither 0 nor 1", p[i]);
    return WEFT_OK;
}

static weft_status take_array(cursor *c, wf_gguf_kv *kv)
{
    const uint8_t *p;
    WF_TRY(take_type(c, &kv->item));
    WF_TRY(take_u64(c, "its array count", &kv->count));
    if (kv->item == WF_GGUF_ARRAY) return wf_fail(WEFT_ERR_FORMAT, "arrays of arrays are not allowed");
    uint64_t least = kv->item == WF_GGUF_STRING ? 8 : wf_gguf_type_size(kv->item);
    if (kv->count > remaining(c) / least)
        return wf_fail(WEFT_ERR_FORMAT, "an array of %" PRIu64 " %s cannot lie in the %" PRIu64 " bytes that remain",
                       kv->count, wf_gguf_type_name(kv->item), remaining(c));
    kv->data = c->at;
    if (kv->item == WF_GGUF_STRING) {
        wf_str s;
        for (size_t i = 0, asked = 0; i < kv->count; i++) {
            WF_TRY(wf_stop_asked(&asked));
            WF_TRY(take_str(c, "a string of its array", &s));
        }
    } else if (kv->item == WF_GGUF_BOOL) {
        WF_TRY(take_bools(c, kv->count));
    } else {
        WF_TRY(take(c, kv->count * least, "its array", &p));
    }
    kv->bytes = (uint64_t)(c->at - kv->data);
    return WEFT_OK;
}

static weft_status take_value(cursor *c, wf_gguf_kv *kv)
{
    wf_str s;
    WF_TRY(take_type(c, &kv->type));
    if (kv->type == WF_GGUF_ARRAY) return take_array(c, kv);
    if (kv->type == WF_GGUF_STRING) {
        WF_TRY(take_str(c, "its string", &s));
        kv->data = (const uint8_t *)s.data;
        kv->bytes = s.len;
        return WEFT_OK;
    }
    kv->data = c->at;
    kv->bytes = wf_gguf_type_size(kv->type);
    return kv->type == WF_GGUF_BOOL ? take_bools(c, 1) : take(c, kv->bytes, "its value", &kv->data);
}

static weft_status check_name(wf_str s, const char *what, size_t max)
{
    if (s.len == 0) return wf_fail(WEFT_ERR_FORMAT, "the name of a %s is empty", what);
    if (s.len > max)
        return wf_fail(WEFT_ERR_FORMAT, "the name of %s '%s' has %zu bytes, more than %zu", what, WF_SHOW(s), s.len,
                       max);
    if (memchr(s.data, 0, s.len))
        return wf_fail(WEFT_ERR_FORMAT, "the name of %s '%s' contains a NUL byte", what, WF_SHOW(s));
    return WEFT_OK;
}

/* ---- names ----------------------------------------------------------------------------------- */

static int compare_names(const void *a, const void *b)
{
    const wf_str *x = *(const wf_str *const *)a, *y = *(const wf_str *const *)b;
    int c = memcmp(x->data, y->data, WF_MIN(x->len, y->len));
    return c ? c : (x->len > y->len) - (x->len < y->len);
}

static weft_status index_names(const void *items, size_t n, size_t stride, const char *what, const wf_str ***out)
{
    const wf_str **names = wf_calloc(n, sizeof *names);
    if (!names) return WEFT_ERR_NOMEM;
    *out = names;
    for (size_t i = 0; i < n; i++) names[i] = (const wf_str *)((const char *)items + i * stride);
    qsort(names, n, sizeof *names, compare_names);
    for (size_t i = 1; i < n; i++)
        if (!compare_names(&names[i - 1], &names[i]))
            return wf_fail(WEFT_ERR_FORMAT, "%s '%s' appears twice", what, WF_SHOW(*names[i]));
    return WEFT_OK;
}

static const void *find_name(const wf_str *const *names, size_t n, const char *name)
{
    wf_str s = {name, strlen(name)};
    const wf_str *key = &s;
    const wf_str *const *hit = names ? bsearch(&key, names, n, sizeof *names, compare_names) : NULL;
    return hit ? *hit : NULL;
}

const wf_gguf_kv *wf_gguf_find(const wf_gguf *g, const char *key)
{
    return find_name(((const name_index *)g->index)->kv, g->n_kv, key);
}

const wf_gguf_tensor *wf_gguf_tensor_find(const wf_gguf *g, const char *name)
{
    return find_name(((const name_index *)g->index)->tensors, g->n_tensors, name);
}

/* ---- tensors --------------------------------------------------------------------------------- */

static weft_status take_dims(cursor *c, wf_gguf_tensor *t, uint64_t *n)
{
    WF_TRY(take_u32(c, "its number of dimensions", &t->n_dims));
    if (t->n_dims < 1 || t->n_dims > 4)
        return wf_fail(WEFT_ERR_FORMAT, "%" PRIu32 " dimensions; 1 to 4 are allowed", t->n_dims);
    *n = 1;
    for (uint32_t i = 0; i < 4; i++) {
        t->dims[i] = 1;
        if (i < t->n_dims) WF_TRY(take_u64(c, "a dimension", &t->dims[i]));
        if (t->dims[i] == 0) return wf_fail(WEFT_ERR_FORMAT, "dimension %" PRIu32 " is 0", i);
        if (__builtin_mul_overflow(*n, t->dims[i], n) || *n > INT64_MAX)
            return wf_fail(WEFT_ERR_FORMAT,
                           "its %" PRIu32 " dimensions overflow 63 bits: %" PRIu64 " x %" PRIu64 " ...", t->n_dims,
                           t->dims[0], t->n_dims > 1 ? t->dims[1] : 1);
    }
    return WEFT_OK;
}

static weft_status take_tensor(cursor *c, wf_gguf_tensor *t)
{
    uint64_t n = 0;
    WF_TRY(take_dims(c, t, &n));
    uint32_t block, bytes;
    WF_TRY(take_u32(c, "its type", &t->ggml_type));
    if (!wf_ggml_type_size(t->ggml_type, &block, &bytes))
        return wf_fail(WEFT_ERR_FORMAT, "tensor type %" PRIu32 " (%s) does not exist or was removed from the format",
                       t->ggml_type, wf_ggml_type_name(t->ggml_type));
    t->dtype = wf_dtype_of_ggml(t->ggml_type);
    if (t->dims[0] % block)
        return wf_fail(WEFT_ERR_FORMAT, "rows of %" PRIu64 " elements are not a multiple of the %s block of %" PRIu32,
                       t->dims[0], wf_ggml_type_name(t->ggml_type), block);
    if (__builtin_mul_overflow(n / block, bytes, &t->bytes))
        return wf_fail(WEFT_ERR_FORMAT, "its size overflows: %" PRIu64 " %s elements", n,
                       wf_ggml_type_name(t->ggml_type));
    return take_u64(c, "its offset", &t->offset);
}

static weft_status read_tensors(wf_gguf *g, cursor *c, uint64_t n)
{
    size_t cap = 0, asked = 0;
    for (uint64_t i = 0; i < n; i++) {
        WF_TRY(wf_stop_asked(&asked));
        wf_gguf_tensor t = {.dtype = -1};
        weft_status s = take_str(c, "its name", &t.name);
        if (s) return wf_fail_context(s, "tensor %" PRIu64 " of %" PRIu64, i, n);
        WF_TRY(check_name(t.name, "tensor", MAX_NAME));
        s = take_tensor(c, &t);
        if (s) return wf_fail_context(s, "tensor '%s'", WF_SHOW(t.name));
        if (!wf_grow(&g->tensors, g->n_tensors, &cap, sizeof *g->tensors)) return WEFT_ERR_NOMEM;
        g->tensors[g->n_tensors++] = t;
    }
    return WEFT_OK;
}

static weft_status locate_tensor(const wf_gguf *g, wf_gguf_tensor *t, const uint8_t *data, uint64_t size)
{
    if (t->offset % g->alignment)
        return wf_fail(WEFT_ERR_FORMAT, "tensor '%s': offset %" PRIu64 " is not a multiple of the alignment %" PRIu64,
                       WF_SHOW(t->name), t->offset, g->alignment);
    if (t->offset > size || t->bytes > size - t->offset)
        return wf_fail(WEFT_ERR_FORMAT,
                       "tensor '%s': %" PRIu64 " bytes at offset %" PRIu64 " lie outside the %" PRIu64
                       " bytes of data; is the file cut short?",
                       WF_SHOW(t->name), t->bytes, t->offset, size);
    t->data = data + t->offset;
    return WEFT_OK;
}

static int compare_offsets(const void *a, const void *b)
{
    const wf_gguf_tensor *x = *(const wf_gguf_tensor *const *)a, *y = *(const wf_gguf_tensor *const *)b;
    return (x->offset > y->offset) - (x->offset < y->offset);
}

static weft_status locate_tensors(wf_gguf *g, const cursor *c)
{
    /* A file with metadata only may end before the padding. */
    uint64_t head = WF_UP((uint64_t)(c->at - c->start), g->alignment), all = g->maps[0].size;
    uint64_t size = head < all ? all - head : 0;
    for (size_t i = 0; i < g->n_tensors; i++)
        WF_TRY(locate_tensor(g, &g->tensors[i], g->maps[0].data + WF_MIN(head, all), size));
    const wf_gguf_tensor **t = wf_calloc(g->n_tensors, sizeof *t);
    if (!t) return WEFT_ERR_NOMEM;
    for (size_t i = 0; i < g->n_tensors; i++) t[i] = &g->tensors[i];
    qsort(t, g->n_tensors, sizeof *t, compare_offsets);
    weft_status s = WEFT_OK;
    for (size_t i = 1; i < g->n_tensors && !s; i++)
        if (t[i]->offset - t[i - 1]->offset < t[i - 1]->bytes)
            s = wf_fail(WEFT_ERR_FORMAT, "tensors '%s' and '%s' overlap", WF_SHOW(t[i - 1]->name), WF_SHOW(t[i]->name));
    free(t);
    return s;
}

/* ---- header ---------------------------------------------------------------------------------- */

static weft_status check_magic(cursor *c)
{
    const uint8_t *p;
    if (remaining(c) == 0) return wf_fail(WEFT_ERR_FORMAT, "the file is empty");
    WF_TRY(take(c, 4, "the magic 'GGUF'", &p));
    if (!memcmp(p, "GGUF", 4)) return WEFT_OK;
    if (!memcmp(p, "FUGG", 4))
        return wf_fail(WEFT_ERR_FORMAT, "the magic is byte-swapped; only little-endian GGUF can be read");
    return wf_fail(WEFT_ERR_FORMAT, "not a GGUF file: it begins with bytes %02x %02x %02x %02x, not 'GGUF'", p[0], p[1],
                   p[2], p[3]);
}

static weft_status check_version(uint32_t v)
{
    if (v == 2 || v == 3) return WEFT_OK;
    if (v && (v & 0xFFFF) == 0)
        return wf_fail(WEFT_ERR_FORMAT, "big-endian GGUF (version 0x%08" PRIx32 "); convert it to little endian", v);
    return wf_fail(WEFT_ERR_FORMAT, "GGUF version %" PRIu32 "; versions 2 and 3 can be read", v);
}

static weft_status check_count(const char *what, uint64_t n, uint64_t least, const cursor *c)
{
    if (n <= remaining(c) / least) return WEFT_OK;
    return wf_fail(WEFT_ERR_FORMAT, "%s is %" PRIu64 ", too many for the %" PRIu64 " bytes that remain", what, n,
                   remaining(c));
}

static weft_status read_alignment(wf_gguf *g)
{
    const wf_gguf_kv *kv = wf_gguf_find(g, "general.alignment");
    uint32_t a = 32;
    if (kv && kv->type != WF_GGUF_U32)
        return wf_fail(WEFT_ERR_FORMAT, "metadata 'general.alignment' is of type %s, not u32",
                       wf_gguf_type_name(kv->type));
    if (kv) memcpy(&a, kv->data, 4);
    if (a < 8 || a > MAX_ALIGN || (a & (a - 1)))
        return wf_fail(WEFT_ERR_FORMAT,
                       "metadata 'general.alignment' is %" PRIu32 "; a power of two from 8 to %u is needed", a,
                       MAX_ALIGN);
    g->alignment = a;
    return WEFT_OK;
}

static weft_status parse(wf_gguf *g)
{
    cursor c = {g->maps[0].data, g->maps[0].data, g->maps[0].data + g->maps[0].size};
    uint64_t n_tensors, n_kv;
    name_index *ix = g->index;
    WF_TRY(check_magic(&c));
    WF_TRY(take_u32(&c, "the version", &g->version));
    WF_TRY(check_version(g->version));
    WF_TRY(take_u64(&c, "the number of tensors", &n_tensors));
    WF_TRY(take_u64(&c, "the number of metadata entries", &n_kv));
    WF_TRY(check_count("the number of metadata entries", n_kv, MIN_KV, &c));
    WF_TRY(check_count("the number of tensors", n_tensors, MIN_TENSOR, &c));
    size_t cap = 0, asked = 0;
    for (uint64_t i = 0; i < n_kv; i++) {
        WF_TRY(wf_stop_asked(&asked));
        wf_gguf_kv kv = {.count = 1};
        weft_status s = take_str(&c, "its key", &kv.key);
        if (s) return wf_fail_context(s, "metadata entry %" PRIu64 " of %" PRIu64, i, n_kv);
        WF_TRY(check_name(kv.key, "metadata key", MAX_KEY));
        s = take_value(&c, &kv);
        if (s) return wf_fail_context(s, "metadata '%s'", WF_SHOW(kv.key));
        if (!wf_grow(&g->kv, g->n_kv, &cap, sizeof *g->kv)) return WEFT_ERR_NOMEM;
        g->kv[g->n_kv++] = kv;
    }
    WF_TRY(index_names(g->kv, g->n_kv, sizeof *g->kv, "metadata", &ix->kv));
    WF_TRY(read_alignment(g));
    WF_TRY(check_count("the number of tensors", n_tensors, MIN_TENSOR, &c));
    WF_TRY(read_tensors(g, &c, n_tensors));
    WF_TRY(index_names(g->tensors, g->n_tensors, sizeof *g->tensors, "tensor", &ix->tensors));
    return locate_tensors(g, &c);
}

/* ---- open, close ----------------------------------------------------------------------------- */

weft_status wf_gguf_new(const char *name, wf_gguf **out)
{
    wf_gguf *g = wf_calloc(1, sizeof *g);
    if (!g) return WEFT_ERR_NOMEM;
    g->path = wf_strdup(name);
    g->index = wf_calloc(1, sizeof(name_index));
    if (!g->path || !g->index) return wf_gguf_close(g), WEFT_ERR_NOMEM;
    *out = g;
    return WEFT_OK;
}

weft_status wf_gguf_index(wf_gguf *g)
{
    name_index *ix = g->index;
    free(ix->kv);
    free(ix->tensors);
    *ix = (name_index){0};
    WF_TRY(index_names(g->kv, g->n_kv, sizeof *g->kv, "metadata", &ix->kv));
    return index_names(g->tensors, g->n_tensors, sizeof *g->tensors, "tensor", &ix->tensors);
}

/* Takes ownership of the map, also on failure. */
static weft_status open_map(wf_map map, const char *name, wf_gguf **out)
{
    wf_gguf *g = NULL;
    weft_status s = wf_gguf_new(name, &g);
    if (!s && !(g->maps = wf_calloc(1, sizeof map))) s = WEFT_ERR_NOMEM;
    if (s) return wf_map_close(&map), wf_gguf_close(g), s;
    g->maps[g->n_maps++] = map;
    s = parse(g);
    if (s) {
        wf_gguf_close(g);
        return wf_fail_context(s, "%s", name);
    }
    *out = g;
    return WEFT_OK;
}

weft_status wf_gguf_open_part(const char *path, wf_gguf **out)
{
    wf_map map;
    *out = NULL;
    WF_TRY(wf_map_open(path, &map));
    return open_map(map, path, out);
}

/* With the other parts, where it is one of several. */
static weft_status whole(wf_gguf *g, wf_gguf **out)
{
    weft_status s = wf_gguf_join_parts(g);
    if (!s) return *out = g, s;
    s = wf_fail_context(s, "%s", g->path);
    return wf_gguf_close(g), s;
}

weft_status wf_gguf_open(const char *path, wf_gguf **out)
{
    wf_gguf *g;
    *out = NULL;
    WF_TRY(wf_gguf_open_part(path, &g));
    return whole(g, out);
}

weft_status wf_gguf_open_memory(const void *data, size_t size, const char *name, wf_gguf **out)
{
    wf_gguf *g;
    *out = NULL;
    WF_TRY(open_map((wf_map){size ? data : "", size, -1}, name, &g));
    return whole(g, out);
}

void wf_gguf_close(wf_gguf *g)
{
    if (!g) return;
    name_index *ix = g->index;
    if (ix) {
        free(ix->kv);
        free(ix->tensors);
    }
    free(ix);
    free(g->kv);
    free(g->tensors);
    free(g->path);
    for (size_t i = 0; i < g->n_maps; i++) wf_map_close(&g->maps[i]);
    free(g->maps);
    wf_folder_close(g->folder);
    free(g);
}

/* ---- its files ------------------------------------------------------------------------------- */

uint64_t wf_gguf_bytes(const wf_gguf *g)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < g->n_maps; i++) sum += g->maps[i].size;
    return sum;
}

bool wf_gguf_broken(const wf_gguf *g)
{
    bool broken = false;
    for (size_t i = 0; i < g->n_maps; i++) broken |= wf_map_broken(&g->maps[i]);
    return broken;
}

bool wf_gguf_is_file(const wf_gguf *g) { return g->folder || (g->n_maps && g->maps[0].slot >= 0); }
