/* progress: a bar on the terminal. See progress.h. */
#include "base/progress.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define SECOND 1000000000u
#define BAR    30

static void draw(const wf_progress *p, double fraction, uint64_t now)
{
    char bar[BAR + 1];
    int full = (int)(fraction * BAR);
    for (int i = 0; i < BAR; i++) bar[i] = i < full ? '#' : '.';
    bar[BAR] = 0;
    double seconds = (double)(now - p->start_ns) / SECOND;
    double done = fraction - p->first, left = done > 0.02 || (done > 0 && seconds > 10) ? seconds / done * (1 - fraction) : 0;
    fprintf(stderr, "\r\033[K%s [%s] %3.0f %%", p->what, bar, fraction * 100);
    if (p->note[0]) fprintf(stderr, ", %s", p->note);
    if (left >= 1) fprintf(stderr, left < 180 ? ", %.0f s left" : ", %.0f min left", left < 180 ? left : left / 60);
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
