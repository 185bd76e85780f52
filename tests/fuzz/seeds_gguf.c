/* seeds_gguf: well-formed files, without their first 8 bytes, for fuzz_gguf to start from. Writes
 * one to each path it is given. */
#include "support/bytes.h"
#include "tensor/tensor.h"

#include <stdio.h>
#include <string.h>

/* One scalar and one array of every type. */
static void values(bytes *b)
{
    static const uint8_t size[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    char key[] = "aX";
    gguf_head(b, 3, 0, 2 * 12 + 2);
    gguf_kv_u32(b, "general.alignment", 64);
    gguf_kv_u32(b, "split.count", 1);
    for (uint32_t t = 0; t < sizeof size; t++) {
        if (t == 9) continue;
        key[1] = (char)('a' + t);
        key[0] = 's';
        gguf_key(b, key, t);
        if (size[t]) bytes_zero(b, size[t]);
        else bytes_str(b, "text");
        key[0] = 'a';
        gguf_array(b, key, t, 2);
        for (int i = 0; i < 2; i++)
            if (size[t]) bytes_zero(b, size[t]);
            else bytes_str(b, "item");
    }
}

/* A tensor of every type of the table, and one that is not read. */
static void tensors(bytes *b)
{
    enum { Q8_K = 15, Q8_K_BYTES = 292 };
    char name[] = "tX";
    uint64_t at = 0;
    gguf_head(b, 2, WF_N_DTYPES - 1, 1); /* all but K6 and K8, and one that is not read */
    gguf_kv_str(b, "general.architecture", "llama");
    for (int t = 0; t < WF_N_DTYPES; t++, at = (at + 31) / 32 * 32) {
        if (wf_dtypes[t].ggml == WF_NO_GGML) continue;
        name[1] = (char)('0' + t);
        gguf_tensor(b, name, 1 + (uint32_t)t % 4, (uint64_t[]){256, 1, 1, 1}, wf_dtypes[t].ggml, at);
        at += wf_dtype_bytes((enum wf_dtype)t, 256);
    }
    gguf_tensor(b, "unread", 1, (uint64_t[]){256}, Q8_K, at);
    bytes_align(b, 32);
    bytes_zero(b, at + Q8_K_BYTES);
}

int main(int argc, char **argv)
{
    void (*const seeds[])(bytes *) = {values, tensors};
    for (int i = 1; i < argc && i < 3; i++) {
        bytes b = {0};
        seeds[i - 1](&b);
        FILE *f = fopen(argv[i], "wb");
        if (!f || fwrite(b.data + 8, 1, b.len - 8, f) != b.len - 8 || fclose(f)) return 1;
        bytes_free(&b);
    }
    return 0;
}
