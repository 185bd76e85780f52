/* internal: what the files of this room share.
 *
 * A schema becomes a list of conjunctions (conj.c, compile.c: what types a value may be and all that holds for each),
 * which becomes a node (grammar.c: a list of alternatives, one for each type) when a match first comes there. A match
 * is a set of threads (match.c), each with the stack of the brackets that are open, or of the rules that are called. */
#ifndef WF_GRAMMAR_INTERNAL_H
#define WF_GRAMMAR_INTERNAL_H

#include "grammar/grammar.h"
#include "grammar/regex.h"

#include <setjmp.h>

/* ---- memory and the way out: arena.c -------------------------------------------------------------------- */

typedef struct arena_piece {
    struct arena_piece *before;
    size_t used, size;
    _Alignas(16) unsigned char bytes[];
} arena_piece;

typedef struct arena {
    arena_piece *last;
    size_t bytes;
} arena;

/* Zeroed memory that lives as long as the grammar: take; and as long, or until a mark before it is released: hold. */
void *grammar_take(wf_grammar *, size_t size);
void *grammar_hold(wf_grammar *, size_t size);
void *grammar_mark(wf_grammar *);
void grammar_release(wf_grammar *, void *mark);
void arena_free(arena *);
/* Memory of all grammars together is bounded, too: what one takes is counted, and fails with WEFT_ERR_NOMEM. */
extern size_t grammar_most_bytes;
void grammar_count(wf_grammar *, size_t bytes);
void grammar_uncount(wf_grammar *, size_t bytes);
void grammar_grow(wf_grammar *, void *array, size_t n, size_t *cap, size_t size); /* as wf_grow */
/* Ends the call of this room that runs, by longjmp to its entry: none holds anything outside the grammar. */
_Noreturn void grammar_fail(wf_grammar *, const char *fmt, ...) WF_PRINTF(2, 3);
_Noreturn void grammar_no_memory(wf_grammar *);
void grammar_work(wf_grammar *, size_t steps); /* fails when a call has taken too many */
void grammar_deeper(wf_grammar *);             /* fails when it is too deep */
void grammar_shallower(wf_grammar *);
wf_grammar *grammar_of(const re_pool *);

/* ---- numbers: number.c ---------------------------------------------------------------------------------- */

enum { DEC_DIGITS = 72, NUMBER_MAX = 64 };
typedef struct dec { /* 0.d1 d2 ... times 10^point; without digits: 0 */
    bool negative;
    int n, point;
    char digits[DEC_DIGITS];
} dec;
typedef struct number_rule {
    bool has_low, has_high, low_open, high_open;
    dec low, high;
    uint64_t multiple; /* of multiple / 10^scale; 0: of none */
    int scale;
} number_rule;

bool dec_read(const char *text, size_t n, dec *out); /* false: it has too many digits */
int dec_compare(const dec *, const dec *);
dec dec_of_json(wf_grammar *, const wf_json *);
void number_low(number_rule *, const dec *, bool open);
void number_high(number_rule *, const dec *, bool open);
void number_multiple(wf_grammar *, number_rule *, const wf_json *);
void number_both(wf_grammar *, number_rule *, const number_rule *more);
bool number_none(const number_rule *, bool whole); /* surely no number is left */
/* Is a text a number of the rule, and can it become one? whole: integers alone. */
bool number_complete(const number_rule *, bool whole, const char *text, int n);
bool number_may_go_on(const number_rule *, bool whole, const char *text, int n);

/* ---- grammars of rules: gbnf.c -------------------------------------------------------------------------- */

typedef struct text_list {
    const char *text;
    uint32_t n;
} text_list;
typedef struct gbnf_choice gbnf_choice;
typedef struct gbnf_rule {
    text_list name;
    const gbnf_choice *body;
    bool nullable, ends, called;
    enum { RULE_NEW, RULE_OPEN, RULE_DONE, RULE_MEASURED } met;
    uint32_t size;
    re_set first, behind; /* the bytes that may come first in it, and behind it */
    int32_t state; /* of one that is called, where it begins */
} gbnf_rule;

