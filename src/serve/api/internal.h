/* serve, internal: the server and its jobs. A job is one HTTP request, from its head to the last byte of its reply. The
 * HTTP server's thread (the loop) has it, but while a thread of work.c reads its body or writes its reply; the engine's
 * thread appends to its choices.
 *
 * Locking: job.lock guards what the engine's thread writes (choices, n_pending) and who is to be woken; server.lock the
 * list of jobs; metrics and the queue of bodies have their own. No thread takes a lock while it holds another, except
 * job.lock and work.lock inside server.lock at shutdown, and the innermost, that of wf_httpd_wake. */
#ifndef WF_SERVE_INTERNAL_H
#define WF_SERVE_INTERNAL_H

#include "answers/limit.h"
#include "answers/thoughts.h"
#include "base/json.h"
#include "serve/http/http.h"
#include "serve/serve.h"

#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>

typedef struct wf_server wf_server;
typedef struct wf_served wf_served;
typedef struct wf_job wf_job;

typedef struct wf_http_error {
    int status;                      /* HTTP status; 0: no error */
    const char *type, *code, *allow; /* code NULL: null; allow: of status 405, the methods that the path takes */
    char param[48], message[640]; /* param: the invalid field; "": null */
} wf_http_error;
#define WF_UNSUPPORTED 1 /* what weft cannot do: 400, which clients do not send again as they do 501, and a code */
/* Fills r and returns false, so that checks read `return wf_refuse(...)`. */
bool wf_refuse(wf_http_error *r, int status, const char *param, const char *fmt, ...) WF_PRINTF(4, 5);
void wf_refusal_put(wf_text *out, const wf_http_error *r); /* as OpenAI's JSON */

/* ---- fields.c and params.c: JSON to request ---------------------------------------------------------------------- */

typedef struct wf_prompt {
    int32_t *ids;
    size_t n, len;
    uint32_t second;   /* where the second text of a pair begins; 0: it is one */
    char *text;        /* len bytes, for echo */
    uint32_t *offsets; /* of its tokens, as wf_place_of has them; NULL: nobody asks for them */
} wf_prompt;

enum wf_given { /* what was sent, where a default does not say the same */
    WF_GIVEN_BEST_OF = 1,
    WF_GIVEN_MAX_TOKENS = 2,
    WF_GIVEN_MAX_COMPLETION = 4,
    WF_GIVEN_SEED = 8,
    WF_GIVEN_LOGPROBS = 16,
};
#define WF_GIVEN(p, field) (((p)->given & WF_GIVEN_##field) != 0)

typedef struct wf_params {
    bool chat;
    unsigned given; /* enum wf_given */
    wf_prompt *prompts;
    size_t n_prompts, n_show, n_stop, n_stop_ids, n_bias;
    /* Named like the fields of requests; their ranges are in fields.def. */
    struct weft_sampling sampling; /* all but the seed: the model's, over it the server's options, then the request's */
    int64_t n, priority, best_of, max_tokens, max_completion_tokens, min_tokens, logprobs, top_logprobs;
    int64_t seed; /* 64 bits, whatever their sign */
    char adapter[128]; /* that the request names, or loads; "": none */
    char model[128]; /* the name that was asked for, as replies have it; "": none, or one that is too long */
    bool stream, echo, ignore_eos, cache_prompt, include_stop, skip_special, chat_logprobs;
    bool include_usage, continuous_usage;
    bool tools, one_call; /* the prompt has some, so the answer may have calls; parallel_tool_calls is false */
    bool required;        /* the answer is calls alone: their grammar is that of the answer */
    bool thinking;        /* the prompt has opened thoughts */
    bool continues, told; /* the answer goes on with the last message; the request says so */
    bool closed;          /* it ends behind the last message, without a new one */
    bool rendered;        /* the prompt of a chat stays text */
    /* An embedding is wanted, or a score; as the model gives it, without length 1 or sigmoid; how it is written. */
    bool embed, embed_raw, base64;
    int64_t dimensions;   /* of it, the first ones; of scores so many of the best (top_n); 0: all */
    size_t most_tokens;   /* longer prompts are cut to that; 0: they are refused */
    bool may_only_cache;  /* max_tokens may be 0: the prompt is computed for later ones that begin so */
    wf_text echoed;       /* members that the reply has as the request had them, each behind a comma */
    const struct wf_chat_style *calls; /* how calls in the answer are recognised; NULL: they stay text */
    const struct wf_thought_kind *thoughts; /* the same for what it begins with */
    const int32_t *show; /* control tokens that mark all this */
    wf_text tool_types; /* as tool_types.h has them */
    enum weft_grammar grammar; /* what the answer has to be */
    wf_text grammar_text;
    const char *grammar_field; /* which field asked for it */
    const char *grammar_after, *grammar_unless; /* it is free up to this, or where it begins so; NULL: not at all */
    uint8_t cache_salt[32]; /* what its text, or the client's key, hashes to */
    size_t n_cache_salt;    /* bytes; 0: there is none */
    char **stop;
    int32_t *stop_ids;
    struct weft_logit_bias *bias;
} wf_params;

