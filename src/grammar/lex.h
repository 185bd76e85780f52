/* lex: bytes of a JSON string (RFC 8259, 7) as they come, behind its first quote. */
#ifndef WF_GRAMMAR_LEX_H
#define WF_GRAMMAR_LEX_H

#include <stdbool.h>
#include <stdint.h>

typedef struct string_lex {
    uint8_t escape; /* 0: none; 1: behind \; 2 to 5: behind \u and that many less 2 hex digits; 6: \ is to come */
    uint8_t utf8;   /* bytes that a character still needs */
    uint8_t low, high; /* the next of these is from low to high */
    uint16_t half;  /* the first half of a surrogate pair, whose second is to come */
    uint16_t code;  /* of \u so far */
} string_lex;

enum lexed { LEX_BAD, LEX_MORE, LEX_BYTES, LEX_QUOTE };
/* BYTES: *n bytes of the text are in out. They are a whole character if it was escaped, else one byte. */
enum lexed string_lex_byte(string_lex *, unsigned char c, unsigned char out[4], unsigned *n);
/* Is it between two characters? */
static inline bool string_lex_clean(const string_lex *s) { return !s->escape && !s->utf8 && !s->half; }

#endif
