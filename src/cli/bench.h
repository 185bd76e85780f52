/* bench: one measured row and its printing in several formats. */
#ifndef WF_CLI_BENCH_H
#define WF_CLI_BENCH_H

#include "cli/cli.h"

typedef struct wf_bench_row {
    const struct weft_model *model;
    const struct weft_device_info *device;
    uint32_t threads;         /* 0: all cores */
    uint32_t n_prompt, n_gen; /* one of them is 0 */
    uint32_t n_seqs;
    struct weft_bench_result r;
} wf_bench_row;

/* One output format; first: no row was printed before. Any of the functions may be NULL. */
typedef struct wf_bench_format {
    const char *name;
    void (*head)(void);
    void (*row)(const wf_bench_row *row, bool first);
    void (*foot)(void);
} wf_bench_format;

const wf_bench_format *wf_bench_format_find(const char *name);
/* Appends a row to a file of results, with a heading line when the file is new. */
weft_status wf_bench_append(const char *path, const wf_bench_row *row);

#endif
