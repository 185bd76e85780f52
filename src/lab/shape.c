/* shape: parses and prints shapes and computes their costs. */
#include "lab/measure.h"
#include "tensor/kv.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct field {
    const char *key;
    size_t at;
    bool attention;
} field;

#define AT(f) offsetof(wf_shape, f)
static const field fields[] = {
    {"M", AT(m), false},         {"N", AT(n), false},       {"K", AT(k), false},
    {"B", AT(seqs), true},       {"L", AT(length), true},   {"H", AT(n_head), true},
    {"KV", AT(n_kv_head), true}, {"D", AT(head_dim), true}, {"S", AT(window), true},
};

static uint32_t *value_of(wf_shape *s, const field *f) { return (uint32_t *)((char *)s + f->at); }

static weft_status bad_shape(const char *text, const char *why)
{
    return wf_fail(WEFT_ERR_ARG, "shape '%s': %s; write M=8,N=6144,K=4096 or B=64,L=4096", text, why);
}

/* Parses one "KEY=NUMBER" of n bytes. */
static weft_status read_part(const char *text, const char *p, size_t n, wf_shape *s, unsigned *kinds)
{
    const char *eq = memchr(p, '=', n);
    size_t digits = eq ? strspn(eq + 1, "0123456789") : 0;
    for (size_t i = 0; eq && i < WF_LEN(fields); i++) {
        const field *f = &fields[i];
        if (strlen(f->key) != (size_t)(eq - p) || strncmp(f->key, p, strlen(f->key))) continue;
        if (!digits || digits > 8 || eq + 1 + digits != p + n)
            return bad_shape(text, "a value is not a number of 1 to 8 digits");
        if (*value_of(s, f)) return bad_shape(text, "a key is repeated");
        *value_of(s, f) = (uint32_t)strtoul(eq + 1, NULL, 10);
        *kinds |= f->attention ? 2 : 1;
        return *value_of(s, f) ? WEFT_OK : bad_shape(text, "a value is 0");
    }
    return bad_shape(text, "expected M, N, K, B, L, S, H, KV or D with a number");
}

weft_status wf_shape_parse(const char *text, wf_shape *out)
{
    unsigned kinds = 0;
    if (!text) return wf_fail(WEFT_ERR_ARG, "a shape of the list is NULL");
    *out = (wf_shape){.dtype = WF_F16};
    for (const char *p = text;; p++) {
        size_t n = strcspn(p, ",");
        WF_TRY(read_part(text, p, n, out, &kinds));
        p += n;
        if (!*p) break;
    }
    if (kinds == 3) return bad_shape(text, "keys of gemm and attention are mixed");
    if (kinds == 1 && (!out->n || !out->k)) return bad_shape(text, "N and K are needed");
    out->op = kinds == 1 ? WF_TUNED_GEMM : WF_TUNED_DECODE;
    if (kinds == 1) return WEFT_OK;
    if (!out->head_dim) out->head_dim = 128;
    if (!out->n_head) out->n_head = 32;
    if (!out->n_kv_head) out->n_kv_head = WF_MIN(8u, out->n_head);
    if (out->n_head % out->n_kv_head) return bad_shape(text, "KV does not divide H");
    return WEFT_OK;
}

void wf_shape_text(const wf_shape *s, char *buf, size_t cap)
{
    if (s->op == WF_TUNED_GEMM) {
        snprintf(buf, cap, "M=%u,N=%u,K=%u", s->m, s->n, s->k);
        return;
    }
    int n = snprintf(buf, cap, "B=%u,L=%u", s->seqs, s->length);
    if (s->window) n = snprintf(buf, cap, "B=%u,L=%u,S=%u", s->seqs, s->length, s->window);
    if (n < 0 || (size_t)n >= cap || (s->n_head == 32 && s->n_kv_head == 8 && s->head_dim == 128)) return;
    snprintf(buf + n, cap - (size_t)n, ",H=%u,KV=%u,D=%u", s->n_head, s->n_kv_head, s->head_dim);
}

weft_status wf_shape_check(const wf_shape *s)
{
    char text[96];
    bool gemm = s->op == WF_TUNED_GEMM;
    uint64_t rows = gemm ? s->m : (uint64_t)s->seqs * s->length, heads = (uint64_t)s->n_head * s->head_dim;
    uint64_t most = gemm ? WF_MAX(s->n, s->k) : heads;
    wf_shape_text(s, text, sizeof text);
    if (rows > 1u << 26 || most > 1u << 24)
        return bad_shape(text, "a matrix can have at most 2^26 rows and 2^24 columns");
    if (gemm && s->k % wf_dtypes[s->dtype].block)
        return wf_fail(WEFT_ERR_ARG, "shape '%s': K must be a multiple of %u, the block size of %s", text,
                       wf_dtypes[s->dtype].block, wf_dtypes[s->dtype].name);
    if (!gemm && s->dtype == WF_Q8_0 && s->head_dim % WF_KV_BLOCK)
        return bad_shape(text, "heads of keys and values in q8_0 must be a multiple of 32");
    return WEFT_OK;
}

weft_status wf_shape_dtypes(const char *text, uint8_t *out, size_t cap, size_t *n)
{
    char word[16];
    *n = 0;
    for (const char *p = text ? text : "F16";; p++) {
        size_t len = strcspn(p, ","), t = 0;
        wf_copy(word, len < sizeof word ? len + 1 : 1, p);
        while (t < WF_N_DTYPES && (strcmp(word, wf_dtypes[t].name) || !wf_dtypes[t].decode)) t++;
        if (t == WF_N_DTYPES)
            return wf_fail(WEFT_ERR_ARG, "'%.*s' is not a weight format; use %s", (int)len, p, wf_weight_dtype_names);
        if (*n < cap) out[(*n)++] = (uint8_t)t;
        p += len;
        if (!*p) return WEFT_OK;
    }
}

/* Keys that a row at length l attends to: all, or at most its window. */
static double keys_seen(const wf_shape *s)
{
    double l = s->length, window = s->window ? WF_MIN(s->window, s->length) : l;
    return s->seqs * (s->op == WF_TUNED_DECODE ? window : window * (window + 1) / 2 + (l - window) * window);
}

double wf_shape_flops(const wf_shape *s)
{
    if (s->op == WF_TUNED_GEMM) return 2.0 * s->m * s->n * s->k;
    return 4.0 * s->n_head * s->head_dim * keys_seen(s);
}

double wf_shape_bytes(const wf_shape *s)
{
    double kv = (s->op == WF_TUNED_DECODE ? keys_seen(s) : (double)s->seqs * s->length) *
        (double)(2 * wf_dtype_bytes(s->dtype, (uint64_t)s->n_kv_head * s->head_dim));
    double q = 4.0 * s->seqs * s->length * s->n_head * s->head_dim;
    if (s->op == WF_TUNED_GEMM)
        return (double)wf_dtype_bytes(s->dtype, (uint64_t)s->n * s->k) + 2.0 * s->m * s->k + 2.0 * s->m * s->n;
    return s->op == WF_TUNED_DECODE ? kv : kv + q;
}

bool wf_shape_counts_bytes(const wf_shape *s)
{
    return s->op == WF_TUNED_DECODE || (s->op == WF_TUNED_GEMM && s->m < 128);
}
