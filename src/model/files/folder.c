/* folder: makes the wf_gguf of a Hugging Face folder. See folder.h; config.json is read in config.c. */
#include "model/files/folder.h"
#include "base/json.h"
#include "model/model.h"
#include "model/files/safetensors.h"
#include "model/files/sampling.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static const wf_folder_name llama_names[] = {
    {"model.embed_tokens", "token_embd"},
    {"model.norm", "output_norm"},
    {"lm_head", "output"},
    {"model.layers.#.input_layernorm", "blk.#.attn_norm"},
    {"model.layers.#.self_attn.q_proj", "blk.#.attn_q"},
    {"model.layers.#.self_attn.k_proj", "blk.#.attn_k"},
    {"model.layers.#.self_attn.v_proj", "blk.#.attn_v"},
    {"model.layers.#.self_attn.o_proj", "blk.#.attn_output"},
    {"model.layers.#.self_attn.q_norm", "blk.#.attn_q_norm"},
    {"model.layers.#.self_attn.k_norm", "blk.#.attn_k_norm"},
    {"model.layers.#.self_attn.rotary_emb", NULL}, /* frequencies, which older checkpoints carry */
    {"model.rotary_emb", NULL},
    {"model.layers.#.post_attention_layernorm", "blk.#.ffn_norm"},
    {"model.layers.#.mlp.gate_proj", "blk.#.ffn_gate"},
    {"model.layers.#.mlp.up_proj", "blk.#.ffn_up"},
    {"model.layers.#.mlp.down_proj", "blk.#.ffn_down"},
    {"model.layers.#.mlp.gate", "blk.#.ffn_gate_inp"},
    {"model.layers.#.mlp.experts.#.gate_proj", "blk.#.ffn_gate.#"},
    {"model.layers.#.mlp.experts.#.up_proj", "blk.#.ffn_up.#"},
    {"model.layers.#.mlp.experts.#.down_proj", "blk.#.ffn_down.#"},
    {NULL, NULL},
};

/* ---- metadata ------------------------------------------------------------------------------------- */

struct wf_folder { /* what a wf_gguf of a folder owns besides */
    wf_safetensors *weights;
    const wf_folder_name *names; /* the architecture's own; NULL: it has none */
    void **kept;
    size_t n_kept, cap_kept, cap_kv, cap_tensors;
};

void *wf_folder_keep(wf_gguf *g, const void *data, size_t size)
{
    struct wf_folder *f = g->folder;
    if (!wf_grow(&f->kept, f->n_kept, &f->cap_kept, sizeof *f->kept)) return NULL;
    void *p = wf_calloc(size + 1, 1); /* strings end with a NUL */
    if (!p) return NULL;
    if (data && size) memcpy(p, data, size);
    return f->kept[f->n_kept++] = p;
}

weft_status wf_folder_add(wf_gguf *g, const wf_gguf_kv *kv)
{
    if (!wf_grow(&g->kv, g->n_kv, &g->folder->cap_kv, sizeof *g->kv)) return WEFT_ERR_NOMEM;
    g->kv[g->n_kv++] = *kv;
    return WEFT_OK;
}

static weft_status copy_meta(wf_gguf *g, const char *key, wf_gguf_kv kv, const void *data)
{
    kv.key = (wf_str){wf_folder_keep(g, key, strlen(key)), strlen(key)};
    kv.data = wf_folder_keep(g, data, kv.bytes);
    return kv.key.data && kv.data ? wf_folder_add(g, &kv) : WEFT_ERR_NOMEM;
}

static weft_status add_meta(wf_gguf *g, const char *key, enum wf_gguf_type type, const void *data, size_t bytes)
{
    return copy_meta(g, key, (wf_gguf_kv){.type = type, .count = 1, .bytes = bytes}, data);
}

weft_status wf_folder_array(wf_gguf *g, const char *key, enum wf_gguf_type item, uint64_t count, const void *data,
                            size_t bytes)
{
    return copy_meta(g, key, (wf_gguf_kv){.type = WF_GGUF_ARRAY, .item = item, .count = count, .bytes = bytes}, data);
}

weft_status wf_folder_u32(wf_gguf *g, const char *key, uint32_t v)
{
    return add_meta(g, key, WF_GGUF_U32, &v, sizeof v);
}

