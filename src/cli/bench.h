/* bench: result rows, their output formats, and the result files. */
#ifndef WF_CLI_BENCH_H
#define WF_CLI_BENCH_H

#include "cli/cli.h"

#include <stdio.h>

typedef struct wf_bench_row {
    const struct weft_model *model;
    const struct weft_device_info *device;
    uint32_t threads;         /* 0: as many as the device takes by itself */
    uint32_t n_prompt, n_gen; /* one of them is 0 */
    uint32_t n_seqs;
    struct weft_bench_result r;
} wf_bench_row;

/* One output format; first: this is the first row. Any function may be NULL. */
typedef struct wf_bench_format {
    const char *name;
    void (*head)(void);
    void (*row)(const wf_bench_row *row, bool first);
    void (*foot)(void);
} wf_bench_format;

const wf_bench_format *wf_bench_format_find(const char *name);

/* ---- results.c: bench/results/<device>.csv, one row per measurement and peer --------------------------- */

/* Results of another program, measured in the same run: lines op,dtype,shape,peer,rate,unit. */
typedef struct wf_peer {
    char *op, *dtype, *shape, *peer, *unit;
    double rate;
} wf_peer;
typedef struct wf_peers {
    wf_peer *list;
    size_t n, cap;
} wf_peers;
/* WEFT_ERR_IO names the bad line. A file older than an hour is from another run: WEFT_ERR_ARG. */
weft_status wf_peers_read(const char *path, wf_peers *out);
void wf_peers_free(wf_peers *p);

typedef struct wf_result {
    const struct weft_device_info *device;
    const char *op, *dtype, *shape, *variant; /* variant: kernel, policy, or of whole models wf_engine_variant(); "": not applicable */
    double median_us, rate, ceiling_pct;      /* ceiling_pct < 0: unknown */
    const char *unit;
} wf_result;
/* What changes the kernels of whole models: "", "deterministic", "f16-residual" or both with a hyphen. */
const char *wf_engine_variant(const struct weft_engine_params *e);
/* Finds the next peer with the same op, dtype, shape and unit, starting at *at, and advances *at. NULL: none. */
const wf_peer *wf_peer_of(const wf_peers *p, const wf_result *r, size_t *at);
/* WEFT_ERR_IO if the folder is not writable; called before minutes of measuring. */
weft_status wf_results_check(const char *folder);
/* Appends a row for each peer (or one without) to folder/<device>.csv; a new file gets a header. */
weft_status wf_results_append(const char *folder, const wf_result *r, const wf_peers *peers);

/* ---- table.c: fields ------------------------------------------------------------------------------------ */

void wf_date(const char *format, char *buf, size_t cap); /* now, UTC */
void wf_json_text(const char *key, const char *value);   /* prints one object member and a comma */
void wf_csv_text(FILE *f, const char *value);            /* prints one field, quoted if needed, and a comma */

#endif
