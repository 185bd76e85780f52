/* beside: what goes on beside a load: a thread that asks for /health and times the answers, and clients that send one
 * large body after the other, a thread each. So a result says how long everybody else waits while a server reads much.
 */
#include "loadgen/internal.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CONNS      8         /* /health is asked on these in turn, since a server may spread connections over threads */
#define PAUSE_NS   2000000   /* between two questions */
#define TOKENIZED                                                                                                      \
    (2u << 20) /* bytes of text for /tokenize; weft takes no more, the rest of the body is a field that nobody knows   \
                */

struct wf_beside {
    const wf_target *t;
    char *url[3]; /* /health, the endpoint of the load, /tokenize */
    char *body[3];
    atomic_bool ended;
    pthread_t threads[1 + WF_MAX_LARGE];
    size_t n_threads;
    atomic_size_t n_answered;
    wf_series health;
    size_t cap_health;
    uint64_t n_unhealthy;
};

/* ---- one request -------------------------------------------------------------------------- */

static size_t ignore(char *bytes, size_t size, size_t n, void *user)
{
    (void)bytes, (void)user;
    return size * n;
}

/* The end of the load breaks off what is under way. */
static int has_ended(void *user, curl_off_t a, curl_off_t b, curl_off_t c, curl_off_t d)
{
    (void)a, (void)b, (void)c, (void)d;
    return atomic_load(&((wf_beside *)user)->ended);
}

/* So it does for questions about health, but for the first: a load that is over before its answer has a result, too. */
static int has_ended_and_was_answered(void *user, curl_off_t a, curl_off_t b, curl_off_t c, curl_off_t d)
{
    const wf_beside *beside = user;
    bool stopped = beside->t->p->stop && beside->t->p->stop();
    return (beside->health.n || stopped) && has_ended(user, a, b, c, d);
}

static CURL *open_request(wf_beside *b, int which)
{
    CURL *c = curl_easy_init();
    if (!c) return NULL;
    wf_target_setup(b->t, c, b->url[which]);
    curl_easy_setopt(c, CURLOPT_WRITEFUNCTION, ignore);
    curl_easy_setopt(c, CURLOPT_NOPROGRESS, 0L);
    curl_easy_setopt(c, CURLOPT_XFERINFOFUNCTION, which ? has_ended : has_ended_and_was_answered);
    curl_easy_setopt(c, CURLOPT_XFERINFODATA, b);
    if (b->body[which]) curl_easy_setopt(c, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)strlen(b->body[which]));
    if (b->body[which]) curl_easy_setopt(c, CURLOPT_POSTFIELDS, b->body[which]);
    return c;
}

/* Its status; 0: there was no answer. */
static long perform(CURL *c)
{
    long status = 0;
    if (c && !curl_easy_perform(c)) curl_easy_getinfo(c, CURLINFO_RESPONSE_CODE, &status);
    return status;
}

/* ---- threads ------------------------------------------------------------------------------ */

static void ask_health(wf_beside *b, CURL *c)
{
    uint64_t start = wf_now_ns();
    long status = perform(c);
    if (status != 200) b->n_unhealthy += !atomic_load(&b->ended);
    else if (wf_grow(&b->health.v, b->health.n, &b->cap_health, sizeof *b->health.v))
        b->health.v[b->health.n++] = (double)(wf_now_ns() - start) * 1e-6;
}

static void *watch_health(void *user)
{
    wf_beside *b = user;
    CURL *c[CONNS];
    for (size_t i = 0; i < CONNS; i++) c[i] = open_request(b, 0);
    for (size_t i = 0; !i || !atomic_load(&b->ended); i++) { /* once, however short the load is */
        ask_health(b, c[i % CONNS]);
        wf_sleep_ns(PAUSE_NS);
    }
    for (size_t i = 0; i < CONNS; i++) curl_easy_cleanup(c[i]);
    return NULL;
}

/* By turns a prompt that is too long and a text that is tokenised. */
static void *send_bodies(void *user)
{
    wf_beside *b = user;
    CURL *c[] = {open_request(b, 1), open_request(b, 2)};
    for (size_t i = 0; !atomic_load(&b->ended); i++) {
        bool answered = perform(c[i % 2]) > 0;
        atomic_fetch_add(&b->n_answered, answered);
        if (!answered) wf_sleep_ns(PAUSE_NS);
    }
    for (size_t i = 0; i < WF_LEN(c); i++) curl_easy_cleanup(c[i]);
    return NULL;
}

/* ---- bodies ------------------------------------------------------------------------------- */

/* A JSON object of about n bytes: a prompt of at most n_text, and what is left in a field that no server knows. */
static char *make_body(size_t n, size_t n_text)
{
    char *body = wf_calloc(n + 128, 1), *at = body;
    if (!body) return NULL;
    const char *end = body + WF_MIN(n, n_text) - WF_MIN(n, 8u); /* no word has more letters */
    at += sprintf(at, "{\"prompt\":\"");
    for (uint64_t i = 0; at < end; i++) at += sprintf(at, "%s ", wf_prompt_words[wf_random(0, i) % WF_PROMPT_WORDS]);
    at += sprintf(at, "\",\"with_pieces\":true,\"x\":\"");
    while (at < body + n) *at++ = 'x';
    strcpy(at, "\"}");
    return body;
}

static bool prepare(wf_beside *b)
{
    b->url[0] = wf_target_join(b->t->p->base_url, "/health");
    b->url[1] = wf_strdup(b->t->url);
    b->url[2] = wf_target_join(b->t->p->base_url, "/tokenize");
    b->body[1] = make_body(b->t->p->large_bytes, SIZE_MAX);
    b->body[2] = make_body(b->t->p->large_bytes, TOKENIZED);
    return b->url[0] && b->url[1] && b->url[2] && b->body[1] && b->body[2];
}

/* ---- all ---------------------------------------------------------------------------------- */

static bool start(wf_beside *b, void *(*run)(void *))
{
    bool ok = !pthread_create(&b->threads[b->n_threads], NULL, run, b);
    b->n_threads += ok;
    return ok;
}

wf_beside *wf_beside_start(const wf_target *t, size_t n_large)
{
    wf_beside *b = wf_calloc(1, sizeof *b);
    if (!b) return NULL;
    b->t = t;
    bool ok = prepare(b) && start(b, watch_health);
    for (size_t i = 0; ok && i < n_large; i++) ok = start(b, send_bodies);
    if (ok) return b;
    wf_beside_free(b);
    return NULL;
}

void wf_beside_end(wf_beside *b, wf_beside_result *out)
{
    atomic_store(&b->ended, true);
    while (b->n_threads) pthread_join(b->threads[--b->n_threads], NULL);
    if (!out) return;
    *out = (wf_beside_result){b->health, atomic_load(&b->n_answered), b->n_unhealthy};
    b->health = (wf_series){0};
    wf_series_finish(&out->health);
}

void wf_beside_free(wf_beside *b)
{
    if (!b) return;
    wf_beside_end(b, NULL);
    for (size_t i = 0; i < WF_LEN(b->url); i++) free(b->url[i]), free(b->body[i]);
    free(b->health.v);
    free(b);
}
