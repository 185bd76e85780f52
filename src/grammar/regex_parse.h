/* regex_parse: what the readers of patterns and of GBNF share. */
#ifndef WF_GRAMMAR_REGEX_PARSE_H
#define WF_GRAMMAR_REGEX_PARSE_H

#include "grammar/regex.h"

typedef struct parser {
    struct wf_grammar *g;
    re_pool *pool;
    const char *p, *end;
    unsigned looking; /* groups that look ahead, around this place */
} parser;

enum { MAX_RANGES = 1500 };
typedef struct char_class { /* ranges in any order */
    re_range r[MAX_RANGES];
    size_t n;
} char_class;

bool take(parser *, const char *text); /* false: it is not what comes next */
uint32_t take_char(parser *);
uint32_t take_hex(parser *, int digits);
bool take_number(parser *, uint32_t *); /* at most 100000; false: there is no digit */
uint32_t escaped_char(parser *);        /* behind a backslash */
void class_add(parser *, char_class *, uint32_t first, uint32_t last);
void class_invert(parser *, char_class *);

#endif
