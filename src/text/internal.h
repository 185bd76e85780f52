/* internal: what the files of this folder share. Only they and tests include it.
 *
 * Steps of tokenisation: tokenizer.c cuts out special tokens (special.c); the kind of tokenizer (spm.c, bpe.c) splits
 * the plain text between them into symbols; merge.c merges adjacent symbols until no pair forms a token. */
#ifndef WF_TEXT_INTERNAL_H
#define WF_TEXT_INTERNAL_H

#include "text/steps.h"
#include "text/text.h"

/* Longest text in one call: symbols and offsets have 32 bits, and a SentencePiece space takes 3 bytes. */
#define WF_TEXT_MAX ((size_t)1 << 30)

/* ---- growing outputs ------------------------------------------------------------------------- */

typedef struct wf_ids {
    int32_t *v;
    size_t n, cap;
} wf_ids;

weft_status wf_ids_push(wf_ids *, int32_t id);

/* ---- pre-tokenizers of GGUF, which split text by patterns (pretokenize.c) ---------------------- */

typedef struct wf_pre {
    const char *name; /* tokenizer.ggml.pre */
    const char *const *patterns; /* NULL behind the last one */
    bool ignore_merges, add_bos; /* as models of that name require */
} wf_pre;

/* The i-th of the table; NULL after the last one. */
const wf_pre *wf_pre_at(size_t i);
/* "" is "default". Unknown: WEFT_ERR_UNSUPPORTED with the known names. */
weft_status wf_pre_find(const char *name, const wf_pre **out);
/* Adds its steps, which accept any bytes: invalid UTF-8 counts as control characters. */
weft_status wf_pre_steps(const wf_pre *, wf_steps *out);

/* ---- special tokens found in text (special.c) ------------------------------------------------ */

typedef struct wf_specials {
    int32_t *ids; /* sorted by text */
    uint32_t n;
    uint32_t first[257]; /* [byte]: index of the first text in ids that starts with it */
} wf_specials;

/* Collects the tokens whose type is in the mask (bit 1 << type). rules: of each token, WF_RULE_*; user-defined ones
 * that are looked for in normalised text are left out; NULL: none are. */
weft_status wf_specials_init(wf_specials *, const wf_vocab_token *tokens, uint32_t n,
                             unsigned types, const uint8_t *rules);
void wf_specials_free(wf_specials *);
/* The tokens that text starts with, from the shortest to the longest, each with its length as depth; -1: no more. */
typedef struct wf_walk {
    uint32_t lo, hi;
    size_t depth; /* 0: start */
} wf_walk;
int32_t wf_specials_next(const wf_specials *, const wf_vocab_token *tokens, const char *text, size_t len, wf_walk *);
/* The longest token that text starts with, and its length; -1: none. */
int32_t wf_specials_match(const wf_specials *, const wf_vocab_token *tokens, const char *text,
                          size_t len, size_t *used);

/* What a tokenizer.json asks of an added token where it is found. ADDED: the model's own vocabulary lacks it, so that
 * text becomes it only where it is found as a whole. */
enum { WF_RULE_LSTRIP = 1, WF_RULE_RSTRIP = 2, WF_RULE_SINGLE_WORD = 4, WF_RULE_NORMALIZED = 8, WF_RULE_ADDED = 16 };
/* Is it a token there? Widens *found over the spaces that it takes, not beyond start. */
bool wf_special_fits(uint8_t rules, const char *text, size_t len, size_t start, wf_text_span *found);

/* Bytes of the space or the character of a word at p, or at the end of p[0, len); 0: there is none (chars.c). */
size_t wf_space_at(const char *p, size_t len);
size_t wf_space_before(const char *p, size_t len);
bool wf_word_at(const char *p, size_t len);
bool wf_word_before(const char *p, size_t len);

/* ---- a tokenizer.json (json_read.c, json_model.c) --------------------------------------------- */

