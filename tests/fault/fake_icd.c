/* See fake_icd.h. PoCL keeps one dispatch table that all its objects point to: we save it and put our
 * own functions into it. */
#define CL_TARGET_OPENCL_VERSION 200
#define CL_USE_DEPRECATED_OPENCL_1_1_APIS
#define CL_USE_DEPRECATED_OPENCL_1_2_APIS
#include <CL/cl.h>
#include <CL/cl_icd.h>
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fault/fake_icd.h"

#define EXPORT __attribute__((visibility("default")))

static cl_icd_dispatch real;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct {
    char function[64], action[16];
    int error;
    uint64_t nth, calls, matching;
    unsigned queue; /* on which it is to happen, by the order of their first commands, from 1; 0: on any */
    cl_command_queue queues[8];
    bool hit;
    int alive;
    uint64_t created;
} state;

/* ---- faults --------------------------------------------------------------------------------------- */

EXPORT void fake_icd_arm(const char *fault);
EXPORT uint64_t fake_icd_calls(void);
EXPORT int fake_icd_hit(void);
EXPORT int fake_icd_alive(void);
EXPORT uint64_t fake_icd_created(void);

void fake_icd_arm(const char *fault)
{
    pthread_mutex_lock(&mutex);
    int alive = state.alive;
    uint64_t created = state.created;
    memset(&state, 0, sizeof state);
    state.alive = alive;
    state.created = created;
    const char *colon = fault ? strchr(fault, ':') : NULL, *at = fault ? strchr(fault, '@') : NULL;
    const char *equals = fault ? strchr(fault, '=') : NULL, *slash = fault ? strchr(fault, '/') : NULL;
    if (colon) {
        snprintf(state.function, sizeof state.function, "%.*s", (int)(colon - fault), fault);
        snprintf(state.action, sizeof state.action, "%.*s", (int)strcspn(colon + 1, "=@"), colon + 1);
        state.error = equals ? atoi(equals + 1) : 0;
        state.nth = at ? strtoull(at + 1, NULL, 10) : 0;
        state.queue = slash ? (unsigned)atoi(slash + 1) : 0;
    }
    pthread_mutex_unlock(&mutex);
}

uint64_t fake_icd_calls(void)
{
    return state.calls;
}

int fake_icd_hit(void)
{
    return state.hit;
}

int fake_icd_alive(void)
{
    return state.alive;
}

uint64_t fake_icd_created(void)
{
    return state.created;
}

static void count(int change)
{
    pthread_mutex_lock(&mutex);
    state.alive += change;
    pthread_mutex_unlock(&mutex);
}

static bool is(const char *action)
{
    return !strcmp(state.action, action);
}

/* Events are created by every command, so that they do not count. */
static bool creates(const char *function)
{
    return !strncmp(function, "clCreate", 8) || !strcmp(function, "clBuildProgram") ||
           !strcmp(function, "clCompileProgram") || !strcmp(function, "clSVMAlloc");
}

/* Is this queue the one that is meant? q: NULL for what is no command. */
static bool is_meant(cl_command_queue q)
{
    enum { MOST = sizeof state.queues / sizeof *state.queues };
    unsigned i = 0;
    while (q && i < MOST && state.queues[i] && state.queues[i] != q) i++;
    if (q && i < MOST) state.queues[i] = q;
    return !state.queue || (q && i + 1 == state.queue);
}

/* 0: go on; else the error to return. *lose: the work must not end. */
static cl_int due_on(cl_command_queue q, const char *function, bool *lose)
{
    bool poll = !strcmp(function, "clGetEventInfo");
    pthread_mutex_lock(&mutex);
    state.calls += !poll;
    state.created += creates(function);
    bool match = is_meant(q) && ((!strcmp(state.function, "any") && !poll) || !strcmp(state.function, function));
    bool now = match && (++state.matching == state.nth || !state.nth);
    state.hit |= now;
    pthread_mutex_unlock(&mutex);
    if (now && is("crash")) signal(SIGSEGV, SIG_DFL), raise(SIGSEGV);
    while (now && is("hang")) pause();
    *lose = now && is("lose");
    return now && is("fail") ? state.error : 0;
}

