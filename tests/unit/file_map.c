/* file_map: maps of files that change, vanish or shrink; the SIGBUS handler's manners; whole-file
 * reads; the cache folder. */
#include "base/file.h"
#include "support/folder.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>

static size_t page;

static int setup(void **state)
{
    page = (size_t)sysconf(_SC_PAGESIZE);
    return make_folder(state);
}

static int teardown(void **state)
{
    return rmdir(folder); /* every test removes its files */
}

/* A file of n bytes 'a'; its path is remembered until removed. */
static const char *make_file(const char *name, size_t n)
{
    const char *path = in_folder(name);
    int fd = open(path, O_CREAT | O_TRUNC | O_WRONLY, 0600);
    char *text = malloc(n + 1);
    memset(text, 'a', n + 1);
    assert_int_equal(write(fd, text, n), (ssize_t)n);
    close(fd);
    free(text);
    return path;
}

static size_t count_a(const wf_map *m)
{
    size_t n = 0;
    for (size_t i = 0; i < m->size; i++) n += ((const volatile uint8_t *)m->data)[i] == 'a';
    return n;
}

/* ---- signals: these run first, in children or before any map, because the handler stays ------ */

/* A fault outside our maps. */
static void foreign_fault(void)
{
    const char *path = make_file("foreign", 1);
    int fd = open(path, O_RDONLY);
    volatile char *p = mmap(NULL, page * 2, PROT_READ, MAP_PRIVATE, fd, 0);
    close(fd);
    unlink(path);
    (void)p[page];
    munmap((void *)(uintptr_t)p, page * 2);
}

/* Runs after a map was opened, in a child; returns its wait status. */
static int in_child(void (*before)(void), void (*after)(void))
{
    const char *path = make_file("child", page);
    pid_t pid = fork();
    if (pid == 0) {
        wf_map m;
        if (before) before();
        if (wf_map_open(path, &m)) _exit(3);
        after();
        _exit(7);
    }
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    unlink(path);
    unlink(in_folder("foreign"));
    return status;
}

static bool survived(int status)
{
    return WIFEXITED(status) && WEXITSTATUS(status) == 7;
}

static void silence(void)
{
    signal(SIGBUS, SIG_DFL); /* a sanitizer's own handler would report and confuse the reader */
}

static void send_bus(void)
{
    raise(SIGBUS);
}

static void ignore_bus(void)
{
    signal(SIGBUS, SIG_IGN);
}

static void exit_9(int sig)
{
    _exit(9);
}

static void old_style(void)
{
    signal(SIGBUS, exit_9);
}

static void default_action_stays(void **state)
{
    int status = in_child(silence, foreign_fault);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGBUS);
    status = in_child(silence, send_bus);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGBUS);
    assert_true(survived(in_child(ignore_bus, send_bus)));
    status = in_child(ignore_bus, foreign_fault); /* the kernel does not let faults be ignored */
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGBUS);
    status = in_child(old_style, foreign_fault);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 9);
}

/* cmocka puts its own handler over ours for the time of each test; hosts that do so lose ours as well. */
static struct sigaction ours;

static void use_ours(void)
{
    assert_int_equal(sigaction(SIGBUS, &ours, NULL), 0);
}

static sigjmp_buf back;
static volatile uintptr_t seen_address;

static void previous_handler(int sig, siginfo_t *info, void *context)
{
    seen_address = (uintptr_t)info->si_addr;
    siglongjmp(back, 1);
}

static void previous_handler_runs(void **state)
{
    struct sigaction sa = {.sa_sigaction = previous_handler, .sa_flags = SA_SIGINFO};
    assert_int_equal(sigaction(SIGBUS, &sa, NULL), 0);
    wf_map m;
    const char *path = make_file("ours", 10);
    assert_ok(wf_map_open(path, &m)); /* installs the handler on top */
    assert_int_equal(sigaction(SIGBUS, NULL, &ours), 0);
    assert_true(ours.sa_sigaction != previous_handler);
    unlink(path);
    if (!sigsetjmp(back, 1)) {
        foreign_fault();
        fail_msg("no fault");
    }
    unlink(in_folder("foreign"));
    assert_int_equal(seen_address % page, 0);
    assert_false(wf_map_broken(&m));
    assert_int_equal(count_a(&m), 10); /* still there and still ours */
    wf_map_close(&m);
}

