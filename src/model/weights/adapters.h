/* adapters: the places that an engine has for LoRA adapters, and the pass over a graph that computes with them.
 *
 * Each of a model's products y = x W^T that an adapter may change gets two matrices A and B more, of all places as of
 * experts: GROUPED_GEMM by A, then by B, each token with the place of its adapter (WF_INPUT_ADAPTER), and the result is
 * added to y. Place 0 is nobody's, and zeros: tokens without an adapter go there. Ranks below that of the places are
 * filled up with zeros.
 *
 * Steps in which no token has an adapter run none of these nodes (WF_WHEN_ADAPTED). A product that adds nothing yet is
 * two nodes: one runs without adapters, and may be fused (wf_graph_fuse); the other runs with them. */
#ifndef WF_ADAPTERS_H
#define WF_ADAPTERS_H

#include "model/files/adapter.h"

/* What an adapter may change: a tensor, rows of the matrix of a product. */
typedef struct wf_adapter_site {
    char tensor[64];
    uint32_t rows, cols, first; /* its own; where its rows begin in the product's */
    uint32_t part;              /* of the product's matrix */
    uint32_t a, b; /* in the list of weights: [places a_rows, cols], of all sites of the product; [places rows, rank] */
    uint32_t a_first, a_rows;   /* where its rows of A begin, and how many there are for each place */
    wf_pairs pairs;             /* of the product's matrix */
} wf_adapter_site;

typedef struct wf_adapters {
    uint32_t places; /* with the one of nobody; 0: there are no adapters */
    uint32_t rank;   /* of all places, a multiple of 16 */
    bool any;        /* others may come than those below: every product has a site */
    wf_adapter **given;
    size_t n_given;
    wf_adapter_site *sites;
    size_t n_sites, cap_sites;
} wf_adapters;

/* Opens those that parameters name, and decides how many places there are and of which rank. p: adapters. */
struct weft_model;
weft_status wf_adapters_open(wf_adapters *, const struct weft_model *, const struct weft_engine_params *p);
/* The pass, over a graph and weights as wf_model_build leaves them; WEFT_ERR_UNSUPPORTED: of a shard. act: dtype of
 * activations. */
weft_status wf_adapters_add(wf_adapters *, enum wf_dtype act, wf_graph *g, wf_weights *w);
void wf_adapters_free(wf_adapters *);

/* An adapter's matrices as they lie on the device, made on any thread; key: of what they hold. */
typedef struct wf_adapter_image {
    struct wf_adapter_piece *pieces;
    size_t n, cap;
    uint8_t hash[32];
} wf_adapter_image;
/* WEFT_ERR_FORMAT, WEFT_ERR_UNSUPPORTED: it is not one of this model. w: on dev. */
weft_status wf_adapter_image_make(const wf_adapters *, const wf_adapter *, const struct weft_model *, wf_dev *dev,
                                  const wf_weights *w, wf_adapter_image *out);
/* Copies it into a place; waits for the end. No step in flight uses the place. */
weft_status wf_adapter_image_write(const wf_adapter_image *, wf_queue *q, const wf_weights *w, uint32_t place);
void wf_adapter_image_free(wf_adapter_image *);

/* "NAME=PATH" in two; the name is a part of text. WEFT_ERR_ARG: it is not that. */
weft_status wf_adapter_split(const char *text, char name[128], const char **path);

#endif
