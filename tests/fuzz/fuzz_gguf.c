/* fuzz_gguf: any bytes as a GGUF file; what opens is then read as a loader would. Without the four
 * bytes of magic and a version few inputs get far, so those are put in front. */
#include "model/files/gguf.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static volatile size_t sink;

static weft_status take(void *user, uint64_t i, wf_str s)
{
    (void)user;
    sink += i;
    for (size_t k = 0; k < s.len; k++) sink += (unsigned char)s.data[k];
    return WEFT_OK;
}

static void read_value(const wf_gguf *g, const wf_gguf_kv *kv)
{
    char text[40], key[64];
    uint32_t u;
    float f;
    bool b;
    wf_str s;
    wf_gguf_print(kv, text, sizeof text);
    for (uint64_t i = 0; kv->type == WF_GGUF_ARRAY && i < kv->count; i++) sink += wf_gguf_num_at(kv, i) > 0;
    if (kv->key.len >= sizeof key) return;
    memcpy(key, kv->key.data, kv->key.len);
    key[kv->key.len] = 0;
    if (wf_gguf_find(g, key) != kv) abort();
    wf_gguf_u32(g, key, true, &u);
    wf_gguf_f32(g, key, true, &f);
    wf_gguf_bool(g, key, true, &b);
    wf_gguf_str(g, key, true, &s);
    wf_gguf_strings(g, key, true, NULL, take, NULL);
}

static void read_tensor(const wf_gguf_tensor *t)
{
    for (uint64_t i = 0; i < t->bytes; i++) sink += t->data[i];
    if (t->dtype < 0 || !wf_dtypes[t->dtype].decode) return;
    uint64_t n = t->dims[0] * t->dims[1] * t->dims[2] * t->dims[3];
    float *y = malloc(n * sizeof *y);
    if (y) wf_dtypes[t->dtype].decode(t->data, y, n);
    free(y);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t *file = malloc(size + 8);
    wf_gguf *g;
    if (!file) return 0;
    memcpy(file, "GGUF\3\0\0\0", 8);
    if (size) memcpy(file + 8, data, size);
    if (wf_gguf_open_memory(file, size + 8, "fuzz", &g)) {
        if (!*wf_error()) abort();
    } else {
        for (size_t i = 0; i < g->n_kv; i++) read_value(g, &g->kv[i]);
        for (size_t i = 0; i < g->n_tensors; i++) read_tensor(&g->tensors[i]);
        wf_gguf_close(g);
    }
    free(file);
    return 0;
}
