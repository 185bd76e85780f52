/* kv_file: what a file of blocks of KV holds (kv/disk_file.h), for `weft kv`. */
#include "lab/lab.h"
#include "kv/disk_file.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Those of the identity; NULL: no memory. */
static struct weft_kv_model *model_of(struct weft_kv_file *out, const wf_key *identity)
{
    struct weft_kv_model *m = out->models;
    while (m < out->models + out->n_models && memcmp(m->identity, identity, sizeof m->identity)) m++;
    if (m < out->models + out->n_models) return m;
    if (!(m = realloc(out->models, (out->n_models + 1) * sizeof *m))) return NULL;
    out->models = m, m += out->n_models++;
    *m = (struct weft_kv_model){0};
    memcpy(m->identity, identity, sizeof m->identity);
    return m;
}

/* Of what cannot be read as a block, only that which says that it is one counts as damaged. */
static weft_status look_at(const wf_disk_file *f, uint32_t i, bool verify, wf_disk_head *slot, struct weft_kv_file *out)
{
    static const wf_disk_head none;
    int error = wf_disk_file_head(f, i, slot);
    if (error && error != EBADMSG)
        return wf_fail(WEFT_ERR_IO, "cannot read slot %u of %s: %s", i, f->path, strerror(error));
    if (error) return out->damaged += memcmp(slot, &none, sizeof none) != 0, WEFT_OK;
    struct weft_kv_model *m = model_of(out, &slot->identity);
    if (!m) return wf_fail(WEFT_ERR_NOMEM, "no memory to list %s", f->path);
    error = verify ? wf_disk_file_read(f, i, slot) : 0;
    if (error && error != EBADMSG)
        return wf_fail(WEFT_ERR_IO, "cannot read slot %u of %s: %s", i, f->path, strerror(error));
    *(error ? &out->damaged : &m->blocks) += 1;
    return WEFT_OK;
}

static weft_status look(wf_disk_file *f, enum weft_kv_action what, struct weft_kv_file *out)
{
    if (what == WEFT_KV_EMPTY) WF_TRY(wf_disk_file_clear(f));
    out->slots = f->n, out->block_bytes = f->page_bytes, out->block_tokens = f->page_tokens;
    void *slot = wf_calloc(1, f->slot_bytes);
    weft_status s = slot ? WEFT_OK : WEFT_ERR_NOMEM;
    for (uint32_t i = 0; s == WEFT_OK && i < f->n; i++)
        if ((s = wf_stop_now()) == WEFT_OK) s = look_at(f, i, what == WEFT_KV_VERIFY, slot, out);
    free(slot);
    return s;
}

enum weft_status weft_kv_file(const char *path, enum weft_kv_action what, struct weft_kv_file *out)
{
    wf_disk_file f;
    WF_NOT_NULL(path);
    WF_NOT_NULL(out);
    *out = (struct weft_kv_file){0};
    weft_status s = wf_disk_file_open(path, what == WEFT_KV_EMPTY, &f);
    if (s == WEFT_OK) s = look(&f, what, out);
    wf_disk_file_close(&f);
    if (s != WEFT_OK) weft_kv_file_free(out);
    return s;
}

void weft_kv_file_free(struct weft_kv_file *f)
{
    free(f->models);
    *f = (struct weft_kv_file){0};
}