static inline const wf_prompt *wf_prompt_of(const wf_params *p, size_t choice)
{
    return &p->prompts[choice / (size_t)p->n];
}
#define WF_MAX_CHOICES 4096 /* n times prompts */
#define WF_MAX_QUEUE   256  /* of a model that generates text, unless an option says it */
/* A JSON object, whose levels and values are limited; wf_json_free frees it. NULL: r has the error. */
wf_json *wf_body_parse(const char *text, size_t len, wf_http_error *r);
/* A list of at most max ids of the vocabulary, malloc'ed, also after a failure. name: of the field. */
bool wf_ids_read(const wf_served *s, const wf_json *v, const char *name, size_t max, int32_t **out, size_t *n,
                 wf_http_error *r);
bool wf_is_whole(const wf_json *v); /* a number without a fraction, 5.0 and 1e30 among them */
const wf_json *wf_field(const wf_json *body, const char *name); /* one that is present and not null */
bool wf_fields_read(const wf_served *s, const wf_json *body, wf_params *p, wf_http_error *r); /* those of one value */
enum wf_where { /* requests that fields are of */
    WF_OF_CHAT = 1, WF_OF_TEXT = 2, WF_OF_TOKENS = 4, WF_OF_IDS = 8, WF_OF_MESSAGES = 16, WF_OF_RESPONSES = 32,
    WF_OF_OLLAMA = 64, WF_OF_GENERATE = 128, WF_OF_OPTIONS = 256, WF_OF_SHOW = 512, WF_OF_INFILL = 1024,
    WF_OF_EMBED = 2048, WF_OF_OLLAMA_EMBED = 4096, WF_OF_SCORE = 8192, WF_OF_RERANK = 16384
};
/* Is each field one that is read, or changes nothing? */
bool wf_fields_check(wf_server *s, const wf_json *body, enum wf_where here, wf_http_error *r);
/* Copies the members that are not `here` alone, as members behind what out has. */
bool wf_fields_pass(const wf_json *body, enum wf_where here, wf_text *out, wf_http_error *r);
bool wf_is_neutral(const wf_json *v, const char *neutral); /* one of a list, as JSON */
bool wf_fields_refuse(wf_http_error *r, const char *name, const char *why); /* 400 unsupported_parameter; false */
/* format.c: the grammar of the answer; the second when the prompt is known, which says where it begins. */
bool wf_format_read(const wf_json *body, wf_params *p, wf_http_error *r);
bool wf_format_begin(wf_params *p, wf_http_error *r);
/* A list of calls of these tools; name NULL: of any of them. */
bool wf_format_calls(const wf_json *tools, const char *name, wf_params *p, wf_http_error *r);
bool wf_params_read(wf_job *j, const wf_json *body); /* fills its params; false: its refusal is set */
bool wf_model_check(wf_job *j, const wf_json *body, wf_http_error *r); /* is it here? Keeps its name */
/* The prompt alone, of a chat of another interface: it is counted. */
bool wf_params_count(wf_job *j, const wf_json *body);
/* The prompt of a chat alone. */
bool wf_chat_read(const wf_served *s, const wf_json *body, wf_params *p, wf_http_error *r);
void wf_params_free(wf_params *p);
struct wf_answer *wf_params_answer(const wf_params *p); /* a reader of answers; NULL: no memory */
/* Is the answer taken apart (answer.h)? Else it is text. */
static inline bool wf_params_in_parts(const wf_params *p) { return p->calls || p->thoughts || p->required; }
struct weft_request_params wf_params_request(const wf_params *p, size_t choice); /* they point into p */