typedef struct wf_json_model {
    wf_steps normalisers, pretokenizers;
    bool unigram, byte_level, byte_fallback, fuse_unk;
    /* WordPiece: what pieces at the start of a word and within it begin with, owned; begin NULL: nothing; inside NULL:
     * it is no WordPiece. */
    char *begin, *inside;
    uint32_t most_chars;  /* of a word; a longer one is unknown */
    bool shrinks;         /* a token may stand for any number of bytes */
    uint8_t *rules;       /* [n_tokens], WF_RULE_* */
    double *scores;       /* Unigram: [n_tokens] */
    double unknown_score;
    wf_specials pieces;   /* Unigram: what a cut may consist of */
    /* The tokenizer's user and all without those that are found in normalised text, which comes later. */
    wf_specials raw_user, raw_all;
    wf_specials normal;   /* added tokens to find in normalised text; indexes of what follows */
    wf_vocab_token *normal_tokens; /* with their texts normalised */
    int32_t *normal_ids;
    uint32_t n_normal;
} wf_json_model;

void wf_json_model_free(wf_json_model *);
/* BPE of one piece of pre-tokenised text. ignore_merges: a piece that is a token becomes it, whatever the merges say.
 */
weft_status wf_json_bpe(const wf_tokenizer *, const char *piece, size_t len, bool ignore_merges, wf_ids *out);
/* json_around.c: of src, which has its json. */
weft_status wf_json_read_decoder(wf_vocab_src *src, const struct wf_json *o);
weft_status wf_json_read_processor(wf_vocab_src *src, const struct wf_json *o);
/* Reads a folder's vocabulary and calls fn, which owns src->json from then on; the rest of src is valid during the
 * call. n_vocab: rows of the embedding table; 0: unknown. */
typedef weft_status (*wf_vocab_fn)(void *user, const wf_vocab_src *src);
weft_status wf_vocab_of_folder(const char *folder, uint32_t n_vocab, wf_vocab_fn fn, void *user);
weft_status wf_tokenizer_from_folder(const char *folder, uint32_t n_vocab, wf_tokenizer **out);

/* vocab.c: from the keys alone, also of an object that is being filled. */
struct wf_gguf;
weft_status wf_tokenizer_from_keys(const struct wf_gguf *, wf_tokenizer **out);
uint32_t wf_vocab_rows(const struct wf_gguf *); /* of the embedding table; 0: there is none */

/* A key of weft's own, with tokenizer.json's names, [enum wf_prepend]; without it GGUF's kind of prefix is meant. */
#define WF_PREPEND_KEY "tokenizer.ggml.prepend_scheme"
extern const char *const wf_prepend_names[3];

/* ---- the tokenizer --------------------------------------------------------------------------- */

typedef struct wf_bpe_pair {
    uint64_t key; /* left id << 32 | right id; UINT64_MAX: free */
    uint32_t rank;
    int32_t id; /* of the merged pair */
} wf_bpe_pair;

struct wf_tokenizer {
    const struct wf_text_kind *kind;
    wf_vocab_token *tokens;
    char *texts; /* of all tokens: the file may change while it is used */
    uint32_t n_tokens;
    int32_t bos, eos, unk;
    bool add_bos, add_eos, add_space_prefix, ignore_merges;
    enum wf_prepend prepend; /* spm only */
    uint8_t between;       /* eos between the texts of a pair, or WF_NO_PAIRS */
    bool one_type;         /* of the tokens of a pair */
    uint8_t *eog;          /* [n_tokens] */
    wf_specials user, all; /* user-defined tokens; these and control tokens */

    uint32_t *slots; /* hash table: text -> id + 1, of tokens that plain text can become; 0: free */
    uint32_t slot_mask;
    uint64_t hash_seed;   /* of the table of pairs */
    uint32_t max_len;     /* of these texts */
    int32_t byte_id[256]; /* -1: the vocabulary has no such byte */

    wf_json_model *json; /* of a tokenizer.json; NULL: a vocabulary of GGUF */

