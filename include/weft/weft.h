/* weft: portable LLM inference in C on OpenCL and on plain CPUs.
 *
 * This header is the whole engine API. Measuring and self-test live in <weft/tune.h>.
 *
 * Conventions
 * - Every function that can fail returns enum weft_status; weft_last_error() then gives a message for
 *   people, kept per thread until the next failing call of that thread.
 * - Handles are opaque. Parameters come in structs whose zero value is the default, so
 *   `(struct weft_engine_params){.device = "cpu"}` is complete.
 * - Strings are UTF-8. Strings handed out live as long as the object they came from.
 * - Token ids are int32_t, as GGUF stores them.
 *
 * Example: load the built-in demo model and write a story. tests/ compiles and runs these lines.
 *
 * @example
 *     #include <stdio.h>
 *     #include <weft/weft.h>
 *
 *     static void on_event(void *user, const struct weft_event *ev)
 *     {
 *         (void)user;
 *         if (ev->kind == WEFT_EVENT_TOKEN) fwrite(ev->text, 1, ev->text_len, stdout);
 *         if (ev->status) fprintf(stderr, "%s\n", ev->message);
 *     }
 *
 *     int main(void)
 *     {
 *         struct weft_model *model = NULL;
 *         struct weft_engine *engine = NULL;
 *         struct weft_request *req = NULL;
 *         if (weft_model_open(&(struct weft_model_params){0}, &model)) goto fail;
 *         if (weft_engine_open(model, &(struct weft_engine_params){.device = "cpu"}, &engine)) goto fail;
 *         struct weft_request_params rp = {.prompt = "One day", .max_tokens = 40, .on_event = on_event};
 *         if (weft_submit(engine, &rp, &req)) goto fail;
 *         weft_wait(req, 0);
 *         weft_request_free(req);
 *         weft_engine_close(engine);
 *         weft_model_close(model);
 *         return 0;
 *     fail:
 *         fprintf(stderr, "%s\n", weft_last_error());
 *         return 1;
 *     }
 * @endexample
 */
#ifndef WEFT_WEFT_H
#define WEFT_WEFT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define WEFT_API __attribute__((visibility("default")))
#else
#define WEFT_API
#endif

enum weft_status {
    WEFT_OK = 0,
    WEFT_ERR_ARG,         /* a parameter is out of range, contradicts another, or names a file that is no good for it */
    WEFT_ERR_NOMEM,       /* host or device memory does not suffice; the message has the sizes */
    WEFT_ERR_IO,          /* a file cannot be opened, read or mapped */
    WEFT_ERR_FORMAT,      /* a model file is malformed */
    WEFT_ERR_UNSUPPORTED, /* a well-formed model or request that weft cannot serve (yet) */
    WEFT_ERR_NODEVICE,    /* the device asked for does not exist or cannot be used */
    WEFT_ERR_DEVICE,      /* a device failed while in use */
    WEFT_ERR_TIMEOUT,     /* a device or a wait did not end in its time */
    WEFT_ERR_FULL,        /* context or queue is full */
    WEFT_ERR_CANCELLED,
    WEFT_ERR_INTERNAL,    /* a bug in weft */
};

/* Name of a status, e.g. "WEFT_ERR_IO". Never NULL. */
WEFT_API const char *weft_status_name(enum weft_status s);
/* Message of this thread's last failing call; "" when there was none. */
WEFT_API const char *weft_last_error(void);
/* Semantic version, "0.1.0". */
WEFT_API const char *weft_version(void);

/* --- log ------------------------------------------------------------------------------------- */

enum weft_log_level { WEFT_LOG_ERROR, WEFT_LOG_WARN, WEFT_LOG_INFO, WEFT_LOG_DEBUG };
typedef void (*weft_log_fn)(void *user, enum weft_log_level level, const char *line);
/* Sets the process-wide sink for messages of at most `level`; fn NULL: stderr. Default: stderr,
 * WEFT_LOG_WARN. The sink may be called from any thread. Call before anything else. */
WEFT_API void weft_log_to(weft_log_fn fn, void *user, enum weft_log_level level);

/* Called during long work with a fraction in [0, 1]; `what` is e.g. "load" or "compile". */
typedef void (*weft_progress_fn)(void *user, const char *what, double fraction);

