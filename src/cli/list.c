/* list: what is in the folder of models. */
#include "cli/cli.h"

#include "base/file.h"
#include "pull/pull.h"

#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <time.h>
#include <unistd.h>

static const char suffix[] = ".gguf", unfinished[] = ".part"; /* `weft pull` writes the second */

/* ---- what is there --------------------------------------------------------------------------- */

/* Another program's .part files have no record beside them. */
static bool is_unfinished(const char *folder, const char *name, struct stat *st)
{
    char path[2 * PATH_MAX];
    size_t n = strlen(name), m = sizeof unfinished - 1;
    if (*name == '.' || !wf_ends_in(name, unfinished) ||
        snprintf(path, sizeof path, "%s/%s", folder, name) >= PATH_MAX || stat(path, st))
        return false;
    snprintf(path, sizeof path, "%s/%.*s.pull", folder, (int)(n - m), name);
    return S_ISDIR(st->st_mode) || !access(path, F_OK);
}

/* The parts behind the first of a model in several files are not models of their own. */
static bool is_model(const char *folder, const char *name, struct stat *st)
{
    char path[PATH_MAX];
    const char *part = strstr(name, "-of-");
    if (*name == '.' || wf_ends_in(name, unfinished) ||
        snprintf(path, sizeof path, "%s/%s", folder, name) >= (int)sizeof path || stat(path, st))
        return false;
    if (S_ISDIR(st->st_mode))
        return strlen(path) + sizeof "/config.json" < sizeof path && !access(strcat(path, "/config.json"), F_OK);
    bool later = part && part - name > 6 && strncmp(part - 6, "-00001", 6);
    return S_ISREG(st->st_mode) && wf_ends_in(name, suffix) && !later;
}

/* Bytes of the files that make it up: all of a folder, or all parts of the same name. */
static uint64_t size_of(const char *folder, const char *name, const struct stat *st)
{
    char path[2 * PATH_MAX], first[NAME_MAX + 1];
    const char *part = strstr(name, "-00001-of-");
    bool whole = S_ISDIR(st->st_mode);
    uint64_t sum = 0;
    if (!whole && (!part || wf_ends_in(name, unfinished))) return (uint64_t)st->st_size;
    snprintf(path, sizeof path, "%s%s%s", folder, whole ? "/" : "", whole ? name : "");
    wf_copy(first, part ? WF_MIN((size_t)(part - name) + 1, sizeof first) : 1, name);
    DIR *d = opendir(path);
    for (const struct dirent *e; d && (e = readdir(d));) {
        char file[3 * PATH_MAX];
        struct stat of;
        snprintf(file, sizeof file, "%s/%s", path, e->d_name);
        if ((whole || (!strncmp(e->d_name, first, strlen(first)) && strstr(e->d_name, "-of-"))) && !stat(file, &of) &&
            S_ISREG(of.st_mode))
            sum += (uint64_t)of.st_size;
    }
    if (d) closedir(d);
    return sum;
}

/* Where it was fetched from, as programs keep it with a file; "": not known. */
static void origin_of(const char *folder, const char *name, char *shown, size_t cap)
{
    char path[3 * PATH_MAX], text[1024];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    ssize_t n = getxattr(path, WF_PULL_ORIGIN, text, sizeof text - 1);
    text[WF_MAX(n, 0)] = 0;
    wf_show(shown, cap, text);
}

static void print_row(const char *folder, const char *name, const struct stat *st)
{
    char day[32] = "", shown[512], stem[NAME_MAX + 1], origin[2048];
    struct tm tm;
    bool part = wf_ends_in(name, unfinished), file = S_ISREG(st->st_mode);
    wf_copy(stem, strlen(name) + 1 - (part ? sizeof unfinished - 1 : file ? sizeof suffix - 1 : 0), name);
    origin_of(folder, name, origin, sizeof origin);
    wf_show(shown, sizeof shown, stem);
    if (localtime_r(&st->st_mtime, &tm)) strftime(day, sizeof day, "%Y-%m-%d", &tm);
    printf("%-40s %-11s %12s  %s%s%s\n", shown,
           part   ? "unfinished"
           : file ? "GGUF"
                  : "safetensors",
           WF_HUMAN(size_of(folder, name, st), true), day, *origin ? "  " : "", origin);
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
        if (!is_model(folder, names[i]->d_name, &st) && !is_unfinished(folder, names[i]->d_name, &st)) continue;
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
