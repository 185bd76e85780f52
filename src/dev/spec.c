/* spec.c: finds the device that a name means. Owns the list over all backends and the rules of "auto". */
#include "dev/dev.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* NULL but in tests, which link tests/support/null_device.c. Only its own name finds it. */
extern const wf_backend wf_backend_null __attribute__((weak, visibility("hidden")));

static const wf_backend *const backends[] = {
#define X(name) &wf_backend_##name,
#include "dev/backends.def"
#undef X
};

typedef struct candidate {
    const wf_backend *backend;
    size_t index; /* in the backend's list */
    struct weft_device_info info;
} candidate;

typedef struct candidates {
    candidate *list;
    size_t n;
} candidates;

static bool is_hidden(const wf_backend *b)
{
    return b == &wf_backend_null;
}

size_t wf_dev_list(struct weft_device_info *out, size_t cap)
{
    size_t n = 0;
    for (size_t b = 0; b < WF_LEN(backends); b++) {
        if (is_hidden(backends[b])) continue;
        size_t room = n < cap ? cap - n : 0;
        n += backends[b]->list(room ? out + n : NULL, room);
    }
    return n;
}

static weft_status collect_backend(const wf_backend *b, candidates *all)
{
    size_t n = b->list(NULL, 0);
    struct weft_device_info *infos = wf_calloc(n, sizeof *infos);
    candidate *more = realloc(all->list, (all->n + n + 1) * sizeof *more);
    if (more) all->list = more;
    if (!infos || !more) {
        free(infos);
        return wf_fail(WEFT_ERR_NOMEM, "out of host memory for a list of %zu devices", n);
    }
    size_t now = b->list(infos, n); /* devices may come and go between the calls */
    for (size_t i = 0; i < n && i < now; i++) all->list[all->n++] = (candidate){b, i, infos[i]};
    free(infos);
    return WEFT_OK;
}

/* Is it the backend that the name of a device begins with? "opencl:0.1" is OpenCL's. */
static bool is_of(const wf_backend *b, const char *spec)
{
    size_t n = strcspn(spec, ":");
    return strlen(b->name) == n && !strncasecmp(b->name, spec, n);
}

/* spec NULL: of all backends. */
static weft_status collect_devices(const char *spec, candidates *all)
{
    all->n = 0;
    for (size_t b = 0; b < WF_LEN(backends); b++)
        if (backends[b] && (!spec || is_of(backends[b], spec))) WF_TRY(collect_backend(backends[b], all));
    return WEFT_OK;
}

static bool contains_text(const char *text, const char *part)
{
    size_t len = strlen(part);
    for (; *text; text++)
        if (!strncasecmp(text, part, len)) return true;
    return false;
}

static const candidate *best_gpu(const candidates *all)
{
    const candidate *best = NULL;
    for (size_t i = 0; i < all->n; i++) {
        const candidate *c = &all->list[i];
        if (c->info.type != WEFT_DEVICE_GPU || is_hidden(c->backend)) continue;
        if (!best || c->info.memory > best->info.memory) best = c;
    }
    return best;
}

static const candidate *by_id(const candidates *all, const char *id)
{
    for (size_t i = 0; i < all->n; i++)
        if (!strcasecmp(all->list[i].info.id, id)) return &all->list[i];
    return NULL;
}

static const candidate *by_name(const candidates *all, const char *part)
{
    for (size_t i = 0; i < all->n; i++) {
        const candidate *c = &all->list[i];
        if (!is_hidden(c->backend) && contains_text(c->info.name, part)) return c;
    }
    return NULL;
}

/* "opencl": its best GPU, else its first device. */
static const candidate *by_backend(const candidates *all, const char *name)
{
    const candidate *gpu = best_gpu(all);
    if (gpu && !strcasecmp(gpu->backend->name, name)) return gpu;
    for (size_t i = 0; i < all->n; i++)
        if (!strcasecmp(all->list[i].backend->name, name)) return &all->list[i];
    return NULL;
}

static weft_status none_such(const candidates *all, const char *spec)
{
    char names[512] = "";
    size_t len = 0;
    for (size_t i = 0; i < all->n; i++) {
        const candidate *c = &all->list[i];
        if (is_hidden(c->backend) || len >= sizeof names) continue;
        len += (size_t)snprintf(names + len, sizeof names - len, "%s%s (%s)", len ? ", " : "", c->info.id,
                                c->info.name);
    }
    if (!strcasecmp(spec, "gpu")) {
        return wf_fail(WEFT_ERR_NODEVICE,
                       "no GPU found; there is: %s. Is its OpenCL driver installed (see `clinfo -l`)?",
                       len ? names : "no device at all");
    }
    return wf_fail(WEFT_ERR_NODEVICE, "no device \"%s\"; there is: %s", spec, len ? names : "no device at all");
}

static weft_status open_one(const candidate *c, const wf_open_params *p, wf_dev **out)
{
    weft_status s = c->backend->open(c->index, p, out);
    return s ? wf_fail_context(s, "%s (%s)", c->info.id, c->info.name) : WEFT_OK;
}

static const candidate *find_device(const candidates *all, const char *spec)
{
    if (!strcasecmp(spec, "gpu")) return best_gpu(all);
    const candidate *c = by_id(all, spec);
    if (!c) c = by_backend(all, spec);
    return c ? c : by_name(all, spec);
}

/* A backend that the name rules out is not asked: OpenCL would load all its drivers. */
static weft_status open_spec(candidates *all, const char *spec, const wf_open_params *p, wf_dev **out)
{
    WF_TRY(collect_devices(spec, all));
    const candidate *c = by_id(all, spec);
    if (c) return open_one(c, p, out);
    WF_TRY(collect_devices(NULL, all));
    if (!strcasecmp(spec, "auto")) {
        const candidate *gpu = best_gpu(all), *cpu = by_id(all, "cpu");
        if (gpu) {
            weft_status s = open_one(gpu, p, out);
            if (!s || !cpu) return s;
            wf_log(WEFT_LOG_WARN, "%s; using the CPU instead", wf_error());
        }
        return cpu ? open_one(cpu, p, out) : none_such(all, "auto");
    }
    c = find_device(all, spec);
    return c ? open_one(c, p, out) : none_such(all, spec);
}

weft_status wf_dev_open(const char *spec, const wf_open_params *p, wf_dev **out)
{
    wf_open_params full = p ? *p : (wf_open_params){.tier = WF_TIER_MATRIX};
    if (!full.watchdog_ms) full.watchdog_ms = 60000;
    *out = NULL;
    candidates all = {0};
    weft_status s = open_spec(&all, spec && *spec ? spec : "auto", &full, out);
    if (*out) (*out)->residual = full.f16_residual ? WF_F16 : WF_F32;
    free(all.list);
    return s;
}