/* --- devices --------------------------------------------------------------------------------- */

enum weft_device_type { WEFT_DEVICE_CPU, WEFT_DEVICE_GPU, WEFT_DEVICE_OTHER };

struct weft_device_info {
    char id[24];           /* what --device takes: "cpu", "opencl:0.1" */
    char name[128];        /* "NVIDIA H200" */
    char platform[96];     /* "NVIDIA CUDA", "Portable Computing Language", "weft cpu" */
    char driver[64];
    char version[96];      /* "OpenCL 3.0 CUDA" */
    enum weft_device_type type;
    uint64_t memory;       /* bytes */
    uint64_t max_alloc;    /* largest single allocation, bytes */
    uint32_t local_memory; /* bytes a work-group */
    uint32_t compute_units;
    uint32_t max_group;    /* work-items a work-group */
    char tiers[64];        /* capability tiers, e.g. "base simd matrix" */
    char features[160];    /* what the kernels can use: extensions, SIMD sets */
};
/* Fills at most `cap` entries and returns how many devices exist. Thread-safe. */
WEFT_API size_t weft_devices(struct weft_device_info *out, size_t cap);

/* --- model: hyperparameters and vocabulary, no device ------------------------------------------ */

struct weft_model;

struct weft_model_params {
    const char *path;        /* GGUF file; NULL: the built-in demo model */
    bool vocab_only;         /* accept a file without tensors; engines cannot be opened on it */
};

struct weft_model_info {
    const char *path, *name, *arch, *vocab_type, *pre_tokenizer;
    const char *chat_template;     /* the file's template text, or NULL */
    const char *chat_name;         /* recognised template name, or NULL */
    uint32_t gguf_version, n_layer, n_head, n_kv_head, head_dim, hidden_size, intermediate_size, n_vocab, context;
    uint32_t rope_dim;
    float rope_base, rope_scale, norm_eps;
    uint64_t n_params, file_bytes, weight_bytes;
    size_t n_tensors, n_meta;
    int32_t bos, eos;              /* -1: none */
};

struct weft_tensor_info {
    char name[72];
    const char *dtype;
    uint64_t dims[4];
    uint32_t n_dims;
    uint64_t bytes, offset;
};

/* Opens and checks a model file. A model may be shared by threads and engines once open; it must
 * outlive its engines. */
WEFT_API enum weft_status weft_model_open(const struct weft_model_params *p, struct weft_model **out);
WEFT_API void weft_model_close(struct weft_model *m); /* NULL is allowed */
WEFT_API const struct weft_model_info *weft_model_info(const struct weft_model *m);
/* i < info->n_tensors */
WEFT_API void weft_model_tensor(const struct weft_model *m, size_t i, struct weft_tensor_info *out);
/* Metadata entry i < info->n_meta as text, truncated to the buffers; long arrays are abbreviated. */
WEFT_API void weft_model_meta(const struct weft_model *m, size_t i, char *key, size_t key_cap, char *value, size_t value_cap);
struct weft_engine_params;
struct weft_budget {
    uint64_t weights, activations, kv; /* bytes; the second of the largest step */
    uint32_t context, max_batched_tokens, n_seqs; /* tokens a sequence, rows of the largest step, sequences that run together */
    uint64_t kv_bytes_per_token, kv_tokens;      /* bytes of K and V of one token; tokens that the KV cache holds, */
    uint32_t contexts;                 /* which are so many whole contexts, in pages; */
    uint32_t steady_tokens;               /* and while steps have at most so many rows, where the cache shares a buffer */
    uint64_t steady_kv_tokens;             /* with activations, so many tokens */
};
/* What the memory of an engine with these parameters goes to, on a device whose buffers are large enough to share. Steps
 * have 512 rows where they say nothing, though the device may have another default. WEFT_ERR_ARG for a file that holds a
 * vocabulary only, and for a KV cache too small for one context. */
WEFT_API enum weft_status weft_model_budget(const struct weft_model *m, const struct weft_engine_params *p, struct weft_budget *out);
/* Bytes a device needs for this model with a context of that many tokens for each of n sequences. */
WEFT_API uint64_t weft_model_memory(const struct weft_model *m, uint32_t context, uint32_t n_seqs);

/* --- text ---------------------------------------------------------------------------------------- */

