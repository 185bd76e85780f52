/* weft-clbuild: builds OpenCL programs for a weft process that would rather not do it itself.
 *
 * Reads requests from a socket on descriptor 0 and answers there (cl_build_request, cl_build_reply in cl.h) until the
 * stream ends. Not meant to be run by hand.
 */
#include "cl/cl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define MAX_TEXT (16u << 20)

static bool get(void *data, size_t n)
{
    char *p = data;
    while (n) {
        ssize_t k = recv(0, p, n, 0);
        if (k <= 0) return false;
        p += k;
        n -= (size_t)k;
    }
    return true;
}

static bool put(const void *data, size_t n)
{
    const char *p = data;
    while (n) {
        ssize_t k = send(0, p, n, MSG_NOSIGNAL);
        if (k <= 0) return false;
        p += k;
        n -= (size_t)k;
    }
    return true;
}

static char *get_text(uint32_t n)
{
    char *p = n && n <= MAX_TEXT ? calloc(n, 1) : NULL;
    if (p && get(p, n) && p[n - 1] == 0) return p;
    free(p);
    return NULL;
}

static bool answer(cl_int err, const void *data, size_t n)
{
    cl_build_reply a = {WF_CL_MAGIC, err, n};
    return put(&a, sizeof a) && put(data, n);
}

/* The context is kept from build to build; one helper serves one device. */
static cl_context get_context(cl_device_id dev, cl_int *err)
{
    static cl_context ctx;
    *err = CL_SUCCESS;
    if (!ctx) ctx = clCreateContext(NULL, 1, &dev, NULL, NULL, err);
    return ctx;
}

static bool build(const cl_build_request *a, const char *options, const char *name, const char *source)
{
    cl_int err;
    cl_program prog;
    char *log = NULL;
    size_t size = 0;
    cl_device_id dev = wf_cl_device_at(a->p, a->d, name, &err);
    if (!dev) return answer(CL_DEVICE_NOT_FOUND, name, strlen(name));
    cl_context ctx = get_context(dev, &err);
    if (err == CL_SUCCESS) err = wf_cl_compile(ctx, dev, source, options, &prog, &log);
    if (err != CL_SUCCESS) {
        bool ok = answer(err, log ? log : "", log ? strlen(log) : 0);
        free(log);
        return ok;
    }
    void *bin = wf_cl_binary(prog, &size);
    bool ok = answer(CL_SUCCESS, bin ? bin : "", bin ? size : 0);
    clReleaseProgram(prog);
    free(bin);
    return ok;
}

int main(void)
{
    cl_build_request a;
    while (get(&a, sizeof a) && a.magic == WF_CL_MAGIC) {
        alarm(a.seconds); /* who asked may be gone while the compiler hangs */
        char *options = get_text(a.options), *name = get_text(a.name), *source = get_text(a.source);
        bool ok = options && name && source && build(&a, options, name, source);
        free(options);
        free(name);
        free(source);
        if (!ok) return 1;
        alarm(0);
    }
    return 0;
}
