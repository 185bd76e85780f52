/* load, inside: what the files of the client share.
 *
 *   target (server, model, vocabulary) + asks --> prompt (bodies) --> drive (curl) --> exchange
 * (events)
 *                                                                --> report, result_json
 */
#ifndef WF_LOADGEN_INTERNAL_H
#define WF_LOADGEN_INTERNAL_H

#include "loadgen/client.h"
#include "loadgen/dataset.h"
#include "loadgen/sse.h"

#include <curl/curl.h>
#include <jansson.h>

/* ---- target.c: the server -------------------------------------------------------------------- */

typedef struct wf_target {
    const wf_client_params *p;
    char *url;                  /* of requests */
    struct curl_slist *headers; /* of each */
    char *model;                /* NULL: none is named */
    json_t *extra;              /* members of each body; NULL: none */
    int32_t *pool;              /* ids of tokens that the server knows; NULL: it does not tell */
    size_t n_pool;
    bool no_tokenize;      /* it was asked for tokens in vain */
    char unreachable[256]; /* "" or why no connection is possible */
} wf_target;

weft_status wf_target_open(const wf_client_params *p, wf_target *t);
void wf_target_close(wf_target *t);
/* Address, headers and limits, the same for every request. */
void wf_target_setup(const wf_target *t, CURL *c, const char *url);
/* Tokens of a text by the server's /tokenize; 0: it cannot. user: wf_target. */
uint32_t wf_target_count(void *user, const char *text);

/* ---- prompt.c: bodies -------------------------------------------------------------------------
 */

/* Asks for what the parameters say, n of them. */
weft_status wf_prompts_make(wf_target *t, size_t n, wf_request_specs *out);
/* The body of the request for ask number i; malloc'ed, NULL without memory. */
char *wf_prompt_body(const wf_target *t, const wf_request_spec *spec, uint64_t i);
#define WF_PROMPT_WORDS 98
extern const char *const wf_prompt_words[WF_PROMPT_WORDS]; /* common ones */

/* ---- transaction.c: one request, and what comes back ----------------------------------------------
 */

typedef struct wf_transaction {
    const wf_request_spec *spec;
    char *body;
    CURL *curl; /* NULL: not on its way */
    wf_request_result *result;
    wf_sse sse;
    char head[512]; /* the start of an answer that is no stream, n_head bytes */
    size_t n_head;
    char curl_error[CURL_ERROR_SIZE];
    char *error; /* why it failed, malloc'ed; NULL: it has not */
    char *text;  /* what was generated, where that is wanted */
    size_t n_text, cap_text;
    bool keep_text, finished, done,
        ended; /* finish_reason came; [DONE] came; nothing will come any more */
    int64_t prompt_tokens, completion_tokens; /* of usage; -1: was not told */
    uint32_t n_chunks;                        /* events with text */
} wf_transaction;

void wf_transaction_init(wf_transaction *x, const wf_request_spec *spec, wf_request_result *result, bool keep_text);
void wf_transaction_free(wf_transaction *x);
/* Keeps the first reason. */
void wf_transaction_fail(wf_transaction *x, const char *fmt, ...) WF_PRINTF(2, 3);
size_t wf_transaction_read(char *bytes, size_t size, size_t n, void *user); /* CURLOPT_WRITEFUNCTION */
void wf_transaction_end(wf_transaction *x, CURLcode result, long status);

/* ---- runner.c: all of them ----------------------------------------------------------------------
 */

typedef struct wf_load_run {
    wf_transaction *x;    /* n of them */
    wf_request_result *result; /* the same */
    size_t n, n_ended;
    double *at; /* when each may start, in seconds */
    double seconds;
} wf_load_run;
weft_status wf_load_run_init(wf_load_run *r, const wf_target *t, const wf_request_specs *specs);
/* Until all have ended, or stop says so. */
weft_status wf_load_run_execute(wf_load_run *r, const wf_target *t, size_t max_concurrency);
void wf_load_run_free(wf_load_run *r);

/* ---- report.c, result_json.c -------------------------------------------------------------------
 */

void wf_report_print(const wf_client_params *p, const wf_load_stats *s);
/* The few reasons that failed requests have, on stderr. */
void wf_report_failures(const wf_load_run *r);
weft_status wf_result_json_check(const wf_target *t); /* can it be saved? */
weft_status wf_result_json_save(const wf_target *t, const wf_load_run *r, const wf_load_stats *s);

#endif
