/* regex: sets of texts, as expressions that are read byte by byte by their derivatives (Brzozowski 1964), with
 * intersection and complement, so that what a schema asks of a string in several places is one expression.
 *
 * Texts are UTF-8. Each ends in the byte RE_END, which no UTF-8 has. Expressions are numbers: equal ones have one
 * number. A pool is of one thread. Its memory is a grammar's: it ends by grammar_fail. */
#ifndef WF_GRAMMAR_REGEX_H
#define WF_GRAMMAR_REGEX_H

#include "base/base.h"

struct wf_grammar;
typedef struct re_pool re_pool;
typedef uint32_t re;

enum { RE_START = 0xFE, RE_END = 0xFF };
enum { RE_NONE, RE_EMPTY, RE_ALL }; /* no text, the empty text, any bytes */
#define RE_MANY UINT32_MAX

re_pool *re_pool_new(struct wf_grammar *); /* NULL: no memory */
void re_pool_free(re_pool *);

typedef struct re_set { /* of bytes */
    uint64_t bits[4];
} re_set;
typedef struct re_range { /* of characters */
    uint32_t first, last;
} re_range;

re re_of_set(re_pool *, re_set);
re re_byte(re_pool *, unsigned char);
re re_chars(re_pool *, const re_range *, size_t n); /* one character of any of these ranges */
re re_any_char(re_pool *);
size_t re_utf8(uint32_t c, unsigned char out[4]); /* how many bytes */
re re_cat(re_pool *, re, re);
re re_alt(re_pool *, re, re);
re re_and(re_pool *, re, re);
re re_not(re_pool *, re);
re re_repeat(re_pool *, re, uint32_t min, uint32_t max); /* max RE_MANY: any number */
re re_look(re_pool *, re what, bool negative);           /* what follows begins, or does not, with what */
re re_dollar(re_pool *);                                 /* nothing follows */
/* first, then rest up to the end of the text: where looks ahead and dollars of first get their meaning. */
re re_before(re_pool *, re first, re rest);
re re_drop_start(re_pool *, re); /* without what needs another RE_START */
enum { RE_CALL = 256 };
re re_call(re_pool *, uint32_t rule, bool nullable); /* a text of a rule (gbnf.c), which is the symbol RE_CALL + rule */
void re_first_bytes(re_pool *, re, re_set *out);     /* adds those with which its texts begin, but for calls */
re re_derive(re_pool *, re, uint32_t symbol);        /* a byte or a call */
bool re_nullable(re_pool *, re);

/* Whole texts, which end in RE_END. */
re re_literal(re_pool *, const char *text, size_t n);
re re_lengths(re_pool *, uint32_t min, uint32_t max); /* in characters */
re re_texts_but(re_pool *, re);                       /* all other texts */
/* A pattern of ECMA 262 that is found somewhere in the text (regex_parse.c), or that is the whole text. */
re re_parse(re_pool *, const char *pattern, size_t n, bool whole);

/* regex_dfa.c: states of the deterministic automaton, made as they are met. */
int32_t re_state(re_pool *, re); /* -1: no text goes on from here */
int32_t re_step(re_pool *, int32_t state, unsigned char);
bool re_accepts(re_pool *, int32_t state);
typedef struct re_called {
    uint32_t rule;
    int32_t to; /* the state behind it */
} re_called;
const re_called *re_calls(re_pool *, int32_t state, size_t *n); /* the rules that may come next */
bool re_some(re_pool *, re); /* is there any text? */
bool re_finite(re_pool *, re); /* surely finitely many texts? */

#endif
