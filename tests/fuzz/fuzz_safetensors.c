/* fuzz_safetensors: any bytes as a safetensors file; what opens is then read from end to end. The input is header and
 * data, with the header's length taken from its first two bytes, because few inputs get far with eight. */
#include "model/files/safetensors.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static volatile size_t sink;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2) return 0;
    uint8_t *file = malloc(size + 6);
    wf_safetensors *s;
    if (!file) return 0;
    memset(file, 0, 8);
    memcpy(file, data, 2);
    if (size > 2) memcpy(file + 8, data + 2, size - 2);
    if (wf_safetensors_open_memory(file, size + 6, "fuzz", &s)) {
        if (!*wf_error()) abort();
    } else {
        uint64_t bytes = 0;
        for (size_t i = 0; i < s->n_tensors; i++) {
            const wf_safetensor *t = &s->tensors[i];
            if (wf_safetensors_find(s, t->name) != t) abort();
            for (uint64_t k = 0; k < t->bytes; k++) sink += t->data[k];
            bytes += t->bytes;
        }
        if (bytes + 8 + (data[0] | (size_t)data[1] << 8) != size + 6) abort(); /* no holes, no overlaps */
        wf_safetensors_close(s);
    }
    free(file);
    return 0;
}
