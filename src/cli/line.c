/* line: reads lines with libedit on a terminal, and plain lines of bounded length elsewhere. See line.h. */
#include "cli/line.h"

#include "base/file.h"
#include "cli/cli.h"

#include <errno.h>
#include <fcntl.h>
#include <histedit.h>
#include <langinfo.h>
#include <locale.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <termios.h>
#include <unistd.h>
#include <wchar.h>

#define MOST         ((size_t)8 << 20)
#define KEPT         500      /* lines of history */
#define HISTORY_MOST (1 << 20) /* bytes; a larger file is written anew with the KEPT last lines */
#define PAUSE_MS     100       /* a key that nothing follows for so long is typed, not pasted */

struct wf_line {
    EditLine *el; /* NULL: no terminal */
    FILE *screen; /* where the prompt and the echo go; NULL: no terminal */
    History *history;
    int history_fd;  /* -1: not kept */
    bool continued;  /* the line before ended with a backslash */
    bool lost;       /* a line was too long */
    bool dropped;    /* by Ctrl-C, with the lines before it */
    char pasted[64]; /* how a line begins that began with pasted text */
    char *text;
    size_t cap;
};

static char *prompt_of(EditLine *el)
{
    static char first[] = "> ", further[] = ". ";
    wf_line *l;
    el_get(el, EL_CLIENTDATA, &l);
    return l->continued ? further : first;
}

/* Ctrl-C at the prompt leaves the line on the screen and starts a new one, as in a shell. */
static unsigned char drop_line(EditLine *el, int ch)
{
    const LineInfo *li = el_line(el);
    wf_line *l;
    (void)ch;
    el_get(el, EL_CLIENTDATA, &l);
    l->dropped = true, l->continued = false;
    el_cursor(el, (int)(li->lastchar - li->cursor));
    el_deletestr(el, (int)(li->lastchar - li->buffer));
    fputs("^C\n", l->screen);
    return CC_REDISPLAY;
}

/* Terminals put pasted text between ESC [ 200 ~ and ESC [ 201 ~. Its line ends are text; other control characters are
 * left out. The end may be lost, with a connection that breaks off: a typed Ctrl-C drops the paste and the line. */
static unsigned char read_paste(EditLine *el, int ch)
{
    static const wchar_t end[] = L"\x1b[201~";
    size_t matched = 0;
    wchar_t c, text[2] = L"";
    const LineInfo *li = el_line(el);
    bool first = li->cursor == li->buffer;
    struct pollfd in = {.fd = STDIN_FILENO, .events = POLLIN};
    wf_line *l;
    el_get(el, EL_CLIENTDATA, &l);
    while (matched < WF_LEN(end) - 1 && el_wgetc(el, &c) == 1) {
        /* A Ctrl-C that is pasted has more behind it at once, the end of the paste at least. */
        if (c == L'\x03' && !poll(&in, 1, PAUSE_MS)) return drop_line(el, ch);
        matched = c == end[matched] ? matched + 1 : c == end[0];
        if (c == L'\r') c = L'\n';
        text[0] = c;
        if (!matched && (c == L'\n' || c == L'\t' || c >= L' ') && c != 0x7f && !(c >= 0x80 && c < 0xa0))
            el_winsertstr(el, text);
    }
    li = el_line(el);
    if (first) wf_copy(l->pasted, WF_MIN(sizeof l->pasted, (size_t)(li->cursor - li->buffer) + 1), li->buffer);
    return CC_REFRESH;
}

static bool brackets_pastes(void)
{
    const char *term = getenv("TERM");
    return term && strcmp(term, "dumb");
}

static void bracketed_paste(const wf_line *l, const char *on_or_off)
{
    if (brackets_pastes()) fprintf(l->screen, "\x1b[?2004%s", on_or_off);
}

/* ---- end and stop by a signal ---------------------------------------------------------------- */

/* Ctrl-Z, a terminal that is closed, or somebody else stops or ends the program while a line is edited: the terminal is
 * left as it was found. */
static struct {
    struct termios mode, editing; /* as it was found, and as it is while a line is edited */
    bool brackets;
    int screen;
    atomic_int held, came; /* held: not before the history is written; came: a signal meanwhile, on any thread */
    pthread_t editor;      /* the thread that edits */
    atomic_bool resumed;   /* after a stop: the line is to be drawn anew */
} ends;