static cl_int due(const char *function, bool *lose)
{
    return due_on(NULL, function, lose);
}

/* A wait list with one more event, which nobody ever completes. */
static cl_event *with_never(cl_command_queue q, cl_uint n, const cl_event *waits)
{
    cl_context ctx = NULL;
    cl_event *list = calloc(n + 1, sizeof *list);
    real.clGetCommandQueueInfo(q, CL_QUEUE_CONTEXT, sizeof ctx, &ctx, NULL);
    if (!list) abort();
    if (n) memcpy(list, waits, n * sizeof *list);
    list[n] = real.clCreateUserEvent(ctx, NULL);
    return list;
}

/* ---- one wrapper for each function that weft calls ---------------------------------------------------- */

#define INT(name, params, ...)                                                                    \
    static cl_int CL_API_CALL my_##name params                                                    \
    {                                                                                             \
        bool lose;                                                                                \
        cl_int e = due(#name, &lose);                                                             \
        return e ? e : real.name(__VA_ARGS__);                                                    \
    }
#define RELEASE(name, type)                                                                       \
    static cl_int CL_API_CALL my_##name(type o)                                                   \
    {                                                                                             \
        bool lose;                                                                                \
        cl_int e = due(#name, &lose), r = real.name(o);                                           \
        count(-1);                                                                                \
        return e ? e : r;                                                                         \
    }
#define CREATE(type, name, params, ...)                                                           \
    static type CL_API_CALL my_##name params                                                      \
    {                                                                                             \
        bool lose;                                                                                \
        cl_int e = due(#name, &lose);                                                             \
        type o = e ? NULL : real.name(__VA_ARGS__);                                               \
        if (e && err) *err = e;                                                                   \
        count(o != NULL);                                                                         \
        return o;                                                                                 \
    }
/* n, w, ev: the wait list and the event; the arguments before them are the macro's. */
#define ENQUEUE(name, params, ...)                                                                \
    static cl_int CL_API_CALL my_##name params                                                    \
    {                                                                                             \
        bool lose;                                                                                \
        cl_int e = due_on(q, #name, &lose);                                                       \
        if (e) return e;                                                                          \
        cl_event *list = lose ? with_never(q, n, w) : NULL;                                       \
        if (list) w = list, n++;                                                                  \
        e = real.name(__VA_ARGS__, n, w, ev);                                                     \
        free(list);                                                                               \
        count(e == CL_SUCCESS && ev);                                                             \
        return e;                                                                                 \
    }
#define WAITS cl_uint n, const cl_event *w, cl_event *ev

INT(clGetDeviceIDs, (cl_platform_id p, cl_device_type t, cl_uint n, cl_device_id *d, cl_uint *out), p, t, n, d, out)
INT(clGetDeviceInfo, (cl_device_id d, cl_device_info i, size_t n, void *v, size_t *out), d, i, n, v, out)
INT(clGetEventInfo, (cl_event e_, cl_event_info i, size_t n, void *v, size_t *out), e_, i, n, v, out)
INT(clGetKernelWorkGroupInfo,
    (cl_kernel k, cl_device_id d, cl_kernel_work_group_info i, size_t n, void *v, size_t *out), k, d, i, n, v, out)
INT(clGetProgramInfo, (cl_program p, cl_program_info i, size_t n, void *v, size_t *out), p, i, n, v, out)
INT(clGetProgramBuildInfo, (cl_program p, cl_device_id d, cl_program_build_info i, size_t n, void *v, size_t *out),
    p, d, i, n, v, out)
INT(clBuildProgram, (cl_program p, cl_uint n, const cl_device_id *d, const char *o,
                     void(CL_CALLBACK *f)(cl_program, void *), void *u), p, n, d, o, f, u)
INT(clSetKernelArg, (cl_kernel k, cl_uint i, size_t n, const void *v), k, i, n, v)
INT(clFlush, (cl_command_queue q), q)
INT(clFinish, (cl_command_queue q), q)
INT(clWaitForEvents, (cl_uint n, const cl_event *list), n, list)
RELEASE(clReleaseContext, cl_context)
RELEASE(clReleaseCommandQueue, cl_command_queue)
RELEASE(clReleaseMemObject, cl_mem)
RELEASE(clReleaseProgram, cl_program)
RELEASE(clReleaseKernel, cl_kernel)
RELEASE(clReleaseEvent, cl_event)
CREATE(cl_context, clCreateContext,
       (const cl_context_properties *p, cl_uint n, const cl_device_id *d,
        void(CL_CALLBACK *f)(const char *, const void *, size_t, void *), void *u, cl_int *err), p, n, d, f, u, err)
CREATE(cl_command_queue, clCreateCommandQueue,
       (cl_context c, cl_device_id d, cl_command_queue_properties p, cl_int *err), c, d, p, err)
CREATE(cl_mem, clCreateBuffer, (cl_context c, cl_mem_flags f, size_t n, void *h, cl_int *err), c, f, n, h, err)
CREATE(cl_mem, clCreateSubBuffer, (cl_mem m, cl_mem_flags f, cl_buffer_create_type t, const void *i, cl_int *err), m, f,
       t, i, err)
CREATE(cl_mem, clCreateImage,
       (cl_context c, cl_mem_flags f, const cl_image_format *i, const cl_image_desc *d, void *h, cl_int *err), c, f, i,
       d, h, err)
CREATE(cl_program, clCreateProgramWithSource,
       (cl_context c, cl_uint n, const char **s, const size_t *l, cl_int *err), c, n, s, l, err)
CREATE(cl_program, clCreateProgramWithBinary,
       (cl_context c, cl_uint n, const cl_device_id *d, const size_t *l, const unsigned char **b, cl_int *st,
        cl_int *err),
       c, n, d, l, b, st, err)
CREATE(cl_kernel, clCreateKernel, (cl_program p, const char *name, cl_int *err), p, name, err)
ENQUEUE(clEnqueueNDRangeKernel, (cl_command_queue q, cl_kernel k, cl_uint dims, const size_t *o, const size_t *g,
                                 const size_t *l, WAITS), q, k, dims, o, g, l)
ENQUEUE(clEnqueueWriteBuffer, (cl_command_queue q, cl_mem m, cl_bool b, size_t o, size_t s, const void *v, WAITS),
        q, m, b, o, s, v)
ENQUEUE(clEnqueueReadBuffer, (cl_command_queue q, cl_mem m, cl_bool b, size_t o, size_t s, void *v, WAITS), q, m, b, o,
        s, v)
ENQUEUE(clEnqueueFillBuffer, (cl_command_queue q, cl_mem m, const void *p, size_t ps, size_t o, size_t s, WAITS),
        q, m, p, ps, o, s)
ENQUEUE(clEnqueueBarrierWithWaitList, (cl_command_queue q, WAITS), q)
ENQUEUE(clEnqueueMarkerWithWaitList, (cl_command_queue q, WAITS), q)

/* Memory of the host, which the driver only pins, is not the device's. */
static cl_mem CL_API_CALL my_buffer(cl_context c, cl_mem_flags f, size_t n, void *h, cl_int *err)
{
    cl_mem m = my_clCreateBuffer(c, f, n, h, err);
    pthread_mutex_lock(&mutex);
    state.created -= (f & CL_MEM_ALLOC_HOST_PTR) != 0;
    pthread_mutex_unlock(&mutex);
    return m;
}

static void *CL_API_CALL my_clSVMAlloc(cl_context c, cl_svm_mem_flags f, size_t n, cl_uint align)
{
    bool lose;
    return due("clSVMAlloc", &lose) ? NULL : real.clSVMAlloc(c, f, n, align);
}

static cl_int CL_API_CALL my_clCompileProgram(cl_program p, cl_uint n, const cl_device_id *d, const char *o, cl_uint nh,
                                              const cl_program *h, const char **names,
                                              void(CL_CALLBACK *f)(cl_program, void *), void *u)
{
    bool lose;
    cl_int e = due("clCompileProgram", &lose);
    return e ? e : real.clCompileProgram(p, n, d, o, nh, h, names, f, u);
}

static void patch(cl_icd_dispatch *t)
{
#define PATCH(name) t->name = my_##name;
    PATCH(clGetDeviceIDs)
    PATCH(clGetDeviceInfo) PATCH(clGetEventInfo) PATCH(clGetKernelWorkGroupInfo) PATCH(clGetProgramInfo)
        PATCH(clGetProgramBuildInfo) PATCH(clBuildProgram) PATCH(clSetKernelArg) PATCH(clFlush) PATCH(clFinish)
            PATCH(clWaitForEvents) PATCH(clReleaseContext) PATCH(clReleaseCommandQueue) PATCH(clReleaseMemObject)
                PATCH(clReleaseProgram) PATCH(clReleaseKernel) PATCH(clReleaseEvent) PATCH(clCreateContext)
                    PATCH(clCreateCommandQueue) PATCH(clCreateSubBuffer) PATCH(clCreateImage)
                        PATCH(clCreateProgramWithSource) PATCH(clSVMAlloc) PATCH(clCompileProgram)
                            t->clCreateBuffer = my_buffer;
    PATCH(clCreateProgramWithBinary) PATCH(clCreateKernel) PATCH(clEnqueueNDRangeKernel)
    PATCH(clEnqueueWriteBuffer) PATCH(clEnqueueReadBuffer) PATCH(clEnqueueFillBuffer)
    PATCH(clEnqueueBarrierWithWaitList) PATCH(clEnqueueMarkerWithWaitList)
#undef PATCH
}

/* ---- what the loader calls ------------------------------------------------------------------------------- */

typedef cl_int(CL_API_CALL *platforms_fn)(cl_uint, cl_platform_id *, cl_uint *);

static bool in_helper(void)
{
    char exe[512] = "";
    return readlink("/proc/self/exe", exe, sizeof exe - 1) > 0 && strstr(exe, "weft-clbuild");
}

/* PoCL's platform, with its table patched; CL_PLATFORM_NOT_FOUND_KHR where PoCL is missing. */
static cl_int load(cl_platform_id *out)
{
    static cl_platform_id platform;
    void *pocl = platform ? NULL : dlopen("libpocl.so.2", RTLD_NOW | RTLD_LOCAL);
    platforms_fn get = pocl ? (platforms_fn)dlsym(pocl, "POclIcdGetPlatformIDsKHR") : NULL;
    if (!platform && get && get(1, &platform, NULL) == CL_SUCCESS) {
        cl_icd_dispatch *table = *(cl_icd_dispatch **)platform;
        uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), from = (uintptr_t)table / page * page;
        real = *table;
        if (mprotect((void *)from, (uintptr_t)(table + 1) - from, PROT_READ | PROT_WRITE)) return CL_OUT_OF_HOST_MEMORY;
        patch(table);
        if (in_helper()) fake_icd_arm(getenv("WEFT_FAKE_ICD"));
    }
    *out = platform;
    return platform ? CL_SUCCESS : CL_PLATFORM_NOT_FOUND_KHR;
}

EXPORT cl_int CL_API_CALL clIcdGetPlatformIDsKHR(cl_uint n, cl_platform_id *out, cl_uint *total)
{
    cl_platform_id p;
    if (getenv("WEFT_FAKE_NO_PLATFORM")) return CL_PLATFORM_NOT_FOUND_KHR;
    cl_int e = load(&p);
    if (e) return e;
    if (n && out) *out = p;
    if (total) *total = 1;
    return CL_SUCCESS;
}

EXPORT cl_int CL_API_CALL clGetPlatformInfo(cl_platform_id p, cl_platform_info i, size_t n, void *v, size_t *out)
{
    return real.clGetPlatformInfo(p, i, n, v, out);
}

EXPORT void *CL_API_CALL clGetExtensionFunctionAddress(const char *name)
{
    if (!strcmp(name, "clIcdGetPlatformIDsKHR")) return (void *)clIcdGetPlatformIDsKHR;
    if (!strcmp(name, "clGetPlatformInfo")) return (void *)clGetPlatformInfo;
    return NULL;
}
