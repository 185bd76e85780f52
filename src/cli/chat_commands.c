/* chat_commands: what a line of a chat does that begins with a slash. See chat.h. */
#include "cli/chat.h"

#include "base/file.h"
#include "base/json.h"
#include "cli/generate.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define FILE_MAX ((size_t)256 << 20)

/* ---- conversations in files: what `weft template --messages` reads, too ---------------------- */

static weft_status add_all(wf_chat *c, const wf_json *messages)
{
    if (!wf_json_is(messages, WF_JSON_LIST)) return wf_fail(WEFT_ERR_FORMAT, "it has no list of messages");
    for (size_t i = 0; i < wf_json_count(messages); i++) {
        const char *role = wf_json_text(wf_json_get(wf_json_at(messages, i), "role"));
        const char *content = wf_json_text(wf_json_get(wf_json_at(messages, i), "content"));
        if (!role || !content)
            return wf_fail(WEFT_ERR_FORMAT, "message %zu has no role or no content that are texts", i);
        WF_TRY(wf_chat_add(c, role, content));
    }
    return WEFT_OK;
}

static weft_status read_json(const char *path, wf_json **out)
{
    char *text;
    size_t len;
    WF_TRY(wf_need_regular(path)); /* a FIFO would wait for its writer, whom nobody here can start */
    WF_TRY(wf_read_file(path, FILE_MAX, &text, &len));
    weft_status s = wf_json_load(text, len, path, WF_JSON_UNIQUE, out);
    free(text);
    return s;
}

/* Replaces the conversation; one that cannot be read leaves it as it is. */
static weft_status load_conversation(wf_chat *c, const char *path)
{
    wf_json *root;
    wf_chat got = {0};
    WF_TRY(read_json(path, &root));
    weft_status s = add_all(&got, wf_json_is(root, WF_JSON_LIST) ? root : wf_json_get(root, "messages"));
    wf_json_free(root);
    if (s) return wf_chat_drop(&got, 0), free(got.msgs), wf_fail_context(s, "%s", path);
    wf_chat_drop(c, 0);
    free(c->msgs);
    c->msgs = got.msgs, c->n = got.n, c->cap = got.cap;
    return WEFT_OK;
}

/* Is that a list of messages as /save writes it, with nothing in it that would be lost? */
static bool is_saved(const char *path)
{
    wf_json *root = NULL;
    wf_chat got = {0};
    bool ok = !read_json(path, &root) && !add_all(&got, root);
    for (size_t i = 0; ok && i < got.n; i++) ok = wf_json_size(wf_json_at(root, i)) == 2;
    wf_chat_drop(&got, 0);
    free(got.msgs);
    wf_json_free(root);
    return ok;
}

/* Of files that are there, only saved conversations are replaced, and only by /save! */
static weft_status check_target(const char *path, bool replace)
{
    struct stat st;
    if (stat(path, &st) || !S_ISREG(st.st_mode)) return WEFT_OK; /* wf_output_check says what is wrong with others */
    if (!is_saved(path))
        return wf_fail(WEFT_ERR_ARG,
                       "%s is there and no saved conversation, so it is left as it is: choose another name", path);
    return replace ? WEFT_OK
                   : wf_fail(WEFT_ERR_ARG,
                             "%s has a saved conversation: /save! FILE replaces it, or choose another name", path);
}

/* Answers are; what was typed or given as system message may not be. */
static weft_status check_utf8(const wf_chat *c)
{
    for (size_t i = 0; i < c->n; i++)
        if (c->msgs[i].content[wf_utf8_valid(c->msgs[i].content, strlen(c->msgs[i].content))])
            return wf_fail(WEFT_ERR_ARG,
                           "message %zu is no valid UTF-8, so it cannot be saved; /clear starts a new conversation", i);
    return WEFT_OK;
}

static weft_status save_conversation(const wf_chat *c, const char *path, bool replace)
{
    wf_output out;
    WF_TRY(check_utf8(c));
    WF_TRY(check_target(path, replace));
    wf_text list = {0};
    wf_text_print(&list, "[");
    for (size_t i = 0; i < c->n; i++)
        wf_json_print(&list,
                      i ? ",\n {\n  'role': %s,\n  'content': %s\n }" : "\n {\n  'role': %s,\n  'content': %s\n }",
                      c->msgs[i].role, c->msgs[i].content);
    wf_text_print(&list, "\n]\n");
    if (list.failed) return free(list.data), wf_fail(WEFT_ERR_NOMEM, "out of memory");
    weft_status s = wf_output_check(path);
    if (!s) s = wf_output_open(path, &out);
    if (!s) {
        if (*out.tmp_path)
            fchmod(fileno(out.f), 0600); /* as private as the history; a file system without modes is no error */
        bool good = fwrite(list.data, 1, list.len, out.f) == list.len;
        s = wf_output_end(&out, good);
        if (!s && !good) s = wf_fail(WEFT_ERR_IO, "cannot write %s", path);
    }
    free(list.data);
    return s;
}