enum weft_text_flags {
    WEFT_TEXT_DEFAULT = 0,
    WEFT_TEXT_NO_ADD_SPECIAL = 1,   /* tokenize: no BOS/EOS even if the model asks for them */
    WEFT_TEXT_NO_PARSE_SPECIAL = 2, /* tokenize: control tokens in the text are plain text */
    WEFT_TEXT_HIDE_SPECIAL = 4,     /* detokenize: control tokens give no text */
};

/* Tokenises len bytes. *ids is malloc'ed (free with weft_free), *n its length. Thread-safe. */
WEFT_API enum weft_status weft_tokenize(const struct weft_model *m, const char *text, size_t len,
                                        unsigned flags, int32_t **ids, size_t *n);
/* The reverse; *text is malloc'ed and NUL-terminated, *len without the NUL. */
WEFT_API enum weft_status weft_detokenize(const struct weft_model *m, const int32_t *ids, size_t n,
                                          unsigned flags, char **text, size_t *len);
/* Text of one token in the middle of a text: at most cap bytes to buf, no NUL; returns the length it needs. A
 * piece may be part of a UTF-8 character. An id that is not in the vocabulary gives 0. */
WEFT_API size_t weft_token_text(const struct weft_model *m, int32_t id, unsigned flags, char *buf, size_t cap);
struct weft_message {
    const char *role;    /* "system", "user", "assistant" */
    const char *content;
};
/* Renders a conversation with the named template, or with the model's own when name is NULL;
 * ends with the opening of the assistant's turn. Tokenise the result with
 * WEFT_TEXT_NO_ADD_SPECIAL only if *has_bos says that the text already opens with BOS. */
WEFT_API enum weft_status weft_chat_render(const struct weft_model *m, const char *name,
                                           const struct weft_message *msgs, size_t n, char **text,
                                           bool *has_bos);
/* Template names for help texts, NULL-terminated. */
WEFT_API const char *const *weft_chat_names(void);
WEFT_API void weft_free(void *p);

/* --- engine ---------------------------------------------------------------------------------------- */

struct weft_engine;

struct weft_engine_params {
    const char *device;      /* auto (NULL), cpu, gpu, opencl:P.D, or part of a name */
    const char *tier;        /* base, fp16 (on CPUs simd), subgroup, matrix: at most this; NULL: the best */
    uint32_t context;        /* tokens a sequence; 0: the model's, at most 4096 */
    uint32_t n_seqs;         /* sequences that run together; 0: 1 */
    uint32_t max_batched_tokens; /* rows a step, the dense batch; 0: as `weft tune` found, else 1024 on a GPU and 512
                                elsewhere; of a policy that takes prompts whole at least the context */
    uint32_t tile;           /* rows of a step are a multiple of this where prefill can be cut; 0: 128 on a GPU, else 1 */
    const char *policy;      /* nanoflow (NULL), sarathi, orca or request: see src/sched/sched.h */
    uint32_t kv_seqs;        /* the KV cache holds this many whole contexts; 0: n_seqs, so that nobody waits for it */
    uint64_t kv_memory;      /* bytes of KV cache, at least one context; 0: as kv_seqs says */
    bool no_prefix;          /* equal starts of texts share no KV pages */
    uint32_t threads;        /* CPU workers of each queue; 0: all cores */
    uint32_t page_tokens;    /* tokens of a KV page; 0: 16 */
    uint64_t max_alloc;      /* pretend that no device buffer can be larger; 0: the device's limit */
    uint32_t watchdog_ms;    /* a step longer than this is a lost device; 0: 60000 */
    uint32_t nano_batches;   /* 2 or more: that many parts of a step, whose attention runs beside the others' GEMMs on
                                a second queue; 0 or 1: one after the other */
    const char *plan;        /* file written by dump_plan and perhaps edited; NULL: sequential */
    const char *dump_plan;   /* write the plan here */
    const char *calibration; /* file of weft calibrate; NULL: the model's path + ".calibration", where there is one */
    const char *attention_windows; /* file that says how many of the last keys each KV head of each layer sees (sparse attention;
                                the README shows one); NULL: all */
    bool deterministic;      /* a request gives the same bits whatever else is in the batch: kernels of one kind for all
                                numbers of rows, which costs speed */
    const char *force;       /* kernel variants by op for tests: "gemm=ref,attention=ref" */
    const char *tuned;       /* kernel choices from this file (weft tune); "none": built-in ones; NULL: the
                                device's own file, if there is one */
    uint64_t shuffle_pages;  /* hand KV pages out in an order drawn from this seed; 0: in order */
    bool poison;             /* tests: fill KV pages with NaN before use */
    bool check_calls;        /* debugging: check operands and shapes of each call of each step, not only at start-up */
    bool no_kernel_cache;    /* neither read nor write compiled kernels */
    bool profile;            /* the device notes times, which may cost some: weft_stats.busy_ns and after */
    const char *timeline;    /* write a timeline of the engine's steps here, as Chrome trace JSON (Perfetto) */
    weft_progress_fn on_progress; /* not called any more when weft_engine_open has returned */
    void *user;
};

