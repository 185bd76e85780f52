/* base: errors, log, clock, random, allocation. See base.h. */
#include "base/base.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

/* ---- errors ------------------------------------------------------------------------------------ */

static _Thread_local char error_text[1024];

weft_status wf_fail(weft_status s, const char *fmt, ...)
{
    char text[sizeof error_text]; /* arguments may point into error_text */
    va_list ap;
    va_start(ap, fmt);
    wf_format(text, sizeof text, fmt, ap);
    va_end(ap);
    wf_show(error_text, sizeof error_text, text);
    return s;
}

static _Thread_local wf_stopper stop;

wf_stopper wf_stop_by(wf_stop_fn fn, void *user)
{
    wf_stopper before = stop;
    stop = (wf_stopper){fn, user};
    return before;
}

weft_status wf_stop_now(void)
{
    return stop.fn && stop.fn(stop.user) ? wf_fail(WEFT_ERR_CANCELLED, "cancelled") : WEFT_OK;
}

weft_status wf_stop_asked(size_t *n) { return ++*n % 4096 ? WEFT_OK : wf_stop_now(); }

static _Thread_local wf_listener listener;

wf_listener wf_report_to(weft_progress_fn fn, void *user)
{
    wf_listener before = listener;
    listener = (wf_listener){fn, user};
    return before;
}

void wf_report(const char *what, double fraction)
{
    if (listener.fn) listener.fn(listener.user, what, fraction);
}

weft_status wf_fail_context(weft_status s, const char *fmt, ...)
{
    char where[256];
    va_list ap;
    va_start(ap, fmt);
    wf_format(where, sizeof where, fmt, ap);
    va_end(ap);
    return wf_fail(s, "%s: %s", where, error_text);
}

weft_status wf_fail_param(weft_status s, const char *parameter)
{
    return s && s != WEFT_ERR_NOMEM ? wf_fail_context(WEFT_ERR_ARG, "%s", parameter) : s;
}

weft_status wf_unused(const uint64_t *reserved, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (reserved[i])
            return wf_fail(WEFT_ERR_UNSUPPORTED,
                           "reserved space of parameters is not zero: this program was built for a newer weft than %s, "
                           "or did not set them to zero",
                           weft_version());
    return WEFT_OK;
}

const char *wf_error(void) { return error_text; }

const char *weft_last_error(void) { return error_text; }

const char *weft_status_name(enum weft_status s)
{
    static const char *const names[] = {
        "WEFT_OK",           "WEFT_ERR_ARG",      "WEFT_ERR_NOMEM",    "WEFT_ERR_IO",
        "WEFT_ERR_FORMAT",   "WEFT_ERR_UNSUPPORTED", "WEFT_ERR_NODEVICE", "WEFT_ERR_DEVICE",
        "WEFT_ERR_TIMEOUT",  "WEFT_ERR_FULL",     "WEFT_ERR_CANCELLED", "WEFT_ERR_INTERNAL",
        "WEFT_ERR_NOT_FINITE",
    };
    return (size_t)s < WF_LEN(names) ? names[s] : "unknown status";
}

const char *weft_version(void) { return WF_VERSION; }

/* ---- log --------------------------------------------------------------------------------------- */

static struct {
    weft_log_fn fn;
    void *user;
    enum weft_log_level level;
} sink = {NULL, NULL, WEFT_LOG_WARN};

void weft_log_to(weft_log_fn fn, void *user, enum weft_log_level level)
{
    sink.fn = fn;
    sink.user = user;
    sink.level = level;
}

bool wf_log_on(enum weft_log_level level) { return level <= sink.level; }

void wf_log(enum weft_log_level level, const char *fmt, ...)
{
    static const char *const names[] = {"error", "warning", "info", "debug"};
    if (!wf_log_on(level)) return;
    char text[1024], line[1024];
    va_list ap;
    va_start(ap, fmt);
    wf_format(text, sizeof text, fmt, ap);
    va_end(ap);
    wf_show(line, sizeof line, text);
    if (sink.fn) sink.fn(sink.user, level, line);
    else fprintf(stderr, "weft: %s: %s\n", names[level], line);
}

/* ---- clock, random ----------------------------------------------------------------------------- */

uint64_t wf_now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

