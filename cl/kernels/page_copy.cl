/* page_copy: page dst[m] of one pool becomes page src[m] of another, or of the same; a page outside of its
 * pool is left out. A work-item copies one chunk; neighbours copy neighbours.
 *
 * Knobs: WIDE 1: chunks of 16 bytes, where pages and pools begin at multiples of that; 0: one element.
 */
#include "common.clh"
#ifndef WIDE
#define WIDE 0
#endif

#if WIDE
#define chunk_t uint4
#else
#define chunk_t ushort
#endif

/* n: chunks of a page; strides: from page to page. The pools may be one buffer. */
KERNEL void page_copy(IN(from), IN(src), IN(dst), OUT(to), uint M, uint n, uint from_pages, uint to_pages,
                      uint from_stride, uint to_stride)
{
    FOR_EACH (m, i, M, n) {
        uint a = IN_AT(uint, src)[m], b = IN_AT(uint, dst)[m]; /* negative ones are beyond every pool */
        if (a < from_pages && b < to_pages)
            OUT_AT(chunk_t, to)[(ulong)b * to_stride + i] = IN_AT(chunk_t, from)[(ulong)a * from_stride + i];
    }
}
