/* weft: portable LLM inference in C on OpenCL and on plain CPUs.
 *
 * This header is the whole engine API. Benchmarks, tuning and the self-test are in <weft/tune.h>.
 *
 * Conventions
 * - Every function that can fail returns enum weft_status. weft_last_error() then returns a readable message, kept per
 *   thread until that thread's next failing call.
 * - Handles are opaque. Parameters are structs whose zero value is the default, so
 *   `(struct weft_engine_params){.device = "cpu"}` is complete. The caller owns them: weft copies what it needs and does
 *   not use them after the call, unless a comment says otherwise.
 * - Strings are UTF-8 and NUL-terminated, unless a length comes with them. Strings that weft returns belong to the
 *   object they came from and live as long as it does.
 * - Token ids are int32_t, as GGUF stores them. Names that end in _ns are nanoseconds, in _ms milliseconds; sizes
 *   of memory and files are in bytes. Log probabilities are natural logarithms.
 * - A model may be used by any number of threads once it is open. An engine and its requests may be used by any thread.
 *   Closing or freeing an object must not overlap with any other call on it.
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
    WEFT_ERR_ARG,         /* a parameter is out of range, contradicts another, or names an unsuitable file */
    WEFT_ERR_NOMEM,       /* not enough host or device memory; the message has the sizes */
    WEFT_ERR_IO,          /* a file cannot be opened, read or mapped */
    WEFT_ERR_FORMAT,      /* a model file is malformed */
    WEFT_ERR_UNSUPPORTED, /* a well-formed model or request that weft cannot serve (yet) */
    WEFT_ERR_NODEVICE,    /* the requested device does not exist or cannot be used */
    WEFT_ERR_DEVICE,      /* the device failed while in use */
    WEFT_ERR_TIMEOUT,     /* the device or weft_wait exceeded its time limit */
    WEFT_ERR_FULL,        /* the prompt is longer than the context */
    WEFT_ERR_CANCELLED,   /* by weft_cancel, weft_request_free or weft_engine_close */
    WEFT_ERR_INTERNAL,    /* a bug in weft */
    WEFT_ERR_NOT_FINITE,  /* the model gave a logit that is not a finite number; only this request fails */
};

/* Name of a status, e.g. "WEFT_ERR_IO". Never NULL; static storage. */
WEFT_API const char *weft_status_name(enum weft_status s);
/* Message of this thread's last failing call; "" if there was none. Valid until this thread's next failing call. */
WEFT_API const char *weft_last_error(void);
/* Semantic version, e.g. "0.1.0". */
WEFT_API const char *weft_version(void);

/* --- log ------------------------------------------------------------------------------------- */

enum weft_log_level { WEFT_LOG_ERROR, WEFT_LOG_WARN, WEFT_LOG_INFO, WEFT_LOG_DEBUG };
typedef void (*weft_log_fn)(void *user, enum weft_log_level level, const char *line);
/* Sets the process-wide log function for messages up to `level`; fn NULL: stderr. Default: stderr,
 * WEFT_LOG_WARN. fn may be called from any thread, also concurrently; `line` is valid during the call only. Not
 * thread-safe: call it before anything else. */
WEFT_API void weft_log_to(weft_log_fn fn, void *user, enum weft_log_level level);

/* Reports the progress of long work, on the thread that called weft: a fraction in [0, 1] of `what`, e.g. "load" or
 * "compile". */
typedef void (*weft_progress_fn)(void *user, const char *what, double fraction);

/* --- devices --------------------------------------------------------------------------------- */

enum weft_device_type { WEFT_DEVICE_CPU, WEFT_DEVICE_GPU, WEFT_DEVICE_OTHER };

