/* served: one model that is served: its names, what it has when it is loaded, and who holds it. */
#include "serve/api/internal.h"
#include "base/file.h"
#include "base/options.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- names ----------------------------------------------------------------------------------------------- */

/* As much of it as fits in whole characters. Clients send it back as JSON and metrics have it in quotes, so what is no
 * text, or would end it there, is replaced. */
void wf_served_name(wf_served *m, const char *name, size_t len)
{
    size_t at = 0, cap = m->n_names; /* few have many */
    if (!len || !wf_grow(&m->names, m->n_names, &cap, sizeof *m->names)) return;
    char *out = m->names[m->n_names++];
    for (size_t i = 0, n; i < len; i += WF_MAX(n, (size_t)1)) {
        n = wf_utf8_len(name + i, len - i);
        bool bad = !n || wf_utf8_control(name + i, n) || strchr(" \"\\", name[i]);
        if (at + WF_MAX(n, (size_t)1) >= sizeof *m->names) break;
        if (bad) out[at++] = '-';
        else memcpy(out + at, name + i, n), at += n;
    }
    out[at] = 0;
    m->name = m->names[0];
}

/* Those that are given, with commas between or one by one; else the file name without directory and extension. */
static void name_model(wf_served *m)
{
    const char *path = weft_model_info(m->model)->path, *slash = strrchr(path, '/');
    size_t n;
    for (size_t i = 0; i < m->server->p.n_model_names; i++)
        for (const char *at = m->server->p.model_names[i]; *at; at += n + (at[n] == ','))
            n = strcspn(at, ","), wf_served_name(m, at, n);
    if (slash) path = slash + 1;
    if (!m->n_names) wf_served_name(m, path, wf_models_stem(path));
    if (!m->n_names) m->name = "model"; /* for want of memory */
}

#define LATEST ":latest" /* what Ollama's clients put behind names without a tag */

size_t wf_names_bare(const char *name)
{
    size_t n = strlen(name), tag = strlen(LATEST);
    return n > tag && !strcmp(name + n - tag, LATEST) ? n - tag : n;
}

bool wf_names_have(const wf_served *m, const char *name)
{
    size_t bare = wf_names_bare(name);
    bool found = false;
    for (size_t i = 0; i < m->n_names; i++)
        found |= !strcmp(m->names[i], name) || (strlen(m->names[i]) == bare && !strncmp(m->names[i], name, bare));
    return found;
}

bool wf_served_ranks(const wf_served *m) { return m->pooling && !strcmp(m->pooling, "rank"); }

wf_seen wf_served_see(const struct weft_model *model)
{
    const struct weft_model_info *i = weft_model_info(model);
    bool large = i->n_params >= 1000000000u;
    wf_seen seen = {.pooling = i->pooling};
    wf_copy(seen.family, sizeof seen.family, i->arch);
    snprintf(seen.parameters, sizeof seen.parameters, "%.1f%s", (double)i->n_params / (large ? 1e9 : 1e6),
             large ? "B" : "M");
    wf_copy(seen.type, sizeof seen.type, i->file_type ? i->file_type : "unknown");
    return seen;
}

/* ---- what it has ----------------------------------------------------------------------------------------- */

/* Says what memory holds; returns how many sequences run at the same time. */
static uint32_t take_budget(const wf_served *m)
{
    struct weft_budget b = {0};
    char from[160];
    if (weft_engine_budget(m->engine, &b)) return 1;
    wf_name_options(from, sizeof from, b.n_seqs_from);
    wf_say(m->server,
           "KV cache of %s for %llu tokens, %u contexts of %u; at most %u sequences run at the same time: %s",
           WF_HUMAN(b.kv, true), (unsigned long long)b.kv_tokens, b.contexts, b.context, b.n_seqs, from);
    if (b.kv_host)
        wf_say(m->server, "below the KV cache %s of host memory hold %s tokens, and %s of disk %s",
               WF_HUMAN(b.kv_host, true), WF_HUMAN(b.kv_host / b.kv_bytes_per_token, false), WF_HUMAN(b.kv_disk, true),
               WF_HUMAN(b.kv_disk / b.kv_bytes_per_token, false));
    return b.n_seqs;
}

