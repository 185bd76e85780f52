/* calibrate: `weft calibrate`: measures the ranges of the asynchronous softmax on a text, and writes their file. See
 * kept/ranges.h. */
#include "base/file.h"
#include "engine/engine.h"
#include "lab/lab.h"

#include <math.h>
#include <stdlib.h>

weft_status weft_calibrate(struct weft_engine *e, const struct weft_calibrate_params *p, struct weft_calibration **out)
{
    int32_t *ids = NULL;
    size_t n = 0;
    *out = NULL;
    if (e->dev->timing_only) return wf_fail(WEFT_ERR_ARG, "%s computes nothing", e->dev->info.id);
    WF_TRY(weft_tokenize(e->model, p->text, p->len, WEFT_TEXT_DEFAULT, &ids, &n));
    wf_ranges_runner run = wf_engine_ranges_runner(e);
    weft_status s = n ? wf_ranges_measure(&run, ids, n, 1, p, out) : wf_fail(WEFT_ERR_ARG, "the text gives no tokens");
    free(ids);
    return s;
}

double weft_logit_quantile(const struct weft_logit_histogram *l, double part)
{
    if (!l || !l->n || !l->bins) return NAN;
    double want = part * (double)l->n, below = 0;
    for (size_t i = 0; i < WEFT_LOGIT_BINS; i++) {
        double count = (double)l->bins[i];
        if (!count || below + count < want) {
            below += count;
            continue;
        }
        double x = WEFT_LOGIT_LOW + WEFT_LOGIT_STEP * ((double)i + (want - below) / count);
        return fmin(fmax(x, l->min), l->max);
    }
    return l->max;
}

weft_status weft_calibration_save(const struct weft_calibration *c, const struct weft_model *m, const char *path)
{
    WF_TRY(wf_not_a_model(path));
    wf_output out;
    WF_TRY(wf_output_open(path, &out));
    fprintf(out.f, "weft-calibration 1\nmodel %llu bytes\n", (unsigned long long)m->info.file_bytes);
    fprintf(out.f,
            "# Measured on %llu tokens in pieces of at most %u. x: attention logits, q.k * scale. A row's largest x "
            "may be\n",
            (unsigned long long)c->n_tokens, c->context);
    fprintf(out.f,
            "# between phi + a and phi + b; one outside is computed again with its own maximum. a = b: too wide, "
            "synchronous.\n");
    for (uint32_t i = 0; i < c->n_layers; i++) {
        const struct weft_calibration_layer *l = &c->layers[i];
        fprintf(out.f,
                "layer %u phi %.4f a %.4f b %.4f  # x %.2f to %.2f; largest of a row %.2f to %.2f, %.2f %% outside in "
                "F16\n",
                i, l->phi, l->a, l->b, l->all.min, l->all.max, l->rows.min, l->rows.max, 100 * l->outside);
    }
    return wf_output_end(&out, true);
}
