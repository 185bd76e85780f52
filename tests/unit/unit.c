/* unit: one program of all suites. `unit NAME [WORD...]` runs one; without a name each runs in a process of its own, so
 * that a crash ends one suite. */
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "suites.h"

typedef int suite_fn(int argc, char **argv);

#define SUITE(name) suite_fn unit_##name;
UNIT_SUITES
#undef SUITE

static const struct {
    const char *name;
    suite_fn *run;
} suites[] = {
#define SUITE(name) {#name, unit_##name},
    UNIT_SUITES};

#define N_SUITES (sizeof suites / sizeof suites[0])

static int run_all(const char *program)
{
    int failed = 0;
    for (size_t i = 0; i < N_SUITES; i++) {
        int status = 0;
        pid_t pid = fork();
        if (!pid) return execl("/proc/self/exe", program, suites[i].name, (char *)NULL);
        if (pid < 0 || waitpid(pid, &status, 0) < 0 || (status && WEXITSTATUS(status) != 77))
            printf("FAILED: %s\n", suites[i].name), failed++;
    }
    printf("%zu suites, %d failed\n", N_SUITES, failed);
    return failed > 0;
}

int main(int argc, char **argv)
{
    if (argc < 2) return run_all(argv[0]);
    for (size_t i = 0; i < N_SUITES; i++)
        if (!strcmp(argv[1], suites[i].name)) return suites[i].run(argc - 1, argv + 1);
    fprintf(stderr, "unit: no suite %s; there are:", argv[1]);
    for (size_t i = 0; i < N_SUITES; i++) fprintf(stderr, " %s", suites[i].name);
    fprintf(stderr, "\n");
    return 2;
}
