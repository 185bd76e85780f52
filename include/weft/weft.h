/* weft: portable LLM inference in C on OpenCL and on plain CPUs.
 *
 * This header is the whole engine API: what measures is no part of the library. What only tests and debugging want is
 * in <weft/debug.h>. docs/library.md is a guide.
 *
 * Conventions
 * - Every function that can fail returns enum weft_status. weft_last_error() then returns a readable message, kept per
 *   thread until that thread's next failing call.
 * - Handles are opaque. Parameters are structs whose zero value is the default, so
 *   `(struct weft_engine_params){.device = "cpu"}` is complete. The caller owns them: weft copies what it needs and
 *   does not use them after the call, unless a comment says otherwise. Set a struct to zero as a whole, as such an
 *   initializer does, before you fill it in.
 * - Strings are UTF-8 and NUL-terminated, unless a length comes with them. Strings that weft returns belong to the
 *   object they came from and live as long as it does.
 * - A function that makes an object and fails sets the pointer to it, *out, to NULL.
 * - NULL is for what a comment says may be NULL, for `user` and for fields of parameters, where it is the default.
 *   Lists, texts and buffers without a length may be NULL, too. Any other NULL is a mistake that does no harm:
 *   functions with a status return WEFT_ERR_ARG; those that return a pointer return NULL; those that return a number
 *   return 0 unless a comment says otherwise; and the others do nothing.
 * - Token ids are int32_t, as GGUF stores them. Names that end in _ns are nanoseconds, in _ms milliseconds; sizes
 *   of memory and files are in bytes. Log probabilities are natural logarithms.
 * - A child of fork has no thread of an engine: it must neither use nor close engines and requests of its parent, nor
 *   what else its parent has opened; what it opens itself works, except on a device whose driver does not survive a
 *   fork, as most drivers of GPUs.
 * - A model may be used by any number of threads once it is open. An engine and its requests may be used by any thread.
 *   Closing or freeing an object must not overlap with any other call on it. Objects may be closed in any order: a
 *   model stays until the last engine that uses it is closed, and requests outlive their engine, with which they end.
 *
 * Binary compatibility. A program runs with the library of the header that it was compiled with and with every later
 * one of the same soversion, for which releases keep to these rules:
 * - Functions keep their names, parameters and meaning.
 * - Structs that the caller allocates keep their size and what they hold. They end in reserved space, and new fields
 *   take its place: zero in one means what was before it came. Parameters that are not zero where this weft knows of
 *   nothing are of a program for a newer weft, or were not set to zero: WEFT_ERR_UNSUPPORTED. In results reserved space
 *   is zero.
 * - Structs that weft allocates (weft_event, weft_model_info, rows that callbacks get) grow at their end only. Use them
 *   by pointer; a copy has the fields of the header that you compiled with.
 * - weft_message, weft_logit_bias and weft_logprob, elements of arrays, stay as they are.
 * - Enums get new values at their end only, and numbers keep their meaning, as do macros. Be prepared for values that
 *   you do not know: skip events of another kind.
 *
 * The soversion is 0 as long as weft is: such a version may break these rules, and the release notes say where. From
 * soversion 1 on, breaking one is a new soversion. From the first release on, each is compared with the one before it
 * (docs/library.md).
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
 *         if (weft_model_open(&(struct weft_model_params){.path = WEFT_DEMO}, &model)) goto fail;
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

/* Semantic version of this header; weft_version() is that of the library. WEFT_VERSION grows with it, for comparing:
 * 0.1.0 is 1000. */
#define WEFT_VERSION_MAJOR 0
#define WEFT_VERSION_MINOR 1
#define WEFT_VERSION_PATCH 0
#define WEFT_VERSION (WEFT_VERSION_MAJOR * 1000000 + WEFT_VERSION_MINOR * 1000 + WEFT_VERSION_PATCH)

enum weft_status {
    WEFT_OK = 0,
    WEFT_ERR_ARG,         /* a parameter is out of range, contradicts another, or names an unsuitable file */
    WEFT_ERR_NOMEM,       /* not enough host or device memory; the message has the sizes */
    WEFT_ERR_IO,          /* a file cannot be opened, read or mapped */
    WEFT_ERR_FORMAT,      /* a model file is malformed */
    WEFT_ERR_UNSUPPORTED, /* a well-formed model or request that weft cannot serve (yet) */
    WEFT_ERR_NODEVICE,    /* the requested device does not exist or cannot be used */
    WEFT_ERR_DEVICE,      /* the device failed while in use */
    WEFT_ERR_TIMEOUT,     /* the device, weft_wait or weft_next exceeded its time limit */
    WEFT_ERR_FULL,        /* the prompt is longer than the context */
    WEFT_ERR_CANCELLED,   /* by weft_cancel, weft_request_free, weft_engine_close or a stop function */
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
/* Long work asks it now and then, on the thread that called weft, whether it is to stop. true: the call frees what it
 * has and returns WEFT_ERR_CANCELLED, within about half a second unless it is within a driver's call. It must return at
 * once. */
typedef bool (*weft_stop_fn)(void *user);

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
    uint64_t available;    /* bytes of it that nobody used at the time of the call; 0: unknown */
    uint64_t max_alloc;    /* largest single allocation, bytes */
    uint32_t local_memory; /* bytes per work-group */
    uint32_t compute_units;
    uint32_t max_group;    /* work-items per work-group */
    char tiers[64];        /* capability tiers, e.g. "base simd matrix" */
    char features[160];    /* what the kernels can use: OpenCL extensions, CPU instruction sets */
    /* Bytes of memory that are not the host's: all of a discrete GPU's; 0: it computes in the host's. */
    uint64_t own_memory;
    uint64_t reserved[7];
};
/* Lists the devices that weft can use: writes at most `cap` entries and returns how many there are. out may be NULL: it
 * only counts them. Thread-safe. */