weft_status wf_folder_i32(wf_gguf *g, const char *key, int32_t v)
{
    return add_meta(g, key, WF_GGUF_I32, &v, sizeof v);
}

weft_status wf_folder_f32(wf_gguf *g, const char *key, float v) { return add_meta(g, key, WF_GGUF_F32, &v, sizeof v); }

weft_status wf_folder_str(wf_gguf *g, const char *key, const char *v)
{
    return add_meta(g, key, WF_GGUF_STRING, v, strlen(v));
}

weft_status wf_folder_bool(wf_gguf *g, const char *key, bool v)
{
    return add_meta(g, key, WF_GGUF_BOOL, &(uint8_t){v}, 1);
}

static bool begins(const char *s, const char *with) { return !strncmp(s, with, strlen(with)); }

static bool is_key(const wf_gguf_kv *kv, const char *key)
{
    return kv->key.len == strlen(key) && !memcmp(key, kv->key.data, kv->key.len);
}

static bool has_key(const wf_gguf *g, const char *key)
{
    for (size_t i = 0; i < g->n_kv; i++)
        if (is_key(&g->kv[i], key)) return true;
    return false;
}

uint32_t wf_folder_get(const wf_gguf *g, const char *key)
{
    uint32_t v = 0;
    for (size_t i = 0; i < g->n_kv; i++)
        if (g->kv[i].type == WF_GGUF_U32 && is_key(&g->kv[i], key)) memcpy(&v, g->kv[i].data, sizeof v);
    return v;
}

/* ---- tensors ---------------------------------------------------------------------------------------- */

#define MAX_NUMBERS 2 /* in a name: of the layer, of an expert */

/* Does name consist of the pattern and a last part, unless that is whole? numbers: the digits at each '#'; *rest:
 * ".weight". */
static bool fits(const char *name, const char *pattern, bool whole, wf_str numbers[MAX_NUMBERS], const char **rest)
{
    for (; *pattern; pattern++) {
        if (*pattern != '#' && *name++ != *pattern) return false;
        if (*pattern != '#') continue;
        *numbers = (wf_str){name, strspn(name, "0123456789")};
        if (!numbers->len || numbers->len > 4 || (*name == '0' && numbers->len > 1)) return false;
        name += numbers++->len;
    }
    *rest = name;
    return whole ? !*name : *name == '.' && !strchr(name + 1, '.');
}

/* Tiles, so that neither side leaves the caches. */
static void transpose(const uint8_t *from, uint8_t *to, uint64_t rows, uint64_t cols, size_t each)
{
    enum { TILE = 32 };
    for (uint64_t r0 = 0; r0 < rows; r0 += TILE)
        for (uint64_t c0 = 0; c0 < cols; c0 += TILE)
            for (uint64_t r = r0; r < WF_MIN(r0 + TILE, rows); r++)
                for (uint64_t c = c0; c < WF_MIN(c0 + TILE, cols); c++)
                    memcpy(to + (c * rows + r) * each, from + (r * cols + c) * each, each);
}

weft_status wf_folder_transpose(wf_gguf *g, wf_gguf_tensor *t)
{
    uint64_t rows = t->dims[1], cols = t->dims[0];
    if (t->n_dims != 2 || !t->bytes) return WEFT_OK;
    uint8_t *out = wf_folder_keep(g, t->data, t->bytes);
    if (!out) return WEFT_ERR_NOMEM;
    transpose(t->data, out, rows, cols, t->bytes / (rows * cols));
    t->data = out, t->dims[0] = rows, t->dims[1] = cols;
    return WEFT_OK;
}

weft_status wf_folder_skip_rows(wf_gguf_tensor *t, uint64_t rows)
{
    if (t->dims[1] <= rows)
        return wf_fail(WEFT_ERR_FORMAT, "the table of positions has only %llu rows", (unsigned long long)t->dims[1]);
    uint64_t bytes = t->bytes / t->dims[1] * rows;
    t->data += bytes, t->offset += bytes, t->bytes -= bytes;
    t->dims[1] -= rows;
    return WEFT_OK;
}

