/* bench: the files of results that the bench commands append to. */
#ifndef WF_CLI_BENCH_H
#define WF_CLI_BENCH_H

#include "cli/cli.h"

/* bench/results/<device>.csv has one row per measurement and peer. */

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
    const char *op, *dtype, *shape, *variant; /* kernel, policy, or of whole models wf_engine_variant(); or "" */
    double median_us, rate, ceiling_pct;      /* ceiling_pct < 0: unknown */
    const char *unit;
} wf_result;
/* What changes the kernels of whole models: "", "deterministic", "f16-residual", "kv-q8_0" or some with hyphens. */
const char *wf_engine_variant(const struct weft_engine_params *e);
/* Finds the next peer with the same op, dtype, shape and unit, starting at *at, and advances *at. NULL: none. */
const wf_peer *wf_peer_of(const wf_peers *p, const wf_result *r, size_t *at);
/* The ceilings as an object of JSON. */
void wf_ceilings_json(const struct weft_ceilings *c, char *buf, size_t cap);
/* WEFT_ERR_IO if the folder is not writable; called before minutes of measuring. */
weft_status wf_results_check(const char *folder);
/* Appends a row for each peer (or one without) to folder/<device>.csv; a new file gets a header. */
weft_status wf_results_append(const char *folder, const wf_result *r, const wf_peers *peers);

#endif