/* ---- schemas -------------------------------------------------------------------------------------------- */

enum {
    T_NULL = 1,
    T_FALSE = 2,
    T_TRUE = 4,
    T_INT = 8,
    T_FRAC = 16, /* numbers that are not whole */
    T_STRING = 32,
    T_ARRAY = 64,
    T_OBJECT = 128,
    T_ANY = 255
};

typedef uint32_t part; /* a schema somewhere in the document, or its complement: an index of grammar.parts */
typedef uint32_t cset; /* a set of parts that all hold: an index of grammar.csets */
enum { CSET_ANY = 0 };

typedef struct part_list {
    part of;
    const struct part_list *next;
} part_list;
typedef struct key_rule { /* a key, if it is there, has this value too */
    text_list key;
    part of;
    const struct key_rule *next;
} key_rule;
typedef struct object_rule { /* one schema's properties, patternProperties and additionalProperties */
    const wf_json *properties, *patterns, *additional; /* NULL: none */
    bool open; /* it says that any other keys may be there */
    const struct object_rule *next;
} object_rule;
typedef struct array_rule { /* one schema's prefixItems and items */
    const wf_json *prefix, *items;
    const struct array_rule *next;
} array_rule;
typedef struct contains_rule { /* so many items are of the schema */
    const wf_json *schema;
    uint32_t min, max;
    const struct contains_rule *next;
} contains_rule;
typedef struct required_list {
    text_list key;
    const struct required_list *next;
} required_list;

/* All of this holds. */
typedef struct conj {
    uint8_t types;
    number_rule number;
    re pattern;             /* RE_ALL: any string */
    const text_list *texts; /* NULL: any; sorted, each once */
    uint32_t n_texts;
    uint32_t min_length, max_length, min_items, max_items, min_keys, max_keys; /* RE_MANY: no limit */
    const array_rule *arrays;
    const key_rule *items; /* single items: the key is the index */
    const contains_rule *contains;
    bool unique; /* all items differ */
    const object_rule *objects;
    const key_rule *keys;
    const required_list *required;
    re names; /* of keys; RE_ALL */
    const struct conj *next;
} conj;
typedef const conj *conj_list; /* one of these holds; NULL: nothing does */

extern const conj conj_any;

/* conj.c */
conj_list conj_both(wf_grammar *, conj_list, conj_list);
conj_list conj_either(wf_grammar *, conj_list, conj_list);
conj *conj_new(wf_grammar *, uint8_t types); /* to be filled */
conj_list texts_conj(wf_grammar *, const wf_json *one_or_list); /* of equal values: const and enum */
/* compile.c: what a part says. */
conj_list part_conjs(wf_grammar *, part);
conj_list cset_conjs(wf_grammar *, cset);
part part_of(wf_grammar *, const wf_json *schema, bool negative);
cset cset_of(wf_grammar *, const part_list *);
cset cset_of_one(wf_grammar *, part);
re part_strings(wf_grammar *, part); /* the strings that a schema of names accepts */
re conj_strings(wf_grammar *, const conj *);
/* refs.c */
void refs_begin(wf_grammar *);
const wf_json *refs_find(wf_grammar *, const wf_json *schema, const char *ref, size_t n);
/* formats.c: RE_ALL: it says nothing about a string */
re format_pattern(wf_grammar *, const char *name);

/* ---- nodes ---------------------------------------------------------------------------------------------- */

