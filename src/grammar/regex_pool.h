/* regex_pool: what regex.c and regex_dfa.c share. */
#ifndef WF_GRAMMAR_REGEX_POOL_H
#define WF_GRAMMAR_REGEX_POOL_H

#include "grammar/regex.h"

enum {
    RE_MAX_NODES = 400000,
    RE_MAX_STATES = 12000, /* of 1 KiB */
    RE_MAX_LIST = 1024,
    RE_MEMO = 1 << 14,
};
enum { RE_K_NONE, RE_K_EMPTY, RE_K_SET, RE_K_CAT, RE_K_ALT, RE_K_AND, RE_K_NOT, RE_K_REPEAT, RE_K_LOOK, RE_K_DOLLAR,
       RE_K_CALL };
enum { RE_UNKNOWN, RE_ALIVE, RE_DEAD };

typedef struct re_node {
    uint8_t kind, alive; /* alive: is there a text? */
    bool nullable, look; /* takes the empty text; has looks ahead or dollars, which re_before replaces */
    re a, b;             /* SET: a is the set's number; CALL: the rule's */
    uint32_t min, max;
    int32_t state; /* -2: has none yet */
} re_node;
typedef struct re_memo {
    uint64_t key;
    re value;
} re_memo;
typedef struct re_dfa {
    re node;
    bool accepts;
    int32_t next[256];
    const re_called *calls; /* NULL: not yet known */
    uint32_t n_calls;
} re_dfa;

struct re_pool {
    wf_grammar *grammar;
    re_node *nodes;
    re_set *sets;
    uint32_t *table; /* by hash: a node's number + 1 */
    re_memo *memo;
    re_dfa *states;
    re *queue;
    size_t n_nodes, cap_nodes, n_sets, cap_sets, table_cap, n_states, cap_states, cap_queue;
    re any;
};

void re_begin(re_pool *); /* the first three nodes */
void re_grow(re_pool *, void *array, size_t n, size_t *cap, size_t size);

#endif
