/* served: the model that is served: its names, how it writes chats, and what it says at the start. */
#include "serve/api/internal.h"
#include "base/options.h"

#include <stdlib.h>
#include <string.h>

/* ---- names ----------------------------------------------------------------------------------------------- */

/* One more name of the model in the API, as much of it as fits in whole characters. Clients send it back as JSON and
 * metrics have it in quotes, so what is no text, or would end it there, is replaced. */
static void add_name(wf_served *m, const char *name, size_t len, size_t *cap)
{
    size_t at = 0;
    if (!len || !wf_grow(&m->names, m->n_names, cap, sizeof *m->names)) return;
    char *out = m->names[m->n_names++];
    for (size_t i = 0, n; i < len; i += WF_MAX(n, (size_t)1)) {
        n = wf_utf8_len(name + i, len - i);
        bool bad = !n || wf_utf8_control(name + i, n) || strchr(" \"\\", name[i]);
        if (at + WF_MAX(n, (size_t)1) >= sizeof *m->names) break;
        if (bad) out[at++] = '-';
        else memcpy(out + at, name + i, n), at += n;
    }
    out[at] = 0;
}

/* Those that are given, with commas between or one by one; else the file name without directory and extension. */
static void name_model(wf_served *m)
{
    const char *path = weft_model_info(m->model)->path, *slash = strrchr(path, '/');
    size_t cap = 0, n;
    for (size_t i = 0; i < m->server->p.n_model_names; i++)
        for (const char *at = m->server->p.model_names[i]; *at; at += n + (at[n] == ','))
            n = strcspn(at, ","), add_name(m, at, n, &cap);
    if (slash) path = slash + 1;
    n = strlen(path);
    if (!m->n_names) add_name(m, path, n > 5 && !strcmp(path + n - 5, ".gguf") ? n - 5 : n, &cap);
    m->name = m->n_names ? m->names[0] : "model"; /* for want of memory */
}

#define LATEST ":latest" /* what Ollama's clients put behind names without a tag */

bool wf_names_have(const wf_served *m, const char *name)
{
    size_t n = strlen(name), tag = strlen(LATEST);
    bool tagged = n > tag && !strcmp(name + n - tag, LATEST), found = false;
    for (size_t i = 0; i < m->n_names; i++)
        found |= !strcmp(m->names[i], name) ||
                 (tagged && strlen(m->names[i]) == n - tag && !strncmp(m->names[i], name, n - tag));
    return found;
}

/* ---- what it has ----------------------------------------------------------------------------------------- */

/* Says what memory holds; returns how many sequences run at the same time. */
static uint32_t take_budget(const wf_served *m)
{
    struct weft_budget b = {0};
    char from[160];
    if (weft_engine_budget(m->engine, &b)) return 1;
    wf_name_options(from, sizeof from, b.n_seqs_from);
    wf_say(m->server, "KV cache of %s for %llu tokens, %u contexts of %u; at most %u sequences run at the same time: %s",
             WF_HUMAN(b.kv, true), (unsigned long long)b.kv_tokens, b.contexts, b.context, b.n_seqs, from);
    return b.n_seqs;
}

static void say_chat(const wf_served *m)
{
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

void wf_served_publish(wf_served *m, const wf_opening *o)
{
    m->model = o->model;
    m->engine = o->engine;
    m->context = weft_engine_context(m->engine);
    m->sampling = o->sampling;
    m->max_running = take_budget(m);
    if (!m->n_names) name_model(m);
    wf_chat_style_find(m);
    wf_say(m->server, "sampling of requests that do not say it: %s", o->sampling_text);
    say_chat(m);
}
