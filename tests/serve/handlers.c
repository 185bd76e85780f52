/* handlers: preloaded into the server, behaves as LLVM does inside an OpenCL driver: when the thread that loads the
 * model begins, handlers of signals are replaced by one that works once and then leaves the signal to the default
 * action, which ends the process. */
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>

static void once(int sig)
{
    raise(sig);
}

/* At the first thread behind the server's own handlers; libraries have some before. */
static void replace(void)
{
    static atomic_flag done = ATOMIC_FLAG_INIT;
    struct sigaction sa = {.sa_handler = once, .sa_flags = (int)SA_RESETHAND}, now;
    sigaction(SIGTERM, NULL, &now);
    if (now.sa_handler == SIG_DFL || atomic_flag_test_and_set(&done)) return;
    sigaction(SIGTERM, &sa, NULL);
    sigaction(SIGINT, &sa, NULL);
}

__attribute__((visibility("default"))) int pthread_create(pthread_t *thread, const pthread_attr_t *attr,
                                                          void *(*work)(void *), void *arg)
{
    int (*next)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *) =
        (int (*)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *))dlsym(RTLD_NEXT, "pthread_create");
    replace();
    return next(thread, attr, work, arg);
}