/* ---- the commands: each gets what follows its name ------------------------------------------- */

static enum wf_chat_next save_and_say(wf_chat *c, const char *path, bool replace)
{
    weft_status s = save_conversation(c, path, replace);
    if (s) return wf_say_error(s), WF_CHAT_FAILED;
    wf_note(&c->o, "%zu messages are in %s; /load brings them back", c->n, path);
    return WF_CHAT_GO_ON;
}

static enum wf_chat_next do_save(wf_chat *c, const char *path) { return save_and_say(c, path, false); }
static enum wf_chat_next do_replace(wf_chat *c, const char *path) { return save_and_say(c, path, true); }

static enum wf_chat_next do_load(wf_chat *c, const char *path)
{
    weft_status s = load_conversation(c, path);
    if (s) return wf_say_error(s), WF_CHAT_FAILED;
    wf_note(&c->o, "the conversation has %zu messages", c->n);
    return WF_CHAT_GO_ON;
}

static enum wf_chat_next do_clear(wf_chat *c, const char *text)
{
    (void)text;
    wf_chat_drop(c, wf_chat_has_system(c));
    return WF_CHAT_GO_ON;
}

static void print_system(const wf_chat *c)
{
    wf_note(&c->o, "system message: %s", wf_chat_has_system(c) ? c->msgs[0].content : "none");
}

static enum wf_chat_next do_system(wf_chat *c, const char *text)
{
    bool none = !strcmp(text, "none");
    if (!*text) return print_system(c), WF_CHAT_GO_ON;
    weft_status s = wf_chat_set_system(c, none ? NULL : text);
    if (s) return wf_say_error(s), WF_CHAT_FAILED;
    if (c->plain && !none)
        wf_note(&c->o, "the model does not see the system message, which is only kept for /save: without a chat "
                       "template each line is continued as plain text; `weft run` takes one with --chat-template FILE");
    return WF_CHAT_GO_ON;
}

static enum wf_chat_next do_retry(wf_chat *c, const char *text)
{
    (void)text;
    for (size_t i = 0; i < c->n; i++)
        if (!strcmp(c->msgs[i].role, "user")) return WF_CHAT_RETRY;
    wf_note(&c->o, "there is no answer yet to try again");
    return WF_CHAT_GO_ON;
}

static enum wf_chat_next do_end(wf_chat *c, const char *text)
{
    (void)c;
    (void)text;
    return WF_CHAT_END;
}

static void print_set(const wf_chat *c)
{
    char line[256];
    wf_sampling_summary(&c->p.sampling, line, sizeof line);
    wf_note(&c->o, "sampling: %s", line);
}

static const wf_opt length_rows[] = {
    {'n', "n-predict", "N", "most tokens of an answer; -1: no limit", WF_OPT_I32, AT(n_predict), -1, MANY},
};
static const WF_GROUP(length_group, "Generation", length_rows);
static const wf_opt_group *const set_groups[] = {&wf_group_sampling, &length_group, NULL};
static const wf_command set_command = {.name = "/set", .groups = set_groups};

/* One setting: its value, and what it may be. */
static void print_setting(const wf_chat *c, const wf_opt *opt)
{
    char value[32], allowed[96];
    wf_opts now = c->o;
    now.sampling = c->p.sampling;
    if (!wf_opts_has(&now, "n-predict")) now.n_predict = -1;
    wf_opt_value(opt, &now, value, sizeof value);
    wf_opt_allowed(opt, allowed, sizeof allowed);
    fprintf(stderr, "  %-18s %-10s %s\n", opt->name, value, allowed);
}

/* /set temp 0.8, with the options of the command line and their names in other programs. */
static enum wf_chat_next do_set(wf_chat *c, const char *text)
{
    char name[64];
    if (!strncmp(text, "parameter", 9) && strchr(" \t", text[9]))
        text += 9 + strspn(text + 9, " \t"); /* as Ollama has it */
    size_t len = strcspn(text, " \t=");
    const char *value = text + len + strspn(text + len, " \t=");
    wf_copy(name, WF_MIN(len + 1, sizeof name), text);
    for (size_t g = 0; !*text && set_groups[g]; g++)
        for (size_t i = 0; i < set_groups[g]->n; i++)
            if (set_groups[g]->rows[i].arg) print_setting(c, &set_groups[g]->rows[i]);
    if (!*text) return print_system(c), WF_CHAT_GO_ON;
    if (!strcmp(name, "system")) return do_system(c, value);
    const wf_opt *opt = wf_opts_meant(&set_command, name);
    if (!opt) return WF_CHAT_FAILED;
    if (opt->arg && !*value) return print_setting(c, opt), WF_CHAT_GO_ON;
    if (wf_opts_set(&set_command, opt->name, value, NULL, &c->o)) return WF_CHAT_FAILED;
    c->p = wf_request_params(&c->o, c->m, !c->plain);
    print_set(c);
    return WF_CHAT_GO_ON;
}

