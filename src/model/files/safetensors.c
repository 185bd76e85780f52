/* safetensors: see safetensors.h. */
#include "model/files/safetensors.h"
#include "model/files/folder.h"
#include "base/json.h"
#include "tensor/tensor.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define MAX_HEADER (100u << 20) /* bytes, as the format's own readers have it */
#define MAX_INDEX  (64u << 20)
#define INDEX      "model.safetensors.index.json"

/* ---- types ------------------------------------------------------------------------------------- */

static const struct {
    const char *name;
    uint32_t bits;
    int dtype;
} types[] = {
    {"F32", 32, WF_F32}, {"F16", 16, WF_F16}, {"BF16", 16, WF_BF16}, {"F64", 64, -1},    {"I64", 64, -1},
    {"U64", 64, -1},     {"I32", 32, -1},     {"U32", 32, -1},       {"I16", 16, -1},    {"U16", 16, -1},
    {"I8", 8, -1},       {"U8", 8, -1},       {"BOOL", 8, -1},       {"F8_E4M3", 8, -1}, {"F8_E5M2", 8, -1},
    {"F8_E8M0", 8, -1},  {"F4", 4, -1},       {"F6_E2M3", 6, -1},    {"F6_E3M2", 6, -1}, {"C64", 64, -1},
};

static weft_status read_type(const wf_json *o, wf_safetensor *t, uint32_t *bits)
{
    const char *name = NULL;
    WF_TRY(wf_json_str(o, "dtype", &name));
    if (!name) return wf_fail(WEFT_ERR_FORMAT, "'dtype' is missing");
    for (size_t i = 0; i < WF_LEN(types); i++) {
        if (strcmp(types[i].name, name)) continue;
        t->type = types[i].name, t->dtype = types[i].dtype, *bits = types[i].bits;
        return WEFT_OK;
    }
    return wf_fail(WEFT_ERR_FORMAT, "dtype '%.32s' does not exist", name);
}

/* ---- one tensor -------------------------------------------------------------------------------- */

/* Number i of an array: an integer from 0 on. */
static weft_status number_at(const wf_json *array, size_t i, const char *what, uint64_t *out)
{
    const wf_json *v = wf_json_at(array, i);
    if (!wf_json_is(v, WF_JSON_INT) || wf_json_int(v) < 0)
        return wf_fail(WEFT_ERR_FORMAT, "%s holds a value that is no integer from 0 on", what);
    *out = (uint64_t)wf_json_int(v);
    return WEFT_OK;
}

static weft_status read_shape(const wf_json *o, wf_safetensor *t, uint64_t *n)
{
    const wf_json *shape;
    WF_TRY(wf_json_array(o, "shape", &shape));
    if (!shape) return wf_fail(WEFT_ERR_FORMAT, "'shape' is missing");
    if (wf_json_count(shape) > WF_SAFETENSORS_DIMS)
        return wf_fail(WEFT_ERR_FORMAT, "%zu dimensions are more than %d", wf_json_count(shape), WF_SAFETENSORS_DIMS);
    t->n_dims = (uint32_t)wf_json_count(shape);
    *n = 1;
    for (uint32_t i = 0; i < t->n_dims; i++) {
        WF_TRY(number_at(shape, i, "'shape'", &t->shape[i]));
        if (__builtin_mul_overflow(*n, t->shape[i], n)) return wf_fail(WEFT_ERR_FORMAT, "its shape overflows 64 bits");
    }
    return WEFT_OK;
}

static weft_status read_range(const wf_json *o, wf_safetensor *t, uint64_t size)
{
    const wf_json *range;
    uint64_t begin = 0, end = 0;
    WF_TRY(wf_json_array(o, "data_offsets", &range));
    if (!range || wf_json_count(range) != 2) return wf_fail(WEFT_ERR_FORMAT, "'data_offsets' is not a pair of numbers");
    WF_TRY(number_at(range, 0, "'data_offsets'", &begin));
    WF_TRY(number_at(range, 1, "'data_offsets'", &end));
    if (begin > end || end > size)
        return wf_fail(WEFT_ERR_FORMAT,
                       "bytes %" PRIu64 " to %" PRIu64 " are no range in the %" PRIu64
                       " bytes of data; is the file cut short?",
                       begin, end, size);
    t->offset = begin, t->bytes = end - begin;
    return WEFT_OK;
}

