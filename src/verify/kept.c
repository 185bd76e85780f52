/* kept.c: see kept.h. */
#include "verify/kept.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"

_Static_assert(offsetof(wf_case, out) == 18 && offsetof(wf_case, sinks) == 56 && offsetof(wf_case, norm) == 159,
               "print_problem has all fields: a new one goes before the last of its row");
static void print_problem(const wf_case *c, char *buf, size_t cap)
{
    char params[2 * sizeof c->p + 1];
    /* Parameters of an op are 32 bits each, so no padding is among these bytes. */
    const uint8_t *bytes = (const uint8_t *)&c->p;
    for (size_t i = 0; i < sizeof c->p; i++) snprintf(params + 2 * i, 3, "%02x", bytes[i]);
    snprintf(buf, cap,
             "%d seed %llu dtypes %u %u %u sizes %u %u %u sequences %u %u %u experts %u %u %d windows %u %d kv %u "
             "pad %u groups %u flags %d%d%d%d%d params %s",
             c->op, (unsigned long long)c->seed, c->in, c->weight, c->out, c->m, c->n, c->k, c->n_seqs, c->max_kv,
             c->max_q, c->n_experts, c->used, c->one_x, c->windows, c->sinks, c->kv, c->pad,
             c->max_groups, c->file_layout, c->bias, c->residual, c->in_place, c->norm, params);
}

static wf_cache_key key_of(wf_dev *dev, const wf_case *c, const wf_bound *b)
{
    const struct weft_device_info *i = &dev->info;
    const wf_open_params *p = &dev->params;
    char kernel[256], problem[640];
    if (!dev->fns->kernel_id || !*wf_build_id() || !dev->fns->kernel_id(dev, b, kernel, sizeof kernel))
        return (wf_cache_key){0};
    print_problem(c, problem, sizeof problem);
    return wf_cache_key_of("self-test\n%s\n%s\n%s\n%s\n%s\ntier %d threads %u of %u max-alloc %llu\n%s %s\n%s",
                           i->platform, i->name, i->driver, i->version, i->features, p->tier, p->threads,
                           i->compute_units, (unsigned long long)p->max_alloc,
                           wf_variant_at(dev, c->op, (int)b->variant)->name, kernel, problem);
}

static bool find_folder(char *buf, size_t cap)
{
    char dir[480];
    if (wf_cache_dir(dir, sizeof dir) != WEFT_OK) return false;
    snprintf(buf, cap, "%s/self-tests", dir);
    return true;
}

static bool has_passed(const wf_kept *k)
{
    size_t size = 0;
    const char *build = wf_build_id();
    char *data = wf_cache_get(k->dir, &k->key, &size);
    bool passed = data && size == strlen(build) && !memcmp(data, build, size);
    free(data);
    return passed;
}

wf_kept wf_kept_find(wf_dev *dev, const wf_case *c, const wf_bound *b)
{
    wf_kept k = {.key = key_of(dev, c, b)};
    if (k.key.text && !find_folder(k.dir, sizeof k.dir)) wf_kept_free(&k);
    k.passed = k.key.text && !dev->params.no_kernel_cache && has_passed(&k);
    return k;
}

void wf_kept_update(const wf_kept *k, const wf_dev *dev, bool passed)
{
    if (!k->key.text) return;
    if (!passed) wf_cache_remove(k->dir, &k->key);
    else if (!dev->params.no_kernel_cache) wf_cache_put(k->dir, &k->key, wf_build_id(), strlen(wf_build_id()));
}

void wf_kept_free(wf_kept *k)
{
    free(k->key.text);
    k->key.text = NULL;
}