uint32_t wf_core_count(void)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    if (sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) > 0) return (uint32_t)CPU_COUNT(&set);
    long n = sysconf(_SC_NPROCESSORS_ONLN);
    return n > 0 ? (uint32_t)n : 1;
}

/* As Open MPI's mpirun tells them; 0: it does not. */
static uint32_t mpirun_number(const char *variable)
{
    const char *text = getenv(variable);
    return text ? (uint32_t)strtoul(text, NULL, 10) : 0;
}

uint32_t wf_process(uint32_t *n)
{
    uint32_t processes = WF_MAX(mpirun_number("OMPI_COMM_WORLD_SIZE"), 1u);
    if (n) *n = processes;
    return processes > 1 ? mpirun_number("OMPI_COMM_WORLD_RANK") : 0;
}

/* Those that mpirun has bound have cores of their own. */
uint32_t wf_core_share(void)
{
    uint32_t local = WF_MAX(mpirun_number("OMPI_COMM_WORLD_LOCAL_SIZE"), 1u), cores = wf_core_count();
    return getenv("OMPI_MCA_orte_bound_at_launch") ? cores : WF_MAX(cores / local, 1u);
}

void wf_sleep_ns(uint64_t ns)
{
    struct timespec t = {(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};
    nanosleep(&t, NULL);
}

/* splitmix64's output function over seed and counter (Steele, Lea, Flood 2014). */
uint64_t wf_random(uint64_t seed, uint64_t counter)
{
    uint64_t z = seed * 0xD1342543DE82EF95u + (counter + 1) * 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

double wf_random_unit(uint64_t seed, uint64_t counter) { return (double)(wf_random(seed, counter) >> 11) * 0x1p-53; }

static uint64_t hash_seed;

static void draw_seed(void)
{
    if (getrandom(&hash_seed, sizeof hash_seed, 0) != sizeof hash_seed)
        hash_seed = wf_random(wf_now_ns(), (uint64_t)getpid());
}

uint64_t wf_hash_seed(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, draw_seed);
    return hash_seed;
}

uint64_t wf_hash(const void *data, size_t len)
{
    uint64_t h = wf_random(wf_hash_seed(), len), word;
    for (const char *p = data; len; p += sizeof word) {
        size_t n = WF_MIN(len, sizeof word);
        word = 0;
        memcpy(&word, p, n);
        h = wf_random(h, word);
        len -= n;
    }
    return h;
}

/* ---- allocation, strings ----------------------------------------------------------------------- */

void *wf_calloc(size_t n, size_t size)
{
    void *p = calloc(n ? n : 1, size ? size : 1);
    if (!p) wf_fail(WEFT_ERR_NOMEM, "out of host memory: %zu x %zu bytes", n, size);
    return p;
}

bool wf_grow(void *array, size_t n, size_t *cap, size_t size)
{
    if (n < *cap) return true;
    size_t want = WF_MAX(*cap + *cap / 2, n + 16);
    void *p = want > SIZE_MAX / size ? NULL : realloc(*(void **)array, want * size);
    if (!p) return wf_fail(WEFT_ERR_NOMEM, "out of host memory: %zu x %zu bytes", want, size), false;
    *(void **)array = p;
    *cap = want;
    return true;
}

void wf_leak_on_purpose(void *p)
{
    typedef struct kept {
        struct kept *next;
        void *p;
    } kept;
    static _Atomic(kept *) all;
    kept *k = p ? malloc(sizeof *k) : NULL;
    if (!k) return;
    k->p = p;
    k->next = all;
    while (!atomic_compare_exchange_weak(&all, &k->next, k)) {}
}

char *wf_strdup(const char *s)
{
    char *p = wf_calloc(strlen(s) + 1, 1);
    return p ? strcpy(p, s) : NULL;
}

void wf_copy(char *dst, size_t cap, const char *src) { snprintf(dst, cap, "%s", src); }

/* ---- text of others ---------------------------------------------------------------------------- */

size_t wf_utf8_len(const char *text, size_t len)
{
    const unsigned char *p = (const unsigned char *)text;
    if (p[0] < 0x80) return 1;
    size_t n = p[0] >= 0xF0 ? 4 : p[0] >= 0xE0 ? 3 : 2;
    if (p[0] < 0xC2 || p[0] > 0xF4 || n > len) return 0;
    unsigned low = p[0] == 0xE0 ? 0xA0 : p[0] == 0xF0 ? 0x90 : 0x80;
    unsigned high = p[0] == 0xED ? 0x9F : p[0] == 0xF4 ? 0x8F : 0xBF;
    if (p[1] < low || p[1] > high) return 0;
    for (size_t i = 2; i < n; i++)
        if ((p[i] & 0xC0) != 0x80) return 0;
    return n;
}

size_t wf_utf8_valid(const char *p, size_t len)
{
    size_t at = 0;
    for (size_t n; at < len && (n = wf_utf8_len(p + at, len - at));) at += n;
    return at;
}

char *wf_utf8_clean(const char *p, size_t len, size_t *clean_len)
{
    static const char replacement[] = "\xEF\xBF\xBD";
    size_t most = sizeof replacement - 1, at = 0;
    char *clean = wf_calloc(len + 1, most);
    for (size_t i = 0, n; clean && i < len; i += WF_MAX(n, (size_t)1)) {
        n = wf_utf8_len(p + i, len - i);
        memcpy(clean + at, n ? p + i : replacement, n ? n : most);
        at += n ? n : most;
    }
    *clean_len = at;
    return clean;
}

bool wf_utf8_control(const char *text, size_t n)
{
    const unsigned char *p = (const unsigned char *)text;
    if (n == 3 && p[0] == 0xE2) /* U+200E, 200F, 202A to 202E, 2066 to 2069 */
        return p[1] == 0x80 ? p[2] == 0x8E || p[2] == 0x8F || (p[2] >= 0xAA && p[2] <= 0xAE)
                            : p[1] == 0x81 && p[2] >= 0xA6 && p[2] <= 0xA9;
    if (n == 2) return (p[0] == 0xC2 && p[1] < 0xA0) || (p[0] == 0xD8 && p[1] == 0x9C); /* U+061C */
    return n == 1 && (p[0] < ' ' || p[0] == 127);
}

void wf_mark_cut(char *text, size_t cap)
{
    if (cap < sizeof WF_CUT) return;
    size_t at = strnlen(text, cap - sizeof WF_CUT);
    while (at && ((unsigned char)text[at] & 0xC0) == 0x80) at--;
    memcpy(text + at, WF_CUT, sizeof WF_CUT);
}

void wf_format(char *dst, size_t cap, const char *fmt, va_list ap)
{
    int n = vsnprintf(dst, cap, fmt, ap);
    if (n > 0 && (size_t)n >= cap) wf_mark_cut(dst, cap);
}

void wf_show(char *dst, size_t cap, const char *src)
{
    size_t at = 0, cut = 0, len = strlen(src), i = 0;
    while (i < len) {
        size_t n = wf_utf8_len(src + i, len - i), take = WF_MAX(n, (size_t)1);
        bool plain = n && !wf_utf8_control(src + i, n);
        if (at + sizeof WF_CUT <= cap)
            cut = at; /* the last place where the sign fits, between characters and escapes */
        if (at + (plain ? take : 4 * take) >= cap) break;
        for (size_t k = 0; k < take && !plain; k++)
            at += (size_t)snprintf(dst + at, cap - at, "\\x%02x", (unsigned char)src[i + k]);
        if (plain) memcpy(dst + at, src + i, take), at += take;
        i += take;
    }
    if (cap) dst[at] = 0;
    if (i < len && cap >= sizeof WF_CUT) memcpy(dst + cut, WF_CUT, sizeof WF_CUT);
}

void weft_free(void *p) { free(p); }

const char *wf_human(uint64_t n, bool binary, char *buf, size_t cap)
{
    static const char *const binary_units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    static const char *const units[] = {"", "K", "M", "B", "T"};
    double v = (double)n, base = binary ? 1024 : 1000;
    size_t u = 0;
    for (; v >= base && u + 1 < WF_LEN(units); u++) v /= base;
    if (binary)
        snprintf(buf, cap, u ? "%.2f %s" : "%.0f %s", v, binary_units[u]);
    else
        snprintf(buf, cap, v < 10 && u ? "%.1f%s" : "%.0f%s", v, units[u]);
    return buf;
}