struct weft_device_info {
    char id[24];           /* value for --device: "cpu", "opencl:0.1" */
    char name[128];        /* "NVIDIA H200" */
    char platform[96];     /* "NVIDIA CUDA", "Portable Computing Language", "weft cpu" */
    char driver[64];
    char version[96];      /* "OpenCL 3.0 CUDA" */
    enum weft_device_type type;
    uint64_t memory;       /* bytes; 0: unknown */
    uint64_t max_alloc;    /* largest single allocation, bytes */
    uint32_t local_memory; /* bytes per work-group */
    uint32_t compute_units;
    uint32_t max_group;    /* work-items per work-group */
    char tiers[64];        /* capability tiers, e.g. "base simd matrix" */
    char features[160];    /* what the kernels can use: OpenCL extensions, CPU instruction sets */
};
/* Lists the devices that weft can use: writes at most `cap` entries and returns how many there are. Thread-safe. */
WEFT_API size_t weft_devices(struct weft_device_info *out, size_t cap);

/* --- model: hyperparameters and vocabulary, no device ------------------------------------------ */

struct weft_model;

struct weft_model_params {
    const char *path; /* GGUF file, or folder with config.json, tokenizer.json and safetensors; NULL: the built-in demo model */
    const char *shape; /* if path is NULL: no file but a model of this well-known shape, such as "llama3-8b", with random weights, to measure; its
                          tokens are fillers. The message for one that does not exist lists them */
    const char *type;  /* of a shape: storage format as weft_convert takes it; NULL: F16 */
    uint32_t layers;   /* of a shape; 0: as many as the model has */
    bool vocab_only;  /* accept one without tensors; it can tokenise, but no engine can be opened on it */
};

/* Strings belong to the model. A string is NULL, and a number 0, where the file does not say. */
struct weft_model_info {
    const char *path, *name, *arch, *vocab_type, *pre_tokenizer;
    const char *chat_template;     /* the template text in the file, or NULL */
    uint32_t gguf_version; /* 0: a folder */
    uint32_t n_layer, n_head, n_kv_head, head_dim, hidden_size, intermediate_size, n_vocab, context;
    uint32_t rope_dim;
    float rope_base, rope_scale, norm_eps;
    uint32_t n_expert, n_expert_used; /* of a mixture of experts, in each layer and for each token; 0: none */
    uint64_t n_active;     /* parameters that a token needs: without the experts that it does not take */
    uint64_t n_params, file_bytes, weight_bytes;
    size_t n_tensors, n_meta;
    int32_t bos, eos;              /* token ids; -1: none */
    uint32_t longest_token;        /* bytes: a text of more than n * longest_token bytes has more than n tokens; 0: there is no such
                                      bound, because the tokenizer drops what it does not know */
};

struct weft_tensor_info {
    char name[72];
    const char *dtype;
    uint64_t dims[4];       /* dims[0] is contiguous, as in GGUF */
    uint32_t n_dims;
    uint64_t bytes, offset; /* offset in the file */
};

/* Maps and checks a model file, including the names and shapes of its tensors. The file must not change while the model is
 * open: weights are read from the mapping. Threads and engines may share a model; it must outlive its engines. Close it with
 * weft_model_close. WEFT_ERR_IO, WEFT_ERR_FORMAT or WEFT_ERR_UNSUPPORTED for a file that cannot be used. */
WEFT_API enum weft_status weft_model_open(const struct weft_model_params *p, struct weft_model **out);
WEFT_API void weft_model_close(struct weft_model *m); /* NULL is allowed */
WEFT_API const struct weft_model_info *weft_model_info(const struct weft_model *m);
/* Describes tensor i < info->n_tensors. */
WEFT_API void weft_model_tensor(const struct weft_model *m, size_t i, struct weft_tensor_info *out);
/* Writes metadata entry i < info->n_meta as text, truncated to the buffers and NUL-terminated. Long arrays are abbreviated. */
WEFT_API void weft_model_meta(const struct weft_model *m, size_t i, char *key, size_t key_cap, char *value, size_t value_cap);
struct weft_engine_params;
/* The memory of an engine. KV pages and activations share one buffer (FlashDecoding++Next, section V): small steps leave
 * memory of their activations to more KV pages. */
