/* What a device can do: the fields of weft_device_info, limits, and capability tiers. A device that
 * lacks something every kernel needs is left out here, with the reason in the debug log. */
#include "cl/cl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory_left.h"

/* A string property, cut to cap; "" if the driver refuses. */
static void get_text(cl_device_id dev, cl_device_info what, char *buf, size_t cap)
{
    size_t n = 0;
    *buf = 0;
    if (clGetDeviceInfo(dev, what, 0, NULL, &n) != CL_SUCCESS || n == 0) return;
    char *all = wf_calloc(n + 1, 1);
    if (!all) return;
    if (clGetDeviceInfo(dev, what, n, all, NULL) == CL_SUCCESS) {
        const char *start = all + strspn(all, " "); /* CPU names come padded */
        wf_copy(buf, cap, start);
    }
    free(all);
}

static uint64_t get_number(cl_device_id dev, cl_device_info what)
{
    uint64_t x = 0; /* little endian: right for 4- and 8-byte properties alike */
    size_t n = 0;
    if (clGetDeviceInfo(dev, what, 0, NULL, &n) != CL_SUCCESS || n > sizeof x) return 0;
    if (clGetDeviceInfo(dev, what, n, &x, NULL) != CL_SUCCESS) return 0;
    return x;
}

/* Extension lists are words: "cl_khr_fp16" must not be found in "cl_khr_fp16_foo". */
static bool has_word(const char *list, const char *word)
{
    size_t n = strlen(word);
    for (const char *p = list; (p = strstr(p, word)); p += n)
        if ((p == list || p[-1] == ' ') && (p[n] == ' ' || p[n] == 0)) return true;
    return false;
}

/* The query is deprecated: of a driver that does not know it nothing is assumed. */
static bool computes_in(cl_device_id dev, bool host_memory)
{
    cl_bool unified = !host_memory;
    return clGetDeviceInfo(dev, CL_DEVICE_HOST_UNIFIED_MEMORY, sizeof unified, &unified, NULL) == CL_SUCCESS &&
           !unified == !host_memory;
}

static void get_info(cl_device_ref *ref)
{
    struct weft_device_info *i = &ref->info;
    cl_device_id dev = ref->device;
    char platform[512] = "";
    snprintf(i->id, sizeof i->id, "opencl:%u.%u", ref->p, ref->d);
    get_text(dev, CL_DEVICE_NAME, i->name, sizeof i->name);
    get_text(dev, CL_DRIVER_VERSION, i->driver, sizeof i->driver);
    get_text(dev, CL_DEVICE_VERSION, i->version, sizeof i->version);
    if (clGetPlatformInfo(ref->platform, CL_PLATFORM_NAME, sizeof platform - 1, platform, NULL) != CL_SUCCESS)
        *platform = 0;
    wf_copy(i->platform, sizeof i->platform, platform);
    uint64_t type = get_number(dev, CL_DEVICE_TYPE);
    i->type = type & CL_DEVICE_TYPE_GPU   ? WEFT_DEVICE_GPU
              : type & CL_DEVICE_TYPE_CPU ? WEFT_DEVICE_CPU
                                          : WEFT_DEVICE_OTHER;
    i->memory = get_number(dev, CL_DEVICE_GLOBAL_MEM_SIZE);
    i->own_memory = i->type != WEFT_DEVICE_CPU && computes_in(dev, false) ? i->memory : 0;
    i->max_alloc = get_number(dev, CL_DEVICE_MAX_MEM_ALLOC_SIZE);
    i->local_memory = (uint32_t)get_number(dev, CL_DEVICE_LOCAL_MEM_SIZE);
    i->compute_units = (uint32_t)get_number(dev, CL_DEVICE_MAX_COMPUTE_UNITS);
    i->max_group = (uint32_t)get_number(dev, CL_DEVICE_MAX_WORK_GROUP_SIZE);
}

/* Bytes that nobody uses; 0: unknown. AMD says so (cl_amd_device_attribute_query: KiB, all and the largest block);
 * where the device computes in the host's memory, the host does. OpenCL itself has no such query, and NVIDIA's and
 * Intel's drivers add none. */
static uint64_t memory_free(const cl_device_ref *ref, const char *ext)
{
    enum { FREE_MEMORY_AMD = 0x4039 };
    size_t kib[2] = {0, 0};
    if (has_word(ext, "cl_amd_device_attribute_query") &&
        clGetDeviceInfo(ref->device, FREE_MEMORY_AMD, sizeof kib, kib, NULL) == CL_SUCCESS)
        return WF_MIN((uint64_t)kib[0] << 10, ref->info.memory);
    return ref->info.type == WEFT_DEVICE_CPU || computes_in(ref->device, true)
               ? WF_MIN(wf_memory_left(), ref->info.memory)
               : 0;
}

