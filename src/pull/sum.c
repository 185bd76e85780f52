/* sum: checksums as a file arrives, by OpenSSL's libcrypto: SHA-256, or SHA-1 as git names a file. */
#include "pull/internal.h"

#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool wf_is_sum(const char *text, size_t digits)
{
    return strlen(text) == digits && strspn(text, "0123456789abcdefABCDEF") == digits;
}

struct wf_sum {
    EVP_MD_CTX *md;
};

wf_sum *wf_sum_new(bool git, uint64_t size)
{
    char head[48];
    wf_sum *s = wf_calloc(1, sizeof *s);
    if (!s) return NULL;
    s->md = EVP_MD_CTX_new();
    if (!s->md || !EVP_DigestInit_ex(s->md, git ? EVP_sha1() : EVP_sha256(), NULL))
        return wf_sum_end(s, NULL), wf_fail(WEFT_ERR_NOMEM, "cannot compute checksums"), NULL;
    int n = snprintf(head, sizeof head, "blob %llu", (unsigned long long)size);
    if (git) wf_sum_add(s, head, (size_t)n + 1);
    return s;
}

void wf_sum_add(wf_sum *s, const void *bytes, size_t n)
{
    if (s) EVP_DigestUpdate(s->md, bytes, n);
}

void wf_sum_end(wf_sum *s, char hex[65])
{
    unsigned char raw[EVP_MAX_MD_SIZE];
    unsigned n = 0;
    if (!s) return;
    if (hex) EVP_DigestFinal_ex(s->md, raw, &n);
    for (unsigned i = 0; i < n; i++) snprintf(hex + 2 * i, 3, "%02x", raw[i]);
    EVP_MD_CTX_free(s->md);
    free(s);
}
