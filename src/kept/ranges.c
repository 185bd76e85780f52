/* ranges: the rule, the file, and its use. See ranges.h. The file, which lab/calibrate.c writes:
 *
 *     weft-calibration 1
 *     model 1185376 bytes
 *     layer 0 phi 3.1203 a -2.77 b 10.39    # a remark
 *     ...
 */
#include "kept/ranges.h"

#include "base/file.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define MOST_OUTSIDE 0.01 /* of a layer's rows */

/* ---- the rule ------------------------------------------------------------------------------------------------ */

/* The window of `width` bins that holds the most rows; if several adjacent windows tie, the middle one, for margin
 * on both sides. Returns the bin after it. */
static size_t best_window(const struct weft_logit_histogram *l, size_t width, uint64_t *inside)
{
    size_t first = 0, last = 0;
    uint64_t sum = 0, most = 0;
    for (size_t end = 0; end < WEFT_LOGIT_BINS + width; end++) { /* its last bin */
        sum += end < WEFT_LOGIT_BINS ? l->bins[end] : 0;
        sum -= end >= width ? l->bins[end - width] : 0;
        if (sum > most) most = sum, first = last = end;
        else if (sum == most && last + 1 == end) last = end;
    }
    *inside = most;
    return (first + last) / 2 + 1;
}

wf_phi wf_phi_choose(const struct weft_logit_histogram *rows, double *outside)
{
    uint64_t inside;
    size_t end = best_window(rows, (size_t)((WF_PHI_B - WF_PHI_F16_A) / WEFT_LOGIT_STEP), &inside);
    wf_phi p = {.phi = (float)(WEFT_LOGIT_LOW + WEFT_LOGIT_STEP * (double)end - WF_PHI_B)};
    *outside = rows->n ? 1 - (double)inside / (double)rows->n : 0;
    if (*outside <= MOST_OUTSIDE) p.a = WF_PHI_A, p.b = WF_PHI_B;
    return p;
}

bool wf_phi_fits(const wf_phi *p)
{
    return p->a < p->b && p->a >= WF_PHI_A && p->b <= -WF_PHI_A;
}

/* ---- reading ------------------------------------------------------------------------------------------------- */

typedef struct reader {
    uint64_t model_bytes;
    uint32_t n_layers;
    wf_phi *out;
    bool *seen; /* by layer */
    bool model; /* the line of the model has been read */
} reader;

static weft_status read_layer(reader *r, const char *line)
{
    unsigned layer;
    int end = 0;
    wf_phi p;
    if (sscanf(line, " layer %u phi %f a %f b %f %n", &layer, &p.phi, &p.a, &p.b, &end) != 4 || line[end])
        return wf_fail(WEFT_ERR_FORMAT, "want 'model N bytes' or 'layer N phi X a X b X'");
    if (layer >= r->n_layers)
        return wf_fail(WEFT_ERR_FORMAT, "layer %u: the model has 0 to %u", layer, r->n_layers - 1);
    if (r->seen[layer]) return wf_fail(WEFT_ERR_FORMAT, "layer %u appears twice", layer);
    if (!isfinite(p.phi) || !isfinite(p.a) || !isfinite(p.b) || p.a > p.b)
        return wf_fail(WEFT_ERR_FORMAT, "layer %u: phi, a and b must be finite, and a <= b", layer);
    r->seen[layer] = true;
    r->out[layer] = p;
    return WEFT_OK;
}

static weft_status read_line(void *user, char *line)
{
    reader *r = user;
    unsigned long long bytes;
    int end = 0;
    if (sscanf(line, " model %llu bytes %n", &bytes, &end) != 1 || !end || line[end]) return read_layer(r, line);
    r->model = true;
    if (bytes == r->model_bytes) return WEFT_OK;
    return wf_fail(WEFT_ERR_FORMAT,
                   "it was made for a model of %llu bytes, this one has %llu: run weft calibrate again", bytes,
                   (unsigned long long)r->model_bytes);
}

weft_status wf_calibration_load(const char *path, uint64_t model_bytes, uint32_t n_layers, wf_phi *out)
{
    reader r = {model_bytes, n_layers, out, wf_calloc(n_layers, sizeof *r.seen), false};
    if (!r.seen) return WEFT_ERR_NOMEM;
    weft_status s = wf_read_lines(path, "weft-calibration 1", read_line, &r);
    if (s == WEFT_OK && !r.model) s = wf_fail(WEFT_ERR_FORMAT, "%s: the line 'model N bytes' is missing", path);
    for (uint32_t i = 0; i < r.n_layers && s == WEFT_OK; i++)
        if (!r.seen[i]) s = wf_fail(WEFT_ERR_FORMAT, "%s: layer %u is missing", path, i);
    free(r.seen);
    return s;
}

void weft_calibration_free(struct weft_calibration *c)
{
    if (!c) return;
    for (uint32_t i = 0; c->layers && i < c->n_layers; i++) {
        free(c->layers[i].all.bins);
        free(c->layers[i].rows.bins);
    }
    free(c->layers);
    free(c);
}

/* ---- use ----------------------------------------------------------------------------------------------------- */

void wf_ranges_set(const wf_phi *layers, wf_graph *g)
{
    unsigned used = 0, all = 0;
    int32_t last = -1; /* a layer has two of them */
    for (size_t i = 0; i < g->n_nodes; i++) {
        wf_node *n = &g->nodes[i];
        if (n->op != WF_OP_ATTENTION) continue;
        const wf_phi *p = &layers[n->layer];
        bool fits = wf_phi_fits(p), is_new = n->layer != last;
        all += is_new, used += is_new && fits;
        last = n->layer;
        if (fits) n->p.phi = p->phi, n->p.phi_lo = p->a, n->p.phi_hi = p->b;
    }
    wf_log(WEFT_LOG_INFO, "calibration: asynchronous softmax in %u of %u layers", used, all);
}

weft_status wf_calibration_use(const struct weft_model *m, const char *path, wf_graph *g, bool *found)
{
    char file[4096];
    *found = path && !strcmp(path, "none");
    if (*found) return WEFT_OK;
    if (path && !strcmp(path, "auto")) path = NULL;
    struct stat st;
    int n = snprintf(file, sizeof file, "%s%s", path ? path : m->info.path, path ? "" : WEFT_CALIBRATION_SUFFIX);
    *found = path || (wf_gguf_is_file(m->file) && n > 0 && (size_t)n < sizeof file && !stat(file, &st));
    if (!*found) return WEFT_OK; /* there is no file, and the caller named none */
    wf_phi *layers = wf_calloc(m->hp.n_layer, sizeof *layers);
    weft_status s = layers ? wf_calibration_load(file, m->info.file_bytes, m->hp.n_layer, layers) : WEFT_ERR_NOMEM;
    if (s == WEFT_OK) wf_ranges_set(layers, g);
    free(layers);
    if (path) return wf_fail_param(s, "calibration");
    if (s != WEFT_OK) wf_log(WEFT_LOG_WARN, "%s; this calibration is ignored, attention stays synchronous", wf_error());
    return WEFT_OK;
}
