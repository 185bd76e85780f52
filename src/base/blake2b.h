/* blake2b: the cryptographic hash BLAKE2b (RFC 7693), with or without a secret key. Nobody can choose two inputs of one
 * hash, and the hash is the same in every process.
 */
#ifndef WF_BLAKE2B_H
#define WF_BLAKE2B_H

#include "base/base.h"

enum { WF_BLAKE2B_BLOCK = 128, WF_BLAKE2B_MOST = 64 };

typedef struct wf_blake2b {
    uint64_t h[8], length; /* of what went into h */
    uint8_t block[WF_BLAKE2B_BLOCK];
    size_t n, bytes; /* in block; of the hash */
} wf_blake2b;

/* bytes: 1 to 64 of the hash. key: n_key bytes, at most 64, which make it a message authentication code. */
void wf_blake2b_begin(wf_blake2b *b, size_t bytes, const void *key, size_t n_key);
void wf_blake2b_add(wf_blake2b *b, const void *data, size_t len);
/* A field among others: its length, then its bytes, so that no two lists of fields read alike. */
void wf_blake2b_field(wf_blake2b *b, const void *data, size_t len);
void wf_blake2b_end(wf_blake2b *b, void *hash);

#endif