static void restore_terminal(void)
{
    static const char off[] = "\x1b[?2004l\r\n";
    size_t skip = ends.brackets ? 0 : sizeof off - 3;
    ssize_t ignored = write(ends.screen, off + skip, sizeof off - 1 - skip);
    (void)ignored;
    tcsetattr(STDIN_FILENO, TCSANOW, &ends.mode);
}

static void end_now(int sig)
{
    restore_terminal();
    signal(sig, SIG_DFL);
    raise(sig);
}

static void on_end(int sig)
{
    ends.came = sig;
    if (!ends.held) end_now(sig);
}

static void hold_end(bool hold)
{
    ends.held = hold;
    if (!hold && ends.came) end_now(ends.came);
}

/* The program is in the foreground again, or was never stopped. In the background this stops it once more. */
static void resume_editing(void)
{
    tcsetattr(STDIN_FILENO, TCSANOW, &ends.editing);
    ends.resumed = true;
}

static void catch_stop(void (*handler)(int sig));
/* SIGTSTP or SIGCONT, which the engine's threads may get, too. */
static void on_stop(int sig)
{
    int saved = errno;
    if (!pthread_equal(pthread_self(), ends.editor)) pthread_kill(ends.editor, sig);
    else if (sig == SIGTSTP) {
        /* As a shell wants it: by the signal itself, with the terminal as it was found. */
        sigset_t this;
        restore_terminal();
        signal(sig, SIG_DFL);
        raise(sig);
        sigemptyset(&this);
        sigaddset(&this, sig);
        pthread_sigmask(SIG_UNBLOCK, &this, NULL); /* here it stops */
        catch_stop(on_stop);
        resume_editing();
    } else resume_editing();
    errno = saved;
}

/* While a line is edited; unless somebody has set that the program is not to be stopped. */
static void catch_stop(void (*handler)(int sig))
{
    struct sigaction was, sa = {.sa_handler = handler, .sa_flags = SA_RESTART};
    sigemptyset(&sa.sa_mask);
    sigaction(SIGTSTP, NULL, &was);
    if (was.sa_handler == SIG_IGN) return;
    sigaction(SIGTSTP, &sa, NULL);
    sigaction(SIGCONT, &sa, NULL);
}

/* Ctrl-Z at the prompt stops all that the terminal would stop. */
static unsigned char stop_here(EditLine *el, int ch)
{
    (void)el;
    (void)ch;
    kill(0, SIGTSTP);
    return CC_NORM;
}

/* ---- history between sessions ---------------------------------------------------------------- */

/* The path of the file; false: it is not to be kept. */
static bool history_path(char *path, size_t cap)
{
    const char *own = getenv("WEFT_HISTORY");
    if (own) wf_copy(path, cap, own);
    else if (wf_user_dir(WF_DIR_STATE, "weft", true, path, cap - sizeof "/history")) return false;
    else strcat(path, "/history");
    return *path;
}

/* An absent or empty file becomes a history; what something else wrote is none. */
static bool is_history(const char *path)
{
    static const char heading[] = "_HiStOrY_V2_\n";
    char got[sizeof heading] = "";
    FILE *f = fopen(path, "re");
    size_t n = f ? fread(got, 1, sizeof heading - 1, f) : 0;
    if (f) fclose(f);
    return !n || !strcmp(got, heading);
}

static void no_history(const char *path, const char *why)
{
    wf_log(WEFT_LOG_WARN, "no history is kept: %s: %s; WEFT_HISTORY names another file", path, why);
}

/* The lines that were read are all that stays of a file that is too large. */
static void shorten_line(wf_line *l)
{
    HistEvent ev;
    struct stat st;
    if (fstat(l->history_fd, &st) || st.st_size <= HISTORY_MOST) return;
    FILE *f = ftruncate(l->history_fd, 0) ? NULL : fdopen(dup(l->history_fd), "a");
    if (f) history(l->history, &ev, H_SAVE_FP, f), fclose(f);
}

/* Lines are appended as they are typed, so that two sessions at once lose nothing. A history that cannot be kept is no
 * error. */