/* The pattern with the numbers in it, and the rest; its length, 0: it does not fit. */
static size_t fill_in(char *out, size_t cap, const char *pattern, const wf_str *numbers, const char *rest)
{
    size_t n = 0;
    for (; *pattern && n < cap; pattern++) {
        bool mark = *pattern == '#';
        wf_str s = mark ? *numbers++ : (wf_str){pattern, 1};
        n += (size_t)snprintf(out + n, cap - n, "%.*s", (int)s.len, s.data);
    }
    if (n < cap) n += (size_t)snprintf(out + n, cap - n, "%s", rest);
    return n < cap ? n : 0;
}

static const wf_folder_name *find_in(const wf_folder_name *list, const char *name, wf_str numbers[MAX_NUMBERS],
                                     const char **rest)
{
    for (; list && list->theirs; list++)
        if (fits(name, list->theirs, list->whole, numbers, rest)) return list;
    return NULL;
}

/* The name of a tensor of text as a model without other parts has it; NULL: it is of such a part. */
static const char *text_name(const char *name, char buf[256])
{
    static const char *const others[] = {"vision_tower.", "model.vision_tower.", "multi_modal_projector.",
                                         "model.multi_modal_projector."};
    static const char *const bare[] = {"embed_tokens.", "layers.", "norm."}; /* of a model without its head */
    for (size_t i = 0; i < WF_LEN(others); i++)
        if (begins(name, others[i])) return NULL;
    for (size_t i = 0; i < WF_LEN(bare); i++)
        if (begins(name, bare[i])) return snprintf(buf, 256, "model.%s", name), buf;
    if (begins(name, "language_model.")) return name + strlen("language_model.");
    if (!begins(name, "model.language_model.")) return name;
    snprintf(buf, 256, "model.%s", name + strlen("model.language_model."));
    return buf;
}

/* The architecture's own before Llama's. */
static const wf_folder_name *find_row(const wf_folder_name *own, const char *name, wf_str numbers[MAX_NUMBERS],
                                      const char **rest)
{
    const wf_folder_name *row = find_in(own, name, numbers, rest);
    return row ? row : find_in(llama_names, name, numbers, rest);
}

/* The row of a tensor, and GGUF's name, kept by g; NULL: it is no weight. */
static weft_status translate(wf_gguf *g, const wf_folder_name *own, const char *name, const wf_folder_name **row,
                             const char **out)
{
    wf_str numbers[MAX_NUMBERS];
    const char *rest;
    char ours[96], buf[256];
    size_t n = 0;
    *row = NULL, *out = NULL;
    if (!(name = text_name(name, buf))) return WEFT_OK;
    *row = find_row(own, name, numbers, &rest);
    if (*row && !(*row)->ours) return WEFT_OK;
    if (*row) n = fill_in(ours, sizeof ours, (*row)->ours, numbers, rest);
    if (!n || n > 64)
        return wf_fail(WEFT_ERR_UNSUPPORTED, "tensor '%.200s' has no place in this architecture as weft knows it",
                       name);
    *out = wf_folder_keep(g, ours, n);
    return *out ? WEFT_OK : WEFT_ERR_NOMEM;
}

static bool has_any(const wf_safetensors *w, const wf_folder_name *row)
{
    wf_str numbers[MAX_NUMBERS];
    const char *rest, *name;
    char buf[256];
    for (size_t i = 0; i < w->n_tensors; i++)
        if ((name = text_name(w->tensors[i].name, buf)) && fits(name, row->theirs, row->whole, numbers, &rest))
            return true;
    return false;
}

const char *wf_folder_their_name(const wf_gguf *g, wf_str ours, char out[256])
{
    const wf_folder_name *const lists[] = {g->folder ? g->folder->names : NULL, g->folder ? llama_names : NULL};
    wf_str numbers[MAX_NUMBERS];
    char name[96], theirs[200];
    const char *rest;
    snprintf(name, sizeof name, "%.*s", (int)ours.len, ours.data);
    for (size_t i = 0; i < WF_LEN(lists); i++)
        for (const wf_folder_name *row = lists[i]; row && row->theirs; row++)
            if (row->ours && fits(name, row->ours, row->whole, numbers, &rest) && has_any(g->folder->weights, row) &&
                fill_in(theirs, sizeof theirs, row->theirs, numbers, rest))
                return snprintf(out, 256, " (%s)", theirs), out;
    return "";
}