static weft_status read_tensor(const wf_json *o, wf_safetensor *t, uint64_t size)
{
    uint32_t bits = 0;
    uint64_t n = 0, want;
    if (!wf_json_is(o, WF_JSON_OBJECT)) return wf_fail(WEFT_ERR_FORMAT, "its description is no object");
    WF_TRY(read_type(o, t, &bits));
    WF_TRY(read_shape(o, t, &n));
    WF_TRY(read_range(o, t, size));
    if (__builtin_mul_overflow(n, bits, &want) || want % 8)
        return wf_fail(WEFT_ERR_FORMAT, "%" PRIu64 " elements of %s are no whole number of bytes", n, t->type);
    if (want / 8 != t->bytes)
        return wf_fail(WEFT_ERR_FORMAT, "its shape takes %" PRIu64 " bytes of %s, its data_offsets span %" PRIu64,
                       want / 8, t->type, t->bytes);
    return WEFT_OK;
}

/* ---- one file ------------------------------------------------------------------------------------ */

static int by_offset(const void *pa, const void *pb)
{
    const wf_safetensor *a = pa, *b = pb;
    if (a->offset != b->offset) return a->offset < b->offset ? -1 : 1;
    return (a->bytes > b->bytes) - (a->bytes < b->bytes);
}

/* The tensors in the order of their bytes must follow each other without a gap. */
static weft_status check_ranges(wf_safetensor *t, size_t n, uint64_t size)
{
    uint64_t at = 0;
    if (n) qsort(t, n, sizeof *t, by_offset);
    for (size_t i = 0; i < n; at = t[i].offset + t[i].bytes, i++) {
        if (t[i].offset < at)
            return wf_fail(WEFT_ERR_FORMAT, "tensors '%.200s' and '%.200s' overlap", t[i - 1].name, t[i].name);
        if (t[i].offset > at)
            return wf_fail(WEFT_ERR_FORMAT, "bytes %" PRIu64 " to %" PRIu64 " before tensor '%.200s' belong to none",
                           at, t[i].offset, t[i].name);
    }
    return at == size ? WEFT_OK : wf_fail(WEFT_ERR_FORMAT, "the last %" PRIu64 " bytes belong to no tensor", size - at);
}

static weft_status add_tensors(wf_safetensors *s, const wf_json *header, const uint8_t *data, uint64_t size)
{
    size_t cap = s->n_tensors, first = cap;
    WF_JSON_EACH_MEMBER(m, header) {
        const char *name = m->name.text;
        if (!strcmp(name, "__metadata__")) continue;
        wf_safetensor t = {0};
        weft_status st = read_tensor(&m->value, &t, size);
        if (st) return wf_fail_context(st, "tensor '%.200s'", name);
        if (!wf_grow(&s->tensors, s->n_tensors, &cap, sizeof *s->tensors)) return WEFT_ERR_NOMEM;
        t.name = wf_strdup(name);
        if (!t.name) return WEFT_ERR_NOMEM;
        s->tensors[s->n_tensors++] = t;
    }
    if (s->n_tensors == first) return size ? check_ranges(NULL, 0, size) : WEFT_OK;
    wf_safetensor *mine = s->tensors + first;
    WF_TRY(check_ranges(mine, s->n_tensors - first, size));
    for (size_t i = 0; i < s->n_tensors - first; i++)
        mine[i].data = data + mine[i].offset, mine[i].offset += (uint64_t)(data - s->maps[s->n_maps - 1].data);
    return WEFT_OK;
}