struct weft_budget {
    uint64_t weights, activations, kv; /* bytes; activations of the largest step */
    uint32_t context;                  /* tokens per sequence */
    uint32_t max_batched_tokens;       /* tokens of the largest step */
    uint32_t n_seqs;                   /* sequences that run at the same time */
    uint64_t kv_bytes_per_token;       /* K and V of one token, all layers */
    uint64_t kv_tokens;                /* capacity of the KV cache in every step */
    uint32_t contexts;                 /* the same in whole contexts, each rounded up to pages */
    uint32_t steady_tokens;            /* while steps have at most this many tokens, as when all sequences decode, */
    uint64_t steady_kv_tokens;         /* the KV cache holds this many */
};
/* Computes the memory that an engine with these parameters needs, on a device with buffers large enough for the unified
 * pool. Assumes steps of 512 tokens if p->max_batched_tokens is 0; the device may have another default. WEFT_ERR_ARG for a
 * file with a vocabulary only, and for a KV cache too small for one context. Opens no device; thread-safe. */
WEFT_API enum weft_status weft_model_budget(const struct weft_model *m, const struct weft_engine_params *p, struct weft_budget *out);
/* Bytes of device memory that this model needs for n_seqs sequences with `context` tokens each; 0 on error. */
WEFT_API uint64_t weft_model_memory(const struct weft_model *m, uint32_t context, uint32_t n_seqs);

/* --- converting ------------------------------------------------------------------------------------ */

struct weft_convert_params {
    const char *path;  /* GGUF file or folder; required */
    const char *out;   /* GGUF file; required */
    const char *type;  /* "Q4_K_M"; required. The message for one that does not exist lists them */
    bool force;        /* replace a file that exists; the model itself is never replaced */
    uint32_t threads;  /* 0: as many as there are cores */
    weft_progress_fn on_progress; /* may be NULL */
    bool (*stop)(void *user);     /* may be NULL; asked now and then on the caller's thread; true: end with WEFT_ERR_CANCELLED */
    void *user;                   /* for both */
};
struct weft_convert_result {
    uint64_t bytes_in, bytes; /* of the model's files and of the output */
    size_t n_tensors;
    size_t n_other; /* tensors whose rows are no multiple of their format's block, which got another format */
    size_t n_again; /* tensors that were quantised already, and lost accuracy twice */
};
/* Writes a model in another storage format. The output has its name once it is complete; whatever happens before leaves nothing behind, and a file
 * that it replaces as it was. Takes little memory: tensors are converted row by row. out may be NULL. */
WEFT_API enum weft_status weft_convert(const struct weft_convert_params *p, struct weft_convert_result *out);

/* --- text ---------------------------------------------------------------------------------------- */

enum weft_text_flags {
    WEFT_TEXT_DEFAULT = 0,
    WEFT_TEXT_NO_ADD_SPECIAL = 1,   /* tokenize: no BOS/EOS even if the model wants them */
    WEFT_TEXT_NO_PARSE_SPECIAL = 2, /* tokenize: treat control tokens in the text as plain text */
    WEFT_TEXT_HIDE_SPECIAL = 4,     /* detokenize: leave control tokens out */
};

/* Tokenises `len` bytes of text. *ids is allocated (free it with weft_free), *n is its length. Thread-safe. */
WEFT_API enum weft_status weft_tokenize(const struct weft_model *m, const char *text, size_t len,
                                        unsigned flags, int32_t **ids, size_t *n);
/* The reverse. *text is allocated (free it with weft_free) and NUL-terminated; *len does not count the NUL. WEFT_ERR_ARG
 * for an id that is not in the vocabulary. Thread-safe. */
WEFT_API enum weft_status weft_detokenize(const struct weft_model *m, const int32_t *ids, size_t n,
                                          unsigned flags, char **text, size_t *len);
/* Writes the text of one token, as it appears in the middle of a text: at most cap bytes to buf, without a NUL. Returns the
 * full length, 0 for an id that is not in the vocabulary. The text may be a part of a UTF-8 character. Thread-safe. */
