/* stored_plan: what engines do with a kept plan that was damaged: whatever is in its place, they open, and write the
 * same text as without it. */
#include "base/file.h"
#include "kept/plans.h"
#include "support/kept_plan.h"
#include "support/demo.h"

#include <sys/stat.h>

enum { MOST_BYTES = 1 << 14, MOST_LINES = 200, N_TOKENS = 8, SEEDS = 150 };

static char cache[64], path[600], plan[MOST_BYTES],
    *lines[MOST_LINES]; /* where each line of the plan begins, and the end */
static size_t n_lines;

typedef struct answer {
    int32_t ids[N_TOKENS];
    size_t n;
} answer;
static answer sequential;

/* ---- engines ----------------------------------------------------------------------------------------------------- */

static struct weft_engine *open_engine(struct weft_engine_params p)
{
    p.device = "cpu", p.threads = 1, p.context = 64, p.max_batched_tokens = 4, p.deterministic = true;
    return demo_engine(p);
}

static void on_event(void *user, const struct weft_event *ev)
{
    answer *a = user;
    if (ev->kind == WEFT_EVENT_TOKEN && a->n < N_TOKENS) a->ids[a->n++] = ev->id;
}

static answer write_with(struct weft_engine *e)
{
    answer a = {.n = 0};
    struct weft_request *q = NULL;
    struct weft_request_params p = {.prompt = "One day there was a little girl who", .max_tokens = N_TOKENS,
                                    .ignore_eos = true, .on_event = on_event, .user = &a};
    if (weft_submit(e, &p, &q) || weft_wait(q, 0)) fail_msg("%s", weft_last_error());
    weft_request_free(q);
    return a;
}

/* Returns whether the plan was taken. */
static bool check_same(const char *what, size_t at)
{
    struct weft_engine *e = open_engine((struct weft_engine_params){0});
    bool taken = strstr(e->layout.plan_from, "weft tune --overlap found");
    answer a = write_with(e);
    if (a.n != N_TOKENS || memcmp(a.ids, sequential.ids, sizeof a.ids))
        fail_msg("%s %zu: other tokens (%s)", what, at, e->layout.plan_from);
    if (!taken && !strstr(e->layout.plan_from, "cannot be used")) fail_msg("%s %zu: %s", what, at, e->layout.plan_from);
    weft_engine_close(e);
    return taken;
}

/* ---- files ------------------------------------------------------------------------------------------------------- */

static void write_bytes(const char *bytes, size_t n)
{
    write_file(path, bytes, n);
}

static size_t at_line(size_t line)
{
    return (size_t)(lines[line] - plan);
}

/* The lines [begin, end), then [middle, begin), then those from end on: with other bounds also a plan without some. */
static void write_turned(size_t middle, size_t begin, size_t end)
{
    char text[MOST_BYTES];
    size_t head = at_line(middle), first = at_line(begin), last = at_line(end), n = strlen(plan);
    memcpy(text, plan, head);
    memcpy(text + head, plan + first, last - first);
    memcpy(text + head + last - first, plan + head, first - head);
    memcpy(text + last, plan + last, n - last);
    write_bytes(text, n);
}

/* ---- damage ------------------------------------------------------------------------------------------------------ */

static void test_whole(void **state)
{
    write_bytes(plan, strlen(plan));
    assert_true(check_same("whole", 0));
}

static void test_cut(void **state)
{
    for (size_t i = 0; i < n_lines; i++) {
        write_bytes(plan, at_line(i));
        assert_false(check_same("cut before line", i));
        write_bytes(plan, (at_line(i) + at_line(i + 1)) / 2);
        check_same("cut in line", i);
    }
}

static void test_lines_in_another_order(void **state)
{
    for (size_t i = 1; i + 2 < n_lines; i++) {
        write_turned(i, i + 1, i + 2);
        check_same("later line first", i);
    }
}

static void test_lines_missing_or_twice(void **state)
{
    char text[2 * MOST_BYTES];
    for (size_t i = 0; i < n_lines; i++)
        for (int times = 0; times <= 2; times += 2) {
            size_t begin = at_line(i), end = at_line(i + 1);
            int line = times ? (int)(end - begin) : 0;
            int n = snprintf(text, sizeof text, "%.*s%.*s%.*s%s", (int)begin, plan, line, plan + begin, line,
                             plan + begin, plan + end);
            write_bytes(text, (size_t)n);
            check_same(times ? "twice line" : "without line", i);
        }
}

