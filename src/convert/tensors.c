/* tensors: see tensors.h. */
#include "convert/tensors.h"
#include "model/files/folder.h"
#include "model/files/gguf_write.h"
#include "model/model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

weft_status wf_convert_tensors(const wf_gguf *in, const wf_recipe *r, wf_gguf *out, struct weft_convert_result *result,
                               wf_encode_tensor **list, uint64_t *bytes)
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
