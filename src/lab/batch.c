/* batch: chooses the number of tokens per step from the times of a model's matrix products. */
#include "lab/measure.h"

#define NEAR_BEST   0.92 /* of the highest rate: larger steps only add latency */
#define LEAST_BATCH 128  /* smaller steps do not reduce latency */

void wf_step_times_add(wf_step_times *t, uint32_t rows, double ns)
{
    uint32_t i = 0;
    while (rows >>= 1) i++;
    if (i >= WF_STEP_DOUBLINGS) return;
    t->ns[i] += ns;
    t->n_products[i]++;
}

/* For how many sizes was every product measured? */
static uint32_t complete(const wf_step_times *t)
{
    uint32_t n = 0;
    while (n < WF_STEP_DOUBLINGS && t->n_products[n] && t->n_products[n] == t->n_products[0]) n++;
    return n;
}

uint32_t wf_dense_batch(const wf_step_times *t)
{
    double best = 0;
    uint32_t n = complete(t), rows = 1;
    if (!n || 1u << (n - 1) < LEAST_BATCH) return 0;
    for (uint32_t i = 0; i < n; i++) best = WF_MAX(best, (double)(1u << i) / t->ns[i]);
    for (uint32_t i = 0; i < n && rows / t->ns[i] < NEAR_BEST * best; i++) rows *= 2;
    return WF_MAX(rows, (uint32_t)LEAST_BATCH);
}