/* Of no op, of another op, and of one that weft has. */
static void test_kernels(void **state)
{
    static const char *const names[] = {"nonsense", "rows", "attention", "base", "f32"};
    char text[2 * MOST_BYTES];
    for (size_t i = 0; i < n_lines; i++) {
        const char *at = strstr(lines[i], "kernel auto"), *next = lines[i + 1];
        if (!at || at > next) continue;
        int n = snprintf(text, sizeof text, "%.*skernel %s%s", (int)(at - plan), plan, names[i % WF_LEN(names)],
                         at + strlen("kernel auto"));
        write_bytes(text, (size_t)n);
        assert_false(check_same("kernel in line", i));
    }
}

static void test_random_bytes(void **state)
{
    char text[MOST_BYTES];
    size_t n = strlen(plan), taken = 0;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        memcpy(text, plan, n);
        for (uint64_t k = 0; k <= seed % 3; k++) {
            static const char digits[] = "0123456789-", bytes[] = "\0\n\r#\x80\xff tautolayer";
            size_t at = wf_random(seed, 2 * k) % n;
            bool digit = text[at] >= '0' && text[at] <= '9';
            text[at] = digit ? digits[wf_random(seed, 2 * k + 1) % (sizeof digits - 1)]
                             : bytes[wf_random(seed, 2 * k + 1) % (sizeof bytes - 1)];
        }
        write_bytes(text, n);
        taken += check_same("random bytes", (size_t)seed);
    }
    printf("%zu of %d plans with other bytes are still plans\n", taken, (int)SEEDS);
}

/* None of them may be waited for. */
static void test_no_files(void **state)
{
    unlink(path);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_false(check_same("FIFO", 0));
    unlink(path);
    assert_int_equal(mkdir(path, 0700), 0);
    assert_false(check_same("folder", 0));
    rmdir(path);
    assert_int_equal(symlink("/dev/zero", path), 0);
    assert_false(check_same("device", 0));
    unlink(path);
    write_bytes("", 0);
    assert_false(check_same("empty file", 0));
}

/* ---- the plan ---------------------------------------------------------------------------------------------------- */

static void find_lines(void)
{
    for (char *at = plan; *at; at = strchr(at, '\n') + 1) lines[n_lines++] = at;
    lines[n_lines] = plan + strlen(plan);
}

static int make_plan(void)
{
    char folder[600];
    struct weft_engine *e = open_engine((struct weft_engine_params){.nano_batches = 1});
    sequential = write_with(e);
    if (wf_stored_path(e->dev, &e->layout.graph, "plan", path, sizeof path)) return -1;
    weft_engine_close(e);
    snprintf(folder, sizeof folder, "%.*s", (int)(strrchr(path, '/') - path), path);
    if (wf_folder_check(folder)) return -1;
    e = open_engine((struct weft_engine_params){.nano_batches = 2});
    if (keep_plans(e, path)) return -1;
    weft_engine_close(e);
    FILE *f = fopen(path, "r");
    plan[fread(plan, 1, sizeof plan - 1, f)] = 0;
    fclose(f);
    find_lines();
    return sequential.n == N_TOKENS ? 0 : -1;
}

static int setup(void **state)
{
    snprintf(cache, sizeof cache, "/tmp/weft-stored-XXXXXX");
    weft_log_to(NULL, NULL, WEFT_LOG_ERROR);
    if (!mkdtemp(cache) || setenv("XDG_CACHE_HOME", cache, 1)) return -1;
    return weft_model_open(&(struct weft_model_params){.path = WEFT_DEMO}, &model) ? -1 : make_plan();
}

static int teardown(void **state)
{
    weft_model_close(model);
    return remove_folder_at(cache);
}

SUITE(stored_plan, setup, teardown, CASE(test_whole), CASE(test_cut), CASE(test_lines_in_another_order),
      CASE(test_lines_missing_or_twice), CASE(test_kernels), CASE(test_random_bytes), CASE(test_no_files))