WEFT_API size_t weft_devices(struct weft_device_info *out, size_t cap);

/* --- model: hyperparameters and vocabulary, no device ------------------------------------------ */

struct weft_model;

/* A path that means the small model that is in the library, to try weft with. WEFT_ERR_UNSUPPORTED if weft was built
 * without (-Ddemo=false). */
#define WEFT_DEMO "builtin:demo"

struct weft_model_params {
    /* GGUF file, folder with config.json, tokenizer.json and safetensors, the name of one in the folder of models
     * (WEFT_MODELS, or ~/.local/share/weft/models), or WEFT_DEMO; or */
    const char *path;
    /* In its place: no file but a model of this well-known shape, such as "llama3-8b", with random weights, to measure,
     * which devices with memory of their own make there; its tokens are fillers. The message for one that does not
     * exist lists them. */
    const char *shape;
    const char *type;  /* of a shape: storage format as weft_convert takes it; NULL: F16 */
    uint32_t layers;   /* of a shape; 0: as many as the model has */
    /* Accept one without tensors, or whose weights weft cannot compute; it can tokenise, but no engine can be opened on
     * it. */
    bool vocab_only;
    weft_stop_fn stop; /* may be NULL: opening cannot be given up */
    void *user;        /* for both */
    /* May be NULL; called while a folder is read, whose tensors may have to be rearranged. */
    weft_progress_fn on_progress;
    uint64_t reserved[5];
};

/* Strings belong to the model. A string is NULL, and a number 0, where the file does not say. */
struct weft_model_info {
    const char *path, *name, *arch, *vocab_type, *pre_tokenizer;
    const char *chat_template;     /* the template text in the file, or NULL */
    const char *tool_template; /* another for conversations with tools, or NULL: chat_template is for them as well */
    const char *unsupported;       /* why no engine can be opened on it (weft_model_params.vocab_only), or NULL */
    uint32_t gguf_version;         /* 0: a folder */
    uint32_t n_layer, n_head, n_kv_head, head_dim, hidden_size, intermediate_size, n_vocab, context;
    uint32_t rope_dim;
    float rope_base, rope_scale, norm_eps;
    uint32_t n_expert, n_expert_used; /* of a mixture of experts, in each layer and for each token; 0: none */
    uint64_t n_active;             /* parameters that a token needs: without the experts that it does not take */
    uint64_t n_params, file_bytes, weight_bytes;
    size_t n_tensors, n_meta;
    int32_t bos, eos;              /* token ids; -1: none */
    const char *shape_type;        /* the storage format that a shape was asked for; NULL: it is no shape */
    /* Bytes: a text of more than n * longest_token bytes has more than n tokens; 0: there is no such bound, because the
     * tokenizer drops what it does not know. */
    uint32_t longest_token;
    /* What the file calls its mix of storage formats, such as "Q4_K_M", as weft_convert takes it; NULL also for types
     * that weft_convert does not write. */
    const char *file_type;
    uint32_t window;               /* keys that layers with an attention window see; 0: there is none */
    uint32_t window_period;        /* every so many layers, one sees all keys; 0: none does */
    float local_rope_base;         /* of layers with a window; 0: the same as the others */
    /* Of a model that gives embeddings instead of text, how the rows of its tokens become one: "mean", "cls" (the first
     * token's) or "last"; "rank": it scores pairs of texts; NULL: it generates text. */
    const char *pooling;
    uint32_t n_embedding;          /* numbers of an embedding; of a score, for each label */
};

struct weft_tensor_info {
    char name[72];
    const char *dtype;
    uint64_t dims[4];       /* dims[0] is contiguous, as in GGUF */
    uint32_t n_dims;
    uint64_t bytes, offset; /* offset in the file */
    uint64_t reserved[8];
};

/* Maps and checks a model file, including the names and shapes of its tensors. The file must not change while the model
 * is open: weights are read from the mapping. Threads and engines may share a model. Close it with weft_model_close.
 * WEFT_ERR_ARG: neither a path nor a shape, or both; WEFT_ERR_CANCELLED: `stop` said so; WEFT_ERR_IO, WEFT_ERR_FORMAT
 * or WEFT_ERR_UNSUPPORTED for a file that cannot be used. */
WEFT_API enum weft_status weft_model_open(const struct weft_model_params *p, struct weft_model **out);
/* Engines that are open keep what they need of it, and the last one frees it. NULL is allowed. */
WEFT_API void weft_model_close(struct weft_model *m);
WEFT_API const struct weft_model_info *weft_model_info(const struct weft_model *m);
/* Fields of struct weft_sampling, as bits. */
enum weft_sampling_field {
    WEFT_SAMPLING_TEMPERATURE = 1,
    WEFT_SAMPLING_TOP_K = 2,
    WEFT_SAMPLING_TOP_P = 4,
    WEFT_SAMPLING_MIN_P = 8,
    WEFT_SAMPLING_REPEAT_PENALTY = 16,
    WEFT_SAMPLING_REPEAT_LAST_N = 32,
};
struct weft_sampling;
/* Fills *out with the sampling that the model's file asks for (GGUF's general.sampling.*, a folder's
 * generation_config.json), and with temperature 1 and everything else off where it says nothing. Returns the fields
 * that it states. m NULL: no file. Requests do not take it by themselves. */
