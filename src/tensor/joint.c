/* joint: see joint.h. */
#include "tensor/joint.h"

#include <assert.h>
#include <math.h>

enum { BLOCK = 64 };

/* The one of fewer bits first. */
static const struct row {
    enum wf_dtype dtype;
    void (*put)(const wf_numbers64 *, uint8_t *block);
} rows[] = {{WF_K6, wf_put_k6}, {WF_K8, wf_put_k8}};

wf_joint wf_joint_of(enum wf_dtype dtype)
{
    wf_joint j = {dtype, 0};
    const wf_numbers *from = wf_numbers_of(dtype);
    for (uint32_t i = 0; i < WF_LEN(rows) && from && !from->codes; i++) {
        const wf_numbers *to = wf_numbers_of(rows[i].dtype);
        j.holders |= (uint32_t)(from->bits <= to->bits && from->group % to->group == 0) << i;
    }
    return j;
}

bool wf_joint_add(wf_joint *j, enum wf_dtype other)
{
    uint32_t both = j->holders & wf_joint_of(other).holders, i = 0;
    if (j->dtype == other) return true;
    if (!both) return false;
    while (!(both >> i & 1)) i++;
    *j = (wf_joint){rows[i].dtype, both};
    return true;
}

static const struct row *row_of(enum wf_dtype dtype)
{
    const struct row *r = rows, *end = rows + WF_LEN(rows);
    while (r < end && r->dtype != dtype) r++;
    assert(r < end);
    return r;
}

void wf_joint_from(enum wf_dtype from, const uint8_t *src, enum wf_dtype to, uint8_t *dst, uint64_t n)
{
    const struct row *r = row_of(to);
    const wf_numbers *f = wf_numbers_of(from), *t = wf_numbers_of(to);
    for (uint64_t k = 0; k < n; k += BLOCK, dst += wf_dtypes[to].block_bytes) {
        wf_numbers64 w, out;
        f->take(src, (uint32_t)k, &w);
        out = w;
        for (uint32_t g = 0; g < BLOCK / t->group; g++) { /* of groups that may be smaller */
            /* scale * (q - zero) is scale * q - scale * zero, which F16 has exactly where it has it at all: zero is a
             * power of two. Weights near the end of its range (scales of 512 in Q8_0) become infinite, as they would in
             * F16. */
            const uint32_t of = g * t->group / f->group;
            out.scale[g] = w.scale[of];
            out.min[g] = f->min ? w.min[of] : wf_float_to_half(-(float)f->zero * wf_half_to_float(w.scale[of]));
        }
        r->put(&out, dst);
    }
}

void wf_joint_decode(enum wf_dtype dtype, const void *src, float *dst, size_t n)
{
    const wf_numbers *f = wf_numbers_of(dtype);
    for (size_t k = 0; k < n; k += BLOCK) {
        wf_numbers64 w;
        f->take(src, 0, &w);
        for (uint32_t i = 0; i < BLOCK; i++)
            dst[k + i] = wf_half_to_float(w.scale[i / f->group]) * w.q[i] + wf_half_to_float(w.min[i / f->group]);
        src = (const uint8_t *)src + wf_dtypes[dtype].block_bytes;
    }
}

static void encode_group(const wf_numbers *f, const float *x, wf_numbers64 *w, uint32_t g)
{
    float min = x[0], max = x[0], most = (float)((1 << f->bits) - 1);
    for (int i = 1; i < f->group; i++) min = fminf(min, x[i]), max = fmaxf(max, x[i]);
    w->min[g] = wf_float_to_half(min);
    w->scale[g] = wf_float_to_half((max - min) / most);
    float scale = wf_half_to_float(w->scale[g]), inverse = scale > 0 ? 1 / scale : 0;
    for (int i = 0; i < f->group; i++)
        w->q[g * f->group + (uint32_t)i] = (uint8_t)wf_round_clamp((x[i] - wf_half_to_float(w->min[g])) * inverse, 0,
                                                                   (int)most);
}

void wf_joint_encode(enum wf_dtype dtype, const float *src, void *dst, size_t n)
{
    const wf_numbers *f = wf_numbers_of(dtype);
    uint8_t *to = dst;
    for (size_t k = 0; k < n; k += BLOCK, to += wf_dtypes[dtype].block_bytes) {
        wf_numbers64 w = {0};
        for (uint32_t g = 0; g < BLOCK / f->group; g++) encode_group(f, src + k + g * f->group, &w, g);
        row_of(dtype)->put(&w, to);
    }
}
