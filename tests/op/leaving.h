/* leaving: attention problems of which chosen rows leave the range of the asynchronous softmax, and what their results
 * must be. What a row that left gets is the synchronous kernel's result, bit for bit; the others keep the bits that
 * they have where none leaves; and exactly those that left are counted.
 *
 * Three columns of keys and queries have a meaning: every key has something in the first, the last key of each sequence
 * in the second, the one in its middle in the third. All other products must be small: scores of rows that stay are
 * within a range of 13 about 1.
 */
#ifndef WF_TEST_LEAVING_H
#define WF_TEST_LEAVING_H

#include <stdbool.h>
#include <stdint.h>

enum { LEAVING_COLUMNS = 3, LEAVING_PATTERNS = 8 };
enum leaves {
    STAYS,
    ABOVE,
    BELOW,
    LATE,
    MIDDLE
}; /* above from the first key on; below; above at the last key alone; at the one in the middle alone */
extern const char *const leaving_pattern[LEAVING_PATTERNS];

/* Of a call: the last key of each sequence has a row. */
typedef struct leaving_rows {
    uint32_t n, heads;
    const int32_t *seq, *pos;
    bool windows; /* a row may not see the key in the middle */
} leaving_rows;

void leaving_key(const leaving_rows *, int32_t seq, int32_t j, float columns[LEAVING_COLUMNS]);
void leaving_query(enum leaves, float columns[LEAVING_COLUMNS]);
/* left: enum leaves of each row and head. Returns how many leave. */
uint32_t leaving_choose(const leaving_rows *, const char *pattern, uint8_t *left);

/* Results of the same queries, and of queries of which none leaves. */
typedef struct leaving_results {
    const void *async, *sync, *none;
    uint64_t head, stride; /* bytes of a row's head, from one row to the next */
} leaving_results;

/* NULL, or what is wrong with the result of *row and *head. */
const char *leaving_wrong(const leaving_rows *, const uint8_t *left, const leaving_results *, uint32_t *row,
                          uint32_t *head);

#endif
