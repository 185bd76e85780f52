/* blake2b: see blake2b.h. Names are those of RFC 7693. */
#include "base/blake2b.h"

#include <string.h>

static const uint64_t iv[8] = {0x6a09e667f3bcc908, 0xbb67ae8584caa73b, 0x3c6ef372fe94f82b, 0xa54ff53a5f1d36f1,
                               0x510e527fade682d1, 0x9b05688c2b3e6c1f, 0x1f83d9abfb41bd6b, 0x5be0cd19137e2179};
static const uint8_t sigma[10][16] = {
    {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}, {14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3},
    {11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4}, {7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8},
    {9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13}, {2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9},
    {12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11}, {13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10},
    {6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5}, {10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0}};

static inline uint64_t rotated(uint64_t x, int n) { return x >> n | x << (64 - n); }

static inline uint64_t word_at(const uint8_t *p)
{
    uint64_t w = 0;
    for (int i = 7; i >= 0; i--) w = w << 8 | p[i];
    return w;
}

#define G(a, b, c, d, x, y)                                                                                            \
    v[a] += v[b] + (x), v[d] = rotated(v[d] ^ v[a], 32), v[c] += v[d], v[b] = rotated(v[b] ^ v[c], 24),                \
        v[a] += v[b] + (y), v[d] = rotated(v[d] ^ v[a], 16), v[c] += v[d], v[b] = rotated(v[b] ^ v[c], 63)

/* r is a literal, so that places of words are known when this is compiled. */
#define ROUND(r)                                                                                                       \
    do {                                                                                                               \
        const uint8_t *s = sigma[(r) % 10];                                                                            \
        G(0, 4, 8, 12, m[s[0]], m[s[1]]);                                                                              \
        G(1, 5, 9, 13, m[s[2]], m[s[3]]);                                                                              \
        G(2, 6, 10, 14, m[s[4]], m[s[5]]);                                                                             \
        G(3, 7, 11, 15, m[s[6]], m[s[7]]);                                                                             \
        G(0, 5, 10, 15, m[s[8]], m[s[9]]);                                                                             \
        G(1, 6, 11, 12, m[s[10]], m[s[11]]);                                                                           \
        G(2, 7, 8, 13, m[s[12]], m[s[13]]);                                                                            \
        G(3, 4, 9, 14, m[s[14]], m[s[15]]);                                                                            \
    } while (0)

static void compress_block(wf_blake2b *b, const uint8_t *block, bool last)
{
    uint64_t v[16], m[16];
    for (int i = 0; i < 16; i++) m[i] = word_at(block + 8 * i);
    for (int i = 0; i < 8; i++) v[i] = b->h[i], v[8 + i] = iv[i];
    v[12] ^= b->length; /* nothing here has 2^64 bytes */
    if (last) v[14] = ~v[14];
    ROUND(0);
    ROUND(1);
    ROUND(2);
    ROUND(3);
    ROUND(4);
    ROUND(5);
    ROUND(6);
    ROUND(7);
    ROUND(8);
    ROUND(9);
    ROUND(10);
    ROUND(11);
    for (int i = 0; i < 8; i++) b->h[i] ^= v[i] ^ v[8 + i];
}

void wf_blake2b_begin(wf_blake2b *b, size_t bytes, const void *key, size_t n_key)
{
    *b = (wf_blake2b){.bytes = bytes};
    memcpy(b->h, iv, sizeof iv);
    b->h[0] ^= 0x01010000 ^ (uint64_t)n_key << 8 ^ bytes;
    if (!n_key) return;
    memcpy(b->block, key, n_key);
    b->n = WF_BLAKE2B_BLOCK;
}

/* The last block is told apart from others, so one that is full waits until more comes. */
void wf_blake2b_add(wf_blake2b *b, const void *data, size_t len)
{
    for (const uint8_t *p = data; len;) {
        if (b->n == WF_BLAKE2B_BLOCK) {
            b->length += WF_BLAKE2B_BLOCK;
            compress_block(b, b->block, false);
            b->n = 0;
        }
        for (; !b->n && len > WF_BLAKE2B_BLOCK; p += WF_BLAKE2B_BLOCK, len -= WF_BLAKE2B_BLOCK) {
            b->length += WF_BLAKE2B_BLOCK;
            compress_block(b, p, false);
        }
        size_t n = WF_MIN(len, WF_BLAKE2B_BLOCK - b->n);
        memcpy(b->block + b->n, p, n);
        b->n += n, p += n, len -= n;
    }
}

void wf_blake2b_field(wf_blake2b *b, const void *data, size_t len)
{
    uint8_t length[8];
    for (int i = 0; i < 8; i++) length[i] = (uint8_t)((uint64_t)len >> 8 * i);
    wf_blake2b_add(b, length, sizeof length);
    wf_blake2b_add(b, data, len);
}

void wf_blake2b_end(wf_blake2b *b, void *hash)
{
    uint8_t all[WF_BLAKE2B_MOST];
    b->length += b->n;
    memset(b->block + b->n, 0, WF_BLAKE2B_BLOCK - b->n);
    compress_block(b, b->block, true);
    for (size_t i = 0; i < sizeof all; i++) all[i] = (uint8_t)(b->h[i / 8] >> i % 8 * 8);
    memcpy(hash, all, b->bytes);
}