/* ---- adapters.c ------------------------------------------------------------------------------------------ */

/* found: its own name, for Ollama's clients put a tag behind it. */
bool wf_adapter_here(const wf_served *m, const char *name, char found[128]);
bool wf_adapters_apart(wf_served *m); /* have they other names than the model? false: the error is set */
bool wf_adapter_read(wf_job *j, const wf_json *body, wf_http_error *r); /* the field `lora` */
bool wf_adapter_take(wf_job *j, const char *name, wf_http_error *r); /* which its model names; lora has no other */
bool wf_adapter_stays(wf_job *j); /* is the request's still loaded? false: its refusal is set */
void wf_adapters_put(wf_served *m, const char *only, wf_text *out); /* as models of /v1/models; only NULL: all */
/* Of a route: */
bool wf_adapter_load_read(wf_job *j, const wf_json *body);
bool wf_adapter_load_answer(wf_job *j, wf_text *out);
bool wf_adapter_unload_read(wf_job *j, const wf_json *body);
bool wf_adapter_unload_answer(wf_job *j, wf_text *out);

/* ---- messages.c, thinking.c and chat_style.c: what the chat template gets -------------------------------- */

/* What templates differ in. */
typedef struct wf_chat_style {
    bool usable, tools;    /* there is one that can be run; it writes tools */
    bool generic;          /* it does not, and a text says the same (messages.c), */
    bool text_calls;       /* as do texts for calls and their results, which it does not write either */
    bool no_system;        /* it refuses or drops system messages: they become a part of the user's */
    bool developer;        /* it knows this role; else it gets "system" */
    bool string_arguments; /* of calls, as text; else as objects */
    bool null_content;     /* of messages with calls and without content; else "" */
    const char *thought_name; /* of the member of messages that has thoughts */
    const struct wf_thought_kind *thoughts; /* as its model writes them; NULL: they are not recognised */
    const struct wf_call_kind *calls;
    /* The variable that says how much the model thinks, NULL: none; its value for "not at all". */
    const char *effort, *no_effort;
    size_t thinks_by;      /* the number of the one that says whether it does, 0: none (thinking.c) */
    wf_shown show;         /* control tokens that mark them, those of thoughts first */
    size_t n_show_thoughts;
} wf_chat_style;
bool wf_chat_style_check(const wf_server *s); /* of the options for parsers; false: the error is set */
void wf_chat_style_find(wf_served *s);        /* tries the template of the model, which is loaded */
/* Does the template write something else with another JSON value of this variable? */
bool wf_chat_reads(const wf_served *s, const char *variable, const char *one, const char *other);
void wf_thinking_find(wf_served *s); /* which variables say that */
/* Adds what a request says of thoughts to kwargs, but for what own, chat_template_kwargs, has. */
bool wf_thinking_read(const wf_served *s, const wf_json *body, const wf_json *own, wf_text *kwargs, wf_http_error *r);
/* The messages as JSON, and p->continues; *bytes: of what is certain to become tokens. Free out->data, also after a
 * failure. */
bool wf_messages_read(const wf_json *body, const wf_chat_style *style, wf_params *p, wf_text *out, size_t *bytes,
                      wf_http_error *r);
/* The same, before them, for tools and what goes with them; out stays empty if the model shall not know any. */
bool wf_tools_read(const wf_json *body, const wf_chat_style *style, wf_params *p, wf_text *out, wf_http_error *r);