/* ---- maps ------------------------------------------------------------------------------------ */

static void whole_file(void **state)
{
    wf_map m;
    const char *path = make_file("f", 3 * page + 5);
    assert_ok(wf_map_open(path, &m));
    assert_int_equal(m.size, 3 * page + 5);
    assert_int_equal(count_a(&m), m.size);
    unlink(path); /* a file that is removed or replaced by rename stays as it was for us */
    assert_false(wf_map_broken(&m));
    assert_int_equal(count_a(&m), m.size);
    wf_map_close(&m);
    assert_int_equal(m.size, 0);
    wf_map_close(&m); /* twice is harmless */
    int fds = files_in("/proc/self/fd", NULL, 0);

    path = make_file("empty", 0);
    assert_ok(wf_map_open(path, &m));
    assert_int_equal(m.size, 0);
    assert_non_null(m.data);
    assert_false(wf_map_broken(&m));
    wf_map_close(&m);
    unlink(path);
    assert_int_equal(files_in("/proc/self/fd", NULL, 0), fds);
}

static void shortened(void **state)
{
    wf_map m, other;
    use_ours();
    const char *path = make_file("f", 16 * page), *path2 = make_file("g", 4 * page);
    assert_ok(wf_map_open(path, &m));
    assert_ok(wf_map_open(path2, &other));
    assert_int_equal(truncate(path, (off_t)(2 * page + 10)), 0);
    assert_true(wf_map_broken(&m)); /* seen before any fault */
    assert_int_equal(count_a(&m), 2 * page + 10);
    assert_true(wf_map_broken(&m));
    assert_int_equal(truncate(path, 0), 0);
    count_a(&m);
    assert_false(wf_map_broken(&other));
    assert_int_equal(count_a(&other), 4 * page);
    wf_map_close(&m);
    assert_int_equal(count_a(&other), 4 * page);
    wf_map_close(&other);
    assert_ok(wf_map_open(path2, &m)); /* the slot starts afresh */
    assert_false(wf_map_broken(&m));
    wf_map_close(&m);
    unlink(path);
    unlink(path2);
}

static void changed(void **state)
{
    wf_map m;
    const char *path = make_file("f", page);
    const struct timespec old[2] = {{1000000000, 0}, {1000000000, 0}};
    assert_int_equal(utimensat(AT_FDCWD, path, old, 0), 0);
    assert_ok(wf_map_open(path, &m));
    assert_false(wf_map_broken(&m));
    int fd = open(path, O_WRONLY);
    assert_int_equal(pwrite(fd, "b", 1, 0), 1); /* same size, other time */
    close(fd);
    assert_true(wf_map_broken(&m));
    wf_map_close(&m);
    assert_ok(wf_map_open(path, &m));
    fd = open(path, O_WRONLY | O_APPEND);
    assert_int_equal(write(fd, "b", 1), 1);
    close(fd);
    assert_true(wf_map_broken(&m));
    wf_map_close(&m);
    unlink(path);
}

/* Only the time is new: nothing has changed, nor later. Written with the old time put back: it has. */
static void touched(void **state)
{
    wf_map m, again;
    const char *path = make_file("f", page);
    const struct timespec old[2] = {{1000000000, 0}, {1000000000, 0}};
    assert_ok(wf_map_open(path, &m));
    assert_ok(wf_map_open(path, &again));
    assert_int_equal(utimensat(AT_FDCWD, path, NULL, 0), 0);
    assert_false(wf_map_broken(&m));
    assert_int_equal(utimensat(AT_FDCWD, path, old, 0), 0);
    assert_false(wf_map_broken(&m));
    wf_map_close(&m);
    assert_false(wf_map_broken(&again));
    int fd = open(path, O_WRONLY);
    assert_int_equal(pwrite(fd, "b", 1, 0), 1);
    close(fd);
    assert_int_equal(utimensat(AT_FDCWD, path, old, 0), 0);
    assert_true(wf_map_broken(&again));
    wf_map_close(&again);
    unlink(path);
}

