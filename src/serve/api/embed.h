/* embed: what models without text answer: embeddings (embed.c), scores of pairs of texts (score.c). */
#ifndef WF_SERVE_EMBED_H
#define WF_SERVE_EMBED_H

#include "serve/api/internal.h"

/* Of routes. */
bool wf_embed_read(wf_job *j, const wf_json *body);
bool wf_ollama_embed_read(wf_job *j, const wf_json *body);
bool wf_score_read(wf_job *j, const wf_json *body);
bool wf_rerank_read(wf_job *j, const wf_json *body);
extern const wf_api wf_api_embeddings, wf_api_ollama_embed, wf_api_score, wf_api_rerank;

/* params.c: the prompts of a field: a string, token ids, or a list of either; cache_salt. ollama.c: an error. */
bool wf_prompts_read(const wf_served *s, const wf_json *v, const char *name, wf_params *p, wf_http_error *r);
bool wf_salt_read(const wf_job *j, const wf_json *body, wf_params *p, wf_http_error *r);
void wf_ollama_put_refusal(wf_text *out, const wf_http_error *r);

bool wf_embed_check(wf_job *j, bool scores); /* does the model give them? */
bool wf_embed_fields(wf_job *j, const wf_json *body); /* those that all these requests have */
bool wf_embed_size(wf_job *j, const char *name, wf_prompt *p); /* cuts it, or refuses one that is too long */
bool wf_embed_flag(wf_job *j, const wf_json *body, const char *name, bool *out); /* *out stays where there is none */
/* A whole number in that range; *out stays where there is none. */
bool wf_embed_whole(const wf_json *body, const char *name, double min, double max, int64_t *out, wf_http_error *r);
size_t wf_embed_tokens(const wf_job *j);

#endif