/* Loads the weights onto a device, takes all memory the engine will ever need, and starts its thread. Parameters, and
 * the files that they name, are looked at before: the first report of "load" says that they are good. */
WEFT_API enum weft_status weft_engine_open(const struct weft_model *m, const struct weft_engine_params *p,
                                           struct weft_engine **out);
/* Cancels what runs, delivers the last events and frees. Free every request first. NULL is allowed. */
WEFT_API void weft_engine_close(struct weft_engine *e);
WEFT_API const struct weft_device_info *weft_engine_device(const struct weft_engine *e);
/* Tokens that one sequence can have, prompt included. */
WEFT_API uint32_t weft_engine_context(const struct weft_engine *e);
/* Rows that a step can have. */
WEFT_API uint32_t weft_engine_max_batched_tokens(const struct weft_engine *e);

/* --- requests: any thread may submit, cancel and wait -------------------------------------------- */

struct weft_request;

/* Added to the logit of one token before it is chosen; -100 or less all but forbids it. */
struct weft_logit_bias {
    int32_t id;
    float bias;
};

struct weft_sampling {
    float temperature;     /* 0: greedy (the default) */
    int32_t top_k;         /* 0: off */
    float top_p;           /* 0 or 1: off */
    float min_p;           /* 0: off */
    float repeat_penalty;  /* 0 or 1: off; over the last 64 tokens, as llama.cpp */
    uint64_t seed;         /* draws depend on this and on the position only */
    bool repeat_all;       /* repeat_penalty looks at the whole sequence, prompt included, as vLLM */
    float presence_penalty;  /* subtracted from the logits of tokens generated before */
    float frequency_penalty; /* the same, for each time */
};

enum weft_event_kind {
    WEFT_EVENT_TOKEN, /* id and text; the text may be empty while a UTF-8 character or what may become a stop
                         text is incomplete; id -1: only text that was held back, at the end */
    WEFT_EVENT_PROMPT,/* id of a prompt token and, but for the first, its logprob; when prompt_logprobs is set */
    WEFT_EVENT_LOGITS,/* logits of one prompt position, when want_logits is set */
    WEFT_EVENT_DONE,  /* always the last one; finish or status say why */
};
enum weft_finish { WEFT_FINISH_NONE, WEFT_FINISH_STOP, WEFT_FINISH_LENGTH, WEFT_FINISH_CONTEXT, WEFT_FINISH_CANCEL, WEFT_FINISH_ERROR };

struct weft_logprob {
    int32_t id;
    float logprob;
};
#define WEFT_MAX_TOP 20 /* most alternatives a token */

struct weft_event {
    enum weft_event_kind kind;
    int32_t id;
    const char *text;      /* valid during the call only, not NUL-terminated */
    size_t text_len;
    uint32_t position;     /* of this token, or of these logits */
    const float *logits;   /* [n_vocab], during the call only */
    float logprob;         /* of id, by the model alone: before penalties, biases and temperature; when logprobs is set */
    const struct weft_logprob *top; /* the n_top likeliest tokens in its place, during the call only */
    uint32_t n_top;
    enum weft_finish finish;
    enum weft_status status;
    const char *message;   /* "" or why it failed and what to do */
    /* DONE: */
    uint32_t n_prompt, n_generated;
    uint32_t n_cached;           /* of n_prompt, found in shared KV pages */
    uint64_t queue_ns, prompt_ns, decode_ns; /* waiting; to the first token; from there to the end */
};
/* Called on the engine's thread; must not block for long and must not call weft_wait or
 * weft_engine_close. May call weft_cancel and weft_submit. */
