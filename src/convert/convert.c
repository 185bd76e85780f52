/* convert: weft_convert, a model in another storage format as one GGUF file.
 *
 * The metadata is the model's own. A folder's is under GGUF's keys already (model/files/folder.h); its tokenizer joins
 * it here.
 *
 * Two things of tensors change besides the format. A GGUF file stacks the matrices of a layer's experts
 * ("ffn_up_exps"), where folders, and old files, have one tensor an expert ("ffn_up.3"). And the rows of q and k of a
 * folder stand in halves; where the architecture's files interleave them, they move. */
#include "convert/encode.h"
#include "model/files/folder.h"
#include "model/files/gguf_write.h"
#include "model/files/recipe.h"
#include "model/model.h"
#include "text/text.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define QUANTISATION_VERSION 2 /* of ggml's block formats */

typedef struct work {
    const wf_gguf *in;
    const wf_recipe *recipe;
    wf_gguf *out;
    struct weft_convert_result *result;
    wf_encode_tensor *list; /* by tensor of in */
    struct place {
        size_t tensor;   /* of out */
        uint32_t expert; /* in it */
    } *places;
} work;

/* ---- experts ----------------------------------------------------------------------------------------- */

/* Of "blk.0.ffn_up.3.weight", one expert's: the name of all of them, "blk.0.ffn_up_exps.weight", and the expert. */
static bool is_expert(const wf_gguf_tensor *t, char all[96], uint32_t *expert)
{
    static const char *const parts[] = {".ffn_gate.", ".ffn_up.", ".ffn_down."};
    for (size_t i = 0; i < WF_LEN(parts); i++) {
        const char *end = t->name.data + t->name.len,
                   *at = memmem(t->name.data, t->name.len, parts[i], strlen(parts[i]));
        if (!at) continue;
        at += strlen(parts[i]);
        const char *rest = at;
        for (*expert = 0; rest < end && rest < at + 5 && *rest >= '0' && *rest <= '9'; rest++)
            *expert = *expert * 10 + (uint32_t)(*rest - '0');
        if (rest == at || rest == end || *rest != '.') continue;
        snprintf(all, 96, "%.*s_exps%.*s", (int)(at - 1 - t->name.data), t->name.data, (int)(end - rest), rest);
        return true;
    }
    return false;
}

static size_t find_out(const work *w, const char *name)
{
    size_t i = w->out->n_tensors; /* experts of a layer come together */
    while (i-- > 0)
        if (w->out->tensors[i].name.len == strlen(name) && !memcmp(w->out->tensors[i].name.data, name, strlen(name)))
            return i;
    return w->out->n_tensors;
}

/* ---- formats ----------------------------------------------------------------------------------------- */

static weft_status push_tensor(const work *w, const wf_gguf_tensor *t)
{
    wf_gguf_tensor to = *t;
    /* The type of a tensor in the output. Integers, which are no weights, are copied. */
    bool other = false;
    uint32_t block = 1, bytes;
    wf_ggml_type_size(to.ggml_type, &block, &bytes);
    bool readable = to.dtype >= 0 && wf_dtypes[to.dtype].decode;
    if (!readable && block > 1)
        return wf_fail(WEFT_ERR_UNSUPPORTED, "tensor '%s' has type %s, which weft does not read; it reads %s",
                       WF_SHOW(to.name), wf_ggml_type_name(to.ggml_type), wf_weight_dtype_names);
    if (readable) {
        int before = to.dtype;
        to.dtype = (int)wf_recipe_dtype(w->recipe, &to, &other);
        to.ggml_type = wf_dtypes[to.dtype].ggml;
        w->result->n_other += other;
        w->result->n_again += wf_dtypes[before].block > 1 && to.dtype != before;
    }
    return wf_folder_push(w->out, &to);
}

static weft_status push_experts(const work *w, const wf_gguf_tensor *one, const char *name)
{
    wf_gguf_tensor all = *one;
    const char *kept = wf_folder_keep(w->out, name, strlen(name));
    if (!kept) return WEFT_ERR_NOMEM;
    if (one->n_dims > 2)
        return wf_fail(WEFT_ERR_FORMAT, "tensor '%s' has %u dimensions, want 2", WF_SHOW(one->name), one->n_dims);
    all.name = (wf_str){kept, strlen(name)};
    all.dims[all.n_dims++] = w->recipe->n_expert;
    return push_tensor(w, &all);
}

