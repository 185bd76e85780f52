/* text: bytes to token ids and back, and chat templates.
 *
 * A tokenizer is read from a GGUF vocabulary or a tokenizer.json and read-only afterwards, so any thread may use it.
 * There are three kinds, one file each: spm.c (tokenizer.ggml.model = "llama", SentencePiece's BPE by score), bpe.c
 * ("gpt2", byte-level BPE by merge rank after a split by pattern) and json_model.c (what a tokenizer.json
 * describes, and "gemma4", "bert" and "t5", which are put in its words). The table of GGUF's kinds is in tokenizer.c,
 * the table of patterns in pretokenize.c. */
#ifndef WF_TEXT_H
#define WF_TEXT_H

#include "jinja/jinja.h"

/* A vocabulary, independent of the file format: vocab.c fills it from GGUF. */
enum wf_token_type {
    WF_TOKEN_NORMAL = 1,
    WF_TOKEN_UNKNOWN,
    WF_TOKEN_CONTROL,
    WF_TOKEN_USER,
    WF_TOKEN_UNUSED,
    WF_TOKEN_BYTE
};
typedef struct wf_vocab_token {
    const char *text; /* not NUL-terminated */
    uint32_t len;
    float score;
    uint8_t type;     /* enum wf_token_type */
} wf_vocab_token;
typedef struct wf_vocab_merge {
    const char *left, *right; /* right NULL: left is not two texts with a space between */
    uint32_t n_left, n_right;
} wf_vocab_merge;
wf_vocab_merge wf_merge_of(const char *text, size_t len); /* "left right", as in tokenizer.ggml.merges */
/* Where add_space_prefix puts its space: before every part of the text between special tokens, as GGUF's kind does; or,
 * as a tokenizer.json may say, before those parts, or the first one, that do not begin with a space. */
enum wf_prepend { WF_PREPEND_EVERY, WF_PREPEND_ALWAYS, WF_PREPEND_FIRST };
#define WF_NO_PAIRS 255 /* as `between`: the file makes pairs that weft does not */
typedef struct wf_vocab_src {
    const char *model; /* "llama", "gpt2" */
    const char *pre;   /* tokenizer.ggml.pre or "" */
    const wf_vocab_token *tokens;
    uint32_t n_tokens;
    const wf_vocab_merge *merges;
    uint32_t n_merges;
    int32_t bos, eos, unk, eot, eom; /* -1: none */
    const int32_t *enders;           /* more tokens that end generation */
    uint32_t n_enders;
    int8_t add_bos, add_eos, add_space_prefix, ignore_merges; /* 1, 0, or -1: the kind's default */
    enum wf_prepend prepend;         /* of "llama" */
    uint8_t between;                 /* eos between the texts of a pair; 0: one */
    bool one_type;                   /* the second one has no type of token of its own */
    struct wf_json_model *json;      /* of a tokenizer.json; internal.h */
} wf_vocab_src;

typedef struct wf_tokenizer wf_tokenizer;

struct wf_gguf;
/* Reads and checks the tokenizer.* keys of a GGUF file: ids in range, as many scores and types as tokens. Of a folder
 * reads its tokenizer.json and the files beside it. Nothing of the file is needed afterwards. */
weft_status wf_tokenizer_from_gguf(const struct wf_gguf *, wf_tokenizer **out);
/* Adds the tokenizer.* keys of a folder's vocabulary to an object that is being filled (model/files/folder.h).
 * WEFT_ERR_UNSUPPORTED: GGUF's kinds of tokenizers cannot say what this one does; some texts are tokenised by both to
 * find out. */
weft_status wf_tokenizer_to_gguf(const struct wf_gguf *folder, struct wf_gguf *out);
/* Copies all that it needs. Unknown model or pre: WEFT_ERR_UNSUPPORTED, with the known names. */
weft_status wf_tokenizer_create(const wf_vocab_src *src, wf_tokenizer **out);
/* From the text of a tokenizer.json alone. */
weft_status wf_tokenizer_from_json(const char *text, size_t len, wf_tokenizer **out);
void wf_tokenizer_destroy(wf_tokenizer *);

/* flags: enum weft_text_flags. The caller frees *ids. O(n log n) in len. Invalid UTF-8 is no error: it takes byte
 * fallback. */
weft_status wf_tokenize(const wf_tokenizer *, const char *text, size_t len, unsigned flags, int32_t **ids, size_t *n);
/* The same, but n_plain ranges of the text are plain: no control token is found in them, nor across their ends, nor any
 * other special token that occurs in the text around them, such as a marker of turns that the vocabulary holds as a
 * user-defined token. Words may cross the ends. */
weft_status wf_tokenize_around(const wf_tokenizer *, const char *text, size_t len, const wf_text_span *plain,
                               size_t n_plain, unsigned flags, int32_t **ids, size_t *n);
/* As weft_tokenize_pair. */
weft_status wf_tokenize_pair(const wf_tokenizer *, const char *first, size_t first_len, const char *text, size_t len,
                             int32_t **ids, size_t *n, size_t *second);
/* The reverse of wf_tokenize. Drops the first space if add_space_prefix added it. */
weft_status wf_detokenize(const wf_tokenizer *, const int32_t *ids, size_t n, unsigned flags, char **text, size_t *len);
/* Writes the text of one token in the middle of a text to buf (at most cap bytes). Returns its full length; 0: id out
 * of range. */
size_t wf_token_piece(const wf_tokenizer *, int32_t id, unsigned flags, char *buf, size_t cap);
bool wf_token_is_eog(const wf_tokenizer *, int32_t id);     /* eos, eot, eom, and tokens with known end-of-turn texts */
bool wf_token_is_control(const wf_tokenizer *, int32_t id);
int32_t wf_token_bos(const wf_tokenizer *);                 /* -1: none */
int32_t wf_token_eos(const wf_tokenizer *);
bool wf_token_adds_bos(const wf_tokenizer *);
/* Does plain text get a leading space? Then text generated from an empty prompt starts with a space to drop. */
bool wf_token_adds_space(const wf_tokenizer *);
uint32_t wf_token_count(const wf_tokenizer *);
/* Most bytes of text that one token stands for; 0: no limit, because bytes without a token are dropped, or a word that
 * is not known becomes one, or text becomes shorter before it is cut. */
uint32_t wf_token_longest(const wf_tokenizer *);

/* A conversation as text. Only what the template itself wrote may become control tokens. */
typedef struct wf_chat_text {
    wf_jinja_output rendered;
    bool has_bos; /* the template begins with BOS */
} wf_chat_text;
weft_status wf_chat_render(const wf_jinja_input *in, wf_chat_text *out);
void wf_chat_text_free(wf_chat_text *);

#endif
