/* comm: the front of the implementations. See comm.h. */
#include "dist/comm.h"

weft_status wf_comm_exchange(wf_comm *c, const void *own, uint64_t bytes, uint32_t takers, void *room,
                             const void **all)
{
    return c->fns->exchange(c, own, bytes, takers, room, all);
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
