/* serve, models: a server has the one of the command line, or those of a folder (--models), which come and go. A job
 * holds the model that it is for from its body to its end, and waits until that is loaded. A thread, the keeper, loads
 * one after another, and unloads what nobody holds: because it has been idle for long, because its memory is wanted,
 * the least recently used one first, or because somebody says so. A name that a client sends is only compared with
 * those of the folder, so that it leads nowhere else. */
#ifndef WF_SERVE_SERVED_H
#define WF_SERVE_SERVED_H

#include "serve/api/internal.h"

/* What was seen of a file when it was open, for whoever asks while it is not. */
typedef struct wf_seen {
    char family[32], parameters[16], type[16]; /* "": never, or it has changed since */
    const char *pooling; /* as of wf_served */
} wf_seen;

enum wf_served_state { WF_SERVED_AWAY, WF_SERVED_LOADING, WF_SERVED_READY };
struct wf_served {
    wf_server *server;
    wf_served *next;    /* behind it by name; entries stay as long as the server */
    char (*names)[128]; /* n_names of the model; valid UTF-8 */
    size_t n_names;
    const char *name; /* the first one */
    char *file;       /* in the folder of models; NULL: it is that of the command line */
    /* As long as it is ready: */
    const struct weft_model *model;
    struct weft_engine *engine; /* NULL: only its file is open, for the one job that has it */
    wf_chat_style chat;
    const char *pooling; /* of one that gives embeddings or scores; NULL: it generates text */
    uint32_t context, max_running, max_queue; /* sequences that the engine runs at the same time, and that may wait */
    struct weft_sampling sampling; /* of requests that do not say it */
    wf_metrics metrics;
    atomic_uint in_flight; /* sequences submitted and not done */
    atomic_uint progress;  /* of loading it, in thousandths */
    atomic_uint n_waiting;
    atomic_uint_fast64_t used_ns, keep_ns; /* how long it stays when idle */
    atomic_uint_fast64_t file_bytes;       /* of its files, */
    atomic_int_fast64_t changed;           /* and when they were, in seconds since 1970 */
    /* Under models.lock: */
    enum wf_served_state state;
    wf_job *waiting; /* n_waiting, in the order in which they came */
    unsigned n_users;
    uint64_t seen; /* by which look at the folder */
    bool here;   /* its file is there */
    bool asked;  /* it is to be loaded, even if nobody waits */
    bool leaves; /* it goes as soon as nobody holds it, */
    bool closed; /* and until then nobody more takes it */
    uint64_t turn; /* among those that are to be loaded; 0: it is not */
    uint64_t bytes; /* of memory */
    wf_seen seen_of;
    char failure[400]; /* why it could not be loaded the last time; "": it could */
};

typedef struct wf_models {
    pthread_mutex_t lock; /* inside of it only those of a job and of an engine are taken, and the innermost */
    pthread_cond_t news;  /* for the keeper */
    pthread_t keeper;
    wf_served *first, *usual; /* usual: of requests that name none; NULL: they have to */
    bool several, started;    /* those of a folder; its keeper runs */
    atomic_bool ending, ended;
    uint64_t turns, scans, scanned_ns;
    char folder[PATH_MAX];
} wf_models;

/* ---- served.c: one -------------------------------------------------------------------------------------- */

/* From now on it answers, those that wait for it first. false: it cannot, and the error is set. */
bool wf_served_publish(wf_served *m, const wf_opening *o);
void wf_served_admit(wf_served *m); /* those that wait for it; call it with the lock held */
void wf_served_name(wf_served *m, const char *name, size_t len); /* one more name, made fit */
bool wf_names_have(const wf_served *m, const char *name);
size_t wf_names_bare(const char *name); /* its length without the tag that Ollama's clients add */
bool wf_served_ranks(const wf_served *m); /* does it give scores? */
wf_seen wf_served_see(const struct weft_model *model);
/* Holds it, if it is ready, so that it stays. */
bool wf_served_hold(wf_served *m);
void wf_served_drop(wf_served *m, bool used); /* used: it was for a request */
void wf_served_free(wf_served *m);            /* closes what it has */
/* The models of the server, one after another; last NULL: the first. NULL: no more. */
wf_served *wf_served_next(wf_server *s, const wf_served *last);
void wf_served_put_status(wf_served *m, wf_text *out); /* as llama-server's router has it, without braces */

/* ---- models.c, keeper.c: all ---------------------------------------------------------------------------- */

bool wf_models_open(wf_server *s); /* false: the error is set */
void wf_models_scan(wf_server *s); /* what the folder has now, unless that was looked for a moment ago */
wf_served *wf_served_named(wf_server *s, const char *name);
/* Holds the model that the body names, for the job; false: its refusal is set, or it awaits one. */
bool wf_models_take(wf_job *j, const wf_json *body);
/* Does one that pools so (NULL: not) give what the route writes? false: refusal is set. */
bool wf_models_writes(wf_job *j, const wf_json *body, const char *name, const char *pooling);
/* The job waits for the model that it awaits, unless that is there; false: it need not, or its refusal is set. */
bool wf_models_await(wf_job *j, bool aborted);
void wf_models_forget(wf_job *j); /* it waits no more */
void wf_models_free(wf_server *s);
/* Of a route: loads, or unloads, a model. */
bool wf_models_load_read(wf_job *j, const wf_json *body);
bool wf_models_unload_read(wf_job *j, const wf_json *body);
bool wf_models_answer(wf_job *j, wf_text *out);
bool wf_models_may(wf_job *j);                  /* load and unload; false: refusal is set */
void wf_models_ask(wf_served *m, bool load);
/* Ollama's keep_alive: seconds or a text such as "5m"; below 0: for ever. */
bool wf_models_keep(wf_job *j, const wf_json *v);
uint64_t wf_models_keep_usual(const wf_server *s); /* how long an idle one stays that nobody has asked to keep */
/* Where it lies, and why this thread could not open it, without the folder. */
void wf_keeper_path(const wf_served *m, char path[PATH_MAX]);
const char *wf_keeper_reason(const wf_server *s);
bool wf_keeper_start(wf_server *s);
bool wf_keeper_end(wf_server *s); /* unloads all; false: it is within a driver's call, and the process has to end */

#endif