WEFT_API size_t weft_token_text(const struct weft_model *m, int32_t id, unsigned flags, char *buf, size_t cap);
struct weft_message {
    const char *role;    /* "system", "user", "assistant", "tool" (the result of one) */
    const char *content;
};
/* A conversation, and how it becomes text. Zero is the default. JSON is UTF-8. */
struct weft_chat_params {
    const char *chat_template;            /* text of a Jinja template, as Hugging Face's models have; NULL: the model's own */
    const struct weft_message *messages;  /* n_messages, or as JSON: a list of objects as in OpenAI's API */
    size_t n_messages;
    const char *messages_json;
    const char *tools_json;               /* a list of tools; NULL: none */
    const char *kwargs_json;              /* an object with further variables of the template, such as {"enable_thinking": false}; NULL: none */
    const char *bos, *eos;                /* texts of these tokens; NULL: the model's */
    bool no_generation_prompt;            /* stop behind the last message, before the start of the assistant's turn */
    int64_t now;                          /* for templates that write the date: seconds since 1970; 0: the time of the call */
};
/* Renders a conversation as token ids. Messages never become control tokens, whatever they spell: only the template's own text does. *ids is
 * allocated; free it with weft_free. WEFT_ERR_UNSUPPORTED: there is no template, or it cannot be parsed; WEFT_ERR_ARG: it refuses the
 * conversation; WEFT_ERR_FULL: it takes too many steps or too much memory. Thread-safe. */
WEFT_API enum weft_status weft_chat_tokenize(const struct weft_model *m, const struct weft_chat_params *p, int32_t **ids, size_t *n_ids);
/* The same as text, NUL-terminated; free it with weft_free. m may be NULL if p has a template. */
WEFT_API enum weft_status weft_chat_render(const struct weft_model *m, const struct weft_chat_params *p, char **text, size_t *len);
/* Parses a template; NULL: the model's own. */
WEFT_API enum weft_status weft_chat_check(const struct weft_model *m, const char *chat_template);
/* Frees what weft_tokenize, weft_detokenize, weft_chat_tokenize and weft_chat_render allocated. NULL is allowed. */
WEFT_API void weft_free(void *p);

/* --- engine ---------------------------------------------------------------------------------------- */

struct weft_engine;

struct weft_engine_params {
    const char *device;      /* "auto" (NULL), "cpu", "gpu", "opencl:P.D", or part of a device's name */
    const char *tier;        /* highest capability tier of kernels to use: base, fp16 (on CPUs simd), subgroup or matrix; NULL: the best
                                that the device has (docs/kernels.md) */
    uint32_t context;        /* tokens per sequence, prompt included; 0: the model's, at most 4096 */
    uint32_t n_seqs;         /* sequences that run at the same time; 0: 1 */
    uint32_t max_batched_tokens; /* most tokens per step, NanoFlow's dense batch; 0: as `weft tune` found, else 1024 on a GPU
                                and 512 elsewhere, and with the policies orca and request at least the context */
    uint32_t tile;           /* cut prefill so that steps have a multiple of this many tokens (Sarathi, section 4.4); 0: 128 on
                                a GPU, else 1 */
    const char *policy;      /* what a step holds besides one token of each decoding sequence. nanoflow (NULL): chunks of several prompts, which
                                fill the step; sarathi: a chunk of one prompt; orca: whole prompts. request: static batching */
    uint32_t kv_seqs;        /* capacity of the KV cache in whole contexts (where all layers have windows: in what a sequence holds of one), at most n_seqs; 0: n_seqs, so that no sequence waits for it */
    uint64_t kv_memory;      /* bytes of KV cache, at least one context; 0: as kv_seqs says */
    bool no_prefix;          /* turn prefix caching off */
    uint32_t seqs_per_client; /* most sequences of one client (weft_request_params.client) that run at the same time; 0: no limit */
    uint32_t threads;        /* CPU threads of each queue; 0: one per core */
    uint32_t page_tokens;    /* tokens per KV page; 0: 16 */
    uint64_t max_alloc;      /* upper limit of a device buffer in bytes; 0: the device's limit */
    uint32_t watchdog_ms;    /* a step that takes longer than this means that the device is lost; 0: 60000 */
    uint32_t nano_batches;   /* 2 or more: split steps into this many nano-batches, so that the attention of one overlaps with
                                the GEMMs of another on a second queue (NanoFlow, section 4.1); 0 or 1: no split */
    const char *plan;        /* a plan file, as dump_plan writes it (docs/plans.md); NULL: built from nano_batches */
    const char *dump_plan;   /* write the plan to this file; NULL: do not */
    const char *calibration; /* file of `weft calibrate`, for the asynchronous softmax (FlashDecoding++Next, section III); NULL: the
                                model's path + ".calibration", if it exists */
    const char *attention_windows; /* a file with the attention window of each KV head of each layer (sparse attention as in
                                MoA; docs/tuning.md shows one); NULL: dense attention */
    bool deterministic;      /* batch-invariant: a request gives the same bits whatever else is in the batch. Each op takes kernels of
                                one invariance class for all batch sizes, which costs speed */
    const char *force;       /* tests: kernel variants by op, "gemm=ref,attention=ref" */
    const char *tuned;       /* file of `weft tune` with kernel choices; "none": built-in choices only; NULL: the device's own
                                file, if it exists */
    uint64_t shuffle_pages;  /* tests: seed of a random order of KV pages; 0: ascending order */
    bool poison;             /* tests: fill KV pages with NaN before use */
    bool check_calls;        /* debugging: check operands and shapes of each call of each step, not only at start-up */
    bool no_kernel_cache;    /* neither read nor write compiled kernels on disk */
    bool profile;            /* measure times on the device, at some cost: weft_stats.busy_ns and the fields after it */
    const char *timeline;    /* write a timeline of the engine's steps to this file, as Chrome trace JSON (for Perfetto) */
    weft_progress_fn on_progress; /* not called after weft_engine_open has returned */
    void *user;              /* for on_progress */
};

