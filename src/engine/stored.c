/* stored: the files that weft_tune_overlap keeps for a device and the shape of a model. See engine.h. */
#include "base/cache.h"
#include "base/file.h"
#include "engine/engine.h"
#include "select/tuned.h"

#include <stdio.h>
#include <stdlib.h>

static void describe_operand(const wf_graph *g, const wf_node *n, const wf_operand *o, FILE *f)
{
    if (o->value < 0) return;
    const wf_value *v = &g->values[o->value];
    bool matrix = n->op == WF_OP_GEMM || n->op == WF_OP_GROUPED_GEMM; /* a table of rotations grows with the context, which is another matter */
    fprintf(f, " %d.%d.%d.%u.%u", v->kind, v->rows, v->dtype, v->cols, matrix ? v->weight_rows : 0);
}

/* What its ops take: names, formats and sizes. */
static void describe_graph(const wf_graph *g, FILE *f)
{
    for (const wf_node *n = g->nodes; n < g->nodes + g->n_nodes; n++) {
        fprintf(f, "%d %s %d %d %u/%u/%u", n->layer, n->name, n->kind, n->op, n->p.n_head, n->p.n_kv_head, n->p.head_dim);
        for (size_t i = 0; i < WF_MAX_IN; i++) describe_operand(g, n, &n->in[i], f);
        for (size_t i = 0; i < WF_MAX_OUT; i++) describe_operand(g, n, &n->out[i], f);
        fputc('\n', f);
    }
}

static void describe_device(wf_dev *dev, FILE *f)
{
    const struct weft_device_info *d = &dev->info;
    const wf_open_params *p = &dev->params;
    fprintf(f, "overlap 1\n%s|%s|%s|%s|%u\ntier %d threads %u deterministic %d kernels %x\n", d->platform, d->name, d->driver, d->version, d->compute_units, p->tier, p->threads,
            p->deterministic, wf_tuned_kernels(dev));
}

static char *describe(wf_dev *dev, const wf_graph *g)
{
    char *text = NULL;
    size_t len = 0;
    FILE *f = open_memstream(&text, &len);
    if (!f) return NULL;
    describe_device(dev, f);
    describe_graph(g, f);
    if (!fclose(f)) return text;
    free(text);
    return NULL;
}

weft_status wf_stored_path(wf_dev *dev, const wf_graph *g, const char *what, char *buf, size_t cap)
{
    char folder[400], slug[128];
    char *text = describe(dev, g);
    wf_cache_key key = text ? wf_cache_key_of("%s", text) : (wf_cache_key){0};
    weft_status s = key.text ? wf_cache_dir(folder, sizeof folder) : WEFT_ERR_NOMEM;
    wf_device_slug(&dev->info, slug, sizeof slug);
    if (s == WEFT_OK && (size_t)snprintf(buf, cap, "%s/overlap/%s-%s.%s", folder, slug, key.name, what) >= cap)
        s = wf_fail(WEFT_ERR_IO, "the path of the cache folder is too long: %s", folder);
    free(key.text);
    free(text);
    return s;
}