weft_status wf_folder_push(wf_gguf *g, const wf_gguf_tensor *t)
{
    if (!wf_grow(&g->tensors, g->n_tensors, &g->folder->cap_tensors, sizeof *g->tensors)) return WEFT_ERR_NOMEM;
    g->tensors[g->n_tensors++] = *t;
    return WEFT_OK;
}

static weft_status add_tensor(wf_gguf *g, const wf_folder_name *names, const wf_safetensor *from)
{
    const char *name;
    const wf_folder_name *row;
    WF_TRY(translate(g, names, from->name, &row, &name));
    if (!name) return WEFT_OK;
    if (row->bytes ? strcmp(from->type, "U8") != 0 : from->dtype < 0)
        return wf_fail(WEFT_ERR_UNSUPPORTED, "tensor '%.200s' is of type %s; weft reads %s", from->name, from->type,
                       row->bytes ? "U8" : "BF16, F16 and F32");
    if (from->n_dims < 1 || from->n_dims > 4)
        return wf_fail(WEFT_ERR_FORMAT, "tensor '%.200s' has %u dimensions", from->name, from->n_dims);
    wf_gguf_tensor t = {.name = {name, strlen(name)},
                        .n_dims = from->n_dims,
                        .dims = {1, 1, 1, 1},
                        .ggml_type = row->bytes ? 0 : wf_dtypes[from->dtype].ggml,
                        .dtype = from->dtype,
                        .data = from->data,
                        .bytes = from->bytes,
                        .offset = from->offset};
    for (uint32_t i = 0; i < t.n_dims; i++) t.dims[i] = from->shape[t.n_dims - 1 - i];
    weft_status s = row->change ? row->change(g, &t) : WEFT_OK;
    return s ? wf_fail_context(s, "tensor '%.200s'", from->name) : wf_folder_push(g, &t);
}

const wf_safetensor *wf_folder_source(const wf_gguf *g, const char *name)
{
    return wf_safetensors_find(g->folder->weights, name);
}

const wf_safetensor *wf_folder_next_bias(const wf_gguf *g, const wf_folder_name *names, size_t *at, const char **of)
{
    const wf_safetensors *w = g->folder->weights;
    wf_str numbers[MAX_NUMBERS];
    const char *rest, *name;
    char buf[256];
    while (*at < w->n_tensors) {
        const wf_safetensor *t = &w->tensors[(*at)++];
        const wf_folder_name *row = (name = text_name(t->name, buf)) ? find_row(names, name, numbers, &rest) : NULL;
        if (!row || !row->ours || row->whole || strcmp(rest, ".bias")) continue;
        *of = row->ours + (begins(row->ours, "blk.#.") ? strlen("blk.#.") : 0);
        return t;
    }
    return NULL;
}

/* Piece by piece: it may be gigabytes, from a slow disk. */
static weft_status same_tensor(const wf_gguf_tensor *a, const wf_safetensor *b, bool *same)
{
    const uint64_t piece = 4u << 20;
    *same = a->dtype == b->dtype && a->bytes == b->bytes;
    for (uint64_t at = 0; *same && at < a->bytes; at += piece) {
        WF_TRY(wf_stop_now());
        *same = !memcmp((const uint8_t *)a->data + at, (const uint8_t *)b->data + at, WF_MIN(piece, a->bytes - at));
    }
    return WEFT_OK;
}

/* A model that ties the output to the embedding table may still store it twice. Where the two differ the output is what
 * was trained, as transformers has it. */
static weft_status add_tied(wf_gguf *g, const wf_folder_name *names, const wf_safetensor *head)
{
    bool same = false;
    for (size_t i = 0; i < g->n_tensors && !same; i++)
        if (!strcmp(g->tensors[i].name.data, "token_embd.weight")) WF_TRY(same_tensor(&g->tensors[i], head, &same));
    if (same) return WEFT_OK;
    wf_log(WEFT_LOG_WARN, "tie_word_embeddings is true, but lm_head.weight is not the embedding table: it is kept");
    return add_tensor(g, names, head);
}