/* Puts the weights on the device (a CPU can use the mapped file in place), allocates all memory that the engine will ever
 * need, builds its kernels, and starts its thread. Parameters and the files they name are checked first: the first progress
 * report of "load" means that they are valid. Blocks until the engine is ready. m must outlive the engine. Close it with
 * weft_engine_close. WEFT_ERR_ARG: a parameter or a file it names; WEFT_ERR_NODEVICE; WEFT_ERR_NOMEM: the message has the sizes. */
WEFT_API enum weft_status weft_engine_open(const struct weft_model *m, const struct weft_engine_params *p,
                                           struct weft_engine **out);
/* Cancels all requests, delivers their last events, and frees the engine. Free every request first. NULL is allowed. */
WEFT_API void weft_engine_close(struct weft_engine *e);
WEFT_API const struct weft_device_info *weft_engine_device(const struct weft_engine *e);
/* Most tokens of one sequence, prompt included. */
WEFT_API uint32_t weft_engine_context(const struct weft_engine *e);
/* Most tokens of one step. */
WEFT_API uint32_t weft_engine_max_batched_tokens(const struct weft_engine *e);

/* --- requests: any thread may submit, cancel and wait -------------------------------------------- */

struct weft_request;

/* Added to the logit of one token before sampling; -100 or less practically forbids it. */
struct weft_logit_bias {
    int32_t id;
    float bias;
};

struct weft_sampling {
    float temperature;     /* 0 to 100; 0: greedy (the default) */
    int32_t top_k;         /* 0: off */
    float top_p;           /* 0 to 1; 0 or 1: off */
    float min_p;           /* 0 to 1; 0: off */
    float repeat_penalty;  /* 0 to 100; 0 or 1: off; over the last 64 tokens, as in llama.cpp */
    uint64_t seed;         /* sampling depends on this and on the position only */
    bool repeat_all;       /* repeat_penalty covers the whole sequence, prompt included, as in vLLM */
    float presence_penalty;  /* -100 to 100: subtracted from the logit of each token generated before; 0: off */
    float frequency_penalty; /* the same, times the number of its occurrences; 0: off */
};

