/* Kept kernel binaries: damaged, foreign and dangerous entries must cost a build and nothing else. */
#include "unit/cl_test.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "base/file.h"
#include "verify/bind.h"
#include "support/suite.h"

static const char body[] = "what a driver would call a binary";
static char dir[300];
static wf_cache_key key;

static wf_cache_key key_named(const char *options)
{
    struct weft_device_info info = {.name = "device", .platform = "platform", .driver = "1"};
    wf_cache_key k = wf_cl_key(&info, "source", options);
    assert_non_null(k.text);
    return k;
}

static int set_up(void **state)
{
    snprintf(dir, sizeof dir, "%s/cl", fresh_cache());
    key = key_named("-D A");
    wf_cache_put(dir, &key, body, sizeof body);
    return 0;
}

static int tear_down(void **state)
{
    *strrchr(dir, '/') = 0;
    forget_cache(dir);
    free(key.text);
    return 0;
}

static void path_of(const wf_cache_key *k, char *buf, size_t cap)
{
    snprintf(buf, cap, "%s/%s.bin", dir, k->name);
}

static bool there(const wf_cache_key *k)
{
    char path[400];
    path_of(k, path, sizeof path);
    return access(path, F_OK) == 0;
}

static char *entry(size_t *n)
{
    char path[400], *data;
    path_of(&key, path, sizeof path);
    assert_ok(wf_read_file(path, 1 << 20, &data, n));
    return data;
}

static void rewrite(const char *data, size_t n)
{
    char path[400];
    path_of(&key, path, sizeof path);
    write_file(path, data, n);
}

static void assert_refused(void)
{
    size_t n;
    assert_null(wf_cache_get(dir, &key, &n));
    assert_false(there(&key));
}

static void round_trip(void **state)
{
    size_t n = 0;
    void *got = wf_cache_get(dir, &key, &n);
    assert_non_null(got);
    assert_int_equal(n, sizeof body);
    assert_memory_equal(got, body, n);
    free(got);
}

static void keys_differ(void **state)
{
    struct weft_device_info a = {.name = "a"}, b = {.name = "a", .driver = "2"};
    wf_cache_key ka = wf_cl_key(&a, "s", "o"), kb = wf_cl_key(&b, "s", "o"), kc = wf_cl_key(&a, "s", "p"),
           kd = wf_cl_key(&a, "t", "o");
    assert_string_not_equal(ka.name, kb.name);
    assert_string_not_equal(ka.name, kc.name);
    assert_string_not_equal(ka.name, kd.name);
    free(ka.text), free(kb.text), free(kc.text), free(kd.text);
}

static void truncated(void **state)
{
    size_t n;
    char *data = entry(&n);
    for (size_t keep = 0; keep < n; keep++) {
        rewrite(data, keep);
        assert_refused();
    }
    free(data);
}

static void longer(void **state)
{
    size_t n;
    char *data = entry(&n), *more = realloc(data, n + 1);
    more[n] = 1;
    rewrite(more, n + 1);
    assert_refused();
    free(more);
}

static void flipped(void **state)
{
    size_t n;
    char *data = entry(&n);
    for (size_t i = 0; i < n; i++) {
        data[i] ^= 1 << i % 8;
        rewrite(data, n);
        assert_refused();
        data[i] ^= 1 << i % 8;
    }
    free(data);
}

/* A well-formed entry under the name of another: as after a collision of hashes. */
static void foreign(void **state)
{
    char from[400], to[400];
    size_t n;
    wf_cache_key other = key_named("-D B");
    path_of(&key, from, sizeof from);
    path_of(&other, to, sizeof to);
    assert_int_equal(rename(from, to), 0);
    assert_null(wf_cache_get(dir, &other, &n));
    assert_false(there(&other));
    free(other.text);
}

static void canary_of_the_living(void **state)
{
    assert_true(wf_cl_canary_arm(dir, &key));
    assert_true(wf_cl_canary_arm(dir, &key)); /* another device of this process */
    wf_cl_canary_clear(dir, &key);
    assert_true(there(&key));
}

static void canary_of_the_dead(void **state)
{
    int ready[2];
    char c;
    assert_int_equal(pipe(ready), 0);
    pid_t pid = fork();
    if (pid == 0) {
        bool ok = wf_cl_canary_arm(dir, &key);
        if (write(ready[1], ok ? "y" : "n", 1) != 1) _exit(1);
        pause();
    }
    assert_int_equal(read(ready[0], &c, 1), 1);
    assert_int_equal(c, 'y');
    assert_true(wf_cl_canary_arm(dir, &key)); /* it is at it, and so are we */
    wf_cl_canary_clear(dir, &key);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    assert_false(wf_cl_canary_arm(dir, &key));
    assert_false(there(&key));
    wf_cache_put(dir, &key, body, sizeof body);
    assert_true(wf_cl_canary_arm(dir, &key)); /* its canary went with the entry */
    wf_cl_canary_clear(dir, &key);
}

