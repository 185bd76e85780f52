/* gguf_split: see gguf_split.h. */
#include "model/files/gguf_split.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct place {
    uint32_t no, count; /* from 0; parts */
} place;

static weft_status place_of(const wf_gguf *g, place *p)
{
    *p = (place){0, 1};
    WF_TRY(wf_gguf_u32(g, "split.count", false, &p->count));
    return wf_gguf_u32(g, "split.no", false, &p->no);
}

/* "-00002-of-00003.gguf" */
static void suffix_of(uint32_t no, uint32_t count, char out[48])
{
    snprintf(out, 48, "-%05" PRIu32 "-of-%05" PRIu32 ".gguf", no + 1, count);
}

/* Moves the files and tensors of a part; names and data stay where they are. */
static weft_status take(wf_gguf *g, wf_gguf *part)
{
    wf_map *maps = realloc(g->maps, (g->n_maps + part->n_maps) * sizeof *maps);
    if (!maps) return wf_fail(WEFT_ERR_NOMEM, "out of memory");
    g->maps = maps;
    if (part->n_tensors) {
        wf_gguf_tensor *tensors = realloc(g->tensors, (g->n_tensors + part->n_tensors) * sizeof *tensors);
        if (!tensors) return wf_fail(WEFT_ERR_NOMEM, "out of memory");
        g->tensors = tensors;
        memcpy(tensors + g->n_tensors, part->tensors, part->n_tensors * sizeof *tensors);
        g->n_tensors += part->n_tensors;
    }
    memcpy(maps + g->n_maps, part->maps, part->n_maps * sizeof *maps);
    g->n_maps += part->n_maps;
    part->n_maps = 0;
    return WEFT_OK;
}

static weft_status check_part(const wf_gguf *part, uint32_t no, uint32_t count)
{
    place p;
    WF_TRY(place_of(part, &p));
    if (p.no == no && p.count == count) return WEFT_OK;
    return wf_fail(WEFT_ERR_FORMAT,
                   "the file says that it is part %" PRIu32 " of %" PRIu32
                   " (split.no, split.count); are all files of one model?",
                   p.no + 1, p.count);
}

static weft_status join(wf_gguf *g, uint32_t no, uint32_t count)
{
    char *path = NULL;
    wf_gguf *part = NULL;
    /* The path of part `no`, from that of the first one. */
    char **out = &path;
    char suffix[48];
    size_t n = strlen(g->path);
    suffix_of(no, count, suffix);
    if (!(*out = wf_calloc(n + sizeof suffix, 1))) return WEFT_ERR_NOMEM;
    snprintf(*out, n + sizeof suffix, "%.*s%s", (int)(n - strlen(suffix)), g->path, suffix);
    weft_status s = wf_gguf_open_part(path, &part);
    if (!s && (s = check_part(part, no, count)) != WEFT_OK) s = wf_fail_context(s, "%s", path);
    if (!s) s = take(g, part);
    wf_gguf_close(part);
    free(path);
    return s ? wf_fail_context(s, "part %" PRIu32 " of %" PRIu32, no + 1, count) : WEFT_OK;
}

static weft_status check_total(const wf_gguf *g)
{
    uint32_t total = (uint32_t)g->n_tensors;
    WF_TRY(wf_gguf_u32(g, "split.tensors.count", false, &total));
    if (total == g->n_tensors) return WEFT_OK;
    return wf_fail(WEFT_ERR_FORMAT,
                   "the parts have %zu tensors, not the %" PRIu32
                   " that the first one counts (split.tensors.count); are all files of one model?",
                   g->n_tensors, total);
}

weft_status wf_gguf_join_parts(wf_gguf *g)
{
    place p;
    WF_TRY(place_of(g, &p));
    if (p.count <= 1) return WEFT_OK;
    char suffix[48];
    suffix_of(p.no, p.count, suffix);
    size_t n = strlen(g->path), end = strlen(suffix);
    if (p.no)
        return wf_fail(WEFT_ERR_ARG,
                       "this is part %" PRIu32 " of %" PRIu32
                       " of a model (split.no); name the first one, whose name ends in -00001-of-%05" PRIu32 ".gguf",
                       p.no + 1, p.count, p.count);
    if (!wf_gguf_is_file(g) || n <= end || strcmp(g->path + n - end, suffix))
        return wf_fail(WEFT_ERR_UNSUPPORTED,
                       "the model is split into %" PRIu32
                       " files (split.count), which are found by their names; let this one's end in %s, or merge "
                       "the parts into one with `llama-gguf-split --merge FIRST-PART OUT.gguf`",
                       p.count, suffix);
    for (uint32_t no = 1; no < p.count; no++) WF_TRY(join(g, no, p.count));
    WF_TRY(check_total(g));
    return wf_gguf_index(g);
}