/* The header of the map that was added last. */
static weft_status read_header(wf_safetensors *s, const char *name)
{
    const wf_map *m = &s->maps[s->n_maps - 1];
    uint64_t len = 0;
    wf_json *header;
    if (m->size < 8) return wf_fail(WEFT_ERR_FORMAT, "%s: %zu bytes are too few for a safetensors file", name, m->size);
    memcpy(&len, m->data, 8);
    if (len > MAX_HEADER)
        return wf_fail(WEFT_ERR_FORMAT,
                       "%s: a header of %" PRIu64 " bytes is no safetensors header; at most %u are allowed", name, len,
                       MAX_HEADER);
    if (len > m->size - 8)
        return wf_fail(WEFT_ERR_FORMAT,
                       "%s: the header takes %" PRIu64 " bytes, but only %zu remain; is the file cut short?", name, len,
                       m->size - 8);
    if (!len || m->data[8] != '{') return wf_fail(WEFT_ERR_FORMAT, "%s: the header does not begin with '{'", name);
    WF_TRY(wf_json_load((const char *)m->data + 8, (size_t)len, name, WF_JSON_UNIQUE | WF_JSON_AN_OBJECT, &header));
    weft_status st = add_tensors(s, header, m->data + 8 + len, m->size - 8 - len);
    wf_json_free(header);
    return st ? wf_fail_context(st, "%s", name) : WEFT_OK;
}

/* Takes ownership of the map, also on failure. */
static weft_status add_file(wf_safetensors *s, wf_map map, const char *name)
{
    size_t cap = s->n_maps;
    if (!wf_grow(&s->maps, s->n_maps, &cap, sizeof *s->maps)) return wf_map_close(&map), WEFT_ERR_NOMEM;
    s->maps[s->n_maps++] = map;
    return read_header(s, name);
}

static weft_status add_path(wf_safetensors *s, const char *path)
{
    wf_map map;
    WF_TRY(wf_map_open(path, &map));
    return add_file(s, map, path);
}

/* ---- names --------------------------------------------------------------------------------------- */

static int by_name(const void *a, const void *b)
{
    return strcmp(((const wf_safetensor *)a)->name, ((const wf_safetensor *)b)->name);
}

static weft_status sort(wf_safetensors *s)
{
    if (s->n_tensors) qsort(s->tensors, s->n_tensors, sizeof *s->tensors, by_name);
    for (size_t i = 1; i < s->n_tensors; i++)
        if (!by_name(&s->tensors[i - 1], &s->tensors[i]))
            return wf_fail(WEFT_ERR_FORMAT, "tensor '%.200s' is in two files", s->tensors[i].name);
    return WEFT_OK;
}

const wf_safetensor *wf_safetensors_find(const wf_safetensors *s, const char *name)
{
    const wf_safetensor key = {.name = name};
    return s->n_tensors ? bsearch(&key, s->tensors, s->n_tensors, sizeof key, by_name) : NULL;
}

/* ---- shards -------------------------------------------------------------------------------------- */

typedef struct shards {
    const char **names; /* of files, each once, in the order of the index; they belong to the index */
    size_t n, cap;
} shards;

/* A shard lies beside its index: a name with a slash could point anywhere. */
static weft_status check_shard(const char *tensor, const wf_json *file)
{
    const char *name = wf_json_text(file);
    if (!name) return wf_fail(WEFT_ERR_FORMAT, "the file of tensor '%.200s' is not a name", tensor);
    if (!*name || strchr(name, '/') || !strcmp(name, ".") || !strcmp(name, ".."))
        return wf_fail(WEFT_ERR_FORMAT, "the file '%.200s' of tensor '%.200s' does not lie in this folder", name,
                       tensor);
    return WEFT_OK;
}

static weft_status add_shard(shards *a, const char *name)
{
    enum { MOST = 4096 };
    for (size_t i = a->n; i-- > 0;)
        if (!strcmp(a->names[i], name)) return WEFT_OK;
    if (a->n == MOST) return wf_fail(WEFT_ERR_FORMAT, "'weight_map' names more than %d files", MOST);
    if (!wf_grow(&a->names, a->n, &a->cap, sizeof *a->names)) return WEFT_ERR_NOMEM;
    a->names[a->n++] = name;
    return WEFT_OK;
}

static weft_status list_shards(const wf_json *map, shards *a)
{
    WF_JSON_EACH_MEMBER(m, map) {
        WF_TRY(check_shard(m->name.text, &m->value));
        WF_TRY(add_shard(a, m->value.text));
    }
    return a->n ? WEFT_OK : wf_fail(WEFT_ERR_FORMAT, "'weight_map' names no file");
}

