/* power: a table of sources, each with how it is opened and read. See power.h. */
#include "lab/power.h"
#include "base/memory_left.h"

#include <dlfcn.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_DOMAINS = 32 };

typedef struct domain { /* a file with microjoules that starts again at 0 behind a number of them */
    char path[512];
    uint64_t wraps, last, sum;
} domain;

typedef struct nvml { /* of libnvidia-ml.so.1 */
    void *library, *device;
    int (*shutdown)(void);
    int (*energy)(void *device, unsigned long long *millijoules);
    int (*usage)(void *device, unsigned *milliwatts);
} nvml;

typedef struct source {
    const char *name;
    bool cpu; /* of processors; else of devices on a bus */
    bool (*open)(wf_power *p, const char *pci);
    bool (*joules)(wf_power *p, double *out); /* a counter; false: it has none that can be read */
    bool (*watts)(wf_power *p, double *out);  /* or NULL */
    void (*close)(wf_power *p);               /* or NULL */
} source;

struct wf_power {
    const source *from;
    bool counts;            /* has a counter of energy */
    double limit;           /* watts */
    /* joules at the beginning; of a source of watts: joules so far, and watts at the last reading */
    double base, sum, last;
    uint64_t began, before; /* when it was opened, and read */
    nvml nvml;
    domain domains[MAX_DOMAINS];
    size_t n_domains;
    char watts_path[512];
};

static wf_power_config config;

void wf_power_configure(const wf_power_config *c) { config = c ? *c : (wf_power_config){0}; }

static uint64_t power_now(void) { return config.now_ns ? config.now_ns() : wf_now_ns(); }

/* ---- files --------------------------------------------------------------------------------------------------- */

/* A whole number that is all of a file. */
static bool read_number(const char *path, uint64_t *out)
{
    char *text = wf_kernel_text(path), *end = text;
    if (text) *out = strtoull(text, &end, 10);
    bool found = text && end > text && (*end == '\n' || !*end);
    free(text);
    return found;
}

static bool read_in(const char *folder, const char *name, uint64_t *out)
{
    char path[512];
    return (size_t)snprintf(path, sizeof path, "%s/%s", folder, name) < sizeof path && read_number(path, out);
}

/* Calls fn for each path of a pattern below the root, in order. */
static void each_path(const char *pattern, void (*fn)(wf_power *p, const char *path), wf_power *p)
{
    char full[512];
    glob_t found = {0};
    snprintf(full, sizeof full, "%s%s", config.root ? config.root : "", pattern);
    if (!glob(full, 0, NULL, &found))
        for (size_t i = 0; i < found.gl_pathc; i++) fn(p, found.gl_pathv[i]);
    globfree(&found);
}

static void add_domain(wf_power *p, const char *folder, const char *name, uint64_t wraps)
{
    domain d = {.wraps = wraps};
    bool fits = (size_t)snprintf(d.path, sizeof d.path, "%s/%s", folder, name) < sizeof d.path &&
        p->n_domains < MAX_DOMAINS;
    if (fits && read_number(d.path, &d.last)) p->domains[p->n_domains++] = d;
}

static bool domains_joules(wf_power *p, double *out)
{
    double sum = 0;
    for (domain *d = p->domains; d < p->domains + p->n_domains; d++) {
        uint64_t v;
        if (!read_number(d->path, &v)) return false;
        d->sum += v >= d->last ? v - d->last : d->wraps > d->last ? d->wraps - d->last + v : 0;
        d->last = v;
        sum += (double)d->sum;
    }
    *out = sum / 1e6;
    return p->n_domains > 0;
}

/* ---- sensors of GPUs, as Linux' drivers have them ------------------------------------------------------------ */

static bool sensor_watts(wf_power *p, double *out)
{
    uint64_t microwatts;
    if (!*p->watts_path || !read_number(p->watts_path, &microwatts)) return false;
    *out = (double)microwatts / 1e6;
    return true;
}

static void open_sensor(wf_power *p, const char *folder)
{
    static const char *const watts[] = {"power1_average", "power1_input"},
        *const limits[] = {"power1_cap", "power1_max"};
    uint64_t v;
    add_domain(p, folder, "energy1_input", 0);
    for (size_t i = 0; i < WF_LEN(watts) && !*p->watts_path; i++)
        if (read_in(folder, watts[i], &v)) snprintf(p->watts_path, sizeof p->watts_path, "%s/%s", folder, watts[i]);
    for (size_t i = 0; i < WF_LEN(limits) && !(p->limit > 0); i++)
        if (read_in(folder, limits[i], &v)) p->limit = (double)v / 1e6;
}

static void count_path(wf_power *p, const char *path)
{
    (void)path;
    p->n_domains++;
}

/* Where the driver does not tell which device this is, the only one is meant. */
static bool open_hwmon(wf_power *p, const char *pci)
{
    char pattern[128] = "/sys/class/drm/card[0-9]/device/hwmon/hwmon*";
    if (*pci) snprintf(pattern, sizeof pattern, "/sys/bus/pci/devices/%s/hwmon/hwmon*", pci);
    each_path(pattern, count_path, p);
    bool one = *pci ? p->n_domains > 0 : p->n_domains == 1;
    p->n_domains = 0;
    if (one) each_path(pattern, open_sensor, p);
    return p->n_domains || *p->watts_path;
}

/* ---- counters of processors' packages: their limit does not bound memory, whose counter would not fit it ----- */