static weft_status add_tensor(work *w, size_t i)
{
    const wf_gguf_tensor *t = &w->in->tensors[i];
    char all[96];
    struct place *p = &w->places[i];
    *p = (struct place){w->out->n_tensors, 0};
    if (!w->recipe->n_expert || !is_expert(t, all, &p->expert)) return push_tensor(w, t);
    p->tensor = find_out(w, all);
    if (p->tensor == w->out->n_tensors) WF_TRY(push_experts(w, t, all));
    const wf_gguf_tensor *out = &w->out->tensors[p->tensor];
    bool alike = out->dims[0] == t->dims[0] && (t->n_dims < 2 || out->dims[1] == t->dims[1]) && t->n_dims <= 2;
    if (p->expert >= w->recipe->n_expert || !alike)
        return wf_fail(WEFT_ERR_FORMAT, "tensor '%s' is none of %u experts that are alike", WF_SHOW(t->name),
                       w->recipe->n_expert);
    return WEFT_OK;
}

/* No expert may be missing, and none is there twice, for names are unique. */
static weft_status check_whole(const work *w)
{
    uint64_t parts = 0, all = 0;
    for (size_t i = 0; i < w->in->n_tensors; i++) parts += w->list[i].to.bytes;
    for (size_t i = 0; i < w->out->n_tensors; i++) all += w->out->tensors[i].bytes;
    return parts == all ? WEFT_OK
                        : wf_fail(WEFT_ERR_FORMAT, "%s: some of its %u experts have no weights in some layer",
                                  w->in->path, w->recipe->n_expert);
}

static weft_status list_all(work *w, uint64_t *bytes)
{
    for (size_t i = 0; i < w->in->n_tensors; i++) WF_TRY(add_tensor(w, i));
    *bytes = wf_gguf_place(w->out);
    /* Each tensor's part of the one that it goes to. */
    wf_hparams hp = {0};
    bool interleave = false, as_file = false;
    /* Of a folder whose rows of q and k must be interleaved: as a GGUF file it would have the pairs side by side. */
    const wf_arch *arch;
    if (w->in->folder) {
        WF_TRY(wf_arch_find(w->in, &arch));
        WF_TRY(arch->hparams(w->in, &hp));
        WF_TRY(wf_arch_halves(arch, w->in, false, &as_file));
        interleave = hp.neox && !as_file;
    }
    for (size_t i = 0; i < w->in->n_tensors; i++) {
        const wf_gguf_tensor *from = &w->in->tensors[i];
        wf_gguf_tensor part = w->out->tensors[w->places[i].tensor];
        bool whole = part.n_dims == from->n_dims;
        part.bytes /= whole ? 1 : w->recipe->n_expert;
        part.offset += w->places[i].expert * part.bytes;
        w->list[i] = (wf_encode_tensor){.from = from, .to = part};
        uint64_t rows = from->n_dims == 1 ? from->dims[0] : from->dims[1];
        if (interleave && wf_is_rotated(from->name))
            w->list[i].pairs = (wf_pairs){hp.head_dim, hp.n_rot, rows / hp.head_dim * hp.head_dim};
    }
    w->result->n_tensors = w->out->n_tensors;
    return check_whole(w);
}

/* Adds the tensors to `out`, places them, and lists what is written where: *list, of in->n_tensors entries, which the
 * caller frees. Counts tensors into the result. *bytes: of all tensors in the file. */
static weft_status convert_tensors(const wf_gguf *in, const wf_recipe *r, wf_gguf *out,
                                   struct weft_convert_result *result, wf_encode_tensor **list, uint64_t *bytes)
{
    work w = {.in = in,
              .recipe = r,
              .out = out,
              .result = result,
              .list = wf_calloc(in->n_tensors, sizeof *w.list),
              .places = wf_calloc(in->n_tensors, sizeof *w.places)};
    weft_status s = w.list && w.places ? list_all(&w, bytes) : WEFT_ERR_NOMEM;
    free(w.places);
    *list = w.list;
    return s;
}

typedef struct conversion {
    const struct weft_convert_params *p;
    struct weft_convert_result *result;
    wf_gguf *in, *out;
    wf_recipe recipe;
    wf_encode_tensor *list;
} conversion;

/* ---- the output file ------------------------------------------------------------------------------- */

static weft_status check_output(const conversion *c)
{
    struct stat st;
    const char *path = c->p->out;
    if (!path || !*path) return wf_fail(WEFT_ERR_ARG, "the output file has no name (weft_convert_params.out)");
    if (stat(path, &st)) return WEFT_OK;
    if (!S_ISREG(st.st_mode)) return wf_fail(WEFT_ERR_IO, "cannot write %s: it is no file", path);
    for (size_t i = 0; i < c->in->n_maps; i++)
        if (wf_map_is_of(&c->in->maps[i], &st))
            return wf_fail(WEFT_ERR_ARG, "%s is the model that is to be converted: choose another name for the output",
                           path);
    return c->p->force
               ? WEFT_OK
               : wf_fail(WEFT_ERR_ARG,
                         "%s exists: choose another name for the output, or replace it (weft_convert_params.force)",
                         path);
}

