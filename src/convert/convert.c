/* convert: weft_convert, a model in another storage format as one GGUF file.
 *
 * The metadata is the model's own. A folder's is under GGUF's keys already (model/files/folder.h); its tokenizer joins
 * it here. */
#include "convert/tensors.h"
#include "model/files/folder.h"
#include "model/files/gguf_write.h"
#include "text/text.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define QUANTISATION_VERSION 2 /* of ggml's block formats */

typedef struct conversion {
    const struct weft_convert_params *p;
    struct weft_convert_result *result;
    wf_gguf *in, *out;
    wf_recipe recipe;
    wf_encode_tensor *list;
} conversion;

/* ---- the output file ------------------------------------------------------------------------------- */

static weft_status check_output(const conversion *c)
{
    struct stat st;
    const char *path = c->p->out;
    if (!path || !*path) return wf_fail(WEFT_ERR_ARG, "the output file has no name (weft_convert_params.out)");
    if (stat(path, &st)) return WEFT_OK;
    if (!S_ISREG(st.st_mode)) return wf_fail(WEFT_ERR_IO, "cannot write %s: it is no file", path);
    for (size_t i = 0; i < c->in->n_maps; i++)
        if (wf_map_is_of(&c->in->maps[i], &st))
            return wf_fail(WEFT_ERR_ARG, "%s is the model that is to be converted: choose another name for the output",
                           path);
    return c->p->force
               ? WEFT_OK
               : wf_fail(WEFT_ERR_ARG,
                         "%s exists: choose another name for the output, or replace it (weft_convert_params.force)",
                         path);
}

/* ---- metadata -------------------------------------------------------------------------------------- */

static bool key_begins(wf_str key, const char *with)
{
    return key.len >= strlen(with) && !memcmp(key.data, with, strlen(with));
}

/* What is written anew, or was true of the old file only. */
static bool is_dropped(const conversion *c, wf_str key)
{
    static const char *const old[] = {"general.file_type", "general.quantization_version", "general.alignment",
                                      "split.", "quantize.imatrix."};
    for (size_t i = 0; i < WF_LEN(old); i++)
        if (key_begins(key, old[i])) return true;
    return c->in->folder && key_begins(key, "tokenizer.ggml.");
}

/* ---- writing ---------------------------------------------------------------------------------------- */

/* A disk without room says so now. Not every file system can reserve. */
static weft_status reserve_space(const wf_output *o, uint64_t bytes)
{
    int fd = fileno(o->f);
    bool fits = !fallocate(fd, 0, 0, (off_t)bytes);
    if (!fits && errno != ENOSPC && errno != EFBIG) fits = !ftruncate(fd, (off_t)bytes);
    return fits ? WEFT_OK
                : wf_fail(WEFT_ERR_IO, "cannot write %s, which takes %llu bytes: %s", o->path,
                          (unsigned long long)bytes, strerror(errno));
}

static weft_status write_file(conversion *c, const wf_output *o, uint64_t size)
{
    const struct weft_convert_params *p = c->p;
    uint64_t head = wf_gguf_write_head(c->out, o->f);
    if (fflush(o->f)) return wf_fail(WEFT_ERR_IO, "cannot write %s: %s", o->path, strerror(errno));
    WF_TRY(reserve_space(o, head + size));
    const wf_encode e = {.list = c->list,
                         .n = c->in->n_tensors,
                         .fd = fileno(o->f),
                         .data = head,
                         .path = o->path,
                         .threads = p->threads ? p->threads : (uint32_t)WF_MAX(sysconf(_SC_NPROCESSORS_ONLN), 1),
                         .on_progress = p->on_progress,
                         .stop = p->stop,
                         .user = p->user};
    WF_TRY(wf_encode_run(&e));
    if (wf_gguf_broken(c->in))
        return wf_fail(WEFT_ERR_IO, "%s changed while it was converted: convert it again", c->in->path);
    c->result->bytes = head + size;
    return WEFT_OK;
}

static weft_status convert_model(conversion *c)
{
    if (!c->in->n_tensors && c->in->folder) return wf_folder_no_weights(c->in->path);
    if (!c->in->n_tensors)
        return wf_fail(WEFT_ERR_ARG, "%s holds a vocabulary without a model: there is nothing to convert", c->in->path);
    WF_TRY(wf_recipe_open(c->p->type, c->in, &c->recipe));
    WF_TRY(wf_folder_new(c->p->out, &c->out));
    uint64_t size;
    WF_TRY(wf_convert_tensors(c->in, &c->recipe, c->out, c->result, &c->list, &size));
    for (size_t i = 0; i < c->in->n_kv; i++)
        if (!is_dropped(c, c->in->kv[i].key)) WF_TRY(wf_folder_add(c->out, &c->in->kv[i]));
    WF_TRY(wf_folder_u32(c->out, "general.file_type", c->recipe.file_type));
    if (wf_dtypes[c->recipe.dtype].block > 1)
        WF_TRY(wf_folder_u32(c->out, "general.quantization_version", QUANTISATION_VERSION));
    WF_TRY(c->in->folder ? wf_tokenizer_to_gguf(c->in, c->out) : WEFT_OK);
    c->result->bytes_in = wf_gguf_bytes(c->in); /* from here on an error is no longer the model's */
    /* Under another name until it is complete. */
    wf_output o;
    WF_TRY(check_output(c));
    WF_TRY(wf_output_open(c->p->out, &o));
    weft_status s = write_file(c, &o, size), end = wf_output_end(&o, s == WEFT_OK);
    return s ? s : end;
}

weft_status weft_convert(const struct weft_convert_params *p, struct weft_convert_result *out)
{
    WF_NOT_NULL(p);
    WF_NOT_NULL(p->path);
    WF_NOT_NULL(p->out);
    WF_NOT_NULL(p->type);
    struct weft_convert_result result = {0};
    conversion c = {.p = p, .result = &result};
    WF_TRY(WF_UNUSED(p));
    wf_listener before = wf_report_to(p->on_progress, p->user);
    weft_status s = wf_model_file_open(p->path, &c.in);
    wf_report_to(before.fn, before.user);
    if (s == WEFT_OK) s = convert_model(&c);
    free(c.list);
    wf_gguf_close(c.out);
    wf_gguf_close(c.in);
    if (out) *out = result;
    return s;
}
