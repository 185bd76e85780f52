/* model: weft_model, a model file with its vocabulary and hyperparameters. Needs no device. */
#include "engine/engine.h"
#include "model/files/recipe.h"
#include "model/files/sampling.h"
#include "model/files/shape.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *keep_string(struct weft_model *m, const char *data, size_t len)
{
    char *s = wf_calloc(len + 1, 1);
    if (!s) return NULL;
    memcpy(s, data, len);
    return m->strings[m->n_strings++] = s;
}

static weft_status describe_string(struct weft_model *m, const char *key, const char **out)
{
    wf_str s = {0};
    WF_TRY(wf_gguf_str(m->file, key, false, &s));
    *out = s.data ? keep_string(m, s.data, s.len) : NULL;
    return s.data && !*out ? WEFT_ERR_NOMEM : WEFT_OK;
}

static weft_status describe_strings(struct weft_model *m, const char *type)
{
    struct weft_model_info *i = &m->info;
    WF_TRY(describe_string(m, "general.name", &i->name));
    WF_TRY(describe_string(m, "general.architecture", &i->arch));
    WF_TRY(describe_string(m, "tokenizer.ggml.model", &i->vocab_type));
    WF_TRY(describe_string(m, "tokenizer.ggml.pre", &i->pre_tokenizer));
    WF_TRY(describe_string(m, "tokenizer.chat_template", &i->chat_template));
    WF_TRY(describe_string(m, "tokenizer.chat_template.tool_use", &i->tool_template));
    uint32_t number = UINT32_MAX; /* only a name: a file with nonsense here is as good as one without */
    i->file_type = wf_gguf_u32(m->file, "general.file_type", false, &number) ? NULL : wf_file_type_name(number);
    i->path = m->file->path;
    if (m->file->random) i->shape_type = keep_string(m, type, strlen(type));
    return m->file->random && !i->shape_type ? WEFT_ERR_NOMEM : WEFT_OK;
}

static void describe_numbers(struct weft_model *m)
{
    struct weft_model_info *i = &m->info;
    const wf_hparams *h = &m->hp;
    i->gguf_version = m->file->version;
    i->n_layer = h->n_layer, i->n_head = h->n_head, i->n_kv_head = h->n_kv_head, i->head_dim = h->head_dim;
    i->hidden_size = h->hidden_size, i->intermediate_size = h->intermediate_size, i->context = h->context,
        i->rope_dim = h->n_rot;
    i->rope_base = h->rope_base, i->rope_scale = h->rope_factor, i->norm_eps = h->eps;
    i->pooling = wf_pooling_name(h->pooling);
    i->window = h->window, i->window_period = h->window_period, i->local_rope_base = h->local_rope_base;
    i->n_vocab = wf_token_count(m->tokenizer);
    i->bos = wf_token_bos(m->tokenizer), i->eos = wf_token_eos(m->tokenizer);
    i->longest_token = wf_token_longest(m->tokenizer);
    i->file_bytes = wf_gguf_bytes(m->file), i->n_tensors = m->file->n_tensors, i->n_meta = m->file->n_kv;
    for (size_t t = 0; t < m->file->n_tensors; t++) {
        const wf_gguf_tensor *x = &m->file->tensors[t];
        i->n_params += x->dims[0] * x->dims[1] * x->dims[2] * x->dims[3];
        i->weight_bytes += x->bytes;
    }
    i->n_expert = h->n_expert, i->n_expert_used = h->n_expert_used;
    /* What a token does not read of the experts that it does not take. */
    uint64_t idle = (uint64_t)(h->n_expert - h->n_expert_used) * h->n_layer, size = h->expert_size,
        hidden = h->hidden_size;
    bool biases = wf_gguf_tensor_find(m->file, "blk.0.ffn_down_exps.bias");
    i->n_active = i->n_params - idle * (3 * size * hidden + (biases ? 2 * size + hidden : 0));
}

/* Finds missing tensors and wrong shapes here, before any device is opened. */
static weft_status open_arch(struct weft_model *m)
{
    wf_graph g = {0};
    wf_weights w = {0};
    if (!m->file->n_tensors && m->file->folder) return wf_folder_no_weights(m->file->path);
    WF_TRY(wf_arch_find(m->file, &m->arch));
    WF_TRY(m->arch->hparams(m->file, &m->hp));
    if (m->hp.n_vocab != wf_token_count(m->tokenizer))
        return wf_fail(WEFT_ERR_FORMAT,
                       "%s: tensor 'token_embd.weight' has %u rows but tokenizer.ggml.tokens has %u entries",
                       m->file->path, m->hp.n_vocab, wf_token_count(m->tokenizer));
    wf_build_params b = wf_build_params_of(NULL, 1, 16);
    weft_status s = wf_model_build(m->arch, m->file, &m->hp, &b, &g, &w);
    m->info.n_embedding = s == WEFT_OK && g.pooled ? g.values[g.logits].cols : m->hp.hidden_size;
    wf_graph_free(&g);
    wf_weights_free(&w);
    return s;
}

/* Of a model that weft cannot compute: why, which is the last error. */
static weft_status note_unsupported(struct weft_model *m)
{
    m->info.unsupported = keep_string(m, weft_last_error(), strlen(weft_last_error()));
    return m->info.unsupported ? WEFT_OK : WEFT_ERR_NOMEM;
}

/* A model that weft cannot compute still has a vocabulary and a description. */
static weft_status open_tensors(struct weft_model *m, bool vocab_only)
{
    if (vocab_only && !m->file->n_tensors) return WEFT_OK;
    weft_status s = open_arch(m);
    if (!vocab_only || s != WEFT_ERR_UNSUPPORTED) return s;
    m->arch = NULL;
    m->hp = (wf_hparams){0};
    return note_unsupported(m);
}

