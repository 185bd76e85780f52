/* list: what is in the folder of models. */
#include "cli/cli.h"

#include "base/file.h"
#include "pull/pull.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <time.h>
#include <unistd.h>

/* Another program's .part files have no record beside them. */
static bool is_unfinished(const char *folder, const char *name, struct stat *st)
{
    char path[2 * PATH_MAX];
    size_t n = strlen(name), m = strlen(WF_MODELS_PART);
    if (*name == '.' || !wf_ends_in(name, WF_MODELS_PART) ||
        snprintf(path, sizeof path, "%s/%s", folder, name) >= PATH_MAX || stat(path, st))
        return false;
    snprintf(path, sizeof path, "%s/%.*s.pull", folder, (int)(n - m), name);
    return S_ISDIR(st->st_mode) || !access(path, F_OK);
}

static void print_row(const char *folder, const char *name, const struct stat *st)
{
    char day[32] = "", shown[512], stem[NAME_MAX + 1], origin[2048];
    struct tm tm;
    bool part = wf_ends_in(name, WF_MODELS_PART), file = S_ISREG(st->st_mode);
    wf_copy(stem, (part ? strlen(name) - strlen(WF_MODELS_PART) : wf_models_stem(name)) + 1, name);
    /* Where it was fetched from, as programs keep it with a file; "": not known. */
    char path[3 * PATH_MAX], text[1024];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    ssize_t n = getxattr(path, WF_PULL_ORIGIN, text, sizeof text - 1);
    text[WF_MAX(n, 0)] = 0;
    wf_show(origin, sizeof origin, text);
    wf_show(shown, sizeof shown, stem);
    if (localtime_r(&st->st_mtime, &tm)) strftime(day, sizeof day, "%Y-%m-%d", &tm);
    printf("%-40s %-11s %12s  %s%s%s\n", shown,
           part   ? "unfinished"
           : file ? "GGUF"
                  : "safetensors",
           WF_HUMAN(wf_models_bytes(folder, name, st), true), day, *origin ? "  " : "", origin);
}

static int cmd_list(const wf_opts *o)
{
    char folder[PATH_MAX];
    struct dirent **names = NULL;
    struct stat st;
    size_t shown = 0;
    wf_models_folder(folder, sizeof folder);
    if (!stat(folder, &st) && !S_ISDIR(st.st_mode))
        return wf_say_error(wf_fail(WEFT_ERR_ARG,
                                    "%s is no folder: WEFT_MODELS names the folder of models; "
                                    "`weft info FILE` describes one model",
                                    folder));
    int n = *folder ? scandir(folder, &names, NULL, alphasort) : -1;
    for (int i = 0; i < n; free(names[i++])) {
        if (!wf_models_have(folder, names[i]->d_name, &st) && !is_unfinished(folder, names[i]->d_name, &st)) continue;
        if (!shown++) printf("%-40s %-11s %12s  %-10s  %s\n", "name", "format", "size", "changed", "from");
        print_row(folder, names[i]->d_name, &st);
    }
    free(names);
    if (!shown)
        wf_note(o,
                "no models in %s: put GGUF files and folders there, or links to them, or fetch one by `weft pull`, and "
                "run them by name",
                *folder ? folder : "$WEFT_MODELS");
    return 0;
}

static const wf_opt_group *const groups[] = {&wf_group_general, NULL};

const wf_command wf_cmd_list = {
    .name = "list",
    .usage = "[options]",
    .summary =
        "Lists the folder of models. A model in it goes by its name, without .gguf, wherever a model is expected.",
    .more = "The folder is ~/.local/share/weft/models (XDG_DATA_HOME moves it, WEFT_MODELS\n"
            "names another one). `weft pull` fetches models into it, and goes on with those\n"
            "that are shown as unfinished; rm removes them.\n",
    .groups = groups,
    .run = cmd_list,
};