static weft_status check_index(const wf_safetensors *s, const wf_json *map, const shards *a)
{
    WF_JSON_EACH_MEMBER(m, map) {
        const char *tensor = m->name.text, *name = m->value.text;
        const wf_safetensor *t = wf_safetensors_find(s, tensor);
        size_t shard = 0; /* that it lies in */
        while (t && t->data - t->offset != s->maps[shard].data) shard++;
        if (!t || strcmp(a->names[shard], name))
            return wf_fail(WEFT_ERR_FORMAT, "tensor '%.200s' is not in %.200s, where the index has it", tensor, name);
    }
    return WEFT_OK;
}

static weft_status open_shards(wf_safetensors *s, const char *folder, const wf_json *map, shards *a)
{
    char path[PATH_MAX];
    WF_TRY(list_shards(map, a));
    for (size_t i = 0; i < a->n; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, a->names[i]);
        weft_status st = add_path(s, path);
        if (st) return wf_fail_context(st, "shard %zu of %zu", i + 1, a->n);
    }
    WF_TRY(sort(s));
    return check_index(s, map, a);
}

static weft_status open_index(wf_safetensors *s, const char *folder, const char *path)
{
    wf_json *index;
    const wf_json *map = NULL;
    shards a = {0};
    WF_TRY(wf_json_load_file(path, MAX_INDEX, &index));
    weft_status st = wf_json_object(index, "weight_map", &map);
    if (st == WEFT_OK && !map) st = wf_fail(WEFT_ERR_FORMAT, "'weight_map' is missing");
    if (st == WEFT_OK) st = open_shards(s, folder, map, &a);
    wf_json_free(index);
    free(a.names);
    return st ? wf_fail_context(st, "%s", path) : WEFT_OK;
}

/* ---- a folder ------------------------------------------------------------------------------------ */

static bool exists(char path[PATH_MAX], const char *folder, const char *name)
{
    struct stat st;
    snprintf(path, PATH_MAX, "%s/%s", folder, name);
    return !lstat(path, &st); /* a link to nothing is there, too: opening it says what is wrong */
}

static weft_status open_folder(wf_safetensors *s, const char *folder)
{
    char path[PATH_MAX];
    if (strlen(folder) > PATH_MAX - 300) return wf_fail(WEFT_ERR_ARG, "the path is too long: %s", folder);
    if (exists(path, folder, "model.safetensors")) {
        char index[PATH_MAX];
        if (exists(index, folder, INDEX))
            wf_log(WEFT_LOG_WARN,
                   "%s: there is model.safetensors beside " INDEX ", and is taken, as transformers does; remove the one "
                   "that is not of this model",
                   folder);
        WF_TRY(add_path(s, path));
        return sort(s);
    }
    return exists(path, folder, INDEX) ? open_index(s, folder, path) : wf_folder_other_weights(folder);
}

static weft_status finish(weft_status st, wf_safetensors *s, wf_safetensors **out)
{
    if (st) wf_safetensors_close(s);
    else *out = s;
    return st;
}

weft_status wf_safetensors_open(const char *folder, wf_safetensors **out)
{
    wf_safetensors *s = wf_calloc(1, sizeof *s);
    *out = NULL;
    if (!s) return WEFT_ERR_NOMEM;
    return finish(open_folder(s, folder), s, out);
}

weft_status wf_safetensors_open_file(const char *path, wf_safetensors **out)
{
    wf_safetensors *s = wf_calloc(1, sizeof *s);
    *out = NULL;
    if (!s) return WEFT_ERR_NOMEM;
    weft_status st = add_path(s, path);
    return finish(st ? st : sort(s), s, out);
}

weft_status wf_safetensors_open_memory(const void *data, size_t size, const char *name, wf_safetensors **out)
{
    wf_safetensors *s = wf_calloc(1, sizeof *s);
    *out = NULL;
    if (!s) return WEFT_ERR_NOMEM;
    weft_status st = add_file(s, (wf_map){size ? data : (const void *)"", size, -1}, name);
    return finish(st ? st : sort(s), s, out);
}

void wf_safetensors_close(wf_safetensors *s)
{
    if (!s) return;
    for (size_t i = 0; i < s->n_tensors; i++) free((char *)s->tensors[i].name);
    for (size_t i = 0; i < s->n_maps; i++) wf_map_close(&s->maps[i]);
    free(s->tensors);
    free(s->maps);
    free(s);
}
