/* gguf_write: see gguf_write.h. */
#include "model/files/gguf_write.h"

typedef struct writer {
    FILE *f;
    uint64_t n;
} writer;

static void put(writer *w, const void *data, uint64_t n)
{
    if (n) fwrite(data, 1, n, w->f);
    w->n += n;
}

static void put_u32(writer *w, uint32_t v) { put(w, &v, sizeof v); }

static void put_u64(writer *w, uint64_t v) { put(w, &v, sizeof v); }

static void put_str(writer *w, wf_str s)
{
    put_u64(w, s.len);
    put(w, s.data, s.len);
}

uint64_t wf_gguf_place(wf_gguf *g)
{
    uint64_t at = 0;
    for (size_t i = 0; i < g->n_tensors; i++) {
        wf_gguf_tensor *t = &g->tensors[i];
        uint32_t block = 1, bytes = 0;
        wf_ggml_type_size(t->ggml_type, &block, &bytes);
        t->offset = at;
        t->bytes = t->dims[0] * t->dims[1] * t->dims[2] * t->dims[3] / block * bytes;
        at += WF_UP(t->bytes, WF_GGUF_ALIGN);
    }
    return at;
}

uint64_t wf_gguf_write_head(const wf_gguf *g, FILE *f)
{
    static const char zeros[WF_GGUF_ALIGN];
    writer w = {.f = f};
    put(&w, "GGUF", 4);
    put_u32(&w, 3);
    put_u64(&w, g->n_tensors);
    put_u64(&w, g->n_kv);
    for (size_t i = 0; i < g->n_kv; i++) {
        put_str(&w, g->kv[i].key);
        put_u32(&w, g->kv[i].type);
        if (g->kv[i].type == WF_GGUF_ARRAY) put_u32(&w, g->kv[i].item), put_u64(&w, g->kv[i].count);
        if (g->kv[i].type == WF_GGUF_STRING) put_u64(&w, g->kv[i].bytes);
        put(&w, g->kv[i].data, g->kv[i].bytes);
    }
    for (size_t i = 0; i < g->n_tensors; i++) {
        const wf_gguf_tensor *t = &g->tensors[i];
        put_str(&w, t->name);
        put_u32(&w, t->n_dims);
        for (uint32_t k = 0; k < t->n_dims; k++) put_u64(&w, t->dims[k]);
        put_u32(&w, t->ggml_type);
        put_u64(&w, t->offset);
    }
    put(&w, zeros, WF_UP(w.n, WF_GGUF_ALIGN) - w.n);
    return w.n;
}