typedef struct key_entry {
    text_list key;
    bool required;
    cset value;
} key_entry;
typedef struct pattern_entry {
    re pattern;
    part value;
    uint32_t rule; /* of which object_rule */
} pattern_entry;
typedef struct alternative {
    uint8_t type; /* one of T_..., where T_FRAC stands for all numbers and T_INT for whole ones */
    number_rule number;
    bool bounded;
    const text_list *texts;
    uint32_t n_texts;
    re pattern;     /* of strings; RE_ALL */
    uint32_t min, max; /* characters, items or keys */
    const cset *prefix;
    uint32_t n_prefix;
    cset items;
    const struct counted_items { /* NULL: any; else what items are that count, and those that do not, the last of all */
        cset of, not_of;         /* behind the prefix */
    } *counted;
    uint32_t min_counted, max_counted;
    const struct alternative *unique; /* what items are, which all differ: strings; NULL: they need not */
    const key_entry *keys; /* sorted */
    uint32_t n_keys, n_required;
    const pattern_entry *patterns;
    uint32_t n_patterns;
    part *additional_of;     /* by rule; PART_NONE: any */
    uint32_t n_rules;
    re others;   /* the keys that are possible without being declared; RE_ALL: any */
    bool finite; /* those are finitely many, and one that came is none of them any more */
    const struct alternative *next;
} alternative;
typedef const alternative *node;
#define PART_NONE UINT32_MAX

node conj_nodes(wf_grammar *, const conj *); /* of all in the list */
node cset_node(wf_grammar *, cset); /* NULL: no value at all */
bool cset_empty(wf_grammar *, cset);
/* Can an array end that has so many items, of which so many count? possible: has a set a value? */
bool array_ends(wf_grammar *, const alternative *, uint32_t items, uint32_t counted,
                bool (*possible)(wf_grammar *, cset));
bool cset_possible(wf_grammar *, cset); /* not empty */

/* lex.c: bytes of a JSON string (RFC 8259, 7) as they come, behind its first quote. */
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

/* ---- matches: match.c ----------------------------------------------------------------------------------- */

enum thread_at {
    AT_VALUE,     /* before a value of a node */
    AT_STRING,    /* within a string */
    AT_KEY,       /* within a key */
    AT_NUMBER,
    AT_WORD,      /* null, true, false */
    AT_LIST_FIRST,/* behind [ */
    AT_LIST_NEXT, /* behind an item */
    AT_KEY_FIRST, /* behind { */
    AT_KEY_NEXT,  /* behind a comma */
    AT_COLON,
    AT_MEMBER_NEXT, /* behind a value of an object */
    AT_RAW,       /* within an answer that is no JSON: in a rule, if there are such */
    AT_END,
};

typedef struct extra_key {
    const char *text;
    uint32_t n;
    const struct extra_key *before;
} extra_key;
typedef struct frame {
    const alternative *of; /* NULL: a call of a rule, behind which `rule` goes on with `state` */
    union {
        uint32_t count; /* items or keys so far */
        int32_t state;
    };
    union {
        uint32_t required_left;
        uint32_t rule;
    };
    const uint64_t *seen; /* keys of .keys */
    const extra_key *extras; /* that came: keys that are not declared, items that must not come again */
    re others;               /* of these keys, or items: all that are left */
    uint32_t counted : 31;
    uint32_t blind : 1; /* in masks: the last item that must not come again is not among the extras */
    const struct frame *up;
} frame;

typedef struct thread {
    uint8_t at, blanks;
    uint8_t n_number;
    bool open;            /* AT_KEY: a key that is not declared is possible */
    string_lex lex;
    uint32_t depth;       /* bytes of the text so far */
    uint32_t first, last; /* of the texts or keys, sorted, those that begin so; last is behind */
    int32_t state;        /* of the pattern; of a key: of the others */
    uint32_t chars;
    cset value;           /* AT_VALUE, AT_COLON; AT_RAW: the rule */
    const alternative *of;
    const char *word;     /* what is left of it */
    const frame *up;
    const char *key;       /* the bytes of a key that may be one that is not declared, or of an item that must be new */
    const int32_t *states; /* of such a key: of the patterns; NULL: there are none */
    char number[NUMBER_MAX];
} thread;
enum { MAX_THREADS = 256, AFTER_LINE = 2, MAX_BLANKS = 42, MAX_KEY = 1000 /* bytes of a key that is not declared */ };