/* What other interfaces have in other words, as chats of ours have it: one of tool_calls, one of tools, and the choice
 * of a function. id, arguments, parameters: the names of these there. */
void wf_chat_put_call(const wf_json *call, const char *id, const char *arguments, wf_text *out);
void wf_chat_put_tool(const wf_json *tool, const char *parameters, wf_text *out);
void wf_chat_put_choice(const wf_json *choice, wf_text *out);
bool wf_has_type(const wf_json *v, const char *type); /* the member `type` of an object */

/* ---- tokens.c: /tokenize, /detokenize, /apply-template --------------------------------------------------- */

typedef struct wf_token_list { /* what /tokenize sends */
    int32_t *ids;
    size_t n, at; /* at: the next one to write */
    bool pieces, strings; /* tokens are objects with their texts; a list of their texts follows */
    enum { WF_LIST_HEAD, WF_LIST_TOKENS, WF_LIST_STRINGS, WF_LIST_END } next;
} wf_token_list;
bool wf_tokenize_read(wf_job *j, const wf_json *body);
enum wf_httpd_more wf_tokenize_fill(void *job, wf_slice *part); /* a stream of wf_httpd_reply */
bool wf_detokenize_read(wf_job *j, const wf_json *body);
bool wf_detokenize_answer(wf_job *j, wf_text *text);
bool wf_template_read(wf_job *j, const wf_json *body); /* /apply-template: what a chat is as text */

/* ---- job.c: one HTTP request ----------------------------------------------------------------------------- */

typedef struct wf_token {
    int32_t id;
    float logprob;
    size_t text_end, top; /* where its text ends in the choice's; index of its first alternative */
    uint32_t n_top;
    bool prompt; /* a token of the prompt */
} wf_token;

typedef struct wf_place { /* in a text that grows, for text_offset */
    const wf_prompt *prompt; /* with offsets: the next token of it is n_prompt */
    size_t n_prompt, n;     /* n: characters before this place */
    char open[4];           /* bytes of the one that has begun */
    unsigned n_open;
    bool drop_space; /* the tokenizer's own comes next */
} wf_place;

enum wf_block_kind { WF_BLOCK_NONE, WF_BLOCK_TEXT, WF_BLOCK_THOUGHT, WF_BLOCK_CALL };
typedef struct wf_block { /* a part of an answer, up to where one of another kind comes */
    enum wf_block_kind kind;
    unsigned index;
    wf_slice text, id, name; /* text: of a call, its arguments */
} wf_block;
typedef struct wf_blocks {
    wf_block open;          /* text or thoughts that may go on; kind NONE: nothing does, and index is the next one's */
    wf_text text, thoughts; /* of it, or of all, where they are not kept apart */
    wf_text done;           /* JSON of those that have ended, or of calls alone, with commas between */
    unsigned n_events;      /* numbered, in a stream that has them so */
} wf_blocks;

typedef struct wf_choice {
    wf_job *job;
    uint32_t index;
    struct weft_request *req; /* NULL: not submitted */
    /* under job.lock; append-only */
    char *text;
    wf_token *tokens;
    struct weft_logprob *top;
    size_t n_text, cap_text, n_tokens, cap_tokens, n_top, cap_top;
    float *embedding; /* [n_embedding], or scores */
    uint32_t n_embedding;
    bool done;
    struct weft_event end; /* the DONE event; message is below */
    char message[256];
    uint64_t last_ns; /* time of the previous token */
    /* HTTP thread only: what has been written, and the state of the output */
    size_t sent_text, sent_tokens, generated, cached;
    size_t reasoning, counted; /* tokens of thoughts; bytes of the text that were looked at for that */
    wf_place place; /* of the next token */
    size_t n_tail;  /* bytes at the end of the prompt that are no whole character: echo has them with the first text */
    bool opened, ended;
    struct wf_answer *answer, *counter; /* of one that is taken apart; of its thoughts */
    unsigned n_calls;       /* sent */
    wf_blocks blocks;
} wf_choice;

enum wf_abort { WF_ABORT_NONE, WF_ABORT_GONE, WF_ABORT_TIMEOUT, WF_ABORT_SHUTDOWN };