/* Shortened, read, and made whole again: the pages that were replaced stay zeros. */
static void shortened_for_a_while(void **state)
{
    wf_map m;
    use_ours();
    const char *path = make_file("f", 4 * page);
    const struct timespec old[2] = {{1000000000, 0}, {1000000000, 0}};
    assert_int_equal(utimensat(AT_FDCWD, path, old, 0), 0);
    assert_ok(wf_map_open(path, &m));
    assert_int_equal(truncate(path, 0), 0);
    assert_int_equal(count_a(&m), 0);
    assert_int_equal(truncate(path, (off_t)(4 * page)), 0);
    assert_int_equal(utimensat(AT_FDCWD, path, old, 0), 0);
    assert_true(wf_map_broken(&m));
    wf_map_close(&m);
    unlink(path);
}

/* Pages of the map that this process holds, by the kernel's table. */
static size_t pages_held(const wf_map *m)
{
    size_t n = 0;
    int fd = open("/proc/self/pagemap", O_RDONLY);
    assert_true(fd >= 0);
    for (size_t at = 0; at < m->size; at += page) {
        uint64_t entry;
        assert_int_equal(pread(fd, &entry, sizeof entry, (off_t)(((uintptr_t)m->data + at) / page * sizeof entry)),
                         sizeof entry);
        n += entry >> 63;
    }
    close(fd);
    return n;
}

/* Nothing is held, and all is there when it is read again; what was cut away stays zeros. */
static void resting(void **state)
{
    wf_map m;
    use_ours();
    const char *path = make_file("rest", page * 8);
    assert_ok(wf_map_open(path, &m));
    assert_int_equal(count_a(&m), m.size);
    bool told = pages_held(&m) == 8; /* under an emulator the table has other addresses */
    wf_map_advise_cold(&m);
    if (told) assert_int_equal(pages_held(&m), 0);
    assert_int_equal(count_a(&m), m.size);
    assert_false(wf_map_broken(&m));
    assert_int_equal(truncate(path, (off_t)page * 3), 0);
    assert_int_equal(count_a(&m), page * 3);
    wf_map_advise_cold(&m);
    assert_int_equal(count_a(&m), page * 3);
    assert_true(wf_map_broken(&m));
    wf_map_close(&m);
    wf_map_advise_cold(&m); /* no file */
    unlink(path);
}

static void *reader(void *arg)
{
    return (void *)count_a(arg);
}

/* Many threads fault on the same and on different pages at once. */
static void threads_fault_together(void **state)
{
    use_ours();
    for (int round = 0; round < 20; round++) {
        wf_map m;
        pthread_t t[4];
        const char *path = make_file("f", 64 * page);
        assert_ok(wf_map_open(path, &m));
        assert_int_equal(truncate(path, (off_t)page), 0);
        for (size_t i = 0; i < WF_LEN(t); i++) assert_int_equal(pthread_create(&t[i], NULL, reader, &m), 0);
        for (size_t i = 0; i < WF_LEN(t); i++) {
            void *n;
            pthread_join(t[i], &n);
            assert_int_equal((size_t)n, page);
        }
        assert_true(wf_map_broken(&m));
        wf_map_close(&m);
        unlink(path);
    }
}

static void many_maps(void **state)
{
    enum { MOST = 512 };
    wf_map m[MOST], one_more;
    const char *path = make_file("f", 10);
    int fds = files_in("/proc/self/fd", NULL, 0);
    for (int i = 0; i < MOST; i++) assert_ok(wf_map_open(path, &m[i]));
    assert_error(wf_map_open(path, &one_more), WEFT_ERR_IO, "512 files");
    wf_map_close(&m[17]);
    assert_ok(wf_map_open(path, &one_more));
    m[17] = one_more;
    for (int i = 0; i < MOST; i++) wf_map_close(&m[i]);
    assert_int_equal(files_in("/proc/self/fd", NULL, 0), fds);
    unlink(path);
}