static void open_history(wf_line *l)
{
    char path[PATH_MAX];
    HistEvent ev;
    /* Only a regular file keeps one: the mode of a device is not ours to change, and a FIFO would block. /dev/null
     * is how to say "none". */
    if (!history_path(path, sizeof path)) return;
    struct stat st;
    bool regular = stat(path, &st) || S_ISREG(st.st_mode);
    if (!regular || !is_history(path)) {
        if (strcmp(path, "/dev/null"))
            no_history(path, regular ? "something else wrote it, so it is left as it is" : "not a regular file");
        return;
    }
    bool loaded = history(l->history, &ev, H_LOAD, path) >= 0;
    l->history_fd = open(path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (l->history_fd < 0) no_history(path, strerror(errno));
    else if (!fchmod(l->history_fd, 0600) && loaded) shorten_line(l);
}

/* From a history of its own: H_NSAVE_FP of libedit writes one line more than it is asked for. */
static void append_line(FILE *f, const char *line)
{
    HistEvent ev;
    History *one = history_init();
    if (!one) return;
    history(one, &ev, H_SETSIZE, 1);
    history(one, &ev, H_ENTER, line);
    fseek(f, 0, SEEK_END); /* an empty file gets a heading */
    history(one, &ev, H_SAVE_FP, f);
    history_end(one);
}

static void remember_line(wf_line *l, const char *line)
{
    HistEvent ev;
    history(l->history, &ev, H_ENTER, line);
    FILE *f = l->history_fd < 0 ? NULL : fdopen(dup(l->history_fd), "a");
    if (!f) return;
    append_line(f, line);
    fclose(f);
}

/* ---- keys ------------------------------------------------------------------------------------ */

/* The character of n bytes of UTF-8, as mbrtowc has it; of bytes that are none only the last, which may begin another
 * one, is kept. */
static size_t decode_key(wchar_t *c, char *bytes, size_t *n)
{
    mbstate_t state = {0};
    size_t len = mbrtowc(c, bytes, *n, &state);
    if (len != (size_t)-1) return len;
    bytes[0] = bytes[*n - 1];
    *n = *n > 1;
    return *n ? decode_key(c, bytes, n) : (size_t)-2;
}

/* libedit's own function takes a signal for the end of input. */
static int read_key(EditLine *el, wchar_t *c)
{
    char bytes[MB_LEN_MAX];
    size_t n = 0, len = (size_t)-2;
    /* Until there is a key. After a stop the prompt and the line are drawn anew, by this thread, between two keys. */
    struct pollfd in = {.fd = STDIN_FILENO, .events = POLLIN};
    sigset_t stops, usual;
    wf_line *l;
    el_get(el, EL_CLIENTDATA, &l);
    sigemptyset(&stops);
    sigaddset(&stops, SIGTSTP);
    sigaddset(&stops, SIGCONT);
    pthread_sigmask(SIG_BLOCK, &stops, &usual); /* but while it waits */
    do {
        if (ends.resumed) bracketed_paste(l, "h"), el_set(el, EL_REFRESH);
        ends.resumed = false;
    } while (ppoll(&in, 1, NULL, &usual) < 0 && errno == EINTR);
    pthread_sigmask(SIG_SETMASK, &usual, NULL);
    while (len == (size_t)-2) {
        ssize_t got = read(STDIN_FILENO, bytes + n, 1);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return (int)got;
        n++;
        len = decode_key(c, bytes, &n);
    }
    return 1;
}

static weft_status open_editor(wf_line *l)
{
    HistEvent ev;
    /* libedit decodes characters by the locale; terminals send UTF-8. */
    setlocale(LC_CTYPE, "");
    if (strcmp(nl_langinfo(CODESET), "UTF-8")) setlocale(LC_CTYPE, "C.UTF-8");
    /* before the mode changes */
    ends.screen = fileno(l->screen);
    ends.editor = pthread_self();
    tcgetattr(STDIN_FILENO, &ends.mode);
    ends.brackets = brackets_pastes();
    wf_catch_end(on_end);
    l->history = history_init();
    l->el = el_init("weft", stdin, l->screen, l->screen);
    if (!l->el || !l->history) return wf_fail(WEFT_ERR_NOMEM, "cannot set up line editing");
    history(l->history, &ev, H_SETSIZE, KEPT);
    hold_end(true);
    open_history(l);
    hold_end(false);
    el_set(l->el, EL_CLIENTDATA, l);
    el_set(l->el, EL_HIST, history, l->history);
    el_set(l->el, EL_PROMPT, prompt_of);
    el_set(l->el, EL_EDITOR, "emacs");
    el_set(l->el, EL_GETCFN, read_key);
    /* Ctrl-C and Ctrl-Z are characters while a line is edited, and signals otherwise. */
    el_set(l->el, EL_SETTY, "-d", "-isig", NULL);
    el_set(l->el, EL_ADDFN, "weft-drop-line", "drop the line", drop_line);
    el_set(l->el, EL_BIND, "^C", "weft-drop-line", NULL);
    el_set(l->el, EL_ADDFN, "weft-stop", "stop the program", stop_here);
    el_set(l->el, EL_BIND, "^Z", "weft-stop", NULL);
    el_set(l->el, EL_ADDFN, "weft-paste", "insert pasted text", read_paste);
    el_set(l->el, EL_BIND, "\\e[200~", "weft-paste", NULL);
    el_source(l->el, NULL); /* the user's ~/.editrc */
    return WEFT_OK;
}

/* stderr, or the terminal itself where that is redirected. NULL: there is none, and lines are read plainly. */
static FILE *open_screen(void)
{
    if (!isatty(STDIN_FILENO)) return NULL;
    if (isatty(STDERR_FILENO)) return stderr;
    FILE *screen = fopen("/dev/tty", "we");
    if (screen) setvbuf(screen, NULL, _IONBF, 0); /* as stderr */
    return screen;
}

weft_status wf_line_open(wf_line **out)
{
    wf_line *l = wf_calloc(1, sizeof *l);
    if (!l) return WEFT_ERR_NOMEM;
    l->history_fd = -1;
    l->screen = open_screen();
    weft_status s = l->screen ? open_editor(l) : WEFT_OK;
    if (s) wf_line_close(l);
    else *out = l;
    return s;
}

/* A line as it was edited, with its newline; NULL at the end of input. */
static const char *edit_line(wf_line *l)
{
    int n = 0;
    /* el_gets prints the prompt before it sets the terminal mode. Keys typed in between would be read in the wrong
     * mode, and a Ctrl-D or Ctrl-C lost. */
    el_set(l->el, EL_PREP_TERM, 1);
    tcgetattr(STDIN_FILENO, &ends.editing);
    ends.resumed = false;
    bracketed_paste(l, "h");
    catch_stop(on_stop);
    const char *line = el_gets(l->el, &n);
    catch_stop(SIG_DFL);
    bracketed_paste(l, "l");
    return n > 0 ? line : NULL;
}

/* Lines that end with a backslash, which is left out, go on in the next one. */
static const char *read_edited(wf_line *l)
{
    size_t len = 0;
    const char *line;
    l->continued = false;
    do {
        l->dropped = false, *l->pasted = 0;
        if (!(line = edit_line(l))) return NULL;
        size_t n = strlen(line);
        if (l->dropped) len = 0;
        if (n && line[n - 1] == '\n') n--;
        if (!wf_grow(&l->text, len + n + 2, &l->cap, 1)) return NULL;
        /* A slash that was pasted to the beginning is doubled, as somebody types one that begins no command. */
        if (!len && *l->pasted == '/' && !strncmp(line, l->pasted, strlen(l->pasted))) l->text[len++] = '/';
        memcpy(l->text + len, line, n);
        l->text[len += n] = 0;
        l->continued = n && line[n - 1] == '\\';
        if (l->continued) l->text[len - 1] = '\n';
    } while (l->continued);
    hold_end(true);
    if (len) remember_line(l, l->text);
    hold_end(false);
    return l->text;
}

/* Reads and drops the rest of a line that is too long, so that it cannot fill the memory. */
static const char *read_plain(wf_line *l)
{
    for (int c = 0; c != EOF;) {
        size_t n = 0;
        bool fits = wf_grow(&l->text, 1, &l->cap, 1);
        while ((c = getc_unlocked(stdin)) != EOF && c != '\n')
            if (fits && (fits = n < MOST && wf_grow(&l->text, n + 1, &l->cap, 1))) l->text[n++] = (char)c;
        bool text = fits && !memchr(l->text, 0, n);
        l->lost |= !text;
        if (!fits) wf_log(WEFT_LOG_ERROR, "ignored a line of more than %zu bytes", n);
        else if (!text) wf_log(WEFT_LOG_ERROR, "ignored a line that has a zero byte: messages of a chat are text");
        else if (n || c != EOF) return l->text[n] = 0, l->text;
    }
    return NULL;
}

const char *wf_line_read(wf_line *l) { return l->el ? read_edited(l) : read_plain(l); }

bool wf_line_lost(const wf_line *l) { return l->lost; }

void wf_line_close(wf_line *l)
{
    if (!l) return;
    if (l->el) fputc('\n', l->screen), el_end(l->el); /* leaves the prompt's line */
    if (l->screen && l->screen != stderr) fclose(l->screen);
    if (l->history) history_end(l->history);
    if (l->history_fd >= 0) close(l->history_fd);
    free(l->text);
    free(l);
}