static void open_zone(wf_power *p, const char *folder)
{
    char path[512];
    uint64_t wraps = 0, microwatts;
    snprintf(path, sizeof path, "%s/name", folder);
    char *name = wf_kernel_text(path);
    if (name && !strncmp(name, "package", 7)) {
        read_in(folder, "max_energy_range_uj", &wraps);
        add_domain(p, folder, "energy_uj", wraps);
        if (read_in(folder, "constraint_0_power_limit_uw", &microwatts)) p->limit += (double)microwatts / 1e6;
    }
    free(name);
}

static bool open_powercap(wf_power *p, const char *pci)
{
    (void)pci;
    each_path("/sys/class/powercap/intel-rapl:*", open_zone, p);
    return p->n_domains;
}

/* ---- NVIDIA's management library ----------------------------------------------------------------------------- */

/* POSIX has dlsym return functions as pointers to data. */
static bool find_function(void *library, const char *name, void *out)
{
    void *f = dlsym(library, name);
    memcpy(out, &f, sizeof f);
    return f != NULL;
}

static void close_nvml(wf_power *p)
{
    if (p->nvml.shutdown) p->nvml.shutdown();
    if (p->nvml.library) dlclose(p->nvml.library);
    p->nvml = (nvml){0};
}

static bool open_nvml(wf_power *p, const char *pci)
{
    struct { /* what is needed to open it */
        int (*init)(void);
        int (*count)(unsigned *n);
        int (*by_index)(unsigned i, void **device);
        int (*by_address)(const char *pci, void **device);
        int (*limit)(void *device, unsigned *milliwatts);
    } f;
    nvml *n = &p->nvml;
    const struct {
        const char *name;
        void *out;
    } functions[] = {{"nvmlInit_v2", &f.init}, {"nvmlShutdown", &n->shutdown}, {"nvmlDeviceGetCount_v2", &f.count},
                     {"nvmlDeviceGetHandleByIndex_v2", &f.by_index},
                         {"nvmlDeviceGetHandleByPciBusId_v2", &f.by_address},
                     {"nvmlDeviceGetPowerUsage", &n->usage}, {"nvmlDeviceGetEnforcedPowerLimit", &f.limit},
                     {"nvmlDeviceGetTotalEnergyConsumption", &n->energy}};
    unsigned milliwatts = 0, count = 0;
    n->library = dlopen(config.nvml ? config.nvml : "libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    bool found = n->library;
    for (size_t i = 0; found && i < WF_LEN(functions); i++)
        found = find_function(n->library, functions[i].name, functions[i].out);
    if (!found || f.init()) return n->shutdown = NULL, false;
    /* Where the driver does not tell which device this is, the only one is meant. */
    if (*pci ? f.by_address(pci, &n->device) : f.count(&count) || count != 1 || f.by_index(0, &n->device)) return false;
    if (!f.limit(n->device, &milliwatts)) p->limit = milliwatts / 1e3;
    return true;
}

static bool nvml_joules(wf_power *p, double *out)
{
    unsigned long long millijoules;
    if (p->nvml.energy(p->nvml.device, &millijoules)) return false;
    *out = (double)millijoules / 1e3;
    return true;
}

static bool nvml_watts(wf_power *p, double *out)
{
    unsigned milliwatts;
    if (p->nvml.usage(p->nvml.device, &milliwatts)) return false;
    *out = milliwatts / 1e3;
    return true;
}

static const source sources[] = {
    {"NVML", false, open_nvml, nvml_joules, nvml_watts, close_nvml},
    {"hwmon", false, open_hwmon, domains_joules, sensor_watts, NULL},
    {"powercap", true, open_powercap, domains_joules, NULL, NULL},
};

/* Opens, and reads once: what cannot be read now never can. */
static bool try_source(wf_power *p, const source *s, const char *pci)
{
    *p = (wf_power){.from = s};
    if (s->open(p, pci)) {
        p->began = p->before = power_now();
        p->counts = s->joules(p, &p->base);
        if (p->counts || (s->watts && s->watts(p, &p->last))) return true;
    }
    if (s->close) s->close(p);
    return false;
}

wf_power *wf_power_open(const wf_dev *dev)
{
    bool cpu = dev->info.type == WEFT_DEVICE_CPU, gpu = dev->info.type == WEFT_DEVICE_GPU || *dev->pci;
    wf_power *p = wf_calloc(1, sizeof *p);
    for (const source *s = sources; p && s < sources + WF_LEN(sources); s++)
        if ((s->cpu ? cpu : gpu) && try_source(p, s, dev->pci)) return p;
    free(p);
    return NULL;
}

void wf_power_close(wf_power *p)
{
    if (p && p->from->close) p->from->close(p);
    free(p);
}

const char *wf_power_source(const wf_power *p) { return p ? p->from->name : "not readable"; }

double wf_power_limit(const wf_power *p) { return p ? p->limit : 0; }

bool wf_power_read(wf_power *p, wf_power_reading *out)
{
    double joules = 0, watts = 0;
    if (!p) return false;
    uint64_t at = power_now();
    if (!(p->counts ? p->from->joules(p, &joules) : p->from->watts(p, &watts))) return false;
    /* watts between two readings are taken as those halfway */
    p->sum += (watts + p->last) / 2 * (double)(at - p->before) / 1e9;
    p->last = watts;
    p->before = at;
    *out = (wf_power_reading){p->counts ? joules - p->base : p->sum, (double)(at - p->began) / 1e9};
    return true;
}
