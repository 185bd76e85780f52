/* hosts: `weft serve` with devices on several hosts (WEFT_HOSTS). This process starts mpirun with the same command, and
 * hands on to process 0, which has the server, the signals that end it; it ends with its code. One that mpirun loses
 * does not take that with it: clients are told. */
#include "cli/cli.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define TOLD "WEFT_HOSTS_TOLD" /* the file in which process 0 says which one it is, and at its end with which code */
enum { WAIT_MS = 50, STRAGGLERS_MS = 2000, LAST_MS = 5000, NO_MPIRUN = 127 };

/* ---- in process 0 ---------------------------------------------------------------------------------------------- */

static void tell_number(int n)
{
    const char *path = getenv(TOLD);
    int fd = path && !wf_process(NULL) ? open(path, O_WRONLY | O_APPEND | O_CLOEXEC | O_NOFOLLOW) : -1;
    if (fd < 0) return;
    dprintf(fd, "%d\n", n);
    close(fd);
}

void wf_hosts_begin(void) { tell_number(getpid()); }

void wf_hosts_end(int rc) { tell_number(rc); }

/* ---- in the one that starts it --------------------------------------------------------------------------------- */

static uint32_t count_hosts(const char *list)
{
    uint32_t n = 1;
    for (; *list; list++) n += *list == ',';
    return n;
}

/* For each of n processes its host, in the order of the list. */
static char *hosts_of(const char *list, uint32_t n)
{
    uint32_t hosts = count_hosts(list);
    char *text = NULL;
    size_t size;
    FILE *f = open_memstream(&text, &size);
    for (uint32_t i = 0; f && i < n; i++) {
        const char *at = list;
        for (uint32_t k = i * hosts / n; k; k--) at = strchr(at, ',') + 1;
        fprintf(f, "%s%.*s", i ? "," : "", (int)strcspn(at, ","), at);
    }
    return f && !fclose(f) ? text : NULL;
}

/* What other hosts do not find in settings of this one, as words. Returns how many. */
static size_t add_layout(const wf_opts *o, const char **words)
{
    static char counts[2][16];
    const char *const names[] = {"tp", "pp"}, *const options[] = {"--tp", "--pp"};
    const uint32_t values[] = {o->engine.tensor_parallel, o->engine.pipeline_parallel};
    size_t n = 0;
    for (size_t i = 0; i < WF_LEN(names); i++) {
        if (wf_opts_typed(o, names[i]) || !wf_opts_has(o, names[i])) continue;
        snprintf(counts[i], sizeof counts[i], "%u", values[i]);
        words[n++] = options[i], words[n++] = counts[i];
    }
    return n;
}

/* Does not return. told: the path of the file for TOLD. */
static void become_mpirun(const char *told, const char *hosts, const wf_opts *o, uint32_t n, int argc, char **argv)
{
    char program[PATH_MAX], count[16];
    ssize_t len = readlink("/proc/self/exe", program, sizeof program - 1);
    const char *const first[] = {"mpirun", "--allow-run-as-root", "--enable-recovery", "--oversubscribe", "--bind-to",
                                 "none", "--host", hosts, "-n", count, program, "serve"};
    const char **words = wf_calloc(WF_LEN(first) + 4 + (size_t)argc + 1, sizeof *words);
    size_t n_words = WF_LEN(first);
    if (len < 0 || !words) _exit(WF_EXIT_RUNTIME);
    program[len] = 0;
    snprintf(count, sizeof count, "%u", n);
    memcpy(words, first, sizeof first);
    n_words += add_layout(o, words + n_words);
    for (int i = 0; i < argc; i++) words[n_words++] = argv[i];
    unsetenv("WEFT_HOSTS");
    if (setenv(TOLD, told, 1)) _exit(WF_EXIT_RUNTIME);
    setpgid(0, 0); /* Ctrl-C is for this program's parent alone, */
    prctl(PR_SET_PDEATHSIG, SIGTERM); /* and so is its end */
    execvp("mpirun", (char **)(uintptr_t)words);
    fprintf(stderr, "weft: error: cannot start mpirun: %s: install Open MPI (Debian: openmpi-bin)\n", strerror(errno));
    _exit(NO_MPIRUN);
}

