/* encode: writes tensors into a file in another format, by several threads, each with little memory: rows are read from
 * the map, decoded, encoded and written at their place. */
#ifndef WF_ENCODE_H
#define WF_ENCODE_H

#include "model/files/gguf.h"
#include "model/files/pairs.h"

typedef struct wf_encode_tensor {
    const wf_gguf_tensor *from;
    wf_gguf_tensor to;        /* that, or what part of it comes from there: format, bytes and offset behind `data` */
    wf_pairs pairs;           /* the order of its rows */
} wf_encode_tensor;

typedef struct wf_encode {
    const wf_encode_tensor *list;
    size_t n;
    int fd;
    uint64_t data; /* where the tensors' bytes begin in the file */
    const char *path; /* for messages */
    uint32_t threads;
    weft_progress_fn on_progress; /* may be NULL; on this thread */
    bool (*stop)(void *user);     /* may be NULL; the same; true: end with WEFT_ERR_CANCELLED */
    void *user;
} wf_encode;

weft_status wf_encode_run(const wf_encode *e);

#endif
