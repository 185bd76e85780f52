/* What stands between the library's threads and Python: the log, which must not enter an interpreter that ends, and the mark of threads
 * that are within it. */
#include <stdatomic.h>
#include <stdio.h>
#include <time.h>
#include <weft/weft.h>

static void python_log(int level, const char *line); /* in Python */
static bool python_stop(void *user);
static void python_progress(void *user, const char *what, double fraction);

static atomic_bool log_to_python;
static atomic_uint threads_in_log;
static _Thread_local bool this_thread_in_log;

static void on_log(void *user, enum weft_log_level level, const char *line)
{
    (void)user;
    atomic_fetch_add(&threads_in_log, 1);
    this_thread_in_log = true;
    if (atomic_load(&log_to_python))
        python_log(level, line);
    else if (level <= WEFT_LOG_WARN)
        fprintf(stderr, "%s\n", line);
    this_thread_in_log = false;
    atomic_fetch_sub(&threads_in_log, 1);
}

static void open_log(void)
{
    atomic_store(&log_to_python, true);
    weft_log_to(on_log, NULL, WEFT_LOG_DEBUG);
}

/* After it no thread is in python_log, and none will be. Call it without the interpreter's lock, for which they may be waiting. */
static void close_log(void)
{
    atomic_store(&log_to_python, false);
    while (atomic_load(&threads_in_log)) nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

/* In the child of a fork, whose only thread is the one that forked: the others do not leave the log there. */
static void leave_threads(void)
{
    atomic_store(&threads_in_log, this_thread_in_log);
}

static bool in_log(void)
{
    return this_thread_in_log;
}