WEFT_API unsigned weft_model_sampling(const struct weft_model *m, struct weft_sampling *out);
/* Describes tensor i < info->n_tensors; for another i all is 0 and NULL. */
WEFT_API void weft_model_tensor(const struct weft_model *m, size_t i, struct weft_tensor_info *out);
/* Writes metadata entry i < info->n_meta as text, truncated to the buffers and NUL-terminated. Long arrays are
 * abbreviated. For another i both are "". */
WEFT_API void weft_model_meta(const struct weft_model *m, size_t i, char *key, size_t key_cap, char *value,
                              size_t value_cap);
struct weft_engine_params;
/* The memory of an engine. KV pages and activations share one space (FlashDecoding++Next, section V): small steps leave
 * memory of their activations to more KV pages. */
struct weft_budget {
    uint64_t weights, activations, kv; /* bytes; activations of the largest step */
    uint32_t context;                  /* tokens per sequence */
    uint32_t max_batched_tokens;       /* tokens of the largest step */
    uint32_t n_seqs;                   /* sequences that run at the same time */
    uint64_t kv_bytes_per_token;       /* K and V of one token, all layers */
    uint64_t kv_tokens;                /* capacity of the KV cache in every step, of tokens that all layers keep */
    /* The same in whole contexts, each rounded up to pages; layers with attention windows keep few tokens of each. */
    uint32_t contexts;
    uint32_t steady_tokens;            /* while steps have at most this many tokens, as when all sequences decode, */
    uint64_t steady_kv_tokens;         /* the KV cache holds this many */
    const char *n_seqs_from; /* why n_seqs is what it is, for people: "as many whole contexts as the KV cache holds" */
    uint64_t kv_host, kv_disk;         /* bytes of the host's memory below the KV cache, and of the file below that */
    uint64_t reserved[5];
};
/* Computes the memory that an engine with these parameters needs, on a device with buffers large enough for the unified
 * pool. Assumes steps of 512 tokens if p->max_batched_tokens is 0; the device may have another default. WEFT_ERR_ARG
 * for a file with a vocabulary only, and for a KV cache too small for one context. Opens no device; thread-safe. */
WEFT_API enum weft_status weft_model_budget(const struct weft_model *m, const struct weft_engine_params *p,
                                            struct weft_budget *out);
/* The same on a device of weft_devices, which is opened for a moment if it has memory of its own, to know how weights
 * lie there: with its usual steps and largest buffer, and where p->memory_utilization says so the KV cache that its
 * memory has room for. */
WEFT_API enum weft_status weft_device_budget(const struct weft_model *m, const struct weft_engine_params *p,
                                             const struct weft_device_info *device, struct weft_budget *out);
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
    weft_stop_fn stop;            /* may be NULL */
    void *user;                   /* for both */
    uint64_t reserved[8];
};
struct weft_convert_result {
    /* Of the model's files, 0: it could not be read; of the output, 0: it could not be written. */
    uint64_t bytes_in, bytes;
    size_t n_tensors;
    size_t n_other; /* tensors whose rows are no multiple of their format's block, which got another format */
    size_t n_again; /* tensors that were quantised already, and lost accuracy twice */
    uint64_t reserved[8];
};
/* Writes a model in another storage format. The output has its name once it is complete; whatever happens before leaves
 * nothing behind, and a file that it replaces as it was. Takes little memory: tensors are converted row by row. out may
 * be NULL; it is written on errors, too, unless p is refused. */
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
/* A pair of texts, as models that score them have it, with the tokens around and between; *second: where the second one
 * begins, 0 if its tokens are of no other type. The rest as of weft_tokenize. WEFT_ERR_UNSUPPORTED: the tokenizer has
 * no token for the end of a text, or makes pairs that weft does not. */
WEFT_API enum weft_status weft_tokenize_pair(const struct weft_model *m, const char *first, size_t first_len,
                                             const char *text, size_t len, int32_t **ids, size_t *n, size_t *second);
/* The reverse. *text is allocated (free it with weft_free) and NUL-terminated; *len does not count the NUL.
 * WEFT_ERR_ARG for an id that is not in the vocabulary. Thread-safe. */
WEFT_API enum weft_status weft_detokenize(const struct weft_model *m, const int32_t *ids, size_t n,
                                          unsigned flags, char **text, size_t *len);
/* Writes the text of one token, as it appears in the middle of a text: at most cap bytes to buf, without a NUL. Returns
 * the full length, 0 for an id that is not in the vocabulary. buf may be NULL: only the length is asked for. The text
 * may be a part of a UTF-8 character. Thread-safe. */
WEFT_API size_t weft_token_text(const struct weft_model *m, int32_t id, unsigned flags, char *buf, size_t cap);
struct weft_message {
    const char *role;    /* "system", "user", "assistant", "tool" (the result of one) */
    const char *content;
};
/* A conversation, and how it becomes text. Zero is the default. JSON is UTF-8. */
struct weft_chat_params {
    const char *chat_template; /* text of a Jinja template, as Hugging Face's models have; NULL: the model's own */
    const struct weft_message *messages;  /* n_messages, or in their place JSON: a list of objects as in OpenAI's API */
    size_t n_messages;
    const char *messages_json;
    const char *tools_json;               /* a list of tools; NULL: none */
    /* An object with further variables of the template, such as {"enable_thinking": false}; NULL: none. */
    const char *kwargs_json;
    const char *bos, *eos;                /* texts of these tokens; NULL: the model's */
    bool no_generation_prompt;            /* stop behind the last message, before the start of the assistant's turn */
    bool continue_last;                   /* stop behind the content of the last message: the answer goes on with it */
    int64_t now; /* for templates that write the date: seconds since 1970; 0: the time of the call */
    uint64_t reserved[8];
};
/* Renders a conversation as token ids. Messages never become control tokens, whatever they spell: only the template's
 * own text does. *ids is allocated; free it with weft_free. WEFT_ERR_UNSUPPORTED: there is no template, or it cannot be
 * parsed; WEFT_ERR_ARG: it refuses the conversation; WEFT_ERR_FULL: it takes too many steps or too much memory.
 * Thread-safe. */
