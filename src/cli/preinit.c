/* preinit: what has to be so before libraries start, and cannot be arranged from main.
 *
 * OpenBLAS starts a thread for each core as it is loaded. Each maps 128 MiB; where the address space (ulimit -v) has no room for them it tries
 * again for ever, so that no process ends, and takes from other libraries what they start with. weft calls OpenBLAS from threads of its
 * own and needs none of these. OpenBLAS learns that from the environment only, and so the program begins anew with another one.
 *
 * All is as it would be without where the C library does not call .preinit_array (musl), /proc is missing, or the environment is too large.
 */
#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/resource.h>
#include <unistd.h>

#define VARIABLE "OPENBLAS_NUM_THREADS="
#define MOST_VARIABLES 4096

__attribute__((no_sanitize("address", "thread"))) static bool is_limited(void)
{
    struct rlimit space;
    return !getrlimit(RLIMIT_AS, &space) && space.rlim_cur != RLIM_INFINITY;
}

/* The program's path, by which the process keeps its name; "": none to go by, for the dynamic loader was started with the program as its argument,
 * or the program has another user's rights, while somebody may put something else at its path. */
__attribute__((no_sanitize("address", "thread"))) static const char *program(void)
{
    static char path[4096];
    bool known = getauxval(AT_BASE) && !getauxval(AT_SECURE) && readlink("/proc/self/exe", path, sizeof path - 1) > 0;
    return known ? path : "";
}

/* Nothing of the C library is set up yet, environ neither: these are the kernel's. */
__attribute__((no_sanitize("address", "thread"))) static void one_thread(int argc, char **argv, char **envp)
{
    static char one[] = VARIABLE "1", *env[MOST_VARIABLES + 2];
    size_t n = 0;
    (void)argc;
    if (!is_limited()) return;
    for (char **e = envp; *e; e++) {
        if (!strcmp(*e, one) || n == MOST_VARIABLES) return;
        if (strncmp(*e, VARIABLE, strlen(VARIABLE))) env[n++] = *e;
    }
    env[n] = one;
    execve(program(), argv, env);
}

__attribute__((section(".preinit_array"), used)) static void (*const before_libraries)(int, char **, char **) = one_thread;