static weft_status add_tensors(wf_gguf *g, const wf_safetensors *w, const wf_folder_name *names, bool tied,
                               bool pooled)
{
    const wf_safetensor *head = wf_safetensors_find(w, "lm_head.weight");
    if (!head) head = wf_safetensors_find(w, "language_model.lm_head.weight");
    if (!tied && !head && !pooled && w->n_tensors)
        return wf_fail(WEFT_ERR_FORMAT, "tensor 'lm_head.weight' is missing, and tie_word_embeddings is not true");
    uint64_t total = 0, done = 0;
    char buf[256];
    bool vision = false;
    for (size_t i = 0; i < w->n_tensors; i++) total += w->tensors[i].bytes;
    for (size_t i = 0; i < w->n_tensors; done += w->tensors[i++].bytes) {
        WF_TRY(wf_stop_now());
        wf_report("read", total ? (double)done / (double)total : 0);
        if (!tied || &w->tensors[i] != head) WF_TRY(add_tensor(g, names, &w->tensors[i]));
        vision |= !text_name(w->tensors[i].name, buf);
    }
    if (vision) wf_log(WEFT_LOG_WARN, "%s has a vision tower, which is left out: it reads text only", g->path);
    return tied && head ? add_tied(g, names, head) : WEFT_OK;
}

/* ---- the folder ------------------------------------------------------------------------------------- */

static weft_status read_model(wf_gguf *g, wf_safetensors *w)
{
    char path[PATH_MAX];
    const char *class;
    const wf_arch *arch;
    bool tied, bare, pooled = false;
    snprintf(path, sizeof path, "%s/config.json", g->path);
    WF_TRY(wf_folder_config(g, path, &arch, &class, &tied, &bare));
    g->folder->names = arch->names;
    weft_status s = wf_folder_pooling(g, arch->name, class, bare, &pooled);
    if (!s) s = add_tensors(g, w, arch->names, tied, pooled);
    return s ? wf_fail_context(s, "%s", g->path) : WEFT_OK;
}

/* ---- chat templates ----------------------------------------------------------------------------------- */

#define MAX_TEMPLATE  (16u << 20)
#define MAX_TEMPLATES 64
#define MAX_NAME      64

typedef struct templates { /* of a folder: the names of those besides the default, as an array of GGUF holds them */
    wf_gguf *g;
    char names[MAX_TEMPLATES * (8 + MAX_NAME)];
    size_t bytes, n;
} templates;

/* As llama.cpp's converter names it: letters, digits and _. */
static size_t clean_name(const char *name, char out[MAX_NAME])
{
    size_t n = 0;
    for (; name[n] && n < MAX_NAME; n++)
        out[n] = (name[n] | 32) >= 'a' && (name[n] | 32) <= 'z' ? name[n]
                 : name[n] >= '0' && name[n] <= '9'             ? name[n]
                                                                : '_';
    return n;
}

static weft_status add_template(templates *t, const char *name, const char *text)
{
    char key[128], clean[MAX_NAME];
    size_t n = clean_name(name, clean);
    if (!strcmp(name, "default")) return wf_folder_str(t->g, "tokenizer.chat_template", text);
    if (t->n == MAX_TEMPLATES)
        return wf_fail(WEFT_ERR_UNSUPPORTED, "%s has more than %d chat templates", t->g->path, MAX_TEMPLATES);
    snprintf(key, sizeof key, "tokenizer.chat_template.%.*s", (int)n, clean);
    memcpy(t->names + t->bytes, &(uint64_t){n}, 8);
    memcpy(t->names + t->bytes + 8, clean, n);
    t->bytes += 8 + n, t->n++;
    return n ? wf_folder_str(t->g, key, text)
             : wf_fail(WEFT_ERR_FORMAT, "%s has a chat template without a name", t->g->path);
}

/* One text, or several with names. */
static weft_status templates_of_config(templates *t)
{
    wf_json *config;
    WF_TRY(wf_json_load_of(t->g->path, "tokenizer_config.json", MAX_TEMPLATE, WF_JSON_AN_OBJECT, &config));
    const wf_json *all = wf_json_get(config, "chat_template");
    weft_status s = wf_json_is(all, WF_JSON_STRING) ? add_template(t, "default", wf_json_text(all)) : WEFT_OK;
    WF_JSON_EACH(one, all) {
        const char *name = wf_json_text(wf_json_get(one, "name")), *text = wf_json_text(wf_json_get(one, "template"));
        if (!s && name && text) s = add_template(t, name, text);
    }
    wf_json_free(config);
    return s;
}

