/* pairs: rows of q and k in an order in which the two elements that a rotation turns together are neighbours.
 *
 * Files have pair i of a head in elements 2i and 2i + 1, or in i and i + n_rot / 2: in halves. The product of a query
 * and a key stays the same if the elements of both are permuted alike, so whoever loads or writes such matrices may
 * interleave the halves. */
#ifndef WF_PAIRS_H
#define WF_PAIRS_H

#include <stdint.h>

typedef struct wf_pairs {
    uint32_t head, n_rot; /* rows of a head, and how many of them, the first, turn: two halves */
    uint64_t rows; /* so many, whole heads, are interleaved; those behind stay where they are, as all do with 0 */
} wf_pairs;

/* Where the file has the row that is the r-th in the new order. */
static inline uint64_t wf_pairs_from(const wf_pairs *p, uint64_t r)
{
    if (r >= p->rows || r % p->head >= p->n_rot) return r;
    uint64_t i = r % p->head;
    return r - i + i % 2 * (p->n_rot / 2) + i / 2;
}

#endif