WEFT_API enum weft_status weft_chat_tokenize(const struct weft_model *m, const struct weft_chat_params *p,
                                             int32_t **ids, size_t *n_ids);
/* The same as text, NUL-terminated; free it with weft_free. m may be NULL if p has a template. */
WEFT_API enum weft_status weft_chat_render(const struct weft_model *m, const struct weft_chat_params *p, char **text,
                                           size_t *len);
/* Parses a template; NULL: the model's own. m may be NULL if there is a template. */
WEFT_API enum weft_status weft_chat_check(const struct weft_model *m, const char *chat_template);
/* Frees what weft_tokenize, weft_detokenize, weft_chat_tokenize and weft_chat_render allocated. NULL is allowed. */
WEFT_API void weft_free(void *p);

/* --- engine ---------------------------------------------------------------------------------------- */

struct weft_engine;
struct weft_debug;

#define WEFT_DEFAULT_CONTEXT 4096 /* at most, unless it is said */

struct weft_engine_params {
    /* "auto" (NULL), "cpu", "gpu", "opencl" (its best device), "opencl:P.D", or part of a device's name; of several
     * devices (tensor_parallel, pipeline_parallel) a list with commas. */
    const char *device;
    /* Highest capability tier of kernels to use: base, dot (on CPUs simd), neutral or matrix; NULL: the best that the
     * device has (docs/kernels.md). */
    const char *tier;
    uint32_t context;        /* tokens per sequence, prompt included; 0: the model's, at most WEFT_DEFAULT_CONTEXT */
    uint32_t n_seqs;         /* sequences that run at the same time; 0: 1, or as memory_utilization says */
    /* Most tokens per step, NanoFlow's dense batch; 0: as `weft tune` found, else 1024 on a GPU and 512 elsewhere, and
     * with the policies orca and request at least the context. */
    uint32_t max_batched_tokens;
    /* About the longest that a step may take while one sequence runs alone: its prompt is cut by the measured rate,
     * into pieces of at least 64 tokens, so that cancelling it takes effect soon also on a slow device; 0: no limit. */
    uint32_t step_ms;
    /* Cut prefill so that steps have a multiple of this many tokens (Sarathi, section 4.4); 0: 128 on a GPU, else 1. */
    uint32_t tile;
    /* What a step holds besides one token of each decoding sequence. nanoflow (NULL): chunks of several prompts, which
     * fill the step; sarathi: a chunk of one prompt, as long as the ratio of prompt to generated tokens asks for unless
     * max_batched_tokens is given; orca: whole prompts. request: static batching. */
    const char *policy;
    /* Memory of the KV cache: that of so many whole contexts, at most n_seqs, if all layers kept what the one with the
     * longest attention window keeps; 0: n_seqs, so that no sequence waits for it. Fewer, at least one, where the
     * device says that it has less memory. */
    uint32_t kv_seqs;
    uint64_t kv_memory;      /* bytes of KV cache, at least one context; 0: as kv_seqs says */
    bool no_prefix;          /* turn prefix caching off */
    /* Most sequences of one client (weft_request_params.client) that run at the same time; 0: no limit. */
    uint32_t seqs_per_client;
    /* CPU threads, which queues share; 0: one per core, and one less where there are 16 cores or more. */
    uint32_t threads;
    uint32_t page_tokens;    /* tokens per KV page; 0: 16 */
    uint32_t watchdog_ms;    /* a step that takes longer than this means that the device is lost; 0: 60000 */
    /* 2 or more: split steps into this many nano-batches, so that the attention of one overlaps with the GEMMs of
     * another on a second queue (NanoFlow, section 4.1); 1: no split; 0: each step as `weft tune --overlap` found it to
     * be the fastest on this device, and no split where that has not run. */
    uint32_t nano_batches;
    const char *plan;        /* a plan file, as dump_plan writes it (docs/plans.md); NULL: built from nano_batches */
    const char *dump_plan;   /* write the plan to this file; NULL: do not */
    /* Ranges for the asynchronous softmax (FlashDecoding++Next, section III): a file of `weft calibrate`; "none": the
     * softmax is synchronous; "auto" (NULL): the model's path + ".calibration" if it exists, else as measured on a
     * built-in text and kept in the cache folder, which the first opening of a model does where kernels of the device
     * gain by it, if it takes about a second at most. Then opening runs the model, which `stop` ends. Not for models
     * without a file, nor with deterministic. */
    const char *calibration;
    /* A file with the attention window of each query head or KV head of each layer (sparse attention as in MoA;
     * docs/tuning.md shows one); NULL: dense attention. */
    const char *attention_windows;
    /* Batch-invariant: a request gives the same bits whatever else is in the batch. Each op takes kernels of one
     * invariance class for all batch sizes, which costs speed. */
    bool deterministic;
    /* File of `weft tune` with kernel choices; "none": built-in choices only; NULL: the device's own file, if it
     * exists. */
    const char *tuned;
    bool no_kernel_cache;    /* compile and test kernels anew, and keep neither on disk */
    bool profile;            /* measure times on the device, at some cost: weft_stats.busy_ns and the fields after it */
    const char *timeline; /* write a timeline of the engine's steps to this file, as Chrome trace JSON (for Perfetto) */
    weft_progress_fn on_progress; /* may be NULL; not called after weft_engine_open has returned */
    weft_stop_fn stop;       /* may be NULL: opening cannot be given up; as on_progress */
    void *user;              /* for both */
    const struct weft_debug *debug; /* what only tests and debugging want, <weft/debug.h>; NULL: none of it */
    /* Up to 1, as a server wants it. Where kv_memory and kv_seqs are 0, the KV cache takes what weights, activations
     * and tables leave of this part of the device's memory, or of what is free of it if the driver tells, as far as
     * n_seqs sequences can use it; where the device shares the host's memory (weft_device_info.own_memory), it is that
     * of 8 contexts. A cache that cannot be allocated becomes smaller, with a warning. n_seqs 0 then means as many
     * sequences as the cache holds whole contexts (SARATHI, section 4.3.1), but 64 to 256. 0: kv_seqs and n_seqs alone
     * decide. */
    float memory_utilization;
    /* Keep the residual stream in F16 (FlashDecoding++Next, section V, counts it so): less memory and, on a GPU, less
     * to read, but each layer rounds it, and numbers above 65504 are lost (WEFT_ERR_NOT_FINITE); norms of CPUs are
     * slower with it. */
    bool f16_residual;
    /* Speculative decoding: most tokens of a sequence that are drafted, from what its text said before (prompt lookup)
     * or by draft_model, and verified in one step, at most 64; 0: none. The tokens that come are those that would have
     * come without. Drafts are verified where that is faster, as far as steps have shown. */
    uint32_t draft_tokens;
    /* Bytes of host memory below the KV cache, pinned where the device has such, taken at the start: blocks that the KV
     * cache has no room for are found there by prompts that begin alike, which load them where that is faster than
     * computing them. Blocks are stored there when they are seen for the second time. 0: none. Not with no_prefix;
     * unused by encoders. */
    uint64_t kv_host;
    /* A file below that, of at most kv_disk_bytes, which keeps blocks over restarts and for this process alone; created
     * with a secret beside it (".secret"), without which nobody can put a block there. Blocks of another model, device,
     * or build of weft are not found. NULL: none. */
    const char *kv_disk;
    uint64_t kv_disk_bytes;
    /* "mean", "cls" or "last": the engine gives embeddings, of any model; NULL: as the model says
     * (weft_model_info.pooling). */
    const char *pooling;
    /* Of keys and values in the KV cache: "f16" (NULL), or "q8_0", bytes with a scale for 32 of them: 0.53 of the
     * memory, here and below. Heads are then a multiple of 32. */
    const char *kv_dtype;
    /* n_adapters LoRA adapters "NAME=PATH", GGUF files or PEFT folders that were trained for this model; a request
     * names one (weft_request_params.adapter). */
    const char *const *adapters;
    size_t n_adapters;
    /* That may be loaded at one time (weft_adapter_load): memory for them is taken at the start; 0: those above, and
     * none later. */
    uint32_t most_adapters;
    uint32_t adapter_rank;   /* the largest rank that one loaded later may have; 0: 64, or more if one above has more */
    /* Devices that compute each layer together, each with its part of the heads, of the feed-forward and of the KV
     * cache; 0 or 1: one. */
    uint32_t tensor_parallel;
    /* Parts of the layers, each computed by a device of its own, or by tensor_parallel of them: as many steps, at most
     * 8, are in flight, of different sequences; 0 or 1: one. device names tensor_parallel * pipeline_parallel devices,
     * at most 64, those of the first layers first; a CPU may be named twice: "cpu,cpu". threads are shared out among
     * them. A model that does not divide is WEFT_ERR_UNSUPPORTED, as are adapters, most_adapters, kv_host, kv_disk,
     * plan, draft_model and a file of calibration, and with pipeline_parallel models of embeddings and
     * attention_windows. The softmax is synchronous. */
    uint32_t pipeline_parallel;
    /* Of the parts of sums that devices of tensor_parallel exchange: "f16", half the bytes, in which a part above 65504
     * is lost (WEFT_ERR_NOT_FINITE), or "f32"; NULL: as the first device has activations, F16 on GPUs. */
    const char *reduce_dtype;
    /* Of a mixture of experts: another device, such as "cpu", has the experts and computes the feed-forwards, or with
     * "cpu=N" those of the first N layers; `device` computes all else. It excludes tensor_parallel, pipeline_parallel
     * and what these exclude. NULL: none. */
    const char *experts;
    /* A smaller model of the same vocabulary drafts where prompt lookup finds nothing, up to draft_tokens, which must
     * not be 0. It has an engine of its own on the same device, whose memory comes on top, and drafts for 4 sequences
     * at a time. The caller may close the model once the engine is open. NULL: none. */
    const struct weft_model *draft_model;
    uint64_t reserved[1];
};