/* ---- metadata -------------------------------------------------------------------------------------- */

static bool key_begins(wf_str key, const char *with)
{
    return key.len >= strlen(with) && !memcmp(key.data, with, strlen(with));
}

/* What is written anew, or was true of the old file only. */
static bool is_dropped(const conversion *c, wf_str key)
{
    static const char *const old[] = {"general.file_type", "general.quantization_version", "general.alignment",
                                      "split.", "quantize.imatrix."};
    for (size_t i = 0; i < WF_LEN(old); i++)
        if (key_begins(key, old[i])) return true;
    return c->in->folder && key_begins(key, "tokenizer.ggml.");
}

/* ---- writing ---------------------------------------------------------------------------------------- */

/* A disk without room says so now. Not every file system can reserve. */
static weft_status reserve_space(const wf_output *o, uint64_t bytes)
{
    int fd = fileno(o->f);
    bool fits = !fallocate(fd, 0, 0, (off_t)bytes);
    if (!fits && errno != ENOSPC && errno != EFBIG) fits = !ftruncate(fd, (off_t)bytes);
    return fits ? WEFT_OK
                : wf_fail(WEFT_ERR_IO, "cannot write %s, which takes %llu bytes: %s", o->path,
                          (unsigned long long)bytes, strerror(errno));
}

static weft_status write_file(conversion *c, const wf_output *o, uint64_t size)
{
    const struct weft_convert_params *p = c->p;
    uint64_t head = wf_gguf_write_head(c->out, o->f);
    if (fflush(o->f)) return wf_fail(WEFT_ERR_IO, "cannot write %s: %s", o->path, strerror(errno));
    WF_TRY(reserve_space(o, head + size));
    const wf_encode e = {.list = c->list,
                         .n = c->in->n_tensors,
                         .fd = fileno(o->f),
                         .data = head,
                         .path = o->path,
                         .threads = p->threads ? p->threads : (uint32_t)WF_MAX(sysconf(_SC_NPROCESSORS_ONLN), 1),
                         .on_progress = p->on_progress,
                         .stop = p->stop,
                         .user = p->user};
    WF_TRY(wf_encode_run(&e));
    if (wf_gguf_broken(c->in))
        return wf_fail(WEFT_ERR_IO, "%s changed while it was converted: convert it again", c->in->path);
    c->result->bytes = head + size;
    return WEFT_OK;
}

static weft_status convert_model(conversion *c)
{
    if (!c->in->n_tensors && c->in->folder) return wf_folder_no_weights(c->in->path);
    if (!c->in->n_tensors)
        return wf_fail(WEFT_ERR_ARG, "%s holds a vocabulary without a model: there is nothing to convert", c->in->path);
    WF_TRY(wf_recipe_open(c->p->type, c->in, &c->recipe));
    WF_TRY(wf_folder_new(c->p->out, &c->out));
    uint64_t size;
    WF_TRY(convert_tensors(c->in, &c->recipe, c->out, c->result, &c->list, &size));
    for (size_t i = 0; i < c->in->n_kv; i++)
        if (!is_dropped(c, c->in->kv[i].key)) WF_TRY(wf_folder_add(c->out, &c->in->kv[i]));
    WF_TRY(wf_folder_u32(c->out, "general.file_type", c->recipe.file_type));
    if (wf_dtypes[c->recipe.dtype].block > 1)
        WF_TRY(wf_folder_u32(c->out, "general.quantization_version", QUANTISATION_VERSION));
    WF_TRY(c->in->folder ? wf_tokenizer_to_gguf(c->in, c->out) : WEFT_OK);
    c->result->bytes_in = wf_gguf_bytes(c->in); /* from here on an error is no longer the model's */
    /* Under another name until it is complete. */
    wf_output o;
    WF_TRY(check_output(c));
    WF_TRY(wf_output_open(c->p->out, &o));
    weft_status s = write_file(c, &o, size), end = wf_output_end(&o, s == WEFT_OK);
    return s ? s : end;
}

weft_status weft_convert(const struct weft_convert_params *p, struct weft_convert_result *out)
{
    WF_NOT_NULL(p);
    WF_NOT_NULL(p->path);
    WF_NOT_NULL(p->out);
    WF_NOT_NULL(p->type);
    struct weft_convert_result result = {0};
    conversion c = {.p = p, .result = &result};
    WF_TRY(WF_UNUSED(p));
    wf_listener before = wf_report_to(p->on_progress, p->user);
    weft_status s = wf_model_file_open(p->path, &c.in);
    wf_report_to(before.fn, before.user);
    if (s == WEFT_OK) s = convert_model(&c);
    free(c.list);
    wf_gguf_close(c.out);
    wf_gguf_close(c.in);
    if (out) *out = result;
    return s;
}
