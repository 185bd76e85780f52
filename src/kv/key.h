/* key: the name of a block of KV, made of all that its K and V depend on: a root (model, format, layout, tenant), and
 * the tokens from the first to its last. A key is a cryptographic hash of its parent's and of its own tokens, so equal
 * keys mean equal blocks, in every process and after a restart, and nobody can choose tokens that have another's key.
 *
 * Only full blocks have keys.
 */
#ifndef WF_KEY_H
#define WF_KEY_H

#include "base/base.h"

typedef struct wf_key {
    uint64_t word[4];
} wf_key;

/* Where a tenant's sequences begin: base stands for model, format and layout. salt: n bytes; 0: everybody's. */
wf_key wf_key_root(const wf_key *base, const void *salt, size_t n);
/* Of the block with these n tokens behind its parent, or behind a root. */
wf_key wf_key_next(const wf_key *parent, const int32_t *tokens, uint32_t n);

static inline bool wf_key_same(const wf_key *a, const wf_key *b)
{
    return a->word[0] == b->word[0] && a->word[1] == b->word[1] && a->word[2] == b->word[2] && a->word[3] == b->word[3];
}

/* For hash tables: clients choose keys, if not which, and shall not choose those of one bucket. */
static inline uint64_t wf_key_hash(const wf_key *k)
{
    return wf_random(wf_hash_seed(), k->word[0]);
}

#endif
