/* models: all models of the server: which there are, which one a request means, and its waiting until that is loaded.
 */
#include "serve/api/internal.h"
#include "base/file.h"
#include "serve/api/places.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define SCAN_NS 250000000u /* the folder is not looked at more often */

/* ---- the folder ------------------------------------------------------------------------------------------ */

static bool is_of_file(const wf_served *m, const char *file, size_t stem)
{
    return wf_models_stem(m->file) == stem && !strncmp(m->file, file, stem);
}

uint64_t wf_models_keep_usual(const wf_server *s)
{
    return s->p.sleep_idle_s ? s->p.sleep_idle_s * 1000000000ull : UINT64_MAX;
}

/* The entry of a file; a new one comes where its name belongs. NULL: there is no memory. Call it with the lock held. */
static wf_served *entry_of(wf_server *s, const char *file)
{
    wf_served **at = &s->models.first;
    size_t stem = wf_models_stem(file);
    for (wf_served *m = *at; m; m = m->next)
        if (is_of_file(m, file, stem)) return m;
    wf_served *m = wf_calloc(1, sizeof *m);
    if (!m || !(m->file = wf_strdup(file))) return free(m), NULL;
    wf_served_name(m, file, stem);
    if (!m->n_names) return free(m->file), free(m), NULL;
    while (*at && strcmp((*at)->name, m->name) < 0) at = &(*at)->next;
    m->server = s;
    m->here = true;
    m->keep_ns = wf_models_keep_usual(s);
    pthread_mutex_init(&m->metrics.lock, NULL);
    m->next = *at;
    return *at = m;
}

/* One that has been replaced while it is loaded goes, so that the next request loads what there is now. */
static void note_file(wf_server *s, const char *file, const struct stat *st, uint64_t scan)
{
    uint64_t bytes = wf_models_bytes(s->models.folder, file, st);
    pthread_mutex_lock(&s->models.lock);
    wf_served *m = entry_of(s, file);
    if (m && !strcmp(m->file, file)) { /* of a folder and a file of one name, one */
        bool changed = m->changed != (int64_t)st->st_mtime;
        if (changed) m->seen_of = (wf_seen){0};
        m->leaves |= m->state != WF_SERVED_AWAY && changed;
        m->seen = WF_MAX(m->seen, scan); /* a slow one may end behind the next */
        m->here = true;
        m->changed = (int64_t)st->st_mtime;
        m->file_bytes = bytes;
    }
    pthread_mutex_unlock(&s->models.lock);
}

static int by_name(const struct dirent **a, const struct dirent **b) { return strcmp((*a)->d_name, (*b)->d_name); }

void wf_models_scan(wf_server *s)
{
    wf_models *ms = &s->models;
    struct dirent **names = NULL;
    uint64_t now = wf_now_ns();
    pthread_mutex_lock(&ms->lock);
    bool due = ms->several && (!ms->scanned_ns || now - ms->scanned_ns > SCAN_NS);
    uint64_t scan = ms->scans += due;
    if (due) ms->scanned_ns = now;
    pthread_mutex_unlock(&ms->lock);
    if (!due) return;
    int n = scandir(ms->folder, &names, NULL, by_name);
    for (int i = 0; i < n; free(names[i++])) {
        struct stat st;
        if (wf_models_have(ms->folder, names[i]->d_name, &st)) note_file(s, names[i]->d_name, &st, scan);
    }
    free(names);
    pthread_mutex_lock(&ms->lock);
    for (wf_served *m = ms->first; m; m = m->next) m->here = m->seen >= scan;
    pthread_mutex_unlock(&ms->lock);
}