enum weft_event_kind {
    WEFT_EVENT_TOKEN, /* id and text of a generated token. The text is empty while a UTF-8 character, or what may become a
                         stop text, is incomplete. id -1: text that was held back, at the end */
    WEFT_EVENT_PROMPT,/* id of a prompt token and, except for the first one, its logprob; if prompt_logprobs is set */
    WEFT_EVENT_LOGITS,/* logits of one prompt position; if want_logits is set */
    WEFT_EVENT_DONE,  /* always the last one; finish and status say why */
};
enum weft_finish {
    WEFT_FINISH_NONE,    /* it has not ended */
    WEFT_FINISH_STOP,    /* EOS, a stop token or a stop text */
    WEFT_FINISH_LENGTH,  /* max_tokens were generated, or prefill_only is set */
    WEFT_FINISH_CONTEXT, /* the context is full */
    WEFT_FINISH_CANCEL,  /* weft_cancel, weft_request_free or weft_engine_close */
    WEFT_FINISH_ERROR,   /* status says which */
};

struct weft_logprob {
    int32_t id;
    float logprob;
};
#define WEFT_MAX_TOP 20 /* most alternatives per token */
#define WEFT_MAX_SHOWN 16

/* Pointers are valid during the callback only. */
struct weft_event {
    enum weft_event_kind kind;
    int32_t id;
    const char *text;      /* text_len bytes, not NUL-terminated */
    size_t text_len;
    uint32_t position;     /* of this token, or of these logits */
    const float *logits;   /* [n_vocab], of the token that follows position */
    float logprob;         /* of id, from the model's logits before penalties, biases and temperature; if logprobs is set */
    const struct weft_logprob *top; /* the n_top most likely tokens at this position, in descending order */
    uint32_t n_top;
    enum weft_finish finish;
    enum weft_status status;
    const char *message;   /* "", or why it failed and what to do */
    /* DONE only: */
    uint32_t n_prompt, n_generated;
    uint32_t n_cached;           /* prompt tokens found in the prefix cache */
    uint64_t queue_ns, prompt_ns, decode_ns; /* in the queue; from the first step to the first token; from there to the end */
};
/* Called on the engine's thread, one event at a time. It must not block for long, because all requests wait for it, and must
 * not call weft_wait or weft_engine_close. It may call weft_cancel, weft_submit and weft_request_free. */
typedef void (*weft_event_fn)(void *user, const struct weft_event *ev);

struct weft_request_params {
    const char *prompt;          /* text, tokenised with WEFT_TEXT_DEFAULT; or */
    const int32_t *tokens;       /* n_tokens ids, taken as they are; if both are empty: BOS alone */
    size_t n_tokens;
    uint32_t max_tokens;         /* most tokens to generate; 0: until the context is full */
    uint64_t client;             /* a number for who asks: clients take turns by the tokens they have been served, and among the requests
                                    of one it is first come, first served; 0: nobody in particular, a client like others */
    int32_t priority;            /* -1000 to 1000, larger is earlier: each level counts as an arrival 1000 steps earlier, and between
                                    clients as 100000 tokens less served; 0: normal */
    struct weft_sampling sampling;
    bool ignore_eos;             /* EOS does not end generation */
    uint32_t min_tokens;         /* neither EOS nor stop tokens or texts end generation before; 0: off */
    const int32_t *stop_ids;     /* n_stop_ids tokens that end generation as EOS does */
    size_t n_stop_ids;
    const char *const *stop;     /* n_stop texts that end generation, none empty; text that may become one is held back */
    size_t n_stop;
    bool include_stop;           /* deliver the stop text, too */
    const struct weft_logit_bias *bias; /* n_bias of them */
    size_t n_bias;
    bool logprobs;               /* TOKEN events have the logprob, and the n_top most likely tokens */
    bool prompt_logprobs;        /* deliver PROMPT events, in order, with the n_top most likely tokens */
    uint32_t n_top;              /* 0 to WEFT_MAX_TOP alternatives for each token */
    bool prefill_only;           /* generate nothing; e.g. to get logits of the prompt */
    bool want_logits;            /* deliver a LOGITS event for every prompt position, in order */
    bool show_special;           /* include control tokens in the text */
    const int32_t *show_ids;     /* n_show_ids control tokens that are in the text all the same, such as those that mark calls of tools */
    size_t n_show_ids;           /* at most WEFT_MAX_SHOWN */
    weft_event_fn on_event;      /* may be NULL */
    void *user;                  /* for on_event */
};

