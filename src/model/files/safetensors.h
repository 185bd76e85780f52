/* safetensors: reads model.safetensors, or the shards that model.safetensors.index.json lists, memory-mapped
 * (github.com/huggingface/safetensors, README.md: Format).
 *
 * A file is a length of 8 bytes, a JSON header of that length, and the tensors' bytes, which the header divides without
 * holes and overlaps. All of that is checked before anything is read. Files may be symbolic links, as in Hugging Face's
 * cache; the index names only files of its own folder. Read-only after opening, so any thread may use it. */
#ifndef WF_SAFETENSORS_H
#define WF_SAFETENSORS_H

#include "base/base.h"
#include "base/file.h"

#define WF_SAFETENSORS_DIMS 8

typedef struct wf_safetensor {
    const char *name;  /* NUL-terminated */
    const char *type;  /* as in the file: "BF16" */
    int dtype;         /* enum wf_dtype; -1: weft computes with no such type */
    uint32_t n_dims;
    uint64_t shape[WF_SAFETENSORS_DIMS]; /* the last one is contiguous */
    const uint8_t *data; /* into the map; aligned to nothing */
    uint64_t bytes, offset; /* offset: in its file */
} wf_safetensor;

typedef struct wf_safetensors {
    wf_map *maps; /* one a file */
    size_t n_maps;
    wf_safetensor *tensors; /* sorted by name */
    size_t n_tensors;
} wf_safetensors;

/* The weights of a folder. A folder without any gives no tensors, unless it holds weights in another format, which the
 * error names. */
weft_status wf_safetensors_open(const char *folder, wf_safetensors **out);
weft_status wf_safetensors_open_file(const char *path, wf_safetensors **out); /* one file */
/* One file from memory that outlives the object; name is for messages. */
weft_status wf_safetensors_open_memory(const void *data, size_t size, const char *name, wf_safetensors **out);
void wf_safetensors_close(wf_safetensors *);
const wf_safetensor *wf_safetensors_find(const wf_safetensors *, const char *name);

#endif