static weft_status template_of_file(templates *t, const char *path, const char *name)
{
    char *text;
    size_t len;
    WF_TRY(wf_need_regular(path));
    WF_TRY(wf_read_file(path, MAX_TEMPLATE, &text, &len));
    weft_status s = add_template(t, name, text);
    free(text);
    return s;
}

static bool ends_with(const char *s, const char *end)
{
    size_t n = strlen(s), m = strlen(end);
    return n > m && !strcmp(s + n - m, end);
}

static int is_template(const struct dirent *e) { return ends_with(e->d_name, ".jinja"); }

static weft_status templates_of_dir(templates *t, const char *dir)
{
    char path[PATH_MAX], name[MAX_NAME + 1];
    struct dirent **list = NULL;
    int n = scandir(dir, &list, is_template, alphasort);
    weft_status s = WEFT_OK;
    for (int i = 0; i < n; i++) {
        bool fits = (size_t)snprintf(path, sizeof path, "%s/%s", dir, list[i]->d_name) < sizeof path;
        snprintf(name, sizeof name, "%.*s", (int)(strlen(list[i]->d_name) - strlen(".jinja")), list[i]->d_name);
        if (!s && fits) s = template_of_file(t, path, name);
        free(list[i]);
    }
    free(list);
    return s;
}

/* In files of their own since transformers 4.50, before in tokenizer_config.json, which counts where there is no file.
 */
static weft_status find_templates(templates *t)
{
    char path[PATH_MAX];
    struct stat st;
    snprintf(path, sizeof path, "%s/chat_template.jinja", t->g->path);
    if (!lstat(path, &st)) WF_TRY(template_of_file(t, path, "default"));
    snprintf(path, sizeof path, "%s/additional_chat_templates", t->g->path);
    WF_TRY(templates_of_dir(t, path));
    return t->n || has_key(t->g, "tokenizer.chat_template") ? WEFT_OK : templates_of_config(t);
}

/* Of a folder without weights, and without the tokenizer that would make it a vocabulary: what says more than that they
 * are missing. */
static weft_status check_lacks(const char *folder)
{
    char path[PATH_MAX];
    struct stat st;
    WF_TRY(wf_folder_no_model(folder));
    snprintf(path, sizeof path, "%s/tokenizer.json", folder);
    if (!lstat(path, &st)) return WEFT_OK;
    snprintf(path, sizeof path, "%s/config.json", folder);
    return wf_folder_class(path);
}

/* weights false: as if it had none. */
static weft_status read_folder(wf_gguf *g, bool weights)
{
    wf_safetensors *w;
    templates t = {.g = g};
    WF_TRY(wf_safetensors_open(g->path, &w));
    g->folder->weights = w;
    if (!w->n_tensors) WF_TRY(check_lacks(g->path));
    g->maps = w->maps, g->n_maps = w->n_maps; /* from here on g closes them */
    w->maps = NULL, w->n_maps = 0;
    const char *slash = strrchr(g->path, '/');
    WF_TRY(wf_folder_str(g, "general.name", slash && slash[1] ? slash + 1 : g->path));
    WF_TRY(wf_folder_str(g, "tokenizer.ggml.model", "tokenizer.json"));
    WF_TRY(find_templates(&t));
    if (t.n) WF_TRY(wf_folder_array(g, "tokenizer.chat_templates", WF_GGUF_STRING, t.n, t.names, t.bytes));
    WF_TRY(wf_sampling_of_folder(g));
    if (w->n_tensors && weights) WF_TRY(read_model(g, w)); /* without weights it is a vocabulary */
    return wf_gguf_index(g);
}

weft_status wf_folder_new(const char *path, wf_gguf **out)
{
    WF_TRY(wf_gguf_new(path, out));
    (*out)->folder = wf_calloc(1, sizeof *(*out)->folder);
    if ((*out)->folder) return WEFT_OK;
    wf_gguf_close(*out);
    *out = NULL;
    return WEFT_ERR_NOMEM;
}

