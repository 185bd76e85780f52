/* comm: the front of the implementations, and the sum that all of them make. See comm.h. */
#include "dist/comm.h"

weft_status wf_comm_all_reduce(wf_comm *c, void *data, uint64_t n, enum wf_dtype dtype)
{
    return n ? c->fns->all_reduce(c, data, n, dtype) : WEFT_OK;
}

weft_status wf_comm_gather(wf_comm *c, const void *part, uint64_t rows, uint64_t row_bytes, void *whole)
{
    return rows ? c->fns->gather(c, part, rows, row_bytes, whole) : WEFT_OK;
}

weft_status wf_comm_send(wf_comm *c, uint32_t to, uint32_t tag, const void *data, uint64_t bytes)
{
    return c->fns->send(c, to, tag, data, bytes);
}

weft_status wf_comm_receive(wf_comm *c, uint32_t from, uint32_t tag, void *data, uint64_t bytes)
{
    return c->fns->receive(c, from, tag, data, bytes);
}

void wf_comm_fail(wf_comm *c, const char *message)
{
    c->fns->fail(c, message);
}

void wf_comm_close(wf_comm *c)
{
    if (c) c->fns->close(c);
}

/* In pieces that stay in a core's cache. */
void wf_comm_sum(void *sum, const void *const *arrays, uint32_t ranks, uint64_t n, enum wf_dtype dtype)
{
    enum { PIECE = 1024 };
    const wf_dtype_info *d = &wf_dtypes[dtype];
    float all[PIECE], one[PIECE];
    for (uint64_t at = 0, many; at < n; at += many) {
        uint64_t offset = wf_dtype_bytes(dtype, at);
        many = WF_MIN(n - at, (uint64_t)PIECE);
        d->decode((const uint8_t *)arrays[0] + offset, all, many);
        for (uint32_t r = 1; r < ranks; r++) {
            d->decode((const uint8_t *)arrays[r] + offset, one, many);
            for (uint64_t i = 0; i < many; i++) all[i] += one[i];
        }
        d->encode(all, (uint8_t *)sum + offset, many);
    }
}