/* A process is killed while it writes an entry: who writes it next removes what it left. */
static void unfinished(void **state)
{
    int status;
    wf_cache_key other = key_named("-D B");
    pid_t pid = fork();
    if (pid == 0) {
        signal(SIGXFSZ, SIG_DFL); /* drivers catch it */
        setrlimit(RLIMIT_FSIZE, &(struct rlimit){16, 16}); /* one byte more ends it */
        setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
        wf_cache_put(dir, &other, body, sizeof body);
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(files_in(dir, NULL, 0), 2);
    assert_false(there(&other));
    wf_cache_put(dir, &other, body, sizeof body);
    assert_int_equal(files_in(dir, NULL, 0), 2);
    assert_true(there(&key) && there(&other));
    free(other.text);
}

static void no_folder(void **state)
{
    size_t n;
    assert_null(wf_cache_get("/proc/no/such", &key, &n));
    wf_cache_put("/proc/no/such", &key, body, sizeof body);
    assert_false(wf_cl_canary_arm("/proc/no/such", &key));
}

/* ---- with a device ------------------------------------------------------------------------------------- */

static void run_once(wf_open_params p)
{
    cl_dev *d = open_with(p);
    bench b = bench_new(d);
    assert_ok(run_small(&b));
    bench_free(&b);
    shut(d);
}

/* The small call in another process, whose exit status it returns. */
static int in_process_of_its_own(void)
{
    char self[400] = "", cmd[600];
    if (readlink("/proc/self/exe", self, sizeof self - 1) < 0) return -1;
    snprintf(cmd, sizeof cmd, "'%s' cl_cache once 2>&1", self);
    return system(cmd);
}

/* Keeps the key of an entry, but gives it a binary that no driver can load. */
static void refill(const char *file)
{
    char *data, *slash = strrchr(file, '/'), folder[600];
    size_t n, header = 32;
    uint64_t key_size;
    assert_ok(wf_read_file(file, 1 << 28, &data, &n));
    memcpy(&key_size, data + 8, sizeof key_size);
    wf_cache_key k = {.text = data + header};
    snprintf(k.name, sizeof k.name, "%.32s", slash + 1);
    snprintf(folder, sizeof folder, "%.*s", (int)(slash - file), file);
    data[header + key_size] = 0; /* ends the key; the binary behind it is not needed */
    wf_cache_put(folder, &k, body, sizeof body);
    void *got = wf_cache_get(folder, &k, &n);
    assert_non_null(got);
    free(got);
    free(data);
}

static void device_survives_bad_entries(void **state)
{
    const char *cache = fresh_cache();
    char path[300], file[600];
    snprintf(path, sizeof path, "%s/weft/cl", cache);
    run_once((wf_open_params){.no_kernel_cache = true});
    assert_int_equal(files_in(path, file, sizeof file), 0);
    run_once((wf_open_params){0});
    if (files_in(path, file, sizeof file)) { /* none where the driver has no binaries */
        assert_int_equal(truncate(file, 100), 0);
        run_once((wf_open_params){0});
        /* The driver refuses it or dies of it; then the canary keeps the next process from trying. */
        refill(file);
        bool died = in_process_of_its_own() != 0;
        if (died) assert_int_equal(in_process_of_its_own(), 0);
        assert_int_equal(files_in(path, file, sizeof file), 1); /* no canary is left */
    }
    forget_cache(cache);
}

SUITE_MAIN(cl_cache)
{
    if (argc > 1) return run_once((wf_open_params){0}), 0;
    const struct CMUnitTest tests[] = {CASE_IN(round_trip, set_up, tear_down), CASE_IN(keys_differ, set_up, tear_down),
        CASE_IN(truncated, set_up, tear_down), CASE_IN(longer, set_up, tear_down), CASE_IN(flipped, set_up, tear_down),
        CASE_IN(foreign, set_up, tear_down), CASE_IN(canary_of_the_living, set_up, tear_down),
        CASE_IN(canary_of_the_dead, set_up, tear_down), CASE_IN(unfinished, set_up, tear_down),
        CASE_IN(no_folder, set_up, tear_down), CASE(device_survives_bad_entries)};
    need_device(NULL);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