static weft_status open_folder(const char *path, bool weights, wf_gguf **out)
{
    wf_gguf *g;
    WF_TRY(wf_folder_new(path, &g));
    for (size_t n = strlen(g->path); n > 1 && g->path[n - 1] == '/';) g->path[--n] = 0;
    weft_status s = read_folder(g, weights);
    if (s) wf_gguf_close(g);
    else *out = g;
    return s;
}

/* ---- adapters ------------------------------------------------------------------------------------------- */

/* "base_model.model.NAME.lora_A.weight" is the A of the model's "NAME.weight". */
static weft_status add_adapter_tensor(wf_gguf *g, const wf_folder_name *names, const wf_safetensor *from)
{
    static const char prefix[] = "base_model.model.", *const ends[] = {".lora_A.weight", ".lora_B.weight"};
    const wf_folder_name *row;
    const char *ours;
    char name[256];
    size_t i = 0, n = strlen(from->name);
    while (i < WF_LEN(ends) && !ends_with(from->name, ends[i])) i++;
    if (i == WF_LEN(ends) || !begins(from->name, prefix) || n >= sizeof name || from->n_dims != 2 || from->dtype < 0)
        return wf_fail(WEFT_ERR_UNSUPPORTED, "tensor '%.200s' is neither the A nor the B of a matrix in BF16, F16 or "
                       "F32", from->name);
    n -= strlen(prefix) + strlen(ends[i]);
    snprintf(name, sizeof name, "%.*s.weight", (int)n, from->name + strlen(prefix));
    WF_TRY(translate(g, names, name, &row, &ours));
    if (!ours || row->change)
        return wf_fail(WEFT_ERR_UNSUPPORTED, "tensor '%.200s': adapters of this matrix are not supported", from->name);
    snprintf(name, sizeof name, "%s.lora_%c", ours, "ab"[i]);
    wf_gguf_tensor t = {.n_dims = 2, .dims = {from->shape[1], from->shape[0], 1, 1}, .ggml_type =
                        wf_dtypes[from->dtype].ggml, .dtype = from->dtype, .data = from->data, .bytes = from->bytes,
                        .offset = from->offset, .name = {wf_folder_keep(g, name, strlen(name)), strlen(name)}};
    return t.name.data ? wf_folder_push(g, &t) : WEFT_ERR_NOMEM;
}

static weft_status read_adapter(wf_gguf *g, const wf_folder_name *names)
{
    char path[PATH_MAX];
    wf_safetensors *w;
    snprintf(path, sizeof path, "%s/adapter_model.safetensors", g->path);
    WF_TRY(wf_safetensors_open_file(path, &w));
    g->folder->weights = w;
    g->maps = w->maps, g->n_maps = w->n_maps; /* from here on g closes them */
    w->maps = NULL, w->n_maps = 0;
    for (size_t i = 0; i < w->n_tensors; i++) WF_TRY(add_adapter_tensor(g, names, &w->tensors[i]));
    return wf_gguf_index(g);
}

weft_status wf_folder_adapter(const char *path, const wf_arch *arch, wf_gguf **out)
{
    wf_gguf *g;
    *out = NULL;
    WF_TRY(wf_folder_new(path, &g));
    weft_status s = read_adapter(g, arch->names);
    if (s) wf_gguf_close(g);
    else *out = g;
    return s;
}

void wf_folder_close(struct wf_folder *f)
{
    if (!f) return;
    wf_safetensors_close(f->weights);
    for (size_t i = 0; i < f->n_kept; i++) free(f->kept[i]);
    free(f->kept);
    free(f);
}

weft_status wf_model_file_open(const char *path, wf_gguf **out)
{
    struct stat st;
    *out = NULL;
    if (!stat(path, &st) && S_ISDIR(st.st_mode)) return open_folder(path, true, out);
    if (ends_with(path, ".safetensors") || ends_with(path, ".json"))
        return wf_fail(
            WEFT_ERR_ARG,
            "%s is one file of a model: pass the folder that it lies in, with its config.json and tokenizer.json",
            path);
    return wf_gguf_open(path, out);
}

weft_status wf_folder_vocabulary(const char *path, wf_gguf **out)
{
    struct stat st;
    *out = NULL;
    if (stat(path, &st) || !S_ISDIR(st.st_mode)) return WEFT_ERR_UNSUPPORTED;
    return open_folder(path, false, out);
}