/* Queues a request and returns at once; the queue has no limit. Copies everything it needs from p. *out stays valid until
 * weft_request_free, also after DONE, and is set before the first event. out NULL: the request frees itself after DONE.
 * WEFT_ERR_ARG: a parameter; WEFT_ERR_FULL: the prompt is longer than the context; WEFT_ERR_CANCELLED: the engine is closing;
 * another status: the engine has failed (weft_stats.failed). No event comes then. Thread-safe. */
WEFT_API enum weft_status weft_submit(struct weft_engine *e, const struct weft_request_params *p,
                                      struct weft_request **out);
/* Takes effect within one step; DONE follows with WEFT_FINISH_CANCEL. Does not wait. Thread-safe. */
WEFT_API void weft_cancel(struct weft_request *r);
/* Waits for DONE, at most `ms` milliseconds (0: no limit). Returns WEFT_ERR_TIMEOUT, or the status with which the request
 * ended. Thread-safe. */
WEFT_API enum weft_status weft_wait(struct weft_request *r, uint32_t ms);
/* Cancels the request if it has not ended, waits for DONE, and frees it: no callback runs after it returns. Called from a
 * callback it does not wait, and no further event comes. NULL is allowed. */
WEFT_API void weft_request_free(struct weft_request *r);

#define WEFT_STEP_TOKENS_BUCKETS 17
/* Counters since weft_engine_open, and the present state. */
struct weft_stats {
    uint64_t steps, prompt_tokens, generated_tokens, requests_done, requests_failed;
    uint64_t step_tokens;        /* tokens computed, sum over steps */
    uint64_t step_tokens_hist[WEFT_STEP_TOKENS_BUCKETS]; /* steps with at most 1, 2, 4, ... tokens; each step counts in one
                                                               bucket, the last one takes all larger */
    uint32_t running, waiting;   /* sequences now */
    uint32_t waiting_clients;    /* clients with sequences that have not run yet */
    uint64_t longest_wait_ns;    /* of a sequence that has not run yet: how long it has been waiting */
    uint32_t kv_pages, kv_pages_used; /* KV pages that exist in small steps (see weft_budget), and pages in use now */
    uint64_t preempted;          /* times that a sequence was preempted */
    uint64_t swapped_out_bytes, swapped_in_bytes; /* KV pages of preempted sequences, copied to the host and back */
    uint64_t prefix_queries, prefix_hits; /* prompt tokens looked up and found in the prefix cache */
    uint64_t recomputed_tokens;  /* tokens of preempted sequences computed again, because the host had no memory for their KV pages */
    uint64_t softmax_recomputed; /* softmax rows (query and head) recomputed because their scores left the calibrated range */
    uint64_t weight_bytes, kv_bytes, activation_bytes; /* in the largest steps */
    uint64_t scratch_bytes;      /* device memory for intermediate results of kernels */
    uint64_t load_ns, step_ns;   /* time to open the engine; sum over steps */
    /* The rest is measured on the device, and 0 without `profile`. Time in steps, and between steps while requests were waiting or
     * running. */
    uint64_t busy_ns, idle_ns;
    /* Sums over the commands of steps by what bounds them (NanoFlow, table 2), and for how long commands of more than one queue
     * overlapped. Whether a GEMM counts as compute or memory depends on its shape. */
    uint64_t compute_ns, memory_ns, network_ns, copy_ns, overlap_ns;
    enum weft_status failed;     /* the device is lost, and every request fails with this status; WEFT_OK: it works */
};
WEFT_API void weft_engine_stats(const struct weft_engine *e, struct weft_stats *out); /* a copy; thread-safe */

#ifdef __cplusplus
}
#endif
#endif
