/* progress: a bar on the terminal. See progress.h. */
#include "base/progress.h"

#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define SECOND 1000000000u
#define BAR    30
#define LEAST  5 /* a shorter bar is left out */
#define USUAL  80

/* The last column stays empty: some terminals go to the next line behind it, where nothing clears what is left. */
static int columns(void)
{
    struct winsize w;
    return ioctl(STDERR_FILENO, TIOCGWINSZ, &w) || !w.ws_col ? USUAL - 1 : w.ws_col - 1;
}

/* " [###...]", as long as there is room beside what else is said. */
static void make_bar(char bar[BAR + 4], double fraction, int room)
{
    int length = WF_MIN(room - 3, BAR), full = (int)(fraction * length);
    *bar = 0;
    if (length < LEAST) return;
    memcpy(bar, " [", 2);
    for (int i = 0; i < length; i++) bar[2 + i] = i < full ? '#' : '.';
    memcpy(bar + 2 + length, "]", 2);
}

/* The percentage and what follows it. Returns its length. */
static int make_end(const wf_progress *p, double fraction, uint64_t now, char *end, size_t cap)
{
    double seconds = (double)(now - p->start_ns) / SECOND;
    double done = fraction - p->first,
           left = done > 0.02 || (done > 0 && seconds > 10) ? seconds / done * (1 - fraction) : 0;
    int n = snprintf(end, cap, " %3.0f %%%s%s", fraction * 100, p->note[0] ? ", " : "", p->note);
    if (left >= 1)
        n += snprintf(end + n, cap - (size_t)n, left < 180 ? ", %.0f s left" : ", %.0f min left",
                      left < 180 ? left : left / 60);
    return n;
}

/* In a narrow terminal the bar goes first, then the end of the note, then the end of the title. */
static void draw(const wf_progress *p, double fraction, uint64_t now)
{
    char bar[BAR + 4], end[sizeof p->note + 64];
    int most = columns(), title = (int)strlen(p->what), percent = (int)strlen(" 100 %");
    int n = make_end(p, fraction, now, end, sizeof end);
    make_bar(bar, fraction, most - title - n);
    title = WF_MAX(WF_MIN(title, most - percent), 0);
    fprintf(stderr, "\r\033[K%.*s%s%.*s", title, p->what, bar, WF_MAX(most - title - (int)strlen(bar), 0), end);
    fflush(stderr);
}

void wf_progress_update(wf_progress *p, const char *what, double fraction)
{
    uint64_t now = wf_now_ns();
    fraction = fraction > 0 ? WF_MIN(fraction, 1.0) : 0; /* maps NaN to 0 as well */
    if (!p->start_ns || strncmp(p->what, what, sizeof p->what - 1)) {
        wf_progress_end(p);
        wf_copy(p->what, sizeof p->what, what);
        p->start_ns = p->drawn_ns = now;
        p->first = fraction;
    }
    if (now - p->start_ns < SECOND || now - p->drawn_ns < SECOND / 10 || !isatty(STDERR_FILENO))
        return;
    draw(p, fraction, now);
    p->drawn_ns = now;
    p->shown = true;
}

void wf_progress_note(wf_progress *p, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(p->note, sizeof p->note, fmt, ap);
    va_end(ap);
}

void wf_progress_hide(wf_progress *p)
{
    if (p->shown) fputs("\r\033[K", stderr);
    p->shown = false;
}

void wf_progress_end(wf_progress *p)
{
    wf_progress_hide(p);
    *p = (wf_progress){0};
}
