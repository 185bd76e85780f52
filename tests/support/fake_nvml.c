/* fake_nvml: NVIDIA's management library as far as weft reads power from it, for one device, whose numbers are files in
 * the folder FAKE_NVML_STATE: `of` has its address, `energy` millijoules, `milliwatts` what it draws; a file without a
 * number is a device without that. `open` is there from init to shutdown. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OK, UNINITIALISED = 1, NO_DEVICE = 2, NOT_SUPPORTED = 3 };

#define API __attribute__((visibility("default")))
API int nvmlInit_v2(void);
API int nvmlShutdown(void);
API int nvmlDeviceGetCount_v2(unsigned *n);
API int nvmlDeviceGetHandleByIndex_v2(unsigned i, void **device);
API int nvmlDeviceGetHandleByPciBusId_v2(const char *pci, void **device);
API int nvmlDeviceGetPowerUsage(void *device, unsigned *milliwatts);
API int nvmlDeviceGetEnforcedPowerLimit(void *device, unsigned *milliwatts);
API int nvmlDeviceGetTotalEnergyConsumption(void *device, unsigned long long *millijoules);

static int the_device;

static const char *place(const char *name)
{
    static char path[512];
    snprintf(path, sizeof path, "%s/%s", getenv("FAKE_NVML_STATE"), name);
    return path;
}

static int read_text(const char *name, char *out, size_t cap)
{
    FILE *f = fopen(place(name), "r");
    if (!f || !fgets(out, (int)cap, f)) *out = 0;
    if (f) fclose(f);
    return f != NULL;
}

static int read_number(const char *name, unsigned long long *out)
{
    char text[64], *end;
    if (!read_text(name, text, sizeof text)) return NOT_SUPPORTED;
    *out = strtoull(text, &end, 10);
    return end > text ? OK : NOT_SUPPORTED;
}

int nvmlInit_v2(void)
{
    FILE *f = fopen(place("open"), "w");
    return f && !fclose(f) ? OK : UNINITIALISED;
}

int nvmlShutdown(void)
{
    return remove(place("open")) ? UNINITIALISED : OK;
}

int nvmlDeviceGetCount_v2(unsigned *n)
{
    *n = 1;
    return OK;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned i, void **device)
{
    *device = &the_device;
    return i ? NO_DEVICE : OK;
}

int nvmlDeviceGetHandleByPciBusId_v2(const char *pci, void **device)
{
    char own[64];
    *device = &the_device;
    return read_text("of", own, sizeof own) && !strcmp(own, pci) ? OK : NO_DEVICE;
}

int nvmlDeviceGetPowerUsage(void *device, unsigned *milliwatts)
{
    unsigned long long v = 0;
    int rc = device == &the_device ? read_number("milliwatts", &v) : NO_DEVICE;
    *milliwatts = (unsigned)v;
    return rc;
}

int nvmlDeviceGetEnforcedPowerLimit(void *device, unsigned *milliwatts)
{
    *milliwatts = 700000;
    return device == &the_device ? OK : NO_DEVICE;
}

int nvmlDeviceGetTotalEnergyConsumption(void *device, unsigned long long *millijoules)
{
    return device == &the_device ? read_number("energy", millijoules) : NO_DEVICE;
}
