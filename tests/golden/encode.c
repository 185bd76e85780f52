/* encode: float32 from the standard input, as blocks of a format on the standard output: for tests of formats that
 * `weft convert` does not write.
 *
 * Usage: encode FORMAT
 */
#include "tensor/tensor.h"

#include <stdio.h>
#include <string.h>

static const wf_dtype_info *find(const char *name)
{
    for (size_t i = 0; i < WF_N_DTYPES; i++)
        if (!strcmp(wf_dtypes[i].name, name)) return &wf_dtypes[i];
    return NULL;
}

int main(int argc, char **argv)
{
    float x[256];
    unsigned char blocks[sizeof x];
    const wf_dtype_info *d = argc == 2 ? find(argv[1]) : NULL;
    if (!d || 256 % d->block) return 2;
    size_t bytes = 256 / d->block * d->block_bytes, n;
    while ((n = fread(x, sizeof *x, 256, stdin)) == 256) {
        d->encode(x, blocks, 256);
        if (fwrite(blocks, 1, bytes, stdout) != bytes) return 1;
    }
    return n || fflush(stdout) ? 1 : 0;
}