bool wf_models_open(wf_server *s)
{
    wf_models *ms = &s->models;
    struct stat st;
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_mutex_init(&ms->lock, NULL);
    pthread_cond_init(&ms->news, &attr);
    pthread_condattr_destroy(&attr);
    ms->several = s->p.models;
    if (!ms->several) {
        /* The one of the command line, which is there as soon as it is open. */
        wf_served *m = s->models.usual = s->models.first = wf_calloc(1, sizeof *m);
        if (!m) return false;
        m->server = s;
        m->here = true;
        pthread_mutex_init(&m->metrics.lock, NULL);
        return true;
    }
    wf_models_folder(ms->folder, sizeof ms->folder);
    if (!*ms->folder || (!stat(ms->folder, &st) && !S_ISDIR(st.st_mode)))
        return !wf_fail(WEFT_ERR_ARG, "there is no folder of models%s%s: WEFT_MODELS names it",
                        *ms->folder ? " at " : "", ms->folder);
    wf_models_scan(s);
    if (!s->p.first_model) return true;
    if (!(ms->usual = wf_served_named(s, s->p.first_model)))
        return !wf_fail(WEFT_ERR_ARG, "%s is not in the folder of models, %s: `weft list` shows what is",
                        s->p.first_model, ms->folder);
    wf_models_ask(ms->usual, true);
    return true;
}

wf_served *wf_served_next(wf_server *s, const wf_served *last)
{
    pthread_mutex_lock(&s->models.lock);
    wf_served *m = last ? last->next : s->models.first;
    while (m && !m->here && m->state == WF_SERVED_AWAY) m = m->next;
    pthread_mutex_unlock(&s->models.lock);
    return m;
}

/* With the ending of its file, too. */
static wf_served *find_named(wf_server *s, const char *name)
{
    wf_served *m = NULL;
    while ((m = wf_served_next(s, m)))
        if (wf_names_have(m, name) || (m->file && !strcmp(m->file, name))) return m;
    return NULL;
}

wf_served *wf_served_named(wf_server *s, const char *name)
{
    wf_served *m = find_named(s, name);
    if (m || !s->models.several) return m;
    wf_models_scan(s);
    return find_named(s, name);
}

/* ---- which one a request is for -------------------------------------------------------------------------- */

/* Without a name it is the usual one, or the only one. */
static wf_served *find_usual(wf_server *s)
{
    wf_served *only = s->models.usual;
    if (only) return only;
    wf_models_scan(s);
    only = wf_served_next(s, NULL);
    return only && !wf_served_next(s, only) ? only : NULL;
}

/* NULL: the refusal is set. */
static wf_served *model_of(wf_job *j, const wf_json *body)
{
    const wf_json *v = wf_field(body, "model");
    wf_http_error *r = &j->refusal;
    if (!v && j->route->file_only) v = wf_field(body, "name");
    if (v && !wf_json_is(v, WF_JSON_STRING)) return wf_refuse(r, 400, "model", "model must be a string"), NULL;
    bool named = wf_json_bytes(v);
    wf_served *m = named ? wf_served_named(j->server, wf_json_text(v)) : find_usual(j->server);
    if (m) return m;
    if (named && wf_allows(j->server, "any-model-name", NULL) && (m = find_usual(j->server))) return m;
    if (named)
        wf_refuse(r, 404, "model",
                  "the model '%.80s' is not in the folder of models of this server: /v1/models lists what is, and "
                  "`weft pull` fetches more",
                  wf_json_text(v));
    else wf_refuse(r, 400, "model", "model is missing: this server has several, which /v1/models lists");
    r->code = named ? "model_not_found" : NULL;
    return NULL;
}

/* Another one for this job alone, with nothing in it but its file if that is wanted. */
static bool take_alone(wf_job *j, wf_served *m, bool file)
{
    char path[PATH_MAX];
    struct weft_model *model = NULL;
    struct weft_model_params p = {.path = path, .vocab_only = true};
    if (file && j->until_ns) return j->slow = true, false; /* it takes long: among the large bodies */
    wf_served *alone = wf_calloc(1, sizeof *alone);
    j->served = alone;
    if (!alone) return wf_refuse(&j->refusal, 500, "", "out of memory");
    *alone = (wf_served){.server = m->server, .names = m->names, .n_names = m->n_names, .name = m->name,
                         .file = m->file, .file_bytes = m->file_bytes, .changed = m->changed};
    wf_keeper_path(m, path);
    if (file && weft_model_open(&p, &model))
        return wf_refuse(&j->refusal, 500, "model", "the model '%.80s' cannot be opened: %s", m->name,
                         wf_keeper_reason(m->server));
    alone->model = model;
    if (!file) return true;
    alone->seen_of = wf_served_see(model);
    alone->pooling = alone->seen_of.pooling;
    wf_chat_style_find(alone);
    pthread_mutex_lock(&m->server->models.lock);
    if (!*m->seen_of.family && m->changed == alone->changed) m->seen_of = alone->seen_of;
    pthread_mutex_unlock(&m->server->models.lock);
    return true;
}

