/* models: the folder of models, whose models go by their names. */
#include "base/file.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

void wf_models_folder(char *path, size_t cap)
{
    const char *own = getenv("WEFT_MODELS");
    *path = 0;
    if (own && *own) wf_copy(path, cap, own);
    else if (wf_user_dir(WF_DIR_DATA, "weft/models", false, path, cap)) *path = 0;
}

const char *wf_models_find(const char *name, char path[PATH_MAX])
{
    char folder[PATH_MAX];
    if (!name || !*name || strchr(name, '/') || !access(name, F_OK)) return name;
    wf_models_folder(folder, sizeof folder);
    for (int with = 0; with < 2 && *folder; with++)
        if (snprintf(path, PATH_MAX, "%s/%s%s", folder, name, with ? ".gguf" : "") < PATH_MAX && !access(path, F_OK))
            return path;
    return name;
}

static bool ends_in(const char *name, const char *end)
{
    size_t n = strlen(name), k = strlen(end);
    return n > k && !strcmp(name + n - k, end);
}

/* The parts behind the first of a model in several files are not models of their own. */
bool wf_models_have(const char *folder, const char *name, struct stat *st)
{
    char path[PATH_MAX];
    const char *part = strstr(name, "-of-");
    if (*name == '.' || ends_in(name, WF_MODELS_PART) ||
        snprintf(path, sizeof path, "%s/%s", folder, name) >= (int)sizeof path || stat(path, st))
        return false;
    if (S_ISDIR(st->st_mode))
        return strlen(path) + sizeof "/config.json" < sizeof path && !access(strcat(path, "/config.json"), F_OK);
    bool later = part && part - name > 6 && strncmp(part - 6, "-00001", 6);
    return S_ISREG(st->st_mode) && ends_in(name, ".gguf") && !later;
}

uint64_t wf_models_bytes(const char *folder, const char *name, const struct stat *st)
{
    char path[2 * PATH_MAX], first[NAME_MAX + 1];
    const char *part = strstr(name, "-00001-of-");
    bool whole = S_ISDIR(st->st_mode);
    uint64_t sum = 0;
    if (!whole && (!part || ends_in(name, WF_MODELS_PART))) return (uint64_t)st->st_size;
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

size_t wf_models_stem(const char *name) { return strlen(name) - (ends_in(name, ".gguf") ? strlen(".gguf") : 0); }
