/* pull: fetches a model into the folder of models. */
#include "cli/cli.h"
#include "base/options.h"

#include "base/file.h"
#include "pull/pull.h"

#define RETRIES 6
#define RETRY_S 1
#define STALL_S 60

static void say_line(void *user, const char *line) { wf_note(user, "%s", line); }

/* path: PATH_MAX bytes for where it lies then, or NULL. */
static int pull(const wf_opts *o, const char *source, char *path)
{
    char folder[PATH_MAX];
    wf_models_folder(folder, sizeof folder);
    if (!*folder) return wf_usage(o->command, "there is no folder of models: set WEFT_MODELS");
    wf_pull_params p = {.source = source,
                        .folder = folder,
                        .name = path ? NULL : o->write_to,
                        .force = o->force,
                        .dry_run = o->pull.dry_run,
                        .quiet = o->quiet,
                        .retries = wf_opts_has(o, "WEFT_PULL_RETRIES") ? o->pull.retries : RETRIES,
                        .retry_s = wf_opts_has(o, "WEFT_PULL_DELAY") ? o->pull.retry_s : RETRY_S,
                        .stall_s = o->pull.stall_s ? o->pull.stall_s : STALL_S,
                        .path = path,
                        .stop = wf_interrupted,
                        .say = say_line,
                        .user = (void *)o,
                        .nearest = wf_nearest};
    wf_catch_end(NULL);
    weft_status s = wf_pull(&p);
    if (s == WEFT_ERR_CANCELLED) return wf_note(o, "%s", wf_last_error()), wf_interrupted_exit();
    return s ? wf_say_error(s) : 0;
}

int wf_pull_model(const wf_opts *o, const char *source, char path[PATH_MAX]) { return pull(o, source, path); }

static int cmd_pull(const wf_opts *o)
{
    if (o->n_args > 1) return wf_usage(o->command, "unexpected argument '%s': one model at a time", o->args[1]);
    if (!o->n_args)
        return wf_usage(o->command, "what to fetch is missing, such as hf:ORG/REPO or the address of a GGUF file");
    return pull(o, o->args[0], NULL);
}

static const wf_opt rows[] = {
    {'o', "output", "NAME", "the model's name here (default: as it is there)", WF_OPT_TEXT, AT(write_to)},
    {0, "dry-run", NULL, "list the files and their sizes, and fetch none", WF_OPT_FLAG, AT(pull.dry_run)},
    {0, "force", NULL, "replace files that have the name", WF_OPT_FLAG, AT(force)},
};
static const WF_GROUP(group, "Options", rows);
static const wf_opt_group *const groups[] = {&group, &wf_group_general, NULL};

const wf_command wf_cmd_pull = {
    .name = "pull",
    .usage = "SOURCE [-o NAME] [options]",
    .summary = "Fetches a model into the folder of models, where it goes by its name. The same command goes on with "
               "what was broken off.",
    .more = "SOURCE is one of\n"
            "  hf:ORG/REPO          the GGUF file of type Q4_K_M, or the only one, in that\n"
            "                       repository of the Hugging Face Hub, with all its parts;\n"
            "                       of one without GGUF the folder with safetensors\n"
            "  hf:ORG/REPO:TYPE     the GGUF file of that type or name, such as Q8_0\n"
            "  https://HOST/X.gguf  that file\n"
            "ORG/REPO, hf.co/ORG/REPO:TYPE and addresses of the hub's pages are understood.\n\n"
            "HF_ENDPOINT is another hub, and HF_TOKEN the token for repositories that need\n"
            "one (else the file $HF_TOKEN_PATH, $HF_HOME/token or\n"
            "~/.cache/huggingface/token is read). Checksums of the hub are compared. Proxies\n"
            "are libcurl's (HTTPS_PROXY, ALL_PROXY, NO_PROXY); SSL_CERT_FILE names\n"
            "certificates of authorities to trust instead of the system's.\n\n"
            "Examples:\n"
            "  weft pull hf:bartowski/Llama-3.2-1B-Instruct-GGUF --dry-run\n"
            "  weft pull hf:bartowski/Llama-3.2-1B-Instruct-GGUF:Q8_0 -o llama\n"
            "  weft run llama\n",
    .groups = groups,
    .takes_args = true,
    .run = cmd_pull,
};
