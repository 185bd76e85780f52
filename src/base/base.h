/* base: helpers for every folder: errors as values, log, clock, random numbers, growing arrays.
 *
 * Errors: a function that can fail returns enum weft_status. The function that detects the failure calls wf_fail(),
 * which stores a message for this thread. Callers return the status unchanged, or call wf_fail_context() to prefix the
 * message.
 */
#ifndef WF_BASE_H
#define WF_BASE_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <weft/weft.h>

typedef enum weft_status weft_status;

#define WF_LEN(a) (sizeof(a) / sizeof(*(a)))
/* Arguments are evaluated twice and must have no side effects. */
#define WF_MIN(a, b) ((a) < (b) ? (a) : (b))
#define WF_MAX(a, b) ((a) > (b) ? (a) : (b))
#define WF_UP(x, m) (((x) + (m)-1) / (m) * (m)) /* x rounded up to a multiple of m */
#define WF_PRINTF(f, a) __attribute__((format(printf, f, a)))

/* Bytes of a text. */
typedef struct wf_text_span {
    size_t begin, end;
} wf_text_span;

/* Return the status of an expression if it is not WEFT_OK. */
#define WF_TRY(expr)                                                                              \
    do {                                                                                          \
        weft_status wf_try_ = (expr);                                                             \
        if (wf_try_ != WEFT_OK) return wf_try_;                                                   \
    } while (0)

/* How public functions begin: WEFT_ERR_ARG for an argument, or a required field of parameters, that is NULL. */
#define WF_NOT_NULL(arg)                                                                          \
    do {                                                                                          \
        if (!(arg)) return wf_fail(WEFT_ERR_ARG, "%s: %s must not be NULL", __func__, #arg);      \
    } while (0)
/* The same for a list or a text of n elements, which may be NULL without any. */
#define WF_NOT_NULL_LIST(arg, n)                                                                                       \
    do {                                                                                                               \
        if (!(arg) && (n))                                                                                             \
            return wf_fail(WEFT_ERR_ARG, "%s: %s must not be NULL, as %s is not 0", __func__, #arg, #n);               \
    } while (0)

weft_status wf_fail(weft_status s, const char *fmt, ...) WF_PRINTF(2, 3); /* sets message, returns s */
weft_status wf_fail_context(weft_status s, const char *fmt, ...) WF_PRINTF(2, 3); /* prefix + old message */
/* Turns errors in a file that a parameter names into WEFT_ERR_ARG for that parameter. */
weft_status wf_fail_param(weft_status s, const char *parameter);
const char *wf_error(void);  /* this thread's message */
/* WEFT_ERR_UNSUPPORTED if the reserved space of public parameters is not zero: they are of a program for a newer weft.
 */
weft_status wf_unused(const uint64_t *reserved, size_t n);
#define WF_UNUSED(p) wf_unused((p)->reserved, WF_LEN((p)->reserved))

/* Long work of this thread asks fn(user) now and then whether it is to stop; NULL: nobody can stop it. Returns who was
 * asked before, to be asked again afterwards: long work may be begun by a function that is being asked. */
typedef bool (*wf_stop_fn)(void *user);
typedef struct wf_stopper {
    wf_stop_fn fn;
    void *user;
} wf_stopper;
wf_stopper wf_stop_by(wf_stop_fn fn, void *user);
/* WEFT_ERR_CANCELLED: it is. Asks only if *n, which it counts, is a multiple of 4096. */
weft_status wf_stop_asked(size_t *n);
weft_status wf_stop_now(void); /* the same, and asks each time */

/* The calling thread reports progress to fn(user); NULL: to nobody. */
typedef struct wf_listener {
    weft_progress_fn fn;
    void *user;
} wf_listener;
wf_listener wf_report_to(weft_progress_fn fn, void *user);
void wf_report(const char *what, double fraction);

void wf_log(enum weft_log_level level, const char *fmt, ...) WF_PRINTF(2, 3);
bool wf_log_on(enum weft_log_level level);

uint64_t wf_now_ns(void);     /* monotonic */
void wf_sleep_ns(uint64_t ns);
uint32_t wf_core_count(void); /* that this process may use; at least 1 */
/* Which of the *n processes this is that mpirun has started together; 0 of 1: it is of none. n may be NULL. */
uint32_t wf_process(uint32_t *n);
uint32_t wf_core_share(void); /* as wf_core_count, where processes that were started together share a host's */

/* Counter-based random numbers (splitmix64): equal (seed, counter) give equal bits. */
uint64_t wf_random(uint64_t seed, uint64_t counter);
double wf_random_unit(uint64_t seed, uint64_t counter); /* [0, 1) */

/* For hash tables of what files and clients choose: the seed differs from process to process, so that nobody can choose
 * keys that collide. */
uint64_t wf_hash_seed(void);
uint64_t wf_hash(const void *data, size_t len);

/* Zeroed memory for n elements of size; NULL with a WEFT_ERR_NOMEM message on overflow or shortage. */
void *wf_calloc(size_t n, size_t size);
/* Ensures capacity for one more element: grows *array (n used, *cap allocated) by half; false without memory. */
bool wf_grow(void *array, size_t n, size_t *cap, size_t size);
/* Leaks memory that a lost device may still access, but keeps it reachable for leak checkers. */
void wf_leak_on_purpose(void *p);
char *wf_strdup(const char *s);
void wf_copy(char *dst, size_t cap, const char *src); /* truncating strcpy, always NUL-terminated */
/* Tells this build of weft from every other: the build id, in hex, that the linker computed from all that it linked; ""
 * without one. */
const char *wf_build_id(void);

/* Length of the UTF-8 character at p (len > 0; Unicode, table 3-7); 0: there is none. */
size_t wf_utf8_len(const char *p, size_t len);
/* Bytes at the beginning of p that are valid UTF-8: len if all are. */
size_t wf_utf8_valid(const char *p, size_t len);
/* A copy with U+FFFD for each byte that is no part of a character, NUL-terminated; free it. NULL: out of memory. */
char *wf_utf8_clean(const char *p, size_t len, size_t *clean_len);
/* Is this character, of wf_utf8_len n, a control character (C0, DEL, C1), or does it turn the direction of text? */
bool wf_utf8_control(const char *p, size_t n);
/* What does not fit cap bytes ends in "…", behind a whole character: lines of the log and messages say that they are
 * cut. */
#define WF_CUT "\xE2\x80\xA6"
void wf_format(char *dst, size_t cap, const char *fmt, va_list ap) __attribute__((format(printf, 3, 0)));
/* Ends a text that fills its buffer, and was cut, so. */
void wf_mark_cut(char *text, size_t cap);
/* Text of others for people to read: src with control characters and invalid UTF-8 as escapes (\x1b), so that it cannot
 * command a terminal, nor fake a line. The same if it does not fit. */
void wf_show(char *dst, size_t cap, const char *src);
const char *wf_human(uint64_t n, bool binary, char *buf, size_t cap); /* 1.1B, or 1.02 GiB; buf */
#define WF_HUMAN(n, binary) wf_human(n, binary, (char[32]){0}, 32)

#endif
