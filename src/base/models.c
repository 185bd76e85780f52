/* models: the folder of models, whose models go by their names. */
#include "base/file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
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