struct wf_job {
    wf_server *server;
    wf_served *_Atomic served; /* the model that it is for, which stays as long; NULL: none, or not yet */
    wf_job *prev, *next;       /* in the server's list, if `listed` */
    wf_httpd_request *request; /* while `attached` */
    const struct wf_route *route;
    char id[33], method[12], path[512]; /* cut, if they are longer than any that a route has */
    uint64_t client, start_ns;          /* client: who asks, for the engine */
    int64_t created;
    wf_text body, cors; /* cors: fields of its reply */
    size_t discarded;
    wf_served *awaits; /* what is to be loaded before its body is read; waits: it is in the list there */
    wf_job *next_waiting;
    bool waits;
    size_t body_held, reply_held; /* of the server's budgets; reply_held under lock */
    wf_http_error refusal; /* error found in the head; sent after the body has arrived */
    wf_job *next_body;     /* under work.lock: the next one that waits to be read */
    unsigned turn; /* of its client among the large bodies that wait: they come in the order of turns */
    bool listed, read;     /* read: the body has been, or need not be any more */
    /* A thread submits its sequences, which are many or have a grammar to compile, or has just done so. */
    bool submits;
    bool slow;             /* a small body that takes as long to read as large ones may */
    uint64_t last_ns;      /* when reading it ends, since the server does; 0: it does not */
    uint64_t until_ns;     /* when reading a small one becomes slow; 0: never */
    bool admitted;         /* shutdown waits for it */
    atomic_uint places;    /* its sequences that run or wait */
    wf_params params;
    wf_token_list tokens;
    wf_text out;             /* the whole reply, if `written`; of a stream the part that is sent now */
    size_t first_choice;     /* of a stream: the one whose turn it is */
    uint64_t sent_ns;        /* of a stream: when it had something to send */
    bool written;
    bool other_model;        /* the client wants one of another name, which --allow takes */
    bool close, running;     /* no request can follow on its connection; submitted */
    int status;              /* HTTP status of the response, for the log */

    pthread_mutex_t lock;
    wf_choice *choices;
    size_t n_choices, n_pending; /* pending: without DONE so far */
    bool attached, working;      /* its request is there; a thread of work.c has it, or will */
    bool sleeps;                 /* to be woken at the next event */
    bool lost, crowded; /* out of memory for text; no more memory for replies is allowed */
    enum wf_abort abort;
};

void wf_random_hex(char out[33]);
wf_job *wf_job_create(wf_server *s, wf_httpd_request *r);
/* Reads the body as its route does, unless it was aborted; frees it and may set refusal. A small one that is slow is
 * left as it is, with until_ns: it is to be read among the large ones. */
void wf_job_read(wf_job *j);
void wf_job_wake(wf_job *j); /* the loop goes on with it, if it sleeps */
void wf_job_worked(wf_job *j); /* a thread of work.c is done with it: it continues on the loop */
void wf_job_watch(wf_job *j);  /* from now on it ends with its client and at its timeout, and shutdown waits for it */
bool wf_job_submit(wf_job *j); /* all choices; false: refusal is set, and nothing runs */
void wf_job_abort(wf_job *j, enum wf_abort why); /* cancels its sequences; the first reason is kept */
void wf_job_detach(wf_job *j); /* the request has ended: it is freed when the engine and work.c are done with it */
bool wf_job_failed(wf_job *j, wf_http_error *r); /* why the whole job failed; false: it did not */

/* ---- logprobs.c ------------------------------------------------------------------------------------------ */

bool wf_prompt_offsets(const wf_served *s, wf_prompt *p); /* fills them; false: no memory */
wf_place wf_place_begin(const wf_job *j, uint32_t choice); /* of its first token */
/* place: of the first one of these tokens; then behind the last one. */
void wf_reply_logprobs(const wf_job *j, const wf_token *tokens, size_t n, const struct weft_logprob *top,
                       wf_place *place, wf_text *out);

/* ---- reply.c and sse.c: events to JSON ------------------------------------------------------------------- */

