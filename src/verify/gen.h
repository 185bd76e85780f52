/* gen: random numbers and operands, of which check_gen.c and check_attention.c make problems. */
#ifndef WF_GEN_H
#define WF_GEN_H

#include "tensor/kv.h"
#include "verify/check.h"

typedef struct wf_gen {
    uint64_t seed, n;
    bool shapes_only; /* operands stay NaN, which is far quicker; their shapes are the same */
} wf_gen;

uint64_t wf_gen_next(wf_gen *g);
/* Less than n. */
uint32_t wf_gen_below(wf_gen *g, uint32_t n);
/* [-1, 1) */
float wf_gen_unit(wf_gen *g);
/* Of 0 to n - 1, malloc'ed; NULL on shortage of memory. */
uint32_t *wf_gen_permutation(wf_gen *g, uint32_t n);
/* All bytes 0xFF: NaN in every float format, -1 as an id, and as a scale of a block format. pad: elements between rows.
 */
weft_status wf_gen_operand(wf_check_operand *o, uint8_t dtype, uint32_t rows, uint32_t cols, uint32_t pad);
uint8_t *wf_gen_row(const wf_check_operand *o, uint32_t row);
/* An element of F32 or F16. */
float wf_gen_get(const wf_check_operand *o, uint32_t row, uint32_t col);
void wf_gen_set(const wf_check_operand *o, uint32_t row, uint32_t col, float x);
/* Filled with numbers up to the amplitude. */
weft_status wf_gen_floats(wf_check_operand *o, wf_gen *g, uint8_t dtype, uint32_t rows, uint32_t cols, uint32_t pad,
                          float amplitude);
weft_status wf_gen_ints(wf_check_operand *o, uint32_t n, int32_t **values);
/* Of keys or values: pages of which each holds so many elements. */
weft_status wf_gen_pool(wf_check_operand *o, const wf_case *c, uint32_t pages, uint32_t page);
/* Of all operands. */
double wf_gen_bytes(const wf_check *c);

/* check_attention.c: fills the check of an attention. */
weft_status wf_gen_attention(wf_check *k, wf_gen *g);

#endif
