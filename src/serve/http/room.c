/* room: which connection ends when there are too many. First those that ask for nothing, the oldest first and those
 * that never asked before others; then the oldest whose request has not arrived whole, of the client that has most
 * requests. */
#include "serve/http/conn.h"

#include <string.h>

#define SLOTS 256 /* clients whose numbers end alike count as one */

bool wf_httpd_count(wf_httpd_request *r, uint64_t client, bool known)
{
    wf_conn *c = (wf_conn *)r;
    c->client = client;
    c->asked = true;
    c->known |= known;
    c->since_ns = wf_now_ns(); /* its body has as much time as its head had */
    return ++c->http->n_asked <= c->http->p.max_connections;
}

void wf_room_uncount(wf_conn *c)
{
    c->http->n_asked -= c->asked;
    c->asked = false;
}

static wf_conn *longest_idle(const wf_httpd *h)
{
    wf_conn *best = NULL;
    for (wf_conn *c = h->conns; c; c = c->next) {
        if (c->asked || c->state != WF_CONN_READS) continue;
        if (c->lingers) return c;
        bool sooner = !best || c->known < best->known || (c->known == best->known && c->since_ns < best->since_ns);
        if (sooner) best = c;
    }
    return best;
}

static void count_requests(const wf_httpd *h, uint32_t n[SLOTS])
{
    memset(n, 0, SLOTS * sizeof *n);
    for (const wf_conn *c = h->conns; c; c = c->next) n[c->client % SLOTS] += c->asked;
}

static wf_conn *greediest(const wf_httpd *h, const uint32_t n[SLOTS])
{
    wf_conn *best = NULL;
    for (wf_conn *c = h->conns; c; c = c->next) {
        if (!c->asked || c->state != WF_CONN_READS) continue;
        uint32_t own = n[c->client % SLOTS], most = best ? n[best->client % SLOTS] : 0;
        if (own > most || (own == most && c->since_ns < best->since_ns)) best = c;
    }
    return best;
}

bool wf_room_make(wf_httpd *h)
{
    uint32_t n[SLOTS];
    wf_conn *c = longest_idle(h);
    if (!c) {
        count_requests(h, n);
        c = greediest(h, n);
    }
    if (c) wf_conn_drop(c);
    return c;
}

bool wf_httpd_displace(const wf_httpd_request *r)
{
    const wf_conn *own = (const wf_conn *)r;
    uint32_t n[SLOTS];
    count_requests(own->http, n);
    wf_conn *c = greediest(own->http, n);
    if (!c || n[c->client % SLOTS] <= n[own->client % SLOTS]) return false;
    wf_conn_drop(c);
    return true;
}