typedef void (*weft_event_fn)(void *user, const struct weft_event *ev);

struct weft_request_params {
    const char *prompt;          /* text, tokenised with the default flags; or */
    const int32_t *tokens;       /* ids as they are, n_tokens of them; when both are empty: BOS alone */
    size_t n_tokens;
    uint32_t max_tokens;         /* 0: until the context is full; see prefill_only */
    int32_t priority;            /* -1000 to 1000; one more counts as having come 1000 steps earlier */
    struct weft_sampling sampling;
    bool ignore_eos;
    uint32_t min_tokens;         /* nothing ends the text before */
    const int32_t *stop_ids;     /* tokens that end the text as EOS does, n_stop_ids of them */
    size_t n_stop_ids;
    const char *const *stop;     /* texts that end the text, n_stop of them, none empty; what may become one is held back */
    size_t n_stop;
    bool include_stop;           /* the text that ended it appears */
    const struct weft_logit_bias *bias; /* n_bias of them */
    size_t n_bias;
    bool logprobs;               /* tokens carry their logprob and the n_top (at most WEFT_MAX_TOP) likeliest */
    bool prompt_logprobs;        /* PROMPT events, in order; with logprobs' n_top */
    uint32_t n_top;
    bool prefill_only;           /* generate nothing, e.g. to read logits */
    bool want_logits;            /* a LOGITS event for every prompt position, in order */
    bool show_special;           /* control tokens appear in text */
    weft_event_fn on_event;
    void *user;
};

/* Copies what it needs. *out stays valid until weft_request_free, also after DONE. out may be NULL:
 * the request then frees itself after DONE. WEFT_ERR_FULL: the prompt is longer than the context. */
WEFT_API enum weft_status weft_submit(struct weft_engine *e, const struct weft_request_params *p,
                                      struct weft_request **out);
/* Takes effect within one step; DONE follows with WEFT_FINISH_CANCEL. */
WEFT_API void weft_cancel(struct weft_request *r);
/* Waits for DONE, at most `ms` milliseconds (0: without limit): WEFT_OK, WEFT_ERR_TIMEOUT, or the
 * status the request ended with. */
WEFT_API enum weft_status weft_wait(struct weft_request *r, uint32_t ms);
/* Cancels if still running and waits for DONE, so that no callback runs after it returns; inside a callback
 * it does not wait, and no further event comes. NULL is allowed. */
WEFT_API void weft_request_free(struct weft_request *r);

#define WEFT_STEP_TOKENS_BUCKETS 17
struct weft_stats {
    uint64_t steps, prompt_tokens, generated_tokens, requests_done, requests_failed;
    uint64_t step_tokens;        /* sum over steps */
    uint64_t step_tokens_hist[WEFT_STEP_TOKENS_BUCKETS]; /* steps of at most 1, 2, 4, ... rows, each step in one bucket */
    uint32_t running, waiting;
    uint32_t kv_pages, kv_pages_used; /* as many as short steps leave, and of these */
    uint64_t preempted;          /* sequences whose KV pages went to the host */
    uint64_t swapped_out_bytes, swapped_in_bytes; /* bytes of KV pages that went there, and that came back */
    uint64_t prefix_queries, prefix_hits; /* prompt tokens looked for and found in shared KV pages */
    uint64_t softmax_recomputed; /* rows and heads whose scores left the range that `weft calibrate` wrote */
    uint64_t weight_bytes, kv_bytes, activation_bytes; /* as the longest steps take them */
    uint64_t load_ns, step_ns;   /* time spent loading; sum over steps */
    /* Of the device, with `profile`: in steps, and between two while there was work. */
    uint64_t busy_ns, idle_ns;
    /* Sums over ops by their class, and the part of these in which ops of more than one queue ran together. */
    uint64_t compute_ns, memory_ns, network_ns, overlap_ns;
    enum weft_status failed;     /* the device is lost and every request fails with this; WEFT_OK: it works */
};
WEFT_API void weft_engine_stats(const struct weft_engine *e, struct weft_stats *out); /* thread-safe */

#ifdef __cplusplus
}
#endif
#endif