/* Where the device is on the bus, for who reads its power; Khronos' extension, and what NVIDIA and AMD had before. */
static void get_address(cl_device_ref *ref, const char *ext)
{
    enum { PCI_BUS_INFO = 0x410F, NV_BUS = 0x4008, NV_SLOT = 0x4009, NV_DOMAIN = 0x400A, AMD_TOPOLOGY = 0x4037 };
    cl_uint khr[4];
    unsigned char amd[24];
    if (has_word(ext, "cl_khr_pci_bus_info") &&
        clGetDeviceInfo(ref->device, PCI_BUS_INFO, sizeof khr, khr, NULL) == CL_SUCCESS)
        snprintf(ref->pci, sizeof ref->pci, "%04x:%02x:%02x.%x", khr[0] & 0xffff, khr[1] & 0xff, khr[2] & 0xff,
                 khr[3] & 0xf);
    else if (has_word(ext, "cl_nv_device_attribute_query"))
        snprintf(ref->pci, sizeof ref->pci, "%04x:%02x:%02x.0", (unsigned)get_number(ref->device, NV_DOMAIN) & 0xffff,
                 (unsigned)get_number(ref->device, NV_BUS) & 0xff,
                 (unsigned)get_number(ref->device, NV_SLOT) >> 3 & 0xff);
    else if (has_word(ext, "cl_amd_device_attribute_query") &&
             clGetDeviceInfo(ref->device, AMD_TOPOLOGY, sizeof amd, amd, NULL) == CL_SUCCESS)
        snprintf(ref->pci, sizeof ref->pci, "0000:%02x:%02x.%x", amd[21], amd[22], amd[23] & 0xf);
}

/* cl_nv_device_attribute_query; cl_nv_kernel_attribute: bytes of a multiprocessor */
enum { NV_CAPABILITY_MAJOR = 0x4000, NV_CAPABILITY_MINOR = 0x4001, NV_LOCAL_PER_UNIT = 0x400B };

/* AMD names the device by its target: CDNA from gfx908 has MFMA and waves of 64, RDNA from gfx11 WMMA and 32. */
static uint32_t amd_lanes(const char *name)
{
    unsigned gfx = 0;
    if (sscanf(name, "gfx%x", &gfx) != 1) return 0;
    if (gfx == 0x908 || gfx == 0x90a || (gfx >= 0x940 && gfx < 0x1000)) return 64;
    return gfx >= 0x1100 ? 32 : 0;
}

/* The extension's functions take the smallest sub-group that the device has, 8 or 16. */
static uint32_t intel_lanes(cl_device_id dev)
{
    enum { SUB_GROUP_SIZES_INTEL = 0x4108 };
    size_t size[16], n = 0, least = SIZE_MAX;
    if (clGetDeviceInfo(dev, SUB_GROUP_SIZES_INTEL, sizeof size, size, &n) != CL_SUCCESS) return 0;
    for (size_t i = 0; i < n / sizeof *size; i++) least = WF_MIN(least, size[i]);
    return least == 8 || least == 16 ? (uint32_t)least : 0;
}

/* Work-items that share a matrix unit of kernels/matrix.clh; 0: none. NVIDIA from compute capability 8.0 by inline PTX,
 * AMD by compiler builtins, Intel by extension. */
static uint32_t matrix_lanes(const cl_device_ref *ref, const char *ext)
{
    if (has_word(ext, "cl_intel_subgroup_matrix_multiply_accumulate")) return intel_lanes(ref->device);
    if (has_word(ext, "cl_nv_device_attribute_query"))
        return get_number(ref->device, NV_CAPABILITY_MAJOR) >= 8 ? 32 : 0;
    return has_word(ext, "cl_amd_device_attribute_query") ? amd_lanes(ref->info.name) : 0;
}

/* A matrix unit that some kernel could reach: one of kernels/matrix.clh, or ARM's. */
static bool has_matrix(const cl_device_ref *ref, const char *ext)
{
    return matrix_lanes(ref, ext) || has_word(ext, "cl_arm_matrix_multiply");
}

/* AMD's by name of the target: from gfx906 on, but not those of small processors, gfx1010 and gfx1013. */
static uint32_t dot_of(const cl_device_ref *ref, const char *ext)
{
    unsigned gfx = 0;
    if (has_word(ext, "cl_khr_integer_dot_product")) return WF_CL_DOT_KHRONOS;
    if (has_word(ext, "cl_arm_integer_dot_product_accumulate_int8")) return WF_CL_DOT_ARM;
    if (has_word(ext, "cl_nv_device_attribute_query") &&
        get_number(ref->device, NV_CAPABILITY_MAJOR) * 10 + get_number(ref->device, NV_CAPABILITY_MINOR) >= 61)
        return WF_CL_DOT_NVIDIA;
    bool amd = has_word(ext, "cl_amd_device_attribute_query") && sscanf(ref->info.name, "gfx%x", &gfx) == 1;
    amd = amd && gfx >= 0x906 && gfx != 0x909 && gfx != 0x90c && gfx != 0x1010 && gfx != 0x1013;
    return amd ? WF_CL_DOT_AMD : WF_CL_DOT_PLAIN;
}