void wf_reply_write(wf_job *j); /* the whole reply to `out`, or sets refusal: there is no room for it */
bool wf_reply_has_room(wf_job *j, size_t made_of); /* also for what has been written? false: refusal is set */
const char *wf_reply_model(const wf_job *j); /* the name of the model there */
void wf_reply_usage(const wf_job *j, wf_text *out);
void wf_reply_head(const wf_job *j, bool chunk, wf_text *out); /* with an opening brace, and more to come */
/* The id of a call; of one without, a new one, in `made`. */
wf_slice wf_reply_call_id(const wf_job *j, wf_slice id, char made[40]);
/* Would the model have gone on? A stop text, too, may stand in the middle of what it wants to say. */
bool wf_reply_is_cut(const struct weft_event *end);
const char *wf_reply_finish_of(enum weft_finish f, unsigned n_calls);
enum wf_httpd_more wf_sse_fill(void *job, wf_slice *part); /* the stream of a wf_httpd_reply */

/* ---- blocks.c, and interfaces: sse.c, anthropic.c, responses.c, ollama.c, llama.c ------------------------- */

/* An API over the one way of requests: what it is sent becomes a request of /v1/chat/completions before anything
 * is checked, and its replies are written from the parts of an answer. All but OpenAI's have one choice. What writes a
 * stream appends to job.out. */
typedef struct wf_api {
    /* Members of the body as ours has them, or the whole reply (job.written); false: the job's refusal is set. NULL: it
     * is ours. */
    bool (*translate)(wf_job *j, const wf_json *body, wf_text *out);
    void (*put_refusal)(wf_text *out, const wf_http_error *r);
    bool apart;  /* blocks are written as they come, one by one; else texts and thoughts together */
    bool keeps;  /* the end of a stream has all of it once more */
    void (*put_block)(const wf_choice *c, const wf_block *b, wf_text *out); /* a whole one, apart; or a call */
    void (*put_reply)(const wf_choice *c, wf_text *out); /* whole, around c->blocks; NULL: it is OpenAI's */
    void (*write)(wf_job *j); /* the whole reply, of what has no answers; NULL: of what has */
    const char *stream_type, *silence; /* its Content-Type; what it has where nothing comes for long */
    void (*begin)(wf_choice *c);       /* as soon as it is asked for; NULL: nothing */
    void (*block_begin)(wf_choice *c, const wf_block *b);
    void (*delta)(wf_choice *c, const wf_block *b, wf_slice text);
    void (*block_end)(wf_choice *c, const wf_block *b);
    void (*end)(wf_choice *c, const wf_http_error *failed); /* failed NULL: it did not */
} wf_api;
/* Takes some more of the answer's text, which goes to c->blocks and, of a stream, to its writer; last: there is no
 * more. false: no memory. */
bool wf_blocks_feed(wf_choice *c, const char *text, size_t len, bool last);
/* Which of the tokens, whose texts come next, are thoughts: c->reasoning grows. */
void wf_blocks_count(wf_choice *c, const char *text, size_t len, const wf_token *tokens, size_t n);
void wf_blocks_free(wf_choice *c);
#define WF_SSE_TYPE "text/event-stream; charset=utf-8"
extern const wf_api wf_api_openai;
extern const wf_api wf_api_anthropic, wf_api_responses, wf_api_ollama, wf_api_infill;
bool wf_anthropic_count(wf_job *j, wf_text *out); /* of a route, as all these */
bool wf_ollama_tags(wf_job *j, wf_text *out);
bool wf_ollama_ps(wf_job *j, wf_text *out);
/* Does it ask for no more than to load the model, or to unload it? */
bool wf_ollama_loads(const wf_job *j, const wf_json *body);
bool wf_ollama_unloads(const wf_job *j, const wf_json *body);
bool wf_ollama_show_read(wf_job *j, const wf_json *body);
bool wf_ollama_show(wf_job *j, wf_text *out);
bool wf_llama_props(wf_job *j, wf_text *out);
/* The field `prompt` for what stands between two texts, as token ids; files: others, with filename and text; begun: the
 * beginning of the answer. Each may be NULL. false: the job's refusal is set. */