static atomic_int n_ends; /* signals so far */

static void note_end(int sig)
{
    (void)sig;
    atomic_fetch_add(&n_ends, 1);
}

/* What process 0 has told; -1: not yet. */
static void read_told(int fd, int *pid, int *code)
{
    char text[32] = "";
    if (pread(fd, text, sizeof text - 1, 0) < 0 || sscanf(text, "%d\n%d\n", pid, code) < 1) *pid = *code = -1;
}

/* It ends all at once. *since_ns: when it was told to, 0 before the first call; later ones insist after a while. */
static void end_mpirun(pid_t mpirun, uint64_t *since_ns)
{
    if (!*since_ns) *since_ns = wf_now_ns(), kill(mpirun, SIGTERM);
    else if (wf_now_ns() > *since_ns + LAST_MS * 1000000ull) kill(mpirun, SIGKILL);
}

/* Until mpirun has ended; those that process 0 leaves behind get a moment. */
static int watch_mpirun(pid_t mpirun, int file)
{
    int handed_on = 0, status = 0, server = -1, code = -1;
    uint64_t ended_ns = 0, ending_ns = 0;
    while (waitpid(mpirun, &status, WNOHANG) == 0) {
        read_told(file, &server, &code);
        if (code >= 0 && !ended_ns) ended_ns = wf_now_ns();
        if (atomic_load(&n_ends) > handed_on) {
            handed_on = atomic_load(&n_ends);
            if (server > 0 && code < 0) kill(server, SIGTERM);
        }
        bool at_once = handed_on > 1 || (handed_on && server <= 0); /* the first signal lets requests end */
        bool stays = ended_ns && wf_now_ns() > ended_ns + STRAGGLERS_MS * 1000000ull;
        if (at_once || stays) end_mpirun(mpirun, &ending_ns);
        wf_sleep_ns(WAIT_MS * 1000000ull);
    }
    read_told(file, &server, &code);
    if (WIFEXITED(status) && WEXITSTATUS(status) == NO_MPIRUN) return WF_EXIT_RUNTIME;
    if (code >= 0) return code;
    if (handed_on) return 0; /* before it served */
    if (server < 0) {
        fprintf(stderr, "weft: error: mpirun did not start the server: see what it wrote above\n");
        return WF_EXIT_RUNTIME;
    }
    fprintf(stderr, "weft: error: the server's process ended without a word\n");
    return WF_EXIT_LOST;
}

int wf_hosts_serve(const wf_opts *o, int argc, char **argv)
{
    uint32_t n = WF_MAX(o->engine.tensor_parallel, 1u) * WF_MAX(o->engine.pipeline_parallel, 1u);
    if (n < count_hosts(o->hosts) || n < 2)
        return wf_usage(o->command, "WEFT_HOSTS names %u hosts for %u devices: say --tp or --pp, so that each has one",
                        count_hosts(o->hosts), n);
    if (o->api_keys.n && wf_opts_typed(o, "api-key"))
        return wf_usage(o->command, "WEFT_HOSTS: --api-key would stay in the list of processes; use --api-key-file");
    const char *folder = getenv("TMPDIR");
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/weft-hosts-XXXXXX", folder && *folder ? folder : "/tmp");
    int told = mkostemp(path, O_CLOEXEC);
    char *hosts = hosts_of(o->hosts, n);
    if (told < 0 || !hosts)
        return wf_say_error(wf_fail(WEFT_ERR_IO, "cannot write %s: %s", path, strerror(errno)));
    struct sigaction sa = {.sa_handler = note_end};
    sigaction(SIGTERM, &sa, NULL);
    sigaction(SIGINT, &sa, NULL);
    pid_t mpirun = fork();
    if (!mpirun) become_mpirun(path, hosts, o, n, argc, argv);
    int rc = mpirun > 0 ? watch_mpirun(mpirun, told)
        : wf_say_error(wf_fail(WEFT_ERR_NOMEM, "cannot start a process: %s", strerror(errno)));
    unlink(path);
    close(told);
    free(hosts);
    return rc;
}
