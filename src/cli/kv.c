/* kv: what a file of `--kv-disk` holds: it lists, verifies and empties one that no process uses. */
#include "cli/cli.h"
#include "base/json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void print_model(const struct weft_kv_model *m, const struct weft_kv_file *f, wf_text *json)
{
    enum { SHOWN = 8 }; /* bytes that tell models apart */
    char name[2 * SHOWN + 1];
    for (int i = 0; i < SHOWN; i++) snprintf(name + 2 * i, 3, "%02x", m->identity[i]);
    unsigned long long bytes = m->blocks * f->block_bytes, tokens = m->blocks * f->block_tokens;
    if (json)
        wf_json_print(json, "{'model': %s, 'blocks': %llu, 'bytes': %llu}", name, (unsigned long long)m->blocks, bytes);
    else printf("%-18s %10llu %12s %12llu\n", name, (unsigned long long)m->blocks, WF_HUMAN(bytes, true), tokens);
}

static int print_json(const char *path, const struct weft_kv_file *f)
{
    wf_text t = {0};
    wf_json_print(&t, "{'path': %s, 'slots': %llu, 'block_tokens': %u, 'block_bytes': %llu, 'damaged': %llu, "
                      "'models': [", path, (unsigned long long)f->slots, f->block_tokens,
                  (unsigned long long)f->block_bytes, (unsigned long long)f->damaged);
    for (size_t i = 0; i < f->n_models; i++) {
        if (i) wf_json_print(&t, ", ");
        print_model(&f->models[i], f, &t);
    }
    wf_json_print(&t, "]}\n");
    if (!t.failed) fwrite(t.data, 1, t.len, stdout);
    free(t.data);
    return t.failed ? wf_say_error(WEFT_ERR_NOMEM) : 0;
}

static void print_file(const struct weft_kv_file *f)
{
    uint64_t blocks = 0;
    if (f->n_models) printf("%-18s %10s %12s %12s\n", "model", "blocks", "bytes", "tokens");
    for (size_t i = 0; i < f->n_models; i++) print_model(&f->models[i], f, NULL), blocks += f->models[i].blocks;
    printf("%llu of %llu slots hold a block of %u tokens and %s, %llu a damaged one\n", (unsigned long long)blocks,
           (unsigned long long)f->slots, f->block_tokens, WF_HUMAN(f->block_bytes, true),
           (unsigned long long)f->damaged);
}

static int cmd_kv(const wf_opts *o)
{
    static const char *const actions[] = {"list", "verify", "empty"};
    struct weft_kv_file f;
    size_t what = 0;
    if (!o->n_args || o->n_args > 2)
        return wf_usage(o->command, "it takes the PATH of --kv-disk, and list, verify or empty");
    while (o->n_args > 1 && what < WF_LEN(actions) && strcmp(actions[what], o->args[1])) what++;
    if (what == WF_LEN(actions)) return wf_usage(o->command, "'%s' is none of list, verify and empty", o->args[1]);
    weft_status s = weft_kv_file(o->args[0], (enum weft_kv_action)what, &f);
    if (s) return wf_say_error(s);
    int rc = o->json ? print_json(o->args[0], &f) : (print_file(&f), 0);
    if (!rc && f.damaged && what == WEFT_KV_VERIFY) rc = WF_EXIT_RUNTIME;
    weft_kv_file_free(&f);
    return rc;
}

static const wf_opt rows[] = {
    {0, "json", NULL, "print JSON", WF_OPT_FLAG, AT(json)},
};
static const WF_GROUP(group, "Output", rows);
static const wf_opt_group *const groups[] = {&group, &wf_group_general, NULL};

const wf_command wf_cmd_kv = {
    .name = "kv",
    .usage = "PATH [list|verify|empty] [options]",
    .summary = "Lists, verifies or empties a file of `weft serve --kv-disk` that no server uses. Blocks are listed by "
               "the model and settings that they are of. verify reads all of them, and fails if one is damaged: such "
               "a block is computed again, as one is that is not there.",
    .groups = groups,
    .takes_args = true,
    .run = cmd_kv,
};
