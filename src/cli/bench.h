/* bench: measured rows, their printing in several formats, and the files of results. */
#ifndef WF_CLI_BENCH_H
#define WF_CLI_BENCH_H

#include "cli/cli.h"

#include <stdio.h>

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

/* ---- results.c: bench/results/<device>.csv, one row a measurement and peer --------------------------- */

/* What another program measured in the same run: lines op,dtype,shape,peer,rate,unit. */
typedef struct wf_peer {
    char *op, *dtype, *shape, *peer, *unit;
    double rate;
} wf_peer;
typedef struct wf_peers {
    wf_peer *list;
    size_t n, cap;
} wf_peers;
/* WEFT_ERR_IO names the line that is wrong. A file older than an hour is of another run: WEFT_ERR_ARG. */
weft_status wf_peers_read(const char *path, wf_peers *out);
void wf_peers_free(wf_peers *p);

typedef struct wf_result {
    const struct weft_device_info *device;
    const char *op, *dtype, *shape, *variant; /* variant "": does not apply */
    double median_us, rate, ceiling_pct;      /* ceiling_pct < 0: unknown */
    const char *unit;
} wf_result;
/* The next peer of the same op, dtype, shape and unit from *at on; NULL: none. Moves *at behind it. */
const wf_peer *wf_peer_of(const wf_peers *p, const wf_result *r, size_t *at);
/* WEFT_ERR_IO if the folder cannot be written to: said before minutes of measuring. */
weft_status wf_results_check(const char *folder);
/* Appends to folder/<device>.csv a row for each peer, or one without; a new file gets a heading. */
weft_status wf_results_append(const char *folder, const wf_result *r, const wf_peers *peers);

/* ---- table.c: fields ------------------------------------------------------------------------------------ */

void wf_date(const char *format, char *buf, size_t cap); /* now, UTC */
void wf_json_text(const char *key, const char *value);   /* one member of an object, with a comma behind */
void wf_csv_text(FILE *f, const char *value);            /* one field, in quotes where needed, with a comma behind */

#endif