    wf_steps pre; /* bpe only, from here on */
    wf_bpe_pair *pairs;
    uint32_t pair_mask;
    uint16_t byte_char[256]; /* the character that stands for a byte in the vocabulary */
    int16_t char_byte[324];  /* the reverse; -1: none */
};

typedef struct wf_text_kind {
    const char *model; /* tokenizer.ggml.model */
    unsigned plain;    /* types of tokens that plain text can become, as bits 1 << type */
    bool add_bos, add_space_prefix; /* defaults */
    weft_status (*init)(wf_tokenizer *, const wf_vocab_src *); /* called after the members above `pre` are filled */
    /* Appends the ids of plain text, which lies between special tokens. where: WF_ENCODE_*. */
    weft_status (*encode)(const wf_tokenizer *, const char *text, size_t len, unsigned where, wf_ids *out);
    /* The bytes of an ordinary token, at most t->len; writes as many as fit, returns their number. */
    size_t (*piece)(const wf_tokenizer *, const wf_vocab_token *t, char *buf, size_t cap);
} wf_text_kind;

enum {
    WF_ENCODE_FIRST = 1,   /* nothing stands before the text */
    WF_ENCODE_NO_ADDED = 2 /* added tokens were looked for before it was normalised */
};

extern const wf_text_kind wf_text_spm, wf_text_bpe, wf_text_hf;

/* wf_tokenizer_create for a kind that no GGUF names. Takes ownership of src->json, also on failure. */
weft_status wf_tokenizer_of_kind(const wf_text_kind *, const wf_vocab_src *, wf_tokenizer **out);

/* Parts of bpe.c: GPT-2's characters for bytes, the tokens of single ones, and the table of merges. */
extern const char wf_pattern_gpt2[];
void wf_byte_chars(uint16_t out[256]);
void wf_bpe_bytes(wf_tokenizer *);
weft_status wf_bpe_merges(wf_tokenizer *, const wf_vocab_src *);

/* Id of a text among the tokens that plain text can become; -1: none. */
int32_t wf_piece_find(const wf_tokenizer *, const char *text, size_t len);
/* The byte of a text like <0x0A>; -1: it is none. */
int wf_byte_token(const char *text, size_t len);
/* Byte fallback: appends the byte tokens of these bytes; the unknown token if one of them has no byte token; nothing if
 * the vocabulary has no unknown token either. */
weft_status wf_fallback(const wf_tokenizer *, const char *text, size_t len, wf_ids *out);

/* ---- merging neighbours, best pair first (merge.c) ------------------------------------------- */

typedef struct wf_symbol {
    uint32_t start, len; /* in the text; len 0: merged into the previous symbol */
    int32_t id;          /* -1: no token */
    int32_t prev, next;  /* -1: none */
} wf_symbol;

typedef struct wf_candidate {
    uint64_t key; /* priority << 32 | left symbol: the smallest comes first */
    uint32_t len; /* of both symbols when the pair was queued; the pair is stale if it has changed */
    int32_t id;
} wf_candidate;

typedef struct wf_merger {
    const wf_tokenizer *tok;
    const char *text;
    /* Do two adjacent symbols form a token? Its id and priority (lower merges first). */
    bool (*pair)(const struct wf_merger *, const wf_symbol *l, const wf_symbol *r, uint32_t *priority, int32_t *id);
    wf_symbol *sym;
    size_t n_sym, cap_sym;
    wf_candidate *heap;
    size_t n_heap, cap_heap;
    size_t n_steps; /* for wf_stop_asked */
} wf_merger;

/* The pair function of merges by rank (bpe.c). */
bool wf_bpe_pair_of(const wf_merger *, const wf_symbol *l, const wf_symbol *r, uint32_t *priority, int32_t *id);
/* Appends a symbol, which starts at the end of the last one. */
weft_status wf_merger_add(wf_merger *, size_t len, int32_t id);
/* Merges, appends the ids, and empties the merger for the next text. O(n log n) in the number of symbols. */
weft_status wf_merger_run(wf_merger *, wf_ids *out);
void wf_merger_free(wf_merger *);

#endif
