/* numbers: quantised weights as numbers q of few bits: a weight is scale * (q - zero), or with a minimum scale * q +
 * minimum. Where q is a code, its value among 16 stands in place of it. Pure functions. */
#ifndef WF_NUMBERS_H
#define WF_NUMBERS_H

#include "tensor/tensor.h"

/* 64 neighbours of a row; of its groups the scales, and the minimums where the format has them, in F16. Formats with
 * `parts` have scales step * part and minimums min_step * min_part, which F16 rounds. */
typedef struct wf_numbers64 {
    uint8_t q[64];
    uint16_t scale[4], min[4];
    float step, min_step;
    int8_t part[4];
    uint8_t min_part[4];
} wf_numbers64;

/* What codes of 4 bits stand for: bytes, which have `zero` added. */
enum wf_codes { WF_NO_CODES, WF_CODES_MXFP4, WF_CODES_IQ4, WF_CODES_IQ2, WF_CODES_IQ3_XXS, WF_CODES_IQ3_S };

typedef struct wf_numbers {
    /* Of q; weights that share a scale: 16 or 32; has minimums: 1; what q is lessened by. */
    uint8_t bits, group, min, zero;
    /* Those from k on, a multiple of 64, of the row whose blocks begin at `row`. */
    void (*take)(const uint8_t *row, uint32_t k, wf_numbers64 *out);
    enum wf_codes codes;
    bool parts;
} wf_numbers;

const wf_numbers *wf_numbers_of(enum wf_dtype); /* NULL: the format is none of such numbers */

#endif
