/* serve: an HTTP server in front of one engine, with the API that OpenAI's clients speak.
 *
 * It sees the engine only through <weft/weft.h>. HTTP threads (libmicrohttpd's) read and check
 * requests, submit them and write answers; the engine's thread only appends to a job's buffers and
 * wakes the connection; one more thread watches for clients that went away and for time limits.
 * Nothing that a client sends ends the process.
 */
#ifndef WF_SERVE_H
#define WF_SERVE_H

#include "base/base.h"

/* Model and engine while they are opened. */
typedef struct wf_opening {
    struct weft_model *model;
    struct weft_engine *engine;
    /* To be called, once or often, when parameters and the files they name are known to be good and only what takes
     * long is left: from then on the server answers /health. */
    void (*checked)(struct wf_opening *o);
} wf_opening;

/* Zero is the default. */
typedef struct wf_serve_params {
    const char *host;           /* address to listen on; NULL: 127.0.0.1 */
    uint32_t port;              /* 0: one that is free, told in the log */
    const char *model_name;     /* what clients call the model; NULL: the file's name */
    const char *chat_template;  /* name; NULL: the model's own */
    const char *api_key_file;   /* one key a line; NULL: no key is asked for */
    const char *metrics_prefix; /* NULL: "weft:" */
    const char *allow_origin;   /* of browsers' pages that may call: CORS; NULL: none but our own */
    uint32_t max_queue;         /* sequences that may wait; 0: 256 */
    uint32_t max_running;       /* sequences that the engine runs together */
    uint32_t request_timeout_s; /* 0: 600 */
    uint32_t shutdown_timeout_s; /* 0: 30 */
    uint32_t read_timeout_s;     /* for a whole request to arrive; 0: 60 */
    uint64_t max_body;           /* bytes; 0: 8 MiB */
    uint32_t max_connections;    /* 0: 4096 */
    bool log_json, quiet, verbose;
    bool profile;                /* the engine is opened with it: /metrics tells classes of work apart */
    /* Fills model and engine; 0, or an exit code after a message. */
    int (*open)(void *user, wf_opening *o);
    void *user;
} wf_serve_params;

/* Serves until SIGTERM or SIGINT, then lets what runs end. Returns the program's exit code. Once a
 * process: the signals are its own from then on. */
int wf_serve(const wf_serve_params *p);

#endif
