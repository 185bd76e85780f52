/* hint: what a path is that cannot be opened as a model, and the command that helps. See cli.h. */
#include "cli/cli.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

static const char web_page[] = "it is a web page, most likely the answer to a download that failed: fetch it again",
                  before_gguf[] = "it is of a format before GGUF: convert the original model anew, with `weft convert` "
                                  "or llama.cpp's convert_hf_to_gguf.py";
/* Kinds of files by how they begin. */
static const struct {
    const char *magic, *text;
} kinds[] = {
    {"version https://git-lfs",
     "it is a pointer of Git LFS, not the file itself: `git lfs pull` in its folder fetches that"},
    {"<!doctype", web_page},
    {"<html", web_page},
    {"PK\3\4", "it is an archive, as PyTorch writes checkpoints: save the model as safetensors "
               "(save_pretrained(FOLDER)), then `weft run FOLDER`"},
    {"\x80\2",
     "it is a PyTorch checkpoint: save the model as safetensors (save_pretrained(FOLDER)), then `weft run FOLDER`"},
    {"GGUF\1", "it is of the first version of GGUF: convert the original model anew, with `weft convert` or "
               "llama.cpp's convert_hf_to_gguf.py, or `weft pull` a newer file"},
    {"lmgg", before_gguf},
    {"fmgg", before_gguf},
    {"tjgg", before_gguf},
};

/* The folder that the path lies in. */
static int parent_of(const char *path, const char **name)
{
    const char *slash = strrchr(path, '/');
    *name = slash ? path : ".";
    return slash ? WF_MAX((int)(slash - path), 1) : 1;
}

static bool is_in(const char *folder, int len, const char *name)
{
    char path[PATH_MAX];
    return snprintf(path, sizeof path, "%.*s/%s", len, folder, name) < (int)sizeof path && !access(path, F_OK);
}

static const char where_models_are[] = "`weft list` lists your models, and `weft pull` fetches one";

static bool is_text(const char *head, ssize_t n)
{
    ssize_t i = 0;
    while (i < n && ((unsigned char)head[i] >= ' ' || (head[i] && strchr("\t\n\r", head[i]))) && head[i] != 0x7f) i++;
    return n > 0 && i == n;
}

/* Has nothing in it that an error could name. */
static bool is_empty(const char *folder)
{
    DIR *d = opendir(folder);
    size_t n = 0;
    for (const struct dirent *e; d && (e = readdir(d));) n += *e->d_name != '.';
    if (d) closedir(d);
    return d && !n;
}

static void about_file(const char *path, char *out, size_t cap)
{
    char head[32] = "";
    const char *folder;
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC), len = parent_of(path, &folder);
    ssize_t n = fd < 0 ? 0 : read(fd, head, sizeof head - 1);
    if (fd >= 0) close(fd);
    for (size_t i = 0; n > 0 && i < WF_LEN(kinds) && !*out; i++)
        if (!strncasecmp(head, kinds[i].magic, strlen(kinds[i].magic))) snprintf(out, cap, "%s", kinds[i].text);
    if (*out || !strncmp(head, "GGUF", 4)) return;
    if (is_in(folder, len, "config.json"))
        snprintf(out, cap, "`weft run %s` runs the folder that it lies in",
                 wf_quoted(folder, (size_t)len, (char[PATH_MAX]){0}, PATH_MAX));
    else
        snprintf(out, cap, "%s%s", is_text(head, n) ? "it is a text, which `weft run MODEL -f FILE` continues; " : "",
                 where_models_are);
}

/* What `weft pull` takes; weft fetches nothing unless it is asked to. */
static bool about_source(const char *name, char *out, size_t cap)
{
    static const char *const heads[] = {"hf:", "https://", "http://", "hf.co/", "huggingface.co/"};
    const char *slash = strchr(name, '/');
    char quoted[PATH_MAX];
    bool source = false, path = strchr("./~", *name) || !slash || slash != strrchr(name, '/') || strstr(name, ".gguf");
    for (size_t i = 0; i < WF_LEN(heads); i++) source |= !strncasecmp(name, heads[i], strlen(heads[i]));
    wf_quoted(name, strlen(name), quoted, sizeof quoted);
    if (source)
        snprintf(out, cap,
                 "nothing is fetched unless you ask: `weft pull %s` fetches it, then `weft run` takes its name",
                 quoted);
    else if (!path) snprintf(out, cap, "if it is a repository of the hub, `weft pull %s` fetches it", quoted);
    return source || !path;
}

/* Does `weft info` say more than the error has said? Not of a folder whose weights it cannot read, either. */
static bool info_helps(const wf_opts *o, bool file)
{
    int len = (int)strlen(o->model);
    bool weights = file || is_in(o->model, len, "model.safetensors") ||
                   is_in(o->model, len, "model.safetensors.index.json");
    return o->command != &wf_cmd_info && weights;
}

void wf_model_hint(const wf_opts *o, weft_status s, char *out, size_t cap)
{
    struct stat st;
    *out = 0;
    if (!o->model) return;
    if (stat(o->model, &st)) {
        bool name = errno == ENOENT && !strchr(o->model, '/');
        if (errno == ENOENT && about_source(o->model, out, cap)) return;
        if (name && o->words_set && strchr(o->model, ' '))
            snprintf(out, cap, "the first word is the model; a text is the second one, or goes with -p");
        else if (name) snprintf(out, cap, "a model goes by its path, or by its name in `weft list`");
    } else if (S_ISREG(st.st_mode)) about_file(o->model, out, cap);
    else if (is_empty(o->model)) snprintf(out, cap, "%s", where_models_are);
    else if (!is_in(o->model, (int)strlen(o->model), "config.json")) return; /* the error says what is in the folder */
    if (!*out && s == WEFT_ERR_UNSUPPORTED && info_helps(o, S_ISREG(st.st_mode)))
        snprintf(out, cap, "`weft info %s` shows what is in it; README.md lists what is supported",
                 wf_quoted(o->model, strlen(o->model), (char[PATH_MAX]){0}, PATH_MAX));
}
