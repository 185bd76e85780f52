/* loadgen internals: target (server, model, vocabulary) + request_specs --> prompt (bodies) --> runner (curl)
 * --> transaction (events) --> report, result_json */
#ifndef WF_LOADGEN_INTERNAL_H
#define WF_LOADGEN_INTERNAL_H

#include "base/json.h"
#include "loadgen/client.h"
#include "loadgen/dataset.h"
#include "loadgen/sse.h"

#include <curl/curl.h>

/* ---- target.c: the server -------------------------------------------------------------------- */

typedef struct wf_target {
    const wf_client_params *p;
    char *url;                  /* request URL */
    struct curl_slist *headers; /* sent with each request */
    char *model;                /* NULL: not sent */
    wf_json *extra;             /* merged into each body; NULL: none */
    int32_t *pool;              /* token ids known to be valid; NULL: unknown */
    size_t n_pool;
    bool no_tokenize;      /* /tokenize failed once */
    long status;           /* of the last query; 0: no answer */
    char unreachable[256]; /* reason why no connection is possible; "": reachable */
} wf_target;

weft_status wf_target_open(const wf_client_params *p, wf_target *t);
void wf_target_close(wf_target *t);
/* Sets URL, headers and limits, which every request shares. */
void wf_target_setup(const wf_target *t, CURL *c, const char *url);
/* Is the status an answer to whom and what is asked, which every request would get? */
bool wf_target_refuses(long status);
/* Fails with what helps against such an answer, whose text names the status. */
weft_status wf_target_refused(const wf_target *t, const char *url, long status, const char *text);
/* Counts the tokens of a text with the server's /tokenize; 0: unavailable. user: wf_target. */
uint32_t wf_target_count(void *user, const char *text);

/* ---- prompt.c: request bodies ---------------------------------------------------------------- */

weft_status wf_prompts_make(wf_target *t, size_t n, wf_request_specs *out); /* n that the parameters describe */
char *wf_prompt_body(const wf_target *t, const wf_request_spec *spec, uint64_t i); /* of request i; NULL: no memory */
#define WF_PROMPT_WORDS 98
extern const char *const wf_prompt_words[WF_PROMPT_WORDS]; /* common English words */

/* ---- transaction.c: one request and its response --------------------------------------------- */

typedef struct wf_transaction {
    const wf_request_spec *spec;
    char *body;
    CURL *curl; /* NULL: not in flight */
    wf_request_result *result;
    wf_sse sse;
    char head[512]; /* first n_head bytes of a response that is not a stream */
    size_t n_head;
    char curl_error[CURL_ERROR_SIZE];
    char *error;                              /* failure reason, malloc'ed; NULL: none */
    wf_text text;                             /* that was generated, if keep_text */
    bool keep_text, finished, done, ended;    /* got finish_reason; got [DONE]; transfer over */
    int64_t prompt_tokens, completion_tokens; /* from usage; -1: not reported */
    uint32_t n_chunks;                        /* events that carry text */
} wf_transaction;

void wf_transaction_init(wf_transaction *x, const wf_request_spec *spec, wf_request_result *result, bool keep_text);
void wf_transaction_free(wf_transaction *x);
/* Records the first failure reason. */
void wf_transaction_fail(wf_transaction *x, const char *fmt, ...) WF_PRINTF(2, 3);
size_t wf_transaction_read(char *bytes, size_t size, size_t n, void *user); /* CURLOPT_WRITEFUNCTION */
void wf_transaction_end(wf_transaction *x, CURLcode result, long status);

/* ---- runner.c: all requests ------------------------------------------------------------------ */

typedef struct wf_load_run {
    wf_transaction *x;    /* n */
    wf_request_result *result; /* n */
    size_t n, n_ended;
    double *at; /* earliest start of each, in seconds */
    double seconds;
} wf_load_run;
weft_status wf_load_run_init(wf_load_run *r, const wf_target *t, const wf_request_specs *specs);
/* Runs until all requests have ended or stop() returns true. */
weft_status wf_load_run_execute(wf_load_run *r, const wf_target *t, size_t max_concurrency);
void wf_load_run_free(wf_load_run *r);

/* ---- report.c, result_json.c ----------------------------------------------------------------- */

void wf_report_print(const wf_client_params *p, const wf_load_stats *s);
void wf_report_failures(const wf_load_run *r); /* the distinct reasons, to stderr */
weft_status wf_result_json_check(const wf_target *t); /* can the result be saved? */
weft_status wf_result_json_save(const wf_target *t, const wf_load_run *r, const wf_load_stats *s);

#endif