static void cannot_map(void **state)
{
    wf_map m;
    assert_error(wf_map_open(folder, &m), WEFT_ERR_IO, "directory");
    assert_error(wf_map_open("/dev/zero", &m), WEFT_ERR_IO, "character device");
    assert_int_equal(wf_map_open("", &m), WEFT_ERR_IO);
    assert_error(wf_map_open(in_folder("absent"), &m), WEFT_ERR_IO, "absent: No such file");
    wf_map_close(&m);
    const char *fifo = in_folder("fifo"), *link = in_folder("link");
    assert_int_equal(mkfifo(fifo, 0600), 0);
    assert_int_equal(symlink(fifo, link), 0);
    assert_error(wf_map_open(link, &m), WEFT_ERR_IO, "FIFO");
    unlink(fifo);
    unlink(link);
}

/* ---- whole files ----------------------------------------------------------------------------- */

static void *write_fifo(void *path)
{
    FILE *f = fopen(path, "w");
    for (int i = 0; i < 10000; i++) fputs("line of text\n", f);
    fclose(f);
    return NULL;
}

static void read_file(void **state)
{
    char *text;
    size_t n;
    static const size_t sizes[] = {0, 1, 4094, 4095, 4096, 4097, 8191, 100000};
    for (size_t i = 0; i < WF_LEN(sizes); i++) {
        const char *path = make_file("f", sizes[i]);
        assert_ok(wf_read_file(path, sizes[i], &text, &n));
        assert_int_equal(n, sizes[i]);
        assert_int_equal(strlen(text), n);
        free(text);
        assert_ok(wf_read_file(path, SIZE_MAX, &text, &n));
        assert_int_equal(n, sizes[i]);
        free(text);
        if (sizes[i]) assert_int_equal(wf_read_file(path, sizes[i] - 1, &text, &n), WEFT_ERR_IO);
        unlink(path);
    }
    assert_error(wf_read_file("/dev/zero", 1000, &text, &n), WEFT_ERR_IO, "/dev/zero has more than 1000 bytes");
    assert_error(wf_read_file(folder, 1000, &text, &n), WEFT_ERR_IO, "directory");
    assert_error(wf_read_file(in_folder("absent"), 1000, &text, &n), WEFT_ERR_IO, "cannot open");
    const char *fifo = in_folder("fifo");
    pthread_t t;
    assert_int_equal(mkfifo(fifo, 0600), 0);
    pthread_create(&t, NULL, write_fifo, (void *)(uintptr_t)fifo);
    assert_ok(wf_read_file(fifo, 1 << 20, &text, &n));
    pthread_join(t, NULL);
    assert_int_equal(n, 130000);
    assert_memory_equal(text + n - 13, "line of text\n", 14);
    free(text);
    unlink(fifo);
}

/* ---- files written whole --------------------------------------------------------------------- */

static void expect_text(const char *path, const char *want)
{
    char *text;
    size_t n;
    assert_ok(wf_read_file(path, 1000, &text, &n));
    assert_string_equal(text, want);
    free(text);
}

/* Writes the text; whole or not, nothing is left beside it. */
static weft_status put(const char *path, const char *text, bool whole)
{
    wf_output o;
    WF_TRY(wf_output_open(path, &o));
    fputs(text, o.f);
    weft_status s = wf_output_end(&o, whole);
    assert_true(!*o.tmp_path || access(o.tmp_path, F_OK));
    return s;
}

