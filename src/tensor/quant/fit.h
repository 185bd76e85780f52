/* fit: how encoders choose the scales of a group of weights: those for which the weighted sum of squared errors is
 * least among some tries. */
#ifndef WF_FIT_H
#define WF_FIT_H

#include "tensor/tensor.h"

#define WF_SUPER 256 /* weights of a block whose groups have scales of their own */

/* The largest of n weights by magnitude, with its sign. */
float wf_fit_largest(const float *x, int n);
/* The scale d, of either sign, for x = d * q with lo <= q <= hi; n at most 32. Large weights count most, by their
 * square. */
float wf_fit_scale(const float *x, int n, int lo, int hi);
/* The same where q is one of 16 values, in ascending order. */
float wf_fit_scale_values(const float *x, int n, const int8_t values[16]);
/* The index of the value nearest to x. */
int wf_nearest_value(float x, const int8_t values[16]);

/* Groups of a super-block in x = d * scale * q - dmin * min, with 0 <= q <= most and scale and min in 0..levels. */
typedef struct wf_fit_mins {
    uint16_t d, dmin; /* f16 */
    uint8_t scale[16], min[16];
    uint8_t q[WF_SUPER];
} wf_fit_mins;
void wf_fit_groups_mins(const float x[WF_SUPER], int group, int most, int levels, wf_fit_mins *out);

/* Rounds the scales of groups to multiples of a common one, the largest to -levels. Returns that, as the f16 in *half
 * says. */
float wf_fit_common(const float *scale, int n, int levels, uint16_t *half, int *rounded);

#endif