thread thread_begin(wf_grammar *);
/* Where n threads are behind c: so many of grammar.scratch, which the next step overwrites. */
size_t threads_step(wf_grammar *, const thread *, size_t n, unsigned char c);
/* The same of threads AT_RAW without a byte: in which rules they are, and in which states of these. */
size_t threads_reach(wf_grammar *, const thread *, size_t n);
bool threads_may_end(wf_grammar *, const thread *, size_t n);
thread thread_closed(const frame *up); /* behind a value */
void thread_emit(wf_grammar *, const thread *); /* adds it to scratch, unless it is there */
frame *frame_new(wf_grammar *, const frame *like);
/* match_text.c */
void step_string(wf_grammar *, const thread *, unsigned char c);
void key_begin(wf_grammar *, const thread *);
bool some_key_possible(wf_grammar *, const frame *, uint32_t first, uint32_t last); /* of those that are declared */
bool other_key_possible(wf_grammar *, const frame *);
/* What the value of a key that is not declared has to be; matches: of each pattern, whether the key has it; NULL: none
 * has. */
cset other_key_value(wf_grammar *, const alternative *, const bool *matches);
bool alternative_free(const alternative *); /* of strings: any text, of the right length */
static inline uint32_t seen_words(const alternative *a) { return (a->n_keys + 63) / 64; }

struct wf_match {
    wf_grammar *grammar;
    thread now[MAX_THREADS];
    size_t n;
};

struct wf_grammar {
    arena kept, held;
    jmp_buf *out;
    weft_status status;
    char message[256];
    size_t work, bytes; /* of this call; counted in the memory of all grammars */
    unsigned depth;
    re_pool *pool;
    wf_json **docs; /* the schema, and what was written for constants */
    size_t n_docs, cap_docs;
    bool old_refs; /* drafts before 2019-09: nothing counts beside $ref */
    bool closed;   /* objects whose properties are named have no others, unless the schema says that they may */
    bool raw;      /* no JSON: the answer is a text of the pattern, or of rules */
    re raw_pattern;
    int32_t raw_begin, raw_end; /* states: of an answer's begin, and where nothing follows in a rule */
    uint32_t raw_root;          /* the rule of the first */
    gbnf_rule *rules;
    size_t n_rules, cap_rules;
    const struct parser *reader; /* says where a grammar of rules is wrong */
    struct part_entry {
        const wf_json *schema;
        bool negative, known, busy;
        conj_list conjs;
        uint32_t next; /* of the same hash, its number + 1; 0: none */
    } *parts;
    uint32_t part_first[4096]; /* by hash */
    size_t n_parts, cap_parts;
    struct cset_entry {
        part *parts; /* sorted */
        uint32_t n;
        uint8_t state; /* 0: no node yet, 1: being made, 2: made */
        bool ends, never; /* has a value that ends, as far as is known; has surely none */
        node made;
        uint32_t next;
    } *csets;
    uint32_t cset_first[4096];
    size_t n_csets, cap_csets;
    struct doc_id {
        const char *uri;
        const wf_json *schema;
    } *ids;
    size_t n_ids, cap_ids;
    struct scope_entry { /* which resource an object of the document is in */
        const wf_json *schema;
        const char *base;
        const wf_json *root;
    } *scopes;
    size_t n_scopes, cap_scopes;
    struct mask_entry *masks; /* mask.c */
    thread scratch[MAX_THREADS];
    size_t n_scratch;
};

/* grammar.c */
weft_status grammar_new(wf_grammar **out);
void raw_begin(wf_grammar *);
weft_status grammar_made(wf_grammar *, const char *what, wf_grammar **out); /* ends the making: frees one that failed */
void masks_free(wf_grammar *);

/* Runs body, which may fail: weft_status, with its message. */
#define GRAMMAR_ENTER(g, body)                                                                                         \
    do {                                                                                                               \
        jmp_buf out_;                                                                                                  \
        (g)->out = &out_, (g)->work = 0, (g)->depth = 0;                                                               \
        if (setjmp(out_) == 0) {                                                                                       \
            body;                                                                                                      \
            (g)->status = WEFT_OK;                                                                                     \
        }                                                                                                              \
        (g)->out = NULL;                                                                                               \
    } while (0)

#endif