bool wf_infill_put(wf_job *j, const wf_json *prefix, const wf_json *suffix, const wf_json *files, const wf_json *begun,
                   wf_text *out);

/* ---- routes.c -------------------------------------------------------------------------------------------- */

typedef struct wf_route {
    const char *path, *method;
    bool prefix, open, early; /* more may follow the path; works without an API key, and before the model is loaded */
    bool any_model, file_only; /* its body needs no model that is loaded; only that its file is open */
    bool chat;                /* of routes that generate */
    const struct wf_api *api; /* of routes that generate */
    /* Takes from the body what the rest needs; false: the job's refusal is set. NULL: there is no body. */
    bool (*read)(wf_job *j, const wf_json *body);
    bool (*answer)(wf_job *j, wf_text *text); /* false: the job's refusal is set */
    enum wf_httpd_more (*stream)(void *job, wf_slice *part); /* JSON; neither this nor answer: it generates */
    const char *content_type;                                /* NULL: JSON */
    void (*fields)(const wf_job *j, wf_text *fields);        /* adds some to the reply's; NULL: none */
} wf_route;
#define WF_MAX_ROUTES     48 /* and those of no route */
#define WF_STATUS_CLASSES 6
const wf_route *wf_route_at(size_t i); /* NULL behind the last one */
const wf_route *wf_route_find(const char *path, const char *method, wf_http_error *r); /* NULL: r has 404 or 405 */

bool wf_webui_print(wf_job *j, wf_text *text); /* of a route */
void wf_webui_fields(const wf_job *j, wf_text *fields);

/* ---- metrics.c ------------------------------------------------------------------------------------------- */

enum wf_hist {
    WF_HIST_PROMPT, WF_HIST_GENERATION, WF_HIST_TTFT, WF_HIST_ITL, WF_HIST_E2E, WF_HIST_QUEUE, WF_HIST_PREFILL,
    WF_HIST_DECODE, WF_N_HISTS
};
#define WF_HIST_BUCKETS 20
typedef struct wf_metrics {
    pthread_mutex_t lock;
    uint64_t counts[WF_N_HISTS][WF_HIST_BUCKETS + 1];
    double sums[WF_N_HISTS];
    uint64_t prompt_tokens, generation_tokens, finished[4]; /* stop, length, abort, error */
    uint64_t started, corrupted; /* sequences that the engine accepted; of these with a logit that is not finite */
} wf_metrics;
void wf_metrics_http(wf_server *s, const wf_route *route, int status); /* a request has ended */
void wf_metrics_started(wf_metrics *m);
void wf_metrics_token(wf_metrics *m, double seconds, bool first);
/* first: the first choice of its prompt; a prompt counts once. */
void wf_metrics_done(wf_metrics *m, const struct weft_event *end, double e2e, bool first);
void wf_metrics_print(wf_server *s, wf_text *out);

/* ---- work.c: bodies and large replies ------------------------------------------------------------------- */

#define WF_WORKERS    4
#define WF_SMALL_BODY 32768 /* takes a few milliseconds to read, as a rule */
#define WF_SMALL_NS   5000000
#define WF_SMALL_REPLY 65536 /* what it is made of; written on the loop */
typedef struct wf_work_thread {
    struct wf_work *work;
    pthread_t thread;
    size_t most; /* bytes of bodies that it takes */
} wf_work_thread;
typedef struct wf_work {
    pthread_mutex_t lock;
    pthread_cond_t more, more_small; /* a body came, or ending was set */
    wf_job *first; /* the large ones, and replies, by turns */
    unsigned n_waiting;
    wf_job *small; /* bodies that are read by threads of their own */
    atomic_uint_fast64_t n_read, n_given_up;
    bool ending;
    wf_work_thread threads[WF_WORKERS];
    unsigned n_threads;
} wf_work;
bool wf_work_start(wf_server *s);
void wf_work_stop(wf_server *s); /* after the bodies that wait. Allowed if it was not started */
/* Has a thread read the body (wf_job_read), unless there are too many large ones (refusal is set); a body that has been
 * read: has the reply written (wf_reply_write). Then wf_job_worked. */