static void write_whole(void **state)
{
    const char *path = in_folder("out"), *link = in_folder("link");
    assert_ok(put(path, "half", false));
    assert_int_equal(access(path, F_OK), -1);
    assert_ok(put(path, "first", true));
    assert_ok(put(path, "half", false));
    expect_text(path, "first");
    assert_int_equal(symlink(path, link), 0);
    assert_ok(put(link, "second", true));
    expect_text(path, "second");
    char target[8];
    assert_true(readlink(link, target, sizeof target) > 0); /* still a link */
    assert_ok(put("/dev/null", "text", true));
    assert_error(put(in_folder("absent/out"), "text", true), WEFT_ERR_IO, "absent/out: No such file");
    if (!access("/dev/full", W_OK)) assert_int_equal(put("/dev/full", "text", true), WEFT_ERR_IO);
    unlink(link);
    unlink(path);
}

/* ---- cache folder ---------------------------------------------------------------------------- */

static void expect_cache(const char *want)
{
    char got[256];
    assert_ok(wf_cache_dir(got, sizeof got));
    assert_string_equal(got, want);
    struct stat st;
    assert_int_equal(stat(got, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0700);
    assert_int_equal(st.st_uid, geteuid());
}

static void cache_folder(void **state)
{
    char xdg[128], xdg_weft[160], home[128], home_cache[160], home_weft[200], tmp_weft[64];
    snprintf(xdg, sizeof xdg, "%s/a/b", folder);
    snprintf(xdg_weft, sizeof xdg_weft, "%s/weft", xdg);
    snprintf(home, sizeof home, "%s/home", folder);
    snprintf(home_cache, sizeof home_cache, "%s/.cache", home);
    snprintf(home_weft, sizeof home_weft, "%s/weft", home_cache);
    snprintf(tmp_weft, sizeof tmp_weft, "/tmp/weft-%lu", (unsigned long)geteuid());
    mode_t old = umask(0);
    setenv("XDG_CACHE_HOME", xdg, 1);
    setenv("HOME", home, 1);
    expect_cache(xdg_weft);                     /* made, with its parents */
    expect_cache(xdg_weft);                     /* found */
    assert_int_equal(chmod(xdg_weft, 0770), 0); /* others could put binaries there */
    expect_cache(home_weft);
    if (geteuid() == 0) { /* someone else's */
        assert_int_equal(chmod(xdg_weft, 0700) | chown(xdg_weft, 65534, 65534), 0);
        expect_cache(home_weft);
    }
    assert_int_equal(rmdir(xdg_weft), 0);
    close(open(xdg_weft, O_CREAT | O_WRONLY, 0600)); /* no folder */
    expect_cache(home_weft);
    unlink(xdg_weft);
    setenv("XDG_CACHE_HOME", "relative", 1);
    expect_cache(home_weft);
    unsetenv("XDG_CACHE_HOME");
    expect_cache(home_weft);
    unsetenv("HOME");
    bool existed = access(tmp_weft, F_OK) == 0;
    if (!existed) {
        expect_cache(tmp_weft);
        assert_int_equal(rmdir(tmp_weft), 0);
        assert_int_equal(symlink(xdg, tmp_weft), 0); /* laid by someone: not followed */
        char got[256];
        assert_error(wf_cache_dir(got, sizeof got), WEFT_ERR_IO, tmp_weft);
        unlink(tmp_weft);
    }
    char small[4];
    assert_int_equal(wf_cache_dir(small, sizeof small), WEFT_ERR_IO);
    assert_int_equal(wf_cache_dir(NULL, 0), WEFT_ERR_IO);
    umask(old);
    rmdir(xdg);
    rmdir(in_folder("a"));
    rmdir(home_weft);
    rmdir(home_cache);
    rmdir(home);
}

SUITE(file_map, setup, teardown, CASE(default_action_stays) /* before any map */, CASE(previous_handler_runs),
      CASE(whole_file), CASE(shortened), CASE(touched), CASE(changed), CASE(shortened_for_a_while), CASE(resting),
      CASE(threads_fault_together), CASE(many_maps), CASE(cannot_map), CASE(read_file), CASE(write_whole),
      CASE(cache_folder))