/* Puts the weights on the device (a CPU can use the mapped file in place), allocates all memory that the engine will
 * ever need, builds its kernels, and starts its thread. Parameters and the files they name are checked first: the first
 * progress report of "load" means that they are valid. Blocks until the engine is ready. Close it with
 * weft_engine_close. WEFT_ERR_ARG: a parameter or a file it names; WEFT_ERR_NODEVICE; WEFT_ERR_NOMEM: the message has
 * the sizes; WEFT_ERR_CANCELLED: `stop` said so. */
WEFT_API enum weft_status weft_engine_open(const struct weft_model *m, const struct weft_engine_params *p,
                                           struct weft_engine **out);
/* Cancels all requests, delivers their last events, and gives back the device and all memory but that of requests that
 * are not freed yet: they have ended, weft_next still gives their events, and they are freed as before. A CPU breaks
 * off the step that runs; other devices end it. Not from a callback of the engine, where it does nothing but say so in
 * the log. NULL is allowed. */
WEFT_API void weft_engine_close(struct weft_engine *e);
/* Programs that Open MPI's mpirun starts several of, on one host or more: an engine that the first process opens has a
 * device in each process, where tensor_parallel times pipeline_parallel are as many; device is then one name for all,
 * or a list. Each other process calls this, which computes its part, and returns when the first one calls it, or exits.
 * Where mpirun has not started the process it does nothing. WEFT_ERR_UNSUPPORTED: Open MPI is missing; WEFT_ERR_DEVICE:
 * another process has failed. Not with other threads in weft. One such engine at a time: weft_engine_open gives
 * WEFT_ERR_UNSUPPORTED for another one. */
