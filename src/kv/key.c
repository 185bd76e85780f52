/* key: see key.h. */
#include "kv/key.h"
#include "base/blake2b.h"

/* Roots and blocks are hashed under different names, so that none passes for the other. */
static void begin_key(wf_blake2b *b, const char *name, size_t n)
{
    wf_blake2b_begin(b, sizeof(wf_key), name, n);
}

wf_key wf_key_root(const wf_key *base, const void *salt, size_t n)
{
    static const char name[] = "weft KV root";
    wf_blake2b b;
    wf_key key;
    begin_key(&b, name, sizeof name);
    wf_blake2b_field(&b, base, sizeof *base);
    if (n) wf_blake2b_field(&b, salt, n); /* no salt differs from every salt */
    wf_blake2b_end(&b, &key);
    return key;
}

wf_key wf_key_next(const wf_key *parent, const int32_t *tokens, uint32_t n)
{
    static const char name[] = "weft KV block";
    wf_blake2b b;
    wf_key key;
    begin_key(&b, name, sizeof name);
    wf_blake2b_add(&b, parent, sizeof *parent);
    wf_blake2b_field(&b, tokens, n * sizeof *tokens);
    wf_blake2b_end(&b, &key);
    return key;
}