static enum wf_chat_next do_info(wf_chat *c, const char *text)
{
    int32_t *ids = NULL;
    size_t n = 0;
    char label[128];
    (void)text;
    if (c->n && wf_chat_tokens(c, &ids, &n)) n = 0;
    weft_free(ids);
    wf_model_label(c->m, label, sizeof label);
    wf_note(&c->o, "model: %s (%s)", c->o.model ? c->o.model : "built in", label);
    wf_note(&c->o, "device: %s", weft_engine_device(c->e)->name);
    wf_note(&c->o, "conversation: %zu messages, %zu of %u tokens", c->n, n, weft_engine_context(c->e));
    print_set(c);
    return WF_CHAT_GO_ON;
}

static enum wf_chat_next do_help(wf_chat *c, const char *text);

static const struct row {
    const char *names, *arg, *help;
    enum wf_chat_next (*run)(wf_chat *c, const char *text);
} rows[] = {
    {"help|?", "", "list the commands", do_help},
    {"exit|bye|quit", "", "leave", do_end},
    {"clear", "", "start a new conversation; the system message stays", do_clear},
    {"system", "[TEXT|none]", "show, set or remove the system message", do_system},
    {"set", "[NAME [VALUE]]", "show all settings or one, or set it, such as temp 0.8", do_set},
    {"retry", "", "answer the last message again", do_retry},
    {"save", "FILE", "write the conversation to a new file", do_save},
    {"save!", "FILE", "the same, over one that was saved there before", do_replace},
    {"load", "FILE", "go on with one from a file", do_load},
    {"info", "", "show model, device, context and sampling", do_info},
};

static enum wf_chat_next do_help(wf_chat *c, const char *text)
{
    (void)c;
    (void)text;
    for (size_t i = 0; i < WF_LEN(rows); i++) {
        char left[64];
        size_t n = (size_t)snprintf(left, sizeof left, "/%s", rows[i].names);
        for (char *p = left; *p; p++)
            if (*p == '|') *p = ' ';
        snprintf(left + n, sizeof left - n, " %s", rows[i].arg);
        fprintf(stderr, "  %-22s %s\n", left, rows[i].help);
    }
    fprintf(stderr, "A line that ends with \\ goes on in the next one, and pasted text may have several.\n"
                    "//TEXT sends /TEXT; pasted text is never a command. Ctrl-C stops an answer.\n");
    return WF_CHAT_GO_ON;
}

static const struct row *find_row(const char *name, size_t len)
{
    for (size_t i = 0; i < WF_LEN(rows); i++)
        if (wf_choice_has(rows[i].names, name, len)) return &rows[i];
    return NULL;
}

void wf_chat_command_hint(const wf_chat *c, const char *line)
{
    if (find_row(line, strlen(line))) wf_note(&c->o, "'%s' is a message; the command is /%s", line, line);
}

enum wf_chat_next wf_chat_command(wf_chat *c, const char *line)
{
    char name[64];
    size_t len = strcspn(++line, " \t\n");
    const char *text = line + len + strspn(line + len, " \t\n");
    char *trimmed = wf_strdup(text);
    if (!trimmed) return wf_say_error(WEFT_ERR_NOMEM), WF_CHAT_FAILED;
    for (size_t n = strlen(trimmed); n && strchr(" \t\n", trimmed[n - 1]);) trimmed[--n] = 0;
    const struct row *row = find_row(line, len);
    wf_copy(name, WF_MIN(len + 1, sizeof name), line);
    enum wf_chat_next next = WF_CHAT_FAILED;
    if (!row) {
        const char *names[2 * WF_LEN(rows)];
        char nearest[160], first[WF_LEN(rows)][16];
        size_t n = 0;
        for (size_t i = 0; i < WF_LEN(rows); i++) {
            wf_copy(first[i], WF_MIN(strcspn(rows[i].names, "|") + 1, sizeof first[i]), rows[i].names);
            names[n++] = first[i];
        }
        wf_nearest(nearest, sizeof nearest, "/", name, names, n);
        wf_note(&c->o, "there is no /%s%s /help lists the commands; //TEXT sends /TEXT as a message", name,
                *nearest ? nearest : ";");
    } else if (*trimmed && !*row->arg)
        wf_note(&c->o, "/%s takes no text; //%s %s sends it as a message", name, name, trimmed);
    else if (!*trimmed && !strcmp(row->arg, "FILE")) wf_note(&c->o, "/%s needs the name of a file", name);
    else next = row->run(c, trimmed);
    free(trimmed);
    return next;
}
