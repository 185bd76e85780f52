/* folder_lacks: what to say of a folder that has no weights which weft reads: what lies there instead, and what to do.
 */
#include "model/files/folder.h"

#include <dirent.h>
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>

/* How many entries fit, and the first one by name; a name without a pattern finds itself. */
static size_t find(const char *folder, const char *pattern, char name[256])
{
    struct dirent **list = NULL;
    int n = scandir(folder, &list, NULL, alphasort);
    size_t found = 0;
    for (int i = 0; i < n; i++) {
        bool fits = list[i]->d_name[0] != '.' && !fnmatch(pattern, list[i]->d_name, 0);
        if (fits && !found++) snprintf(name, 256, "%s", list[i]->d_name);
        free(list[i]);
    }
    free(list);
    return found;
}

weft_status wf_folder_other_weights(const char *folder)
{
    static const struct {
        const char *pattern, *advice;
    } rows[] = {
        {"model-*-of-*.safetensors",
         "but no model.safetensors.index.json, which lists such files: download it as well"},
        {"pytorch_model*.bin*", "which weft does not read; take the model's safetensors files, which transformers "
                                "writes: AutoModelForCausalLM.from_pretrained(FOLDER).save_pretrained(FOLDER)"},
        {"consolidated*", "which weft does not read; take the model's files as transformers has them: "
                          "model*.safetensors, with config.json"},
        {"tf_model*.h5", "which weft does not read; take the model's safetensors files"},
        {"flax_model*.msgpack", "which weft does not read; take the model's safetensors files"},
    };
    char name[256];
    for (size_t i = 0; i < WF_LEN(rows); i++)
        if (find(folder, rows[i].pattern, name))
            return wf_fail(WEFT_ERR_UNSUPPORTED, "%s holds its weights as %s, %s", folder, name, rows[i].advice);
    return WEFT_OK;
}

weft_status wf_folder_no_model(const char *folder)
{
    char name[256], first[256], path[PATH_MAX];
    if (find(folder, "config.json", name) || find(folder, "tokenizer.json", name)) return WEFT_OK;
    snprintf(path, sizeof path, "%s/snapshots", folder);
    if (find(path, "*", first))
        return wf_fail(WEFT_ERR_UNSUPPORTED, "%s is an entry of Hugging Face's cache: pass the folder %s/%s", folder,
                       path, first);
    size_t n = find(folder, "*.gguf", name);
    if (n == 1) return wf_fail(WEFT_ERR_UNSUPPORTED, "%s holds a GGUF file: pass that, %s/%s", folder, folder, name);
    if (n)
        return wf_fail(WEFT_ERR_UNSUPPORTED, "%s holds %zu GGUF files: pass one of them, such as %s/%s", folder, n,
                       folder, name);
    return wf_fail(WEFT_ERR_UNSUPPORTED,
                   "%s holds no model: a folder has config.json, tokenizer.json and *.safetensors; a GGUF file is "
                   "passed by its own path",
                   folder);
}

weft_status wf_folder_no_weights(const char *folder)
{
    char name[256];
    const char *config = find(folder, "config.json", name) ? "" : "config.json and ";
    return wf_fail(WEFT_ERR_UNSUPPORTED,
                   "%s holds a vocabulary only: %sthe weights are missing (model.safetensors, or "
                   "model.safetensors.index.json and the files that it lists); download them into it",
                   folder, config);
}