static weft_status open_file(const struct weft_model_params *p, wf_gguf **out)
{
    if (p->path && p->shape)
        return wf_fail(WEFT_ERR_ARG, "weft_model_open: path and shape exclude each other: set one of them");
    if (p->path && !strcmp(p->path, WEFT_DEMO)) return wf_demo_open(out);
    if (p->path) return wf_model_file_open(p->path, out);
    if (p->shape) return wf_shape_open(p->shape, p->type ? p->type : "F16", p->layers, out);
    return wf_fail(
        WEFT_ERR_ARG,
        "weft_model_open: no model is named: set path to a GGUF file, to a folder or to WEFT_DEMO, or set a shape");
}

static weft_status keep_name(struct weft_model *m, const char *name, const char **out)
{
    *out = name ? keep_string(m, name, strlen(name)) : NULL;
    return name && !*out ? WEFT_ERR_NOMEM : WEFT_OK;
}

static weft_status keep_names(struct weft_model *m, const struct weft_model_params *p)
{
    m->opened.layers = p->layers;
    WF_TRY(keep_name(m, p->path, &m->opened.path));
    WF_TRY(keep_name(m, p->shape, &m->opened.shape));
    return keep_name(m, p->type, &m->opened.type);
}

/* What can be given up. */
static weft_status read_model(struct weft_model *m, const struct weft_model_params *p)
{
    WF_TRY(wf_stop_now());
    weft_status s = open_file(p, &m->file);
    /* the tokenizer of a folder needs nothing of its weights */
    if (s == WEFT_ERR_UNSUPPORTED && p->vocab_only && p->path) {
        WF_TRY(note_unsupported(m));
        s = wf_folder_vocabulary(p->path, &m->file);
    }
    WF_TRY(s);
    WF_TRY(wf_stop_now());
    WF_TRY(wf_tokenizer_from_gguf(m->file, &m->tokenizer));
    WF_TRY(wf_stop_now());
    WF_TRY(open_tensors(m, p->vocab_only));
    WF_TRY(keep_names(m, p));
    return describe_strings(m, p->type ? p->type : "F16");
}

weft_status weft_model_open(const struct weft_model_params *p, struct weft_model **out)
{
    WF_NOT_NULL(out);
    *out = NULL;
    WF_NOT_NULL(p);
    WF_TRY(WF_UNUSED(p));
    uint64_t began = wf_now_ns();
    struct weft_model *m = wf_calloc(1, sizeof *m);
    if (!m) return WEFT_ERR_NOMEM;
    atomic_init(&m->users, 1);
    char path[PATH_MAX];
    struct weft_model_params named = *p;
    named.path = wf_models_find(p->path, path);
    wf_stopper before = wf_stop_by(p->stop, p->user);
    wf_listener heard = wf_report_to(p->on_progress, p->user);
    weft_status s = read_model(m, &named);
    wf_report_to(heard.fn, heard.user);
    wf_stop_by(before.fn, before.user);
    if (s != WEFT_OK) {
        weft_model_close(m);
        return s == WEFT_ERR_CANCELLED ? wf_fail(s, "opening the model was cancelled") : s;
    }
    describe_numbers(m);
    m->open_ns = wf_now_ns() - began;
    *out = m;
    return WEFT_OK;
}

void wf_model_use(const struct weft_model *m)
{
    atomic_fetch_add(&((struct weft_model *)m)->users, 1); /* const means the model, not the count */
}

void weft_model_close(struct weft_model *m)
{
    if (!m || atomic_fetch_sub(&m->users, 1) > 1) return;
    for (size_t i = 0; i < m->n_strings; i++) free(m->strings[i]);
    wf_token_trie_free(m->tokens);
    if (m->tokenizer) wf_tokenizer_destroy(m->tokenizer);
    if (m->file) wf_gguf_close(m->file);
    free(m);
}

const struct weft_model_info *weft_model_info(const struct weft_model *m)
{
    return m ? &m->info : NULL;
}

unsigned weft_model_sampling(const struct weft_model *m, struct weft_sampling *out)
{
    return out ? wf_sampling_stated(m ? m->file : NULL, out) : 0;
}

void weft_model_tensor(const struct weft_model *m, size_t i, struct weft_tensor_info *out)
{
    if (!m || !out) return;
    *out = (struct weft_tensor_info){0};
    if (i >= m->file->n_tensors) return;
    const wf_gguf_tensor *t = &m->file->tensors[i];
    *out = (struct weft_tensor_info){.dtype = wf_ggml_type_name(t->ggml_type), .n_dims = t->n_dims, .bytes = t->bytes,
                                     .offset = t->offset};
    snprintf(out->name, sizeof out->name, "%.*s", (int)t->name.len, t->name.data);
    memcpy(out->dims, t->dims, sizeof out->dims);
}

void weft_model_meta(const struct weft_model *m, size_t i, char *key, size_t key_cap, char *value, size_t value_cap)
{
    if (!m || (!key && key_cap) || (!value && value_cap)) return;
    snprintf(key, key_cap, "%s", "");
    snprintf(value, value_cap, "%s", "");
    if (i >= m->file->n_kv) return;
    const wf_gguf_kv *kv = &m->file->kv[i];
    snprintf(key, key_cap, "%.*s", (int)kv->key.len, kv->key.data);
    wf_gguf_print(kv, value, value_cap);
}