void wf_work_add(wf_job *j);
void wf_work_remove(wf_job *j); /* if it waits, it does so no longer */
unsigned wf_work_waiting(wf_server *s);

/* ---- budget.c -------------------------------------------------------------------------------------------- */

#define WF_CLIENT_SLOTS 256 /* clients whose numbers end alike share what is counted by client */
typedef struct wf_budget {
    atomic_size_t used, of[WF_CLIENT_SLOTS]; /* by all, by client */
    size_t limit; /* of one client; all together may take twice as much (places.h) */
} wf_budget;
/* A job holds `bytes` from now on, instead of what it held; false: there is no room, nothing changes, and refusal is
 * set. */
bool wf_budget_body(wf_job *j, size_t bytes);
bool wf_budget_prompts(wf_job *j); /* in place of the body: what has been read from it */
/* The same for the reply. Call it with job.lock held; it sets no refusal. */
bool wf_budget_reply(wf_job *j, size_t bytes);
void wf_budget_refuse_reply(const wf_job *j, wf_http_error *r);
void wf_budget_end(wf_job *j);

/* ---- client.c -------------------------------------------------------------------------------------------- */

typedef struct wf_network { /* IPv6 addresses, among them those of IPv4, that begin alike */
    unsigned char address[16];
    unsigned bits;
} wf_network;
bool wf_proxies_load(wf_server *s); /* --trusted-proxy; false: the error is set */
/* A number for who sends this request: its API key, or its address if no keys are needed. */
uint64_t wf_client_of(const wf_server *s, const wf_httpd_request *r);

#include "serve/api/served.h" /* the models; it needs what is above */

/* ---- request.c, keys.c, server.c ------------------------------------------------------------------------- */

/* What nobody has to tune: server.c says why it is so much. */
typedef struct wf_limits {
    uint64_t header_timeout_s; /* until the head of a first request has arrived */
    uint64_t read_timeout_s;   /* until any head has, and until its body has */
    uint64_t send_timeout_s;   /* that a client may take nothing of its reply */
    uint64_t beat_s;           /* that a stream is silent */
    uint64_t max_body;         /* bytes of one */
    uint64_t bodies, replies;  /* bytes of one client's bodies and prompts, and of its replies; of all twice as many */
    uint64_t models;           /* bytes of all that are loaded; 0: as the device has */
    uint64_t connections;      /* most with a request */
} wf_limits;

struct wf_server {
    wf_serve_params p;
    wf_limits limits;
    wf_httpd *http;
    bool listening; /* clients can connect */
    char unknown[32][48]; /* names of unknown fields that were logged; under lock */
    int64_t started;
    char **keys;
    wf_network *proxies;
    size_t n_unknown, n_keys, n_proxies;
    atomic_uint_fast64_t requests[WF_MAX_ROUTES][WF_STATUS_CLASSES]; /* by route, and hundreds of the status */
    wf_models models;
    wf_work work;
    wf_budget bodies, replies;
    atomic_bool loaded, stopping;
    atomic_uint in_flight; /* sequences submitted and not done */
    pthread_mutex_t lock;
    wf_job *jobs; /* those that are watched */
};

extern const wf_httpd_calls wf_request_calls; /* what the HTTP server calls; their user is the wf_server */
bool wf_keys_load(wf_server *s);
/* The number, from 1 on, of the key in Authorization or X-Api-Key; 0: none fits. */
size_t wf_key_find(const wf_server *s, const wf_httpd_request *r);
/* Does the option --allow have the word `what`, or what=value, or what=*? */
bool wf_allows(const wf_server *s, const char *what, const char *value);
void wf_keys_free(wf_server *s);
void wf_log_request(wf_job *j);
void wf_say(const wf_server *s, const char *fmt, ...) WF_PRINTF(2, 3); /* a line of the log, unless it is quiet */

#endif