bool wf_served_publish(wf_served *m, const wf_opening *o)
{
    wf_models *ms = &m->server->models;
    m->model = o->model;
    m->engine = o->engine;
    if (!m->n_names) name_model(m);
    if (!wf_adapters_apart(m)) return false;
    m->context = weft_engine_context(m->engine);
    m->sampling = o->sampling;
    m->pooling = weft_engine_pooling(m->engine);
    m->max_running = take_budget(m);
    m->max_queue = m->server->p.max_queue ? m->server->p.max_queue : m->pooling ? WF_MAX_CHOICES : WF_MAX_QUEUE;
    wf_chat_style_find(m);
    if (m->pooling)
        wf_say(m->server, "the model gives %s, no text (pooling %s)", wf_served_ranks(m) ? "scores" : "embeddings",
               m->pooling);
    else {
        wf_say(m->server, "sampling of requests that do not say it: %s", o->sampling_text);
        const wf_server *s = m->server;
        if (!m->chat.usable)
            wf_say(s, "no chats: %s; until then /v1/chat/completions answers with status 400", wf_last_error());
        if (m->chat.generic && m->chat.usable)
            wf_say(s, "the chat template knows no tools: the model is told of them, and calls them, in a generic form");
        if (m->chat.no_system)
            wf_say(s, "the chat template has no system messages: they stand before the next message of the user");
        if (m->chat.tools && !m->chat.calls)
            wf_say(s, "calls of tools in answers stay text: the chat template shows them in a way that is not known "
                      "here; see --tool-call-parser");
    }
    pthread_mutex_lock(&ms->lock);
    m->state = WF_SERVED_READY;
    m->seen_of = wf_served_see(m->model);
    m->seen_of.pooling = m->pooling; /* which may be asked for */
    m->bytes = o->bytes;
    m->used_ns = wf_now_ns();
    m->asked = m->closed = false;
    *m->failure = 0;
    m->n_users++; /* until it is told of */
    wf_served_admit(m);
    pthread_mutex_unlock(&ms->lock);
    atomic_store(&m->server->loaded, true);
    wf_say(m->server, "%s is ready on %s", m->name, weft_engine_device(m->engine)->name);
    wf_served_drop(m, false);
    return true;
}

/* ---- who holds it ---------------------------------------------------------------------------------------- */

bool wf_served_hold(wf_served *m)
{
    wf_models *ms = &m->server->models;
    pthread_mutex_lock(&ms->lock);
    bool ready = m->state == WF_SERVED_READY;
    m->n_users += ready;
    pthread_mutex_unlock(&ms->lock);
    return ready;
}

void wf_served_drop(wf_served *m, bool used)
{
    wf_models *ms = &m->server->models;
    if (!m->engine) { /* a job's own */
        wf_served_free(m);
        free(m);
        return;
    }
    pthread_mutex_lock(&ms->lock);
    if (used) m->used_ns = wf_now_ns();
    if (!--m->n_users) pthread_cond_signal(&ms->news);
    pthread_mutex_unlock(&ms->lock);
}

void wf_served_admit(wf_served *m)
{
    m->turn = 0;
    for (wf_job *j; (j = m->waiting); wf_job_wake(j)) {
        m->waiting = j->next_waiting;
        m->n_users++;
        j->served = m;
        j->awaits = NULL;
        j->waits = false;
    }
    atomic_store(&m->n_waiting, 0);
}

void wf_served_free(wf_served *m)
{
    weft_engine_close(m->engine);
    weft_model_close((struct weft_model *)m->model); /* const means that nobody else closes it */
    m->engine = NULL;
    m->model = NULL;
}

void wf_served_put_status(wf_served *m, wf_text *out)
{
    static const char *const states[] = {"unloaded", "loading", "loaded"};
    char failure[sizeof m->failure];
    wf_models *ms = &m->server->models;
    pthread_mutex_lock(&ms->lock);
    enum wf_served_state state = m->state == WF_SERVED_AWAY && m->turn ? WF_SERVED_LOADING : m->state;
    wf_copy(failure, sizeof failure, m->failure);
    pthread_mutex_unlock(&ms->lock);
    wf_json_print(out, "'status':{'value':%s", states[state]);
    if (state == WF_SERVED_LOADING)
        wf_json_print(out, ",'progress':%.3g,'waiting':%u", atomic_load(&m->progress) / 1e3,
                      atomic_load(&m->n_waiting));
    if (*failure) wf_json_print(out, ",'failed':true,'message':%s", failure);
    wf_text_add(out, "}", 1);
}
