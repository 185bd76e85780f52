/* The parent's side of the build helper (clbuild.c): starting it, asking, waiting with a limit.
 *
 * Vendors' compilers crash, hang or take minutes on valid kernels. The helper does the first build of
 * every program; if it dies or does not answer in time, only the variant is lost. One helper serves
 * one build after another, as most of its time is the loading of drivers.
 */
#include "cl/cl.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define NAME "weft-clbuild"

/* ---- finding it ------------------------------------------------------------------------------------------- */

/* The helper in dir itself or where the build tree has it, seen from there. */
static bool helper_near(const char *file, char *out, size_t cap)
{
    static const char *const places[] = {"", "cl/", "../cl/", "../../cl/", "../libexec/"};
    const char *slash = strrchr(file, '/');
    if (!slash) return false;
    for (size_t i = 0; i < WF_LEN(places); i++) {
        snprintf(out, cap, "%.*s/%s" NAME, (int)(slash - file), file, places[i]);
        if (access(out, X_OK) == 0) return true;
    }
    return false;
}

static bool find_helper(char *out, size_t cap)
{
    char exe[512];
    Dl_info lib;
    const char *set = getenv("WEFT_CLBUILD");
    if (set) {
        wf_copy(out, cap, set);
        return access(out, X_OK) == 0;
    }
    if (dladdr((void *)&wf_cl_sources, &lib) && lib.dli_fname && helper_near(lib.dli_fname, out, cap)) return true;
    ssize_t n = readlink("/proc/self/exe", exe, sizeof exe - 1);
    if (n > 0) {
        exe[n] = 0;
        if (helper_near(exe, out, cap)) return true;
    }
    snprintf(out, cap, "%s/" NAME, wf_cl_libexec);
    return access(out, X_OK) == 0;
}

/* ---- starting and stopping --------------------------------------------------------------------------------- */

void wf_cl_child_kill(cl_child *c)
{
    if (!c->pid || c->fd < 0) return;
    close(c->fd);
    c->fd = -1;
    kill(c->pid, SIGKILL); /* it holds nothing worth a farewell */
}

void wf_cl_child_stop(cl_child *c)
{
    if (!c->pid) return;
    wf_cl_child_kill(c);
    while (waitpid(c->pid, NULL, 0) < 0 && errno == EINTR) {}
    c->pid = 0;
}

/* Its end of the socket becomes descriptor 0; what drivers print goes nowhere. */
static bool spawn_helper(cl_child *c, const char *path, int end)
{
    extern char **environ;
    char *argv[] = {(char *)path, NULL};
    posix_spawn_file_actions_t fa;
    pid_t pid = 0;
    if (posix_spawn_file_actions_init(&fa) != 0) return false;
    int err = posix_spawn_file_actions_adddup2(&fa, end, 0);
    for (int fd = 1; fd <= 2 && !err; fd++)
        err = posix_spawn_file_actions_addopen(&fa, fd, "/dev/null", O_WRONLY, 0);
    if (!err) err = posix_spawn(&pid, path, &fa, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&fa);
    c->pid = err ? 0 : pid;
    return !err;
}

bool wf_cl_child_start(cl_child *c)
{
    char path[600];
    int ends[2];
    if (c->pid) return true;
    if (c->missing) return false;
    if (!find_helper(path, sizeof path)) {
        wf_log(WEFT_LOG_DEBUG, NAME " not found (set WEFT_CLBUILD); kernels are built in this process");
        c->missing = true;
        return false;
    }
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) return false;
    if (!spawn_helper(c, path, ends[1])) {
        wf_log(WEFT_LOG_DEBUG, "%s does not start; kernels are built in this process", path);
        c->missing = true;
        close(ends[0]);
    }
    close(ends[1]);
    c->fd = ends[0];
    return c->pid != 0;
}

/* ---- asking ------------------------------------------------------------------------------------------------- */

uint64_t wf_cl_child_deadline(const cl_dev *d)
{
    return wf_now_ns() + (uint64_t)d->base.params.watchdog_ms * 1000000u;
}