WEFT_API enum weft_status weft_follow(void);
WEFT_API const struct weft_device_info *weft_engine_device(const struct weft_engine *e);
/* Most tokens of one sequence, prompt included. */
WEFT_API uint32_t weft_engine_context(const struct weft_engine *e);
/* How embeddings, or scores, are made of rows: weft_model_info.pooling, or what the parameters say; NULL: it generates
 * text. Static storage. */
WEFT_API const char *weft_engine_pooling(const struct weft_engine *e);
/* Most tokens of one step. */
WEFT_API uint32_t weft_engine_max_batched_tokens(const struct weft_engine *e);
/* The memory that it has taken. */
WEFT_API enum weft_status weft_engine_budget(const struct weft_engine *e, struct weft_budget *out);

/* --- adapters: what requests add to the model's matrices (LoRA) ----------------------------------- */

struct weft_adapter_info {
    char name[128];
    uint32_t rank, requests; /* the largest of its ranks; requests that use it now */
    uint64_t reserved[4];
};
/* Those that are loaded, in that order: writes the first `cap`, and returns how many there are. Thread-safe. */
WEFT_API size_t weft_engine_adapters(const struct weft_engine *e, struct weft_adapter_info *out, size_t cap);
/* Loads one beside requests, whose steps wait for the copy to the device, and returns when requests may name it.
 * WEFT_ERR_ARG: the name is taken or not a name; WEFT_ERR_FULL: most_adapters are loaded; WEFT_ERR_FORMAT,
 * WEFT_ERR_UNSUPPORTED: the adapter is not one of this model, or is of a kind that weft does not have. Thread-safe, but
 * not from a callback of the engine. */
WEFT_API enum weft_status weft_adapter_load(struct weft_engine *e, const char *name, const char *path);
/* WEFT_ERR_ARG: there is no such adapter, or requests that have not ended use it. Thread-safe. */
WEFT_API enum weft_status weft_adapter_unload(struct weft_engine *e, const char *name);

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
    float repeat_penalty;  /* 0.001 to 100; 0 or 1: off; over tokens of prompt and answer */
    uint64_t seed;         /* sampling depends on this and on the position only */
    int32_t repeat_last_n; /* how many of the last tokens repeat_penalty covers; 0 or less: all */
    float presence_penalty;  /* -100 to 100: subtracted from the logit of each token generated before; 0: off */
    float frequency_penalty; /* the same, times the number of its occurrences; 0: off */
    uint64_t reserved[8];
};

