/* results: peer measurements and the rows of bench/results. Each row has weft's rate and, if there is one, the rate
 * that a peer reached in the same run. */
#include "base/file.h"
#include "cli/bench.h"
#include "cli/rows.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define PEER_BYTES ((size_t)4 << 20)
#define SAME_RUN_S 3600
#define HEAD                                                                                       \
    "date,device,driver,commit,op,dtype,shape,variant,median_us,rate,unit,ceiling_pct,peer,peer_"  \
    "rate,ratio\n"

/* ---- peers -------------------------------------------------------------------------------- */

/* Splits the next field off *p in place and removes quotes; NULL: none left. */
static char *next_field(char **p)
{
    char *start = *p, *to = start;
    if (!start) return NULL;
    bool quoted = *start == '"';
    for (char *from = start + quoted;; from++) {
        bool end = quoted ? *from == '"' && from[1] != '"' : *from == ',';
        if (quoted && *from == '"' && from[1] == '"') from++;
        if (!*from || end) {
            char *rest = from + (quoted && *from);
            *p = *rest == ',' ? rest + 1 : NULL;
            *to = 0;
            return start;
        }
        *to++ = *from;
    }
}

static bool read_peer(char *line, wf_peer *out)
{
    char *rate, *end, *p = line;
    out->op = next_field(&p);
    out->dtype = next_field(&p);
    out->shape = next_field(&p);
    out->peer = next_field(&p);
    rate = next_field(&p);
    out->unit = next_field(&p);
    if (!out->unit || p) return false;
    out->rate = strtod(rate, &end);
    return end != rate && !*end && isfinite(out->rate) && out->rate > 0;
}

static weft_status add_peer(wf_peers *all, char *line, int at)
{
    wf_peer peer;
    if (!read_peer(line, &peer)) return wf_fail(WEFT_ERR_IO, "line %d: expected op,dtype,shape,peer,rate,unit", at);
    if (!wf_grow(&all->list, all->n, &all->cap, sizeof *all->list)) return WEFT_ERR_NOMEM;
    char **const texts[] = {&peer.op, &peer.dtype, &peer.shape, &peer.peer, &peer.unit};
    bool ok = true;
    for (size_t i = 0; i < WF_LEN(texts); i++) ok &= (*texts[i] = wf_strdup(*texts[i])) != NULL;
    all->list[all->n++] = peer;
    return ok ? WEFT_OK : WEFT_ERR_NOMEM;
}

static weft_status parse_peers(char *text, wf_peers *out)
{
    int at = 1;
    for (char *line = text, *next; line; line = next, at++) {
        next = strchr(line, '\n');
        if (next) *next++ = 0;
        line[strcspn(line, "\r")] = 0;
        if (*line && *line != '#' && strncmp(line, "op,", 3)) WF_TRY(add_peer(out, line, at));
    }
    return WEFT_OK;
}

weft_status wf_peers_read(const char *path, wf_peers *out)
{
    struct stat st;
    char *text = NULL;
    size_t len;
    if (!stat(path, &st) && time(NULL) - st.st_mtime > SAME_RUN_S)
        return wf_fail(WEFT_ERR_ARG, "%s is older than an hour: measure the peer in the same run", path);
    WF_TRY(wf_read_file(path, PEER_BYTES, &text, &len));
    weft_status s = parse_peers(text, out);
    free(text);
    return s ? wf_fail_context(s, "%s", path) : WEFT_OK;
}

void wf_peers_free(wf_peers *p)
{
    for (size_t i = 0; i < p->n; i++) {
        wf_peer *q = &p->list[i];
        free(q->op), free(q->dtype), free(q->shape), free(q->peer), free(q->unit);
    }
    free(p->list);
    *p = (wf_peers){0};
}

const char *wf_engine_variant(const struct weft_engine_params *e)
{
    static char text[64];
    bool bytes = e->kv_dtype && !strcmp(e->kv_dtype, "q8_0");
    snprintf(text, sizeof text, "%s%s%s%s", e->tier ? e->tier : "", e->deterministic ? "-deterministic" : "",
             e->f16_residual ? "-f16-residual" : "", bytes ? "-kv-q8_0" : "");
    return text + (*text == '-');
}

const wf_peer *wf_peer_of(const wf_peers *p, const wf_result *r, size_t *at)
{
    while (*at < p->n) {
        const wf_peer *q = &p->list[(*at)++];
        if (strcmp(q->op, r->op) || strcmp(q->dtype, r->dtype) || strcmp(q->shape, r->shape)) continue;
        if (!strcmp(q->unit, r->unit)) return q;
        fprintf(stderr, "weft: warning: %s of %s %s is in %s, not in %s: ignored\n", q->peer,
                q->op, q->shape, q->unit, r->unit);
    }
    return NULL;
}

void wf_ceilings_json(const struct weft_ceilings *c, char *buf, size_t cap)
{
    snprintf(buf, cap, "{\"read_gb_s\": %.1f, \"f32_tflop_s\": %.4g, \"f16_tflop_s\": %.4g, \"int8_top_s\": %.4g}",
             c->read / 1e9, c->f32 / 1e12, c->f16 / 1e12, c->q8 / 1e12);
}

/* ---- rows --------------------------------------------------------------------------------- */

static void result_line(FILE *f, const wf_result *r, const wf_peer *peer)
{
    char date[16];
    wf_date("%Y-%m-%d", date, sizeof date);
    const char *const texts[] = {date,  r->device->name, r->device->driver, wf_commit(),
                                 r->op, r->dtype,        r->shape,          r->variant};
    for (size_t i = 0; i < WF_LEN(texts); i++) wf_csv_text(f, texts[i]), putc(',', f);
    fprintf(f, "%.2f,%.6g,%s,", r->median_us, r->rate, r->unit);
    if (r->ceiling_pct >= 0) fprintf(f, "%.1f", r->ceiling_pct);
    putc(',', f);
    if (!peer) {
        fputs(",,\n", f);
        return;
    }
    wf_csv_text(f, peer->peer);
    fprintf(f, ",%.6g,%.3f\n", peer->rate, r->rate / peer->rate);
}

weft_status wf_results_check(const char *folder)
{
    struct stat st;
    bool there = !stat(folder, &st);
    if (there && !S_ISDIR(st.st_mode)) return wf_fail(WEFT_ERR_IO, "%s is not a folder", folder);
    if (there && !access(folder, W_OK | X_OK)) return WEFT_OK;
    return wf_fail(WEFT_ERR_IO, "cannot write to the folder %s: %s", folder, strerror(errno));
}

weft_status wf_results_append(const char *folder, const wf_result *r, const wf_peers *peers)
{
    char path[1200], name[160];
    size_t at = 0;
    weft_device_file(r->device, name, sizeof name);
    if ((size_t)snprintf(path, sizeof path, "%s/%s.csv", folder, name) >= sizeof path)
        return wf_fail(WEFT_ERR_ARG, "the path is too long: %s", folder);
    FILE *f = fopen(path, "a");
    if (!f) return wf_fail(WEFT_ERR_IO, "cannot write %s: %s", path, strerror(errno));
    fseek(f, 0, SEEK_END);
    if (ftell(f) == 0) fputs(HEAD, f);
    const wf_peer *peer = wf_peer_of(peers, r, &at);
    do result_line(f, r, peer);
    while (peer && (peer = wf_peer_of(peers, r, &at)));
    bool failed = ferror(f);
    if (fclose(f) || failed) return wf_fail(WEFT_ERR_IO, "cannot write %s: %s", path, strerror(errno));
    return WEFT_OK;
}
