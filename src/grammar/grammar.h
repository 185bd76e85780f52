/* grammar: which texts an answer may be, and which tokens may come next.
 *
 * A grammar is compiled from a JSON schema (Draft 2020-12, and what Draft 4 to 7 write), a regular expression, a list
 * of texts or rules in GBNF. A match reads an answer byte by byte, and says at each point whether it may end there and
 * which tokens go on. Nothing is accepted that the schema does not accept: what cannot be kept to the letter is refused
 * when the grammar is compiled (WEFT_ERR_UNSUPPORTED, with the keyword's name).
 *
 * Objects may have their keys in any order, each once. White space stands where printers of JSON write it: a blank, or
 * a line end with up to 40 blanks behind it. Whole numbers are written without a fraction, letters and digits without
 * an escape.
 *
 * A grammar and its matches are of one thread at a time: states are made as answers need them. Work of one call and
 * memory of a grammar are bounded, and so is the memory of all grammars of the process (WEFT_ERR_NOMEM).
 */
#ifndef WF_GRAMMAR_H
#define WF_GRAMMAR_H

#include "base/json.h"

typedef struct wf_grammar wf_grammar;
typedef struct wf_match wf_match;
typedef struct wf_token_trie wf_token_trie;

/* closed: objects whose schema names properties have no others, unless it says by additionalProperties that they may.
 * A model that may write any key tends to go on with them. */
weft_status wf_grammar_schema(const char *schema, size_t n, bool closed, wf_grammar **out);
weft_status wf_grammar_regex(const char *pattern, size_t n, wf_grammar **out); /* of the whole answer */
weft_status wf_grammar_choice(const wf_slice *texts, size_t n, wf_grammar **out);
weft_status wf_grammar_gbnf(const char *text, size_t n, wf_grammar **out); /* the format of llama.cpp */
/* As requests have it (weft_request_params.grammar and grammar_text); NONE: NULL. */
weft_status wf_grammar_compile(enum weft_grammar kind, const char *text, size_t n, wf_grammar **out);
void wf_grammar_free(wf_grammar *);

/* A match before the first byte. The grammar must outlive it. */
weft_status wf_match_new(wf_grammar *, wf_match **out);
void wf_match_free(wf_match *);
/* Reads n bytes. WEFT_ERR_ARG: no answer goes on so; WEFT_ERR_UNSUPPORTED: the next step takes too much work. The match
 * is of no use after either. */
weft_status wf_match_read(wf_match *, const char *bytes, size_t n);
bool wf_match_may_end(const wf_match *);
bool wf_match_over(const wf_match *); /* it may end, and nothing can follow */

/* All tokens of a vocabulary by their bytes; read-only, of any thread. A token without bytes is never allowed. */
weft_status wf_token_trie_new(const wf_slice *tokens, size_t n, wf_token_trie **out);
void wf_token_trie_free(wf_token_trie *);
/* Sets the bit of each token that may come next, and clears all others: bits has (n_tokens + 31) / 32 words. */
weft_status wf_match_mask(wf_match *, const wf_token_trie *, uint32_t *bits);

#endif