enum weft_event_kind {
    /* Id and text of a generated token. The text is empty while a UTF-8 character, or what may become a stop text, is
     * incomplete. id -1: text that was held back, at the end. */
    WEFT_EVENT_TOKEN,
    WEFT_EVENT_PROMPT, /* id of a prompt token and, except for the first one, its logprob; if prompt_logprobs is set */
    WEFT_EVENT_LOGITS, /* logits of one prompt position; if want_logits is set */
    WEFT_EVENT_DONE,   /* always the last one; finish and status say why */
    WEFT_EVENT_EMBEDDING, /* the embedding, or the scores, of the prompt; if embed is set */
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

/* Pointers are valid during the callback, or until the next weft_next on the request. */
struct weft_event {
    enum weft_event_kind kind;
    /* Whose event it is, also before weft_submit has returned; of one that frees itself: to cancel it, or to
     * compare. */
    struct weft_request *request;
    int32_t id;            /* of DONE: the EOS or stop token that ended it, or -1 */
    const char *text;      /* text_len bytes, not NUL-terminated */
    size_t text_len;
    uint32_t position;     /* of this token, or of these logits */
    const float *logits;   /* [n_vocab], of the token that follows position */
    float logprob; /* of id, from the model's logits before penalties, biases and temperature; if logprobs is set */
    const struct weft_logprob *top; /* the n_top most likely tokens at this position, in descending order */
    uint32_t n_top;
    enum weft_finish finish;
    enum weft_status status;
    const char *message;   /* "", or why it failed and what to do */
    /* DONE only: */
    uint32_t n_prompt, n_generated;
    uint32_t n_cached;     /* prompt tokens found in the prefix cache */
    /* In the queue; from the first step to the first token; from there to the end. */
    uint64_t queue_ns, prompt_ns, decode_ns;
    uint32_t stop_text;    /* which of the stop texts ended it, from 1 on; 0: none did */
    /* EMBEDDING only: n_embedding numbers, of length 1 unless embed_raw is set; of a model that scores, a number for
     * each label, as its head gives them. */
    const float *embedding;
    uint32_t n_embedding;
};
/* Called on the engine's thread, one event at a time. It must not block for long, because all requests wait for it, and
 * must not call weft_wait or weft_engine_close. It may call weft_cancel, weft_submit, weft_request_free and weft_next.
 */
typedef void (*weft_event_fn)(void *user, const struct weft_event *ev);

/* What an answer has to be, byte for byte. White space is as printers of JSON write it; whole numbers have no
 * fraction; keys of objects come in any order. A schema is Draft 2020-12 or what Draft 4 to 7 write. */
enum weft_grammar {
    WEFT_GRAMMAR_NONE,   /* any text */
    WEFT_GRAMMAR_OBJECT, /* any JSON object */
    /* JSON that a schema accepts; where it names properties, no others unless it says that they may be there. */
    WEFT_GRAMMAR_SCHEMA,
    WEFT_GRAMMAR_REGEX,  /* text that a pattern of ECMA 262 matches as a whole */
    WEFT_GRAMMAR_CHOICE, /* one of a list of texts, which is JSON */
    WEFT_GRAMMAR_GBNF,   /* text of the rule `root` of a grammar, as llama.cpp has them */
};

struct weft_request_params {
    const char *prompt;          /* text, tokenised with WEFT_TEXT_DEFAULT; or */
    size_t prompt_len;           /* its bytes, zero bytes among them; 0: up to its first zero byte */
    const int32_t *tokens;       /* n_tokens ids, taken as they are; or */
    size_t n_tokens;
    /* A conversation, tokenised by weft_chat_tokenize. At most one of the three; none, or an empty text: BOS alone. */
    const struct weft_chat_params *chat;
    uint32_t max_tokens;         /* most tokens to generate; 0: until the context is full */
    /* A number for who asks: clients take turns by the tokens they have been served, and among the requests of one it
     * is first come, first served; 0: nobody in particular, a client like others. */
    uint64_t client;
    /* -1000 to 1000, larger is earlier: each level counts as an arrival 1000 steps earlier, and between clients as
     * 100000 tokens less served; 0: normal. */
    int32_t priority;
    struct weft_sampling sampling;
    bool ignore_eos;             /* EOS does not end generation */
    uint32_t min_tokens;         /* neither EOS nor stop tokens or texts end generation before; 0: off */
    const int32_t *stop_ids;     /* n_stop_ids tokens that end generation as EOS does */
    size_t n_stop_ids;
    const char *const *stop; /* n_stop texts that end generation, none empty; text that may become one is held back */
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
    /* n_show_ids control tokens that are in the text all the same, such as those that mark calls of tools. */
    const int32_t *show_ids;
    size_t n_show_ids;           /* at most WEFT_MAX_SHOWN */
    weft_event_fn on_event;      /* may be NULL */
    void *user;                  /* for on_event */
    bool pull;                   /* keep the events for weft_next; without on_event */
    bool no_prefix;              /* neither find its prompt's beginning in the prefix cache nor leave anything there */
    /* Give the prompt's embedding instead of text; of engines that do that they take no other requests, but those with
     * prefill_only. */
    bool embed;
    bool embed_raw;              /* as the model gives it, not divided by its length */
    uint32_t second_text;        /* of a pair: where the second text begins in tokens; 0: it is one text */
    const char *cache_salt;      /* only requests of the same salt find each other's prompts in the prefix cache; of */
    size_t cache_salt_len;       /* so many bytes; 0: that of all requests without a salt */
    enum weft_grammar grammar;   /* what cannot be kept to the letter is WEFT_ERR_UNSUPPORTED, with its name */
    const char *grammar_text;    /* the schema, pattern, list or rules, of grammar_len bytes; 0: up to its zero byte */
    size_t grammar_len;
    const char *grammar_after;   /* the answer is free up to this text, such as the end of thoughts; NULL: not at all */
    const char *grammar_unless;  /* one that begins with this text, such as a call of a tool, is free; NULL: none is */
    const char *adapter;         /* the name of an adapter that is loaded; NULL: the model as it is */
    uint64_t reserved[1];
};

/* Queues a request and returns at once; the queue has no limit. Copies everything it needs from p. *out stays valid
 * until weft_request_free, also after DONE, and is set before the first event. out NULL: the request frees itself after
 * DONE. WEFT_ERR_ARG: a parameter; WEFT_ERR_FULL: the prompt is longer than the context; WEFT_ERR_CANCELLED: the engine
 * is closing; what weft_chat_tokenize returns; another status: the engine has failed (weft_stats.failed). No event
 * comes then. Thread-safe. */
WEFT_API enum weft_status weft_submit(struct weft_engine *e, const struct weft_request_params *p,
                                      struct weft_request **out);
/* Takes effect within one step; on a CPU within half a second, if no request that goes on is in the step, which is then
 * broken off. DONE follows with WEFT_FINISH_CANCEL. Does not wait. Thread-safe. */
WEFT_API void weft_cancel(struct weft_request *r);
/* Waits for DONE, at most `ms` milliseconds (0: no limit). Returns WEFT_ERR_TIMEOUT, or the status with which the
 * request ended. Thread-safe. */
WEFT_API enum weft_status weft_wait(struct weft_request *r, uint32_t ms);
/* Cancels the request if it has not ended, waits for DONE, and frees it: no callback runs after it returns. Called from
 * a callback it does not wait, and no further event comes. NULL is allowed. */
WEFT_API void weft_request_free(struct weft_request *r);

/* --- pulling events, beside callbacks ---------------------------------------------------------------
 *
 * A request with `pull` keeps its events in a queue of its own, so that who reads slowly holds up nobody. The queue has
 * no limit of its own but holds at most what the request produces: an event for each generated token, and with
 * prompt_logprobs for each prompt token, of about 300 bytes, its text and 8 bytes for each of n_top; with want_logits
 * for each prompt token also its logits, 4 bytes for each token of the vocabulary. max_tokens limits it, and
 * weft_cancel. A request whose events find no memory ends with WEFT_ERR_NOMEM. */

/* Takes the oldest event: *ev is valid until the next weft_next on this request, or weft_request_free. Waits for one at
 * most timeout_ms milliseconds: 0 does not wait, a negative number has no limit. In a callback of its engine it does
 * not wait. WEFT_ERR_TIMEOUT: none came; WEFT_ERR_ARG: DONE has been taken before, and no more will come, or the
 * request does not pull. *ev is NULL then. Any thread, but for a request one at a time. */
WEFT_API enum weft_status weft_next(struct weft_request *r, int32_t timeout_ms, const struct weft_event **ev);
/* A descriptor that poll(2) and the like report as readable while events wait: then weft_next with 0 takes one. It
 * belongs to the request, which closes it when it is freed; do not read from it. The same for each call. -1: see
 * weft_last_error, WEFT_ERR_ARG or WEFT_ERR_IO. Thread-safe. */
WEFT_API int weft_request_fd(struct weft_request *r);

/* --- statistics -------------------------------------------------------------------------------------- */

#define WEFT_STEP_TOKENS_BUCKETS 17
/* Counters since weft_engine_open, and the present state. */
struct weft_stats {
    uint64_t steps, prompt_tokens, generated_tokens, requests_done, requests_failed;
    uint64_t step_tokens;        /* tokens computed, sum over steps */
    /* Steps with at most 1, 2, 4, ... tokens; each step counts in one bucket, the last one takes all larger. */
    uint64_t step_tokens_hist[WEFT_STEP_TOKENS_BUCKETS];
    uint32_t running, waiting;   /* sequences now */
    uint32_t waiting_clients;    /* clients with sequences that have not run yet */
    uint64_t longest_wait_ns;    /* of a sequence that has not run yet: how long it has been waiting */
    uint32_t kv_pages, kv_pages_used; /* KV pages that exist in small steps (see weft_budget), and pages in use now */
    uint64_t preempted;          /* times that a sequence was preempted */
    uint64_t swapped_out_bytes, swapped_in_bytes; /* KV pages of preempted sequences, copied to the host and back */
    uint64_t prefix_queries, prefix_hits; /* prompt tokens looked up and found in the prefix cache */
    /* Tokens of preempted sequences computed again, because the host had no memory for their KV pages. */
    uint64_t recomputed_tokens;
    /* Softmax rows (query and head) recomputed because their scores left the calibrated range. */
    uint64_t softmax_recomputed;
    uint64_t weight_bytes, kv_bytes, activation_bytes; /* in the largest steps */
    uint64_t scratch_bytes;      /* device memory for intermediate results of kernels */
    uint64_t load_ns, step_ns;   /* time to open the engine; sum over steps */
    /* The rest is measured on the device, and 0 without `profile`. Time in steps, and between steps while requests were
     * waiting or running. */
    uint64_t busy_ns, idle_ns;
    /* Sums over the commands of steps by what bounds them (NanoFlow, table 2), and for how long commands of more than
     * one queue overlapped. Whether a GEMM counts as compute or memory depends on its shape. */
    uint64_t compute_ns, memory_ns, network_ns, copy_ns, overlap_ns;
    enum weft_status failed;     /* the device is lost, and every request fails with this status; WEFT_OK: it works */
    uint64_t draft_tokens, draft_accepted; /* draft tokens that were verified, and those that were accepted */
    /* Prompt tokens computed for each generated one, over about the last 64 sequences that have finished, before those
     * of the load that `weft tune --dataset-path` has kept; 0: neither is known. */
    double prefill_decode_ratio;
    uint64_t embeddings;         /* requests that gave one */
    uint64_t reserved[4];
};
WEFT_API void weft_engine_stats(const struct weft_engine *e, struct weft_stats *out); /* a copy; thread-safe */
/* Tiers below the KV cache, each with what was moved between it and the one above. Zero: it does not exist. */
enum weft_kv_tier { WEFT_KV_TIER_HOST, WEFT_KV_TIER_DISK, WEFT_N_KV_TIERS };
struct weft_kv_tier_stats {
    uint64_t bytes, used_bytes;           /* its size, and what holds blocks */
    uint64_t stored_bytes, loaded_bytes;  /* blocks that came down, and went up */
    uint64_t store_ns, load_ns;           /* sums over copies, each until its end was seen */
    uint64_t queries, hits;               /* of HOST: prompt tokens looked up below the KV cache, and loaded */
    uint64_t dropped;                     /* blocks that there was no room or time to store */
    uint64_t failed; /* copies that failed or were broken off, and loads that were given up: all was computed instead */
    uint64_t evicted;                     /* blocks whose place others have taken */
    uint64_t paused;                      /* times that it was left alone for a while, after failures in a row */
    uint64_t reserved[4];
};
/* A copy; thread-safe. WEFT_ERR_ARG: no such tier. */
WEFT_API enum weft_status weft_engine_kv_tier_stats(const struct weft_engine *e, enum weft_kv_tier tier,
                                                 struct weft_kv_tier_stats *out);
/* Layers whose attention uses the asynchronous softmax, in ascending order; of each the rows (query and head) computed
 * so, and how many of these were recomputed, its part of softmax_recomputed. Writes the first `cap` to all arrays, or
 * to none if one is NULL, and returns how many there are. Rows count when a step is submitted, so they are ahead by
 * those in flight. Thread-safe. */
WEFT_API uint32_t weft_engine_softmax(const struct weft_engine *e, uint32_t *layers, uint64_t *rows,
                                      uint64_t *recomputed, uint32_t cap);

#ifdef __cplusplus
}
#endif
#endif
