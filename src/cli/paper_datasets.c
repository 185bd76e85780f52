/* paper_datasets: NanoFlow's table 4: lengths of the requests of data sets, from files as `weft bench throughput --dataset` takes them. */
#include "cli/paper.h"

#include <math.h>
#include <string.h>

static const char *const dataset_files[] = {"splitwise", "lmsys", "sharegpt"};
enum { N_DATASETS = 3 };

static int add_moments(wf_paper *p, const char *of, size_t at, const uint32_t *v, size_t n, size_t stride)
{
    char mean_name[32], dev_name[32];
    double sum = 0, squares = 0;
    for (size_t i = 0; i < n; i++) sum += v[i * stride], squares += (double)v[i * stride] * v[i * stride];
    double mean = sum / (double)n;
    snprintf(mean_name, sizeof mean_name, "%s, mean", of);
    snprintf(dev_name, sizeof dev_name, "%s, deviation", of);
    int rc = wf_paper_add(p, mean_name, (double)at, (double)at, mean);
    return rc ? rc : wf_paper_add(p, dev_name, (double)at, (double)at, sqrt(WF_MAX(squares / (double)n - mean * mean, 0)));
}

static size_t dataset_of(const char *path)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    size_t i = 0;
    while (i < N_DATASETS && strncmp(name, dataset_files[i], strlen(dataset_files[i]))) i++;
    return i;
}

static int add_dataset(wf_paper *p, const char *path)
{
    _Static_assert(sizeof(wf_request_spec) % sizeof(uint32_t) == 0, "a stride in numbers");
    wf_request_specs specs = {0};
    const size_t stride = sizeof(wf_request_spec) / sizeof(uint32_t), at = dataset_of(path);
    weft_status s = wf_trace_read(path, &specs);
    int rc = s ? wf_say_error(s) : 0;
    if (!rc) rc = add_moments(p, "prompt", at, &specs.list->n_in, specs.n, stride);
    if (!rc) rc = add_moments(p, "output", at, &specs.list->n_out, specs.n, stride);
    if (!rc) rc = wf_paper_note(p, "%s: %zu requests of %s", p->figure->ticks[at], specs.n, path);
    wf_request_specs_free(&specs);
    return rc;
}

int wf_paper_datasets(wf_paper *p)
{
    int rc = 0;
    if (!p->o->load.traces.n) return wf_usage(p->o->command, "%s needs lengths of requests: use --dataset FILE.csv", p->figure->id);
    for (size_t i = 0; i < p->o->load.traces.n && !rc; i++) rc = add_dataset(p, p->o->load.traces.v[i]);
    return rc;
}