/* Moves n bytes before the deadline; false at the end of the stream, on errors, when late, and when it is to stop. */
static bool transfer(int fd, void *data, size_t n, bool out, uint64_t deadline)
{
    char *p = data;
    while (n) {
        uint64_t now = wf_now_ns();
        struct pollfd pf = {fd, out ? POLLOUT : POLLIN, 0};
        if (now >= deadline) return errno = ETIMEDOUT, false;
        if (wf_stop_now() != WEFT_OK) return errno = ECANCELED, false;
        int r = poll(&pf, 1, (int)WF_MIN((deadline - now) / 1000000u + 1, WF_CL_LOOK_MS));
        if (r == 0 || (r < 0 && errno == EINTR)) continue;
        ssize_t k = out ? send(fd, p, n, MSG_NOSIGNAL | MSG_DONTWAIT) : recv(fd, p, n, MSG_DONTWAIT);
        if (k < 0 && (errno == EAGAIN || errno == EINTR)) continue;
        if (k <= 0) return errno = 0, false;
        p += k;
        n -= (size_t)k;
    }
    return true;
}

bool wf_cl_child_ask(const cl_dev *d, const cl_child *c, const char *source, const char *options, uint64_t deadline)
{
    const char *name = d->ref.info.name;
    int fd = c->fd;
    cl_build_request a = {.magic = WF_CL_MAGIC, .p = d->ref.p, .d = d->ref.d,
                .seconds = d->base.params.watchdog_ms / 1000 + 5,
                .options = (uint32_t)strlen(options) + 1, .name = (uint32_t)strlen(name) + 1,
                .source = (uint32_t)strlen(source) + 1};
    return transfer(fd, &a, sizeof a, true, deadline) &&
           transfer(fd, (char *)options, a.options, true, deadline) &&
           transfer(fd, (char *)name, a.name, true, deadline) &&
           transfer(fd, (char *)source, a.source, true, deadline);
}

void *wf_cl_child_hear(const cl_child *c, cl_build_reply *a, uint64_t deadline)
{
    if (!transfer(c->fd, a, sizeof *a, false, deadline)) return NULL;
    if (a->magic != WF_CL_MAGIC || a->size > (uint64_t)1 << 30) return errno = 0, NULL;
    char *data = wf_calloc(a->size + 1, 1);
    if (data && transfer(c->fd, data, a->size, false, deadline)) return data;
    free(data);
    return NULL;
}

/* After a death: how, in words; the helper is gone then. error: what ended the talk. */
static enum cl_child_result child_lost(cl_dev *d, int error)
{
    int status = 0;
    if (error == ECANCELED) return wf_cl_child_stop(&d->child), CL_CHILD_STOPPED;
    if (error == ETIMEDOUT) {
        wf_cl_child_stop(&d->child);
        wf_fail(WEFT_ERR_TIMEOUT, "the OpenCL compiler did not end within %u ms",
                d->base.params.watchdog_ms);
        return CL_CHILD_FAILED;
    }
    pid_t r = waitpid(d->child.pid, &status, WNOHANG);
    for (int i = 0; i < 100 && r == 0; i++) { /* the stream ends a moment before the process */
        wf_sleep_ns(10000000);
        r = waitpid(d->child.pid, &status, WNOHANG);
    }
    if (r > 0) {
        close(d->child.fd);
        d->child.pid = 0;
    } else {
        wf_cl_child_stop(&d->child);
    }
    if (r > 0 && WIFSIGNALED(status))
        wf_fail(WEFT_ERR_DEVICE, "the OpenCL compiler died of %s", strsignal(WTERMSIG(status)));
    else wf_fail(WEFT_ERR_DEVICE, "the OpenCL compiler ended the build process");
    return CL_CHILD_FAILED;
}

enum cl_child_result wf_cl_child_build(cl_dev *d, const char *source, const char *options, void **bin,
                                       size_t *size)
{
    cl_build_reply a = {0};
    if (d->ref.quirks.no_child || !wf_cl_child_start(&d->child)) return CL_CHILD_NONE;
    uint64_t deadline = wf_cl_child_deadline(d);
    errno = 0;
    char *data =
        wf_cl_child_ask(d, &d->child, source, options, deadline) ? wf_cl_child_hear(&d->child, &a, deadline) : NULL;
    d->child.used_ns = wf_now_ns();
    if (!data) return child_lost(d, errno);
    if (a.err == CL_SUCCESS) {
        *bin = data;
        *size = a.size;
        return CL_CHILD_OK;
    }
    enum cl_child_result r = CL_CHILD_FAILED;
    if (a.err == CL_DEVICE_NOT_FOUND) r = CL_CHILD_NONE; /* it sees other devices than we do */
    wf_fail(WEFT_ERR_UNSUPPORTED, "clBuildProgram: %s: %s", wf_cl_error_name(a.err), data);
    free(data);
    return r;
}
