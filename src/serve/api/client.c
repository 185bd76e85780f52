/* client: who sends a request, as a number by which the engine lets clients take turns. With API keys it is the key;
 * else the address, of IPv6 its first 64 bits, which one subscriber has for himself. A proxy is believed only if
 * --trusted-proxy names it, since anybody can write X-Forwarded-For. */
#include "serve/api/internal.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { V4_AT = 12, V4_BITS = 8 * V4_AT };
static const unsigned char v4_prefix[V4_AT] = {
    [10] = 0xff, [11] = 0xff}; /* of an IPv4 address among those of IPv6: ::ffff:1.2.3.4 */

/* ---- addresses ----------------------------------------------------------------------------------------------- */

static bool parse_address(const char *text, unsigned char out[16], bool *v4)
{
    struct in_addr a;
    *v4 = inet_pton(AF_INET, text, &a) == 1;
    if (*v4) {
        memcpy(out, v4_prefix, V4_AT);
        memcpy(out + V4_AT, &a, 4);
    }
    return *v4 || inet_pton(AF_INET6, text, out) == 1;
}

static bool network_holds(const wf_network *n, const unsigned char a[16])
{
    unsigned bytes = n->bits / 8, rest = n->bits % 8;
    return !memcmp(n->address, a, bytes) && (!rest || !((n->address[bytes] ^ a[bytes]) >> (8 - rest)));
}

static bool is_trusted(const wf_server *s, const unsigned char a[16])
{
    for (size_t i = 0; i < s->n_proxies; i++)
        if (network_holds(&s->proxies[i], a)) return true;
    return false;
}

/* ---- --trusted-proxy ----------------------------------------------------------------------------------------- */

static bool read_network(const char *text, wf_network *out)
{
    char address[64], *end = NULL;
    const char *slash = strchr(text, '/');
    size_t n = slash ? (size_t)(slash - text) : strlen(text);
    bool v4;
    wf_copy(address, WF_MIN(n + 1, sizeof address), text);
    if (n >= sizeof address || !parse_address(address, out->address, &v4)) return false;
    unsigned first = v4 ? V4_BITS : 0;
    errno = 0;
    unsigned long bits = slash ? strtoul(slash + 1, &end, 10) : 128 - first;
    if (slash && (slash[1] < '0' || slash[1] > '9' || *end || errno || bits > 128 - first)) return false;
    out->bits = first + (unsigned)bits;
    return true;
}

bool wf_proxies_load(wf_server *s)
{
    s->proxies = wf_calloc(s->p.n_trusted_proxies + 1, sizeof *s->proxies);
    if (!s->proxies) return false;
    for (; s->n_proxies < s->p.n_trusted_proxies; s->n_proxies++) {
        const char *text = s->p.trusted_proxies[s->n_proxies];
        if (read_network(text, &s->proxies[s->n_proxies])) continue;
        wf_fail(WEFT_ERR_ARG, "--trusted-proxy %s: want an IP address, or a network as ADDRESS/BITS", text);
        return false;
    }
    return true;
}

/* ---- X-Forwarded-For ----------------------------------------------------------------------------------------- */

/* An address with spaces around it, and maybe with a port: 1.2.3.4:80, [::1]:80. false: it is none, and out stays. */
static bool read_address(const char *text, unsigned char out[16])
{
    char address[64];
    unsigned char a[16];
    bool v4;
    text += strspn(text, " \t");
    bool bracket = *text == '[';
    text += bracket;
    const char *colon = strchr(text, ':');
    size_t n = strcspn(text, bracket ? "]" : colon && !strchr(colon + 1, ':') ? ": \t" : " \t");
    if (n >= sizeof address) return false;
    wf_copy(address, n + 1, text);
    if (!parse_address(address, a, &v4)) return false;
    memcpy(out, a, 16);
    return true;
}

/* Each proxy appends who asked it. So from the right, those that are trusted are passed over; what is left of the first
 * that is not, anybody may have written. */
static void pass_proxies(const wf_server *s, char *list, unsigned char a[16])
{
    for (char *comma; is_trusted(s, a) && (comma = strrchr(list, ',')); *comma = 0)
        if (!read_address(comma + 1, a)) return;
}

uint64_t wf_client_of(const wf_server *s, const wf_httpd_request *r)
{
    unsigned char a[16];
    uint64_t id = 0;
    wf_text list = {0};
    if (s->n_keys) return wf_key_find(s, r);
    memcpy(a, r->address, 16);
    for (const char *v = NULL; is_trusted(s, r->address) && (v = wf_httpd_field(r, "X-Forwarded-For", v));) {
        wf_text_add(&list, ",", 1);
        wf_text_add(&list, v, strlen(v));
    }
    if (list.data && !list.failed) pass_proxies(s, list.data, a);
    free(list.data);
    bool is_v4 = !memcmp(a, v4_prefix, V4_AT);
    for (int i = 0; i < 8; i++) id = id << 8 | a[is_v4 ? 8 + i : i];
    return id;
}
