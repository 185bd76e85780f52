/* steps: what a tokenizer.json does with text before its model sees it: normalisers, which rewrite text, and
 * pre-tokenizers, which cut it into pieces and may rewrite those. Both are lists of steps, read by steps_json.c and run
 * by steps.c, in the order of the file. Meanings: github.com/huggingface/tokenizers, tokenizers/src/normalizers and
 * src/pre_tokenizers. */
#ifndef WF_TEXT_STEPS_H
#define WF_TEXT_STEPS_H

#include "base/text.h"
#include "text/regex.h"
#include "text/text.h"

enum wf_step_kind {
    /* normalisers */
    WF_STEP_FORM,          /* NFC, NFD, NFKC, NFKD */
    WF_STEP_LOWER,
    WF_STEP_STRIP_ACCENTS,
    WF_STEP_STRIP,         /* spaces at the ends */
    WF_STEP_PREPEND,       /* text, before what is not empty */
    WF_STEP_REPLACE,       /* matches, by text */
    WF_STEP_MAP,           /* SentencePiece's table of replacements: charmap.c */
    WF_STEP_CLEAN,         /* control characters are dropped, spaces of any kind become ' ' */
    WF_STEP_SPACE_HAN,     /* spaces around each character of Chinese */
    WF_STEP_STRIP_MARKS,   /* those without a width; accents are marks of any kind */
    /* pre-tokenizers */
    WF_STEP_SPLIT,
    WF_STEP_METASPACE,     /* spaces become text */
    WF_STEP_BYTES,         /* bytes become GPT-2's printable characters */
};

enum wf_split { WF_SPLIT_REMOVED, WF_SPLIT_ISOLATED, WF_SPLIT_WITH_PREVIOUS, WF_SPLIT_WITH_NEXT, WF_SPLIT_CONTIGUOUS };

typedef struct wf_step {
    enum wf_step_kind kind;
    wf_regex *regex;     /* of REPLACE and SPLIT; NULL: what equals `find` */
    char *find, *text;   /* owned */
    uint8_t *map;        /* MAP: n_map bytes, owned */
    size_t n_map;
    int form;            /* utf8proc's options */
    bool left, right;    /* STRIP: which ends */
    bool invert;         /* SPLIT: what lies between the matches counts as matches */
    enum wf_split split; /* SPLIT */
    bool cut;            /* METASPACE: before each of them */
    bool always, first;  /* METASPACE: put text before every piece that begins with none; before the first ones */
} wf_step;

typedef struct wf_steps {
    wf_step *v;
    size_t n, cap;
} wf_steps;

/* Takes ownership of what the step holds, also on failure. */
weft_status wf_steps_add(wf_steps *, wf_step);
void wf_steps_free(wf_steps *);

/* head: so many bytes at the start of a text stand for the first character that the user gave, whatever steps have made
 * of it; 0: that is elsewhere, or a step took it away. The pieces that begin there are the first ones, as the library
 * tells by what it calls alignments. */
typedef struct wf_pieces { /* of one text, which they own */
    wf_text text;
    char *subject; /* the text for patterns; NULL: none has looked at it */
    size_t head;
    size_t limit; /* that the text may not outgrow */
    wf_text_span *v;
    size_t n, cap, n_steps; /* n_steps: for wf_stop_asked */
} wf_pieces;

/* The head of a text with which the user's begins. */
size_t wf_head_of(const char *text, size_t len);
/* The normalised text, which the caller frees, and its head. Any bytes are accepted: what is no UTF-8 stays as it is.
 */
weft_status wf_normalise(const wf_steps *, const char *text, size_t len, char **out, size_t *out_len, size_t *head);
/* Cuts text into pieces. */
weft_status wf_pretokenise(const wf_steps *, const char *text, size_t len, size_t head, wf_pieces *out);
void wf_pieces_free(wf_pieces *);

/* charmap.c: reads the table of a MAP from base64, and finds what a text of n bytes becomes: NULL, or *out_n bytes in
 * the table. */
weft_status wf_charmap_read(const char *base64, uint8_t **map, size_t *n_map);
weft_status wf_charmap_check(const uint8_t *map, size_t n_map);
const char *wf_charmap_find(const wf_step *, const char *text, size_t n, size_t *out_n);

/* One step of JSON, a normaliser or a pre-tokenizer with its type, and the steps that a Sequence holds. Unknown types
 * are refused by name. */
struct wf_json;
weft_status wf_steps_read_normaliser(wf_steps *, const struct wf_json *);
weft_status wf_steps_read_pretokenizer(wf_steps *, const struct wf_json *);
/* Fails, naming it, where an object has another field than those listed, with a space between, unless it is null,
 * false, 0 or empty: a newer library may have added it for other ids. */
weft_status wf_fields_known(const struct wf_json *, const char *fields, const char *of);
/* The fields of a step or decoder of this type. */
weft_status wf_step_fields_known(const struct wf_json *, const char *type);
/* May the steps make text shorter, so that a token may stand for any number of bytes? */
bool wf_steps_shrink(const wf_steps *);

#endif