bool wf_models_writes(wf_job *j, const wf_json *body, const char *name, const char *pooling)
{
    bool ranks = pooling && !strcmp(pooling, "rank");
    if (!pooling || wf_ollama_loads(j, body)) return true;
    return wf_refuse(&j->refusal, WF_UNSUPPORTED, "model", "the model '%.80s' gives %s, no text: see %s", name,
                     ranks ? "scores" : "embeddings", ranks ? "/v1/score and /v1/rerank" : "/v1/embeddings");
}

/* Takes it if it can be taken now. Call it with the lock held. */
static bool take_ready(wf_job *j, wf_served *m)
{
    if (m->state != WF_SERVED_READY || m->closed) return false;
    m->n_users++;
    j->served = m;
    j->awaits = NULL;
    return true;
}

bool wf_models_take(wf_job *j, const wf_json *body)
{
    wf_models *ms = &j->server->models;
    if (j->served || j->route->any_model) return true;
    wf_served *m = model_of(j, body);
    if (!m) return false;
    if (wf_ollama_unloads(j, body)) {
        if (!wf_models_may(j)) return false;
        wf_models_ask(m, false);
        return take_alone(j, m, false);
    }
    pthread_mutex_lock(&ms->lock);
    bool taken = take_ready(j, m), text = j->route->read == wf_params_read;
    bool fits = taken || !text || wf_models_writes(j, body, m->name, m->seen_of.pooling); /* else: loaded for nothing */
    if (!taken && fits && !j->route->file_only) j->awaits = m;
    pthread_mutex_unlock(&ms->lock);
    return taken || (j->route->file_only && take_alone(j, m, true));
}

/* ---- waiting until it is loaded -------------------------------------------------------------------------- */

/* One that waits counts as one sequence, since nobody knows yet how many it has. */
static bool has_place(const wf_job *j, const wf_served *m)
{
    unsigned own = 0, all = atomic_load(&m->n_waiting);
    for (const wf_job *other = m->waiting; other; other = other->next_waiting) own += other->client == j->client;
    return wf_places_allow(2 * (size_t)(j->server->p.max_queue ? j->server->p.max_queue : WF_MAX_QUEUE), all, own, 1);
}

/* Unless it has been given up meanwhile, which nobody would tell it of. */
static void enqueue(wf_job *j, wf_served *m)
{
    wf_job **at = &m->waiting;
    pthread_mutex_lock(&j->lock);
    bool wanted = !j->abort;
    j->sleeps = wanted;
    pthread_mutex_unlock(&j->lock);
    if (!wanted) return;
    while (*at) at = &(*at)->next_waiting;
    *at = j;
    j->next_waiting = NULL;
    j->waits = true;
    atomic_fetch_add(&m->n_waiting, 1);
    if (!m->turn) m->turn = ++m->server->models.turns;
    pthread_cond_signal(&m->server->models.news);
}

bool wf_models_await(wf_job *j, bool aborted)
{
    wf_models *ms = &j->server->models;
    if (!ms->several) return false;
    pthread_mutex_lock(&ms->lock);
    wf_served *m = j->awaits;
    bool waits = j->waits, room = true;
    pthread_mutex_unlock(&ms->lock);
    if (waits || !m || aborted || j->refusal.status) return waits;
    wf_job_watch(j);
    pthread_mutex_lock(&ms->lock);
    if (!take_ready(j, m) && (room = has_place(j, m)) && j->admitted) enqueue(j, m);
    waits = j->waits;
    pthread_mutex_unlock(&ms->lock);
    if (!room)
        wf_refuse(&j->refusal, 503, "",
                  "the server is busy: too many requests wait for '%.80s' to be loaded; try again later", m->name);
    else if (!waits && !j->served) wf_refuse(&j->refusal, 503, "", "the server is shutting down");
    return waits;
}

