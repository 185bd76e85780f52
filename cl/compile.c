/* Builds one program. Used by the backend and by the build helper, so it knows nothing of either. */
#include "cl/cl.h"

#include <stdlib.h>
#include <string.h>

static char *build_log(cl_program prog, cl_device_id dev)
{
    size_t n = 0;
    if (clGetProgramBuildInfo(prog, dev, CL_PROGRAM_BUILD_LOG, 0, NULL, &n) != CL_SUCCESS || !n)
        return NULL;
    char *log = wf_calloc(n + 1, 1);
    if (!log) return NULL;
    if (clGetProgramBuildInfo(prog, dev, CL_PROGRAM_BUILD_LOG, n, log, NULL) == CL_SUCCESS)
        return log;
    free(log);
    return NULL;
}

cl_int wf_cl_compile(cl_context ctx, cl_device_id dev, const char *source, const char *options,
                     cl_program *out, char **log)
{
    cl_int err = CL_SUCCESS;
    size_t size = strlen(source);
    const unsigned char *text = (const unsigned char *)source;
    if (log) *log = NULL;
    /* NVIDIA's assembly text is taken as if it were a binary; it begins with its version. */
    cl_program prog = strncmp(source, ".version", 8)
                          ? clCreateProgramWithSource(ctx, 1, &source, NULL, &err)
                          : clCreateProgramWithBinary(ctx, 1, &dev, &size, &text, NULL, &err);
    if (err != CL_SUCCESS) return err;
    err = clBuildProgram(prog, 1, &dev, options, NULL, NULL);
    if (err != CL_SUCCESS) {
        if (log) *log = build_log(prog, dev);
        clReleaseProgram(prog);
        return err;
    }
    *out = prog;
    return CL_SUCCESS;
}

cl_int wf_cl_load(cl_context ctx, cl_device_id dev, const void *bin, size_t size,
                  const char *options, cl_program *out)
{
    cl_int err = CL_SUCCESS, status = CL_SUCCESS;
    const unsigned char *p = bin;
    cl_program prog = clCreateProgramWithBinary(ctx, 1, &dev, &size, &p, &status, &err);
    if (err != CL_SUCCESS) return err;
    if (status == CL_SUCCESS) status = clBuildProgram(prog, 1, &dev, options, NULL, NULL);
    if (status != CL_SUCCESS) {
        clReleaseProgram(prog);
        return status;
    }
    *out = prog;
    return CL_SUCCESS;
}

void *wf_cl_binary(cl_program prog, size_t *size)
{
    size_t n = 0;
    if (clGetProgramInfo(prog, CL_PROGRAM_BINARY_SIZES, sizeof n, &n, NULL) != CL_SUCCESS || !n)
        return NULL;
    unsigned char *bin = wf_calloc(n, 1);
    if (!bin) return NULL;
    if (clGetProgramInfo(prog, CL_PROGRAM_BINARIES, sizeof bin, &bin, NULL) != CL_SUCCESS) {
        free(bin);
        return NULL;
    }
    *size = n;
    return bin;
}

cl_device_id wf_cl_device_at(uint32_t p, uint32_t d, const char *name, cl_int *err)
{
    cl_platform_id platforms[32];
    cl_device_id devices[64], found = NULL;
    char text[1024] = "";
    cl_uint np = 0, nd = 0;
    *err = clGetPlatformIDs(WF_LEN(platforms), platforms, &np);
    if (*err != CL_SUCCESS || p >= WF_MIN(np, WF_LEN(platforms))) return NULL;
    *err = clGetDeviceIDs(platforms[p], CL_DEVICE_TYPE_ALL, WF_LEN(devices), devices, &nd);
    if (*err != CL_SUCCESS || d >= WF_MIN(nd, WF_LEN(devices))) return NULL;
    *err = clGetDeviceInfo(devices[d], CL_DEVICE_NAME, sizeof text - 1, text, NULL);
    if (*err == CL_SUCCESS && strstr(text, name)) found = devices[d];
    return found;
}

const char *wf_cl_error_name(cl_int err)
{
    static const struct {
        cl_int err;
        const char *name;
    } names[] = {
#define E(x) {x, #x}
        E(CL_SUCCESS), E(CL_DEVICE_NOT_FOUND), E(CL_DEVICE_NOT_AVAILABLE),
        E(CL_COMPILER_NOT_AVAILABLE), E(CL_MEM_OBJECT_ALLOCATION_FAILURE), E(CL_OUT_OF_RESOURCES),
        E(CL_OUT_OF_HOST_MEMORY), E(CL_PROFILING_INFO_NOT_AVAILABLE), E(CL_MEM_COPY_OVERLAP),
        E(CL_BUILD_PROGRAM_FAILURE), E(CL_MAP_FAILURE), E(CL_MISALIGNED_SUB_BUFFER_OFFSET),
        E(CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST), E(CL_COMPILE_PROGRAM_FAILURE),
        E(CL_LINKER_NOT_AVAILABLE), E(CL_LINK_PROGRAM_FAILURE), E(CL_DEVICE_PARTITION_FAILED),
        E(CL_KERNEL_ARG_INFO_NOT_AVAILABLE), E(CL_INVALID_VALUE), E(CL_INVALID_DEVICE_TYPE),
        E(CL_INVALID_PLATFORM), E(CL_INVALID_DEVICE), E(CL_INVALID_CONTEXT),
        E(CL_INVALID_QUEUE_PROPERTIES), E(CL_INVALID_COMMAND_QUEUE), E(CL_INVALID_HOST_PTR),
        E(CL_INVALID_MEM_OBJECT), E(CL_INVALID_BINARY), E(CL_INVALID_BUILD_OPTIONS),
        E(CL_INVALID_PROGRAM), E(CL_INVALID_PROGRAM_EXECUTABLE), E(CL_INVALID_KERNEL_NAME),
        E(CL_INVALID_KERNEL_DEFINITION), E(CL_INVALID_KERNEL), E(CL_INVALID_ARG_INDEX),
        E(CL_INVALID_ARG_VALUE), E(CL_INVALID_ARG_SIZE), E(CL_INVALID_KERNEL_ARGS),
        E(CL_INVALID_WORK_DIMENSION), E(CL_INVALID_WORK_GROUP_SIZE), E(CL_INVALID_WORK_ITEM_SIZE),
        E(CL_INVALID_GLOBAL_OFFSET), E(CL_INVALID_EVENT_WAIT_LIST), E(CL_INVALID_EVENT),
        E(CL_INVALID_OPERATION), E(CL_INVALID_BUFFER_SIZE), E(CL_INVALID_GLOBAL_WORK_SIZE),
        E(CL_INVALID_PROPERTY), E(CL_INVALID_COMPILER_OPTIONS), E(CL_INVALID_LINKER_OPTIONS),
#undef E
        {-1001, "CL_PLATFORM_NOT_FOUND_KHR"}, /* the loader found no driver */
        {-9999, "NVIDIA: illegal read or write by a kernel"},
    };
    for (size_t i = 0; i < WF_LEN(names); i++)
        if (names[i].err == err) return names[i].name;
    return "unknown OpenCL error";
}
