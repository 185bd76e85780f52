/* serve: an HTTP server for one model or several, with an OpenAI-compatible API. http/ is the server, api/ what it
 * serves.
 *
 * It uses the engine only through <weft/weft.h>. One thread owns all connections: it reads requests, submits them, and
 * writes replies and streams; a few more parse bodies and write large replies. The engine's thread only appends to a
 * job's buffers and wakes that thread. No input of a client may end the process. */
#ifndef WF_SERVE_H
#define WF_SERVE_H

#include "base/base.h"

/* A model and its engine while they are opened. */
typedef struct wf_opening {
    const char *path; /* NULL: the model of the command line */
    struct weft_model *model;
    struct weft_engine *engine;
    weft_status status; /* of one with a path: why it failed; the error is set */
    struct weft_sampling sampling; /* of requests that do not say it */
    char sampling_text[256];       /* the same for the log */
    uint64_t bytes;                /* of memory that it takes */
    /* To be called often. From "load" on, when parameters and the files they name are known to be good and only what
     * takes long is left, the server answers /health. */
    void (*on_progress)(struct wf_opening *o, const char *what, double fraction);
    /* Of one with a path: to be called before it takes so much memory, of `limit` for all; waits until there is room.
     * false: there will be none, and status is set. */
    bool (*room)(struct wf_opening *o, uint64_t bytes, uint64_t limit);
    bool (*stop)(const struct wf_opening *o); /* asked often; true: it shall end, with no message */
} wf_opening;

#define WF_KEY_BLANKS " \t\r\n" /* do not count around an API key */

/* Zero is the default. */
typedef struct wf_serve_params {
    const char *host;           /* address to listen on; NULL: 127.0.0.1 */
    uint32_t port;              /* 0: any free port; the log has it */
    bool models;                /* serve those of the folder of models, on demand */
    const char *first_model;    /* of these: loaded at the start, and for requests that name none; NULL: none */
    uint32_t sleep_idle_s;      /* after which one is unloaded; 0: never */
    const char *const *model_names; /* n_model_names in the API, also with commas between; none: the file's name */
    size_t n_model_names;
    const char *chat_template;  /* its text; NULL: the model's own */
    const char *tool_call_parser; /* kind of calls; "none": they stay text; NULL or "auto": by the chat template */
    const char *reasoning_parser; /* the same for thoughts */
    const char *const *api_keys; /* n_api_keys of them; requests need one of these, or of the file, if there are any */
    size_t n_api_keys;
    const char *api_key_file;   /* one key per line; NULL: none */
    /* n_trusted_proxies addresses, or networks as ADDRESS/BITS, whose X-Forwarded-For is believed. */
    const char *const *trusted_proxies;
    size_t n_trusted_proxies;
    bool allow_priority;        /* requests may have a priority other than 0 */
    const char *metrics_prefix; /* NULL: "weft:" */
    const char *const *allow;   /* n_allow words of --allow: what is refused otherwise */
    size_t n_allow;
    /* Sequences that may wait; 0: 256, 4096 of a model for embeddings, whose requests have hundreds of texts. */
    uint32_t max_queue;
    uint32_t request_timeout_s; /* 0: 600 */
    uint32_t shutdown_timeout_s; /* 0: 30 */
    bool log_json, quiet, verbose;
    bool profile;               /* as given to the engine: /metrics has step times by class */
    /* Opens model and engine. Returns 0, or an exit code after printing a message, if there is no path. */
    int (*open)(void *user, wf_opening *o);
    void *user;
} wf_serve_params;

/* Serves until SIGTERM or SIGINT, then waits for running requests. Returns the program's exit code. Call it once per
 * process: it takes over the signals. */
int wf_serve(const wf_serve_params *p);

#endif