void wf_models_forget(wf_job *j)
{
    wf_models *ms = &j->server->models;
    pthread_mutex_lock(&ms->lock);
    if (j->waits) {
        wf_job **at = &j->awaits->waiting;
        while (*at != j) at = &(*at)->next_waiting;
        *at = j->next_waiting;
        j->waits = false;
        atomic_fetch_sub(&j->awaits->n_waiting, 1);
        wf_job_wake(j);
        pthread_cond_signal(&ms->news);
    }
    pthread_mutex_unlock(&ms->lock);
}

/* ---- by request ------------------------------------------------------------------------------------------ */

bool wf_models_may(wf_job *j)
{
    return wf_allows(j->server, "loading", NULL) ||
           wf_refuse(&j->refusal, 403, "", "clients may not load and unload models here: --allow loading lets them");
}

void wf_models_ask(wf_served *m, bool load)
{
    wf_models *ms = &m->server->models;
    pthread_mutex_lock(&ms->lock);
    m->asked = load && m->state == WF_SERVED_AWAY;
    if (m->asked && !m->turn) m->turn = ++ms->turns;
    m->leaves = load ? m->leaves && m->closed : m->state != WF_SERVED_AWAY;
    pthread_cond_signal(&ms->news);
    pthread_mutex_unlock(&ms->lock);
}

static bool change(wf_job *j, const wf_json *body, bool load)
{
    const wf_json *v = wf_field(body, "model");
    if (!wf_models_may(j)) return false;
    if (!j->server->models.several)
        return wf_refuse(&j->refusal, 400, "", "this server has one model, which stays: one with --models has several");
    if (!wf_json_bytes(v)) return wf_refuse(&j->refusal, 400, "model", "model must be the name of a model");
    wf_served *m = model_of(j, body);
    if (m) wf_models_ask(m, load);
    return m;
}

bool wf_models_load_read(wf_job *j, const wf_json *body) { return change(j, body, true); }

bool wf_models_unload_read(wf_job *j, const wf_json *body) { return change(j, body, false); }

bool wf_models_answer(wf_job *j, wf_text *out)
{
    (void)j;
    wf_json_print(out, "{'success':true}");
    return true;
}

/* A number and its unit, and so on, as Go writes a duration: "1h30m". */
static bool read_duration(const char *text, double *seconds)
{
    static const struct {
        const char *name;
        double seconds;
    } units[] = {{"ms", 1e-3}, {"h", 3600}, {"m", 60}, {"s", 1}};
    bool negative = *text == '-';
    *seconds = 0;
    for (text += negative; *text;) {
        char *end;
        size_t u = 0, n = strspn(text, "0123456789.");
        double x = n && n < 32 ? strtod(text, &end) : -1;
        if (x < 0 || end != text + n) return false;
        while (u < WF_LEN(units) && strncmp(end, units[u].name, strlen(units[u].name))) u++;
        bool bare = !*end; /* seconds, as in "300" */
        if (u == WF_LEN(units) && !bare) return false;
        *seconds += x * (bare ? 1 : units[u].seconds);
        text = end + (bare ? 0 : strlen(units[u].name));
    }
    if (negative) *seconds = -1;
    return true;
}

bool wf_models_keep(wf_job *j, const wf_json *v)
{
    wf_models *ms = &j->server->models;
    double seconds = wf_json_number(v);
    if (!v || !ms->several || !wf_allows(j->server, "loading", NULL)) return true;
    if (!wf_json_is_number(v) && !(wf_json_text(v) && read_duration(wf_json_text(v), &seconds)))
        return wf_refuse(&j->refusal, 400, "keep_alive", "keep_alive must be seconds, or a text such as \"5m\"");
    pthread_mutex_lock(&ms->lock);
    j->served->keep_ns = seconds < 0 || seconds > 1e9 ? UINT64_MAX : (uint64_t)(seconds * 1e9);
    pthread_mutex_unlock(&ms->lock);
    return true;
}

void wf_models_free(wf_server *s)
{
    for (wf_served *m; (m = s->models.first); free(m)) {
        s->models.first = m->next;
        free(m->names);
        free(m->file);
    }
}