static void get_tiers(cl_device_ref *ref, const char *ext)
{
    cl_caps *c = &ref->caps;
    c->dot = dot_of(ref, ext);
    c->matrix = has_matrix(ref, ext);
    c->nv_mma = c->matrix && has_word(ext, "cl_nv_device_attribute_query");
    c->nv_wgmma = c->nv_mma && get_number(ref->device, NV_CAPABILITY_MAJOR) == 9 &&
                  get_number(ref->device, NV_CAPABILITY_MINOR) == 0;
    /* A work-group can have all of a multiprocessor's but 1 KiB. Those of compute capability 8.0 and up have 100 KiB
     * or more. */
    c->nv_local_bytes =
        c->nv_mma ? WF_MAX((uint32_t)get_number(ref->device, NV_LOCAL_PER_UNIT), 100u << 10) - (1 << 10) : 0;
    c->lanes = matrix_lanes(ref, ext);
    c->copies = c->nv_mma;
    c->tier = c->matrix ? WF_TIER_MATRIX : WF_TIER_DOT; /* that in plain C where there is no instruction */
    snprintf(ref->info.tiers, sizeof ref->info.tiers, "%s %s%s%s%s%s", wf_tier_name(WF_TIER_BASE),
             wf_tier_name(WF_TIER_DOT), c->lanes ? " " : "", c->lanes ? wf_tier_name(WF_TIER_NEUTRAL) : "",
             c->matrix ? " " : "", c->matrix ? wf_tier_name(WF_TIER_MATRIX) : "");
}

static void get_features(cl_device_ref *ref, const char *ext)
{
    static const char *const known[] = {
        "cl_khr_fp16",  "cl_khr_subgroups",         "cl_khr_integer_dot_product",
        "cl_khr_int64_base_atomics", "cl_khr_command_buffer",
        "cl_intel_subgroup_matrix_multiply_accumulate", "cl_arm_matrix_multiply",
    };
    char *out = ref->info.features;
    size_t n = 0, cap = sizeof ref->info.features;
    *out = 0;
    for (size_t i = 0; i < WF_LEN(known); i++) {
        if (!has_word(ext, known[i]) || n + strlen(known[i]) + 2 > cap) continue;
        n += (size_t)snprintf(out + n, cap - n, "%s%s", n ? " " : "", known[i]);
    }
    if (wf_cl_has_clblast()) snprintf(out + n, cap - n, "%sCLBlast", n ? " " : "");
}

/* Why the device cannot be used at all, or NULL. */
static const char *unusable(const cl_device_ref *ref)
{
    unsigned major = 0, minor = 0;
    sscanf(ref->info.version, "OpenCL %u.%u", &major, &minor);
    if (ref->quirks.skip) return "its driver is known not to work";
    if (major * 10 + minor < 12) return "older than OpenCL 1.2";
    if (!get_number(ref->device, CL_DEVICE_AVAILABLE)) return "not available";
    if (!get_number(ref->device, CL_DEVICE_COMPILER_AVAILABLE)) return "has no compiler";
    if (!get_number(ref->device, CL_DEVICE_ENDIAN_LITTLE)) return "big endian";
    if (ref->info.max_alloc == 0 || ref->info.max_group == 0) return "gives no limits";
    return NULL;
}

bool wf_cl_caps(cl_device_ref *ref)
{
    static const size_t ext_cap = 32768;
    cl_caps *c = &ref->caps;
    get_info(ref);
    ref->quirks = wf_cl_quirks(&ref->info);
    const char *why = unusable(ref);
    if (why) {
        wf_log(WEFT_LOG_DEBUG, "%s (%s, %s) left out: %s", ref->info.id, ref->info.name,
               ref->info.version, why);
        return false;
    }
    char *ext = wf_calloc(ext_cap, 1);
    if (!ext) return false;
    get_text(ref->device, CL_DEVICE_EXTENSIONS, ext, ext_cap);
    ref->info.available = memory_free(ref, ext);
    get_address(ref, ext);
    c->gpu = ref->info.type == WEFT_DEVICE_GPU;
    /* CPUs report FMA whether or not the compiler may assume it; a library call would be slow */
    c->fma = ref->quirks.fma || (c->gpu && (get_number(ref->device, CL_DEVICE_SINGLE_FP_CONFIG) & CL_FP_FMA));
    c->registers = has_word(ext, "cl_nv_device_attribute_query") || has_word(ext, "cl_amd_device_attribute_query");
    c->max_group = ref->info.max_group;
    c->units = WF_MAX(ref->info.compute_units, 1u);
    /* some drivers say 0 or 1 */
    c->mhz = WF_MAX((uint32_t)get_number(ref->device, CL_DEVICE_MAX_CLOCK_FREQUENCY), 200u);
    c->cache = get_number(ref->device, CL_DEVICE_GLOBAL_MEM_CACHE_SIZE);
    c->local_bytes = ref->info.local_memory;
    c->mem_align = (uint32_t)get_number(ref->device, CL_DEVICE_MEM_BASE_ADDR_ALIGN) / 8;
    get_tiers(ref, ext);
    get_features(ref, ext);
    free(ext);
    return true;
}
