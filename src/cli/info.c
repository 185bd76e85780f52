/* info: describes devices and model files. */
#include "cli/cli.h"
#include "cli/rows.h"
#include "base/json.h"
#include "base/options.h"

#include <stdio.h>
#include <string.h>

/* Prints text from the file, or of a driver, which must not control the terminal. */
static void print_text(const char *title, const char *value)
{
    char text[1024];
    wf_show(text, sizeof text, value && *value ? value : "none");
    printf("%-16s %s\n", title, text);
}

/* ---- devices --------------------------------------------------------------------------------- */

static int print_devices(void)
{
    struct weft_device_info list[64];
    size_t n = WF_MIN(weft_devices(list, WF_LEN(list)), WF_LEN(list));
    if (!n) return wf_print_devices(); /* prints the error */
    for (const struct weft_device_info *d = list; d < list + n; d++) {
        printf("%s\n", d->id);
        print_text("  name", d->name);
        print_text("  platform", d->platform);
        print_text("  driver", d->driver);
        print_text("  version", d->version);
        printf("  memory         %s, ", WF_HUMAN(d->memory, true));
        if (d->available) printf("%s available, ", WF_HUMAN(d->available, true));
        printf("%s in one buffer\n", WF_HUMAN(d->max_alloc, true));
        printf("  compute units  %u\n", d->compute_units);
        printf("  work-group     %u items, %s of local memory\n", d->max_group, WF_HUMAN(d->local_memory, true));
        printf("  tiers          %s\n", d->tiers);
        printf("  features       %s\n", *d->features ? d->features : "none");
    }
    return 0;
}

/* ---- model ----------------------------------------------------------------------------------- */

/* A template or a file that is not supported may have any of these; the others are known only of what is. */
static void print_hyperparameters(const struct weft_model_info *i)
{
    char path[1024];
    const char *file = WF_HUMAN(i->file_bytes, true);
    wf_show(path, sizeof path, i->path ? i->path : "built in");
    if (i->shape_type) printf("%-16s %s (no file)\n", "shape", i->name);
    else if (i->gguf_version) printf("%-16s %s (GGUF version %u, %s)\n", "file", path, i->gguf_version, file);
    else printf("%-16s %s (safetensors, %s)\n", "folder", path, file);
    if (!i->shape_type) print_text("name", i->name);
    print_text("architecture", i->arch);
    printf("parameters       %s (%llu)\n", WF_HUMAN(i->n_params, false), (unsigned long long)i->n_params);
    if (i->unsupported) return;
    if (i->n_expert)
        printf("experts          %u, %u of them for a token: %s active parameters (%llu)\n", i->n_expert,
               i->n_expert_used, WF_HUMAN(i->n_active, false), (unsigned long long)i->n_active);
    printf("layers           %u\n", i->n_layer);
    printf("heads            %u, %u KV heads, head size %u\n", i->n_head, i->n_kv_head, i->head_dim);
    printf("hidden size      %u, intermediate size %u; norm epsilon %g\n", i->hidden_size, i->intermediate_size,
           i->norm_eps);
    printf("context          %u tokens; rope base %g, scale %g, %u dimensions\n", i->context, i->rope_base,
           i->rope_scale, i->rope_dim);
    if (i->pooling)
        printf("gives            %s of %u numbers, pooling %s\n", strcmp(i->pooling, "rank") ? "embeddings" : "scores",
               i->n_embedding, i->pooling);
    if (!i->window) return;
    printf("windows          %u tokens", i->window);
    if (i->window_period) printf(", but all in every layer of %u", i->window_period);
    if (i->local_rope_base > 0) printf("; rope base %g", i->local_rope_base);
    printf("\n");
}

/* With the sampling that `weft run` and requests get that do not say it, and who says so. */
static void print_vocabulary(const struct weft_model *m)
{
    enum {
        ALL = WEFT_SAMPLING_TEMPERATURE | WEFT_SAMPLING_TOP_K | WEFT_SAMPLING_TOP_P | WEFT_SAMPLING_MIN_P |
              WEFT_SAMPLING_REPEAT_PENALTY
    };
    const struct weft_model_info *i = weft_model_info(m);
    struct weft_sampling sampling, chat;
    char kind[64], pre[64], own[160], rest[160];
    printf("vocabulary       %u tokens, BOS %d, EOS %d\n", i->n_vocab, i->bos, i->eos);
    wf_show(kind, sizeof kind, i->vocab_type ? i->vocab_type : "none");
    wf_show(pre, sizeof pre, i->pre_tokenizer ? i->pre_tokenizer : "none");
    printf("tokenizer        %s, pre-tokenizer %s\n", kind, pre);
    if (!i->chat_template) printf("chat template    none");
    else if (weft_chat_check(m, NULL)) printf("chat template    not usable: %s", wf_last_error());
    else printf("chat template    %zu bytes", strlen(i->chat_template));
    if (i->tool_template) printf(", for tools %zu bytes", strlen(i->tool_template));
    unsigned stated = weft_model_sampling(m, &sampling);
    size_t n_own = wf_sampling_print(&sampling, stated, own, sizeof own),
           n_rest = wf_sampling_print(&sampling, ALL & ~stated, rest, sizeof rest);
    printf("\n");
    if (n_own) printf("model's sampling %s\n", own);
    if (n_rest) printf("default sampling %s\n", rest);
    wf_model_sampling(m, true, &chat);
    if (i->chat_template && chat.top_k != sampling.top_k && wf_sampling_print(&chat, ALL & ~stated, rest, sizeof rest))
        printf("chat's sampling  %s (`weft run`; requests take the default)\n", rest);
}

/* Bytes that one sequence needs. */
static uint64_t least_memory(const wf_opts *o, const struct weft_model *m, uint32_t context)
{
    struct weft_engine_params p = {.context = context, .n_seqs = 1, .kv_dtype = o->engine.kv_dtype,
                                   .attention_windows = o->engine.attention_windows};
    struct weft_budget b;
    return weft_model_budget(m, &p, &b) ? 0 : b.weights + b.activations + b.kv;
}

/* Whether a model fits a device; least: bytes that one sequence needs. Where the device's memory is its own, also what
 * a server has there. */
static void print_fit(const struct weft_device_info *d, const struct weft_budget *b, uint64_t least, bool own)
{
    char title[40], from[160];
    uint64_t fixed = b->weights + b->activations, left = d->available ? d->available : d->memory;
    snprintf(title, sizeof title, "  on %.23s", d->id);
    if (left && left < least)
        printf("%-16s does not fit: %u tokens need %s, %s are %s\n", title, b->context, WF_HUMAN(least, true),
               WF_HUMAN(left, true), d->available ? "free" : "there");
    else
        printf("%-16s fits, with room for a KV cache of %s tokens%s\n", title,
               WF_HUMAN(left > fixed ? (left - fixed) / b->kv_bytes_per_token : 0, false),
               b->kv + b->activations > d->max_alloc ? " (in several buffers)" : "");
    if (!own || left < least) return;
    wf_name_options(from, sizeof from, b->n_seqs_from);
    printf("                 a server has a KV cache of %s there: %s tokens (%u contexts of %u),\n",
           WF_HUMAN(b->kv, true), WF_HUMAN(b->kv_tokens, false), b->contexts, b->context);
    printf("                 and runs %u sequences at the same time: %s\n", b->n_seqs, from);
}

/* Prints the memory budget of a server with these options, and the KV cache that fits each device. */
static void print_budget(const wf_opts *o, const struct weft_model *m)
{
    struct weft_budget b;
    struct weft_device_info list[64];
    struct weft_engine_params p = o->engine;
    wf_batching_defaults(o, m, &p);
    if (weft_model_budget(m, &p, &b)) {
        printf("memory budget    %s\n", wf_last_error());
        return;
    }
    printf("memory budget    weights %s, activations %s, KV %s a token\n", WF_HUMAN(b.weights, true),
           WF_HUMAN(b.activations, true), WF_HUMAN(b.kv_bytes_per_token, true));
    printf("                 (a server with %u sequences in steps of %u tokens):\n", b.n_seqs, b.max_batched_tokens);
    printf("                 KV cache of %s holds %s tokens (%u contexts of %u%s),\n", WF_HUMAN(b.kv, true),
           WF_HUMAN(b.kv_tokens, false), b.contexts, b.context,
           (uint64_t)b.contexts * b.context > b.kv_tokens ? " with attention windows" : "");
    printf("                 and %s while steps have at most %u tokens\n", WF_HUMAN(b.steady_kv_tokens, false),
           b.steady_tokens);
    if (b.kv_host)
        printf("                 below it %s of host memory hold %s tokens\n", WF_HUMAN(b.kv_host, true),
               WF_HUMAN(b.kv_host / b.kv_bytes_per_token, false));
    if (b.kv_disk)
        printf("                 and %s of disk %s tokens\n", WF_HUMAN(b.kv_disk, true),
               WF_HUMAN(b.kv_disk / b.kv_bytes_per_token, false));
    uint64_t least = least_memory(o, m, b.context);
    size_t n = WF_MIN(weft_devices(list, WF_LEN(list)), WF_LEN(list));
    for (size_t i = 0; i < n; i++) {
        struct weft_budget on = b;
        bool own = list[i].own_memory && !weft_device_budget(m, &p, &list[i], &on);
        if (!own) on = b;
        print_fit(&list[i], &on, least + on.weights - b.weights, own);
    }
}

static void print_uses(const char *title, uint64_t reused, uint64_t apart, const char *unit)
{
    printf("  %-18s %12llu %14llu  %s\n", title, (unsigned long long)reused, (unsigned long long)apart, unit);
}

/* A setting for all runs asks for no device to be opened. */
static bool of_device(const wf_opts *o) { return wf_opts_typed(o, "device"); }

/* What fits the device, as an engine uses memory and without reuse. */
static int print_use(const wf_opts *o, const struct weft_model *m)
{
    struct weft_memory u;
    struct weft_engine_params p = o->engine;
    char unit[64];
    wf_batching_defaults(o, m, &p);
    weft_status s = weft_memory(m, &p, &u);
    if (s) return wf_say_error(s);
    printf("memory use       on %s: %s, steps of %u tokens;\n", u.device.id, WF_HUMAN(u.memory, true),
           u.max_batched_tokens);
    printf("                 weights %s, sampling %s, KV %s a token,\n", WF_HUMAN(u.weights, true),
           WF_HUMAN(u.workspace, true), WF_HUMAN(u.kv_bytes_per_token, true));
    printf("                 %s for %u tokens\n", WF_HUMAN(u.kv_bytes_per_context, true), u.context);
    printf("  %-18s %12s %14s\n", "", "reused", "without reuse");
    print_uses("activations", u.reused.token_bytes, u.apart.token_bytes, "bytes a token");
    print_uses("", u.reused.logit_row_bytes, u.apart.logit_row_bytes, "bytes a row of logits");
    print_uses("longest context", u.reused.longest_context, u.apart.longest_context, "tokens");
    snprintf(unit, sizeof unit, "sequences of %u tokens", u.context);
    print_uses("largest batch", u.reused.largest_batch, u.apart.largest_batch, unit);
    return 0;
}

/* The same for programs: bytes, and tokens. */
static int print_json(const wf_opts *o, const struct weft_model *m)
{
    const struct weft_model_info *i = weft_model_info(m);
    struct weft_engine_params p = o->engine;
    struct weft_memory u;
    struct weft_budget b;
    wf_text out = {0};
    char label[96];
    wf_batching_defaults(o, m, &p);
    weft_status s = weft_model_budget(m, &p, &b);
    if (!s && of_device(o)) s = weft_memory(m, &p, &u);
    if (s) return wf_say_error(s);
    const struct {
        const char *key;
        uint64_t value;
        bool of_device; /* of --device */
    } numbers[] = {
        {"params", i->n_params, false},
        {"active_params", i->n_active, false},
        {"layers", i->n_layer, false},
        {"heads", i->n_head, false},
        {"kv_heads", i->n_kv_head, false},
        {"head_dim", i->head_dim, false},
        {"model_context", i->context, false},
        {"context", b.context, false},
        {"max_num_seqs", b.n_seqs, false},
        {"max_num_batched_tokens", b.max_batched_tokens, false},
        {"weight_bytes", b.weights, false},
        {"activation_bytes", b.activations, false},
        {"kv_bytes", b.kv, false},
        {"kv_bytes_per_token", b.kv_bytes_per_token, false},
        {"kv_tokens", b.kv_tokens, false},
        {"steady_tokens", b.steady_tokens, false},
        {"steady_kv_tokens", b.steady_kv_tokens, false},
        {"memory_bytes", u.memory, true},
        {"device_max_num_batched_tokens", u.max_batched_tokens, true},
        {"longest_context", u.reused.longest_context, true},
        {"largest_batch", u.reused.largest_batch, true},
        {"longest_context_without_reuse", u.apart.longest_context, true},
        {"largest_batch_without_reuse", u.apart.largest_batch, true},
    };
    wf_model_label(m, label, sizeof label);
    wf_json_print(&out, "{'model_type': %s", label);
    for (size_t k = 0; k < WF_LEN(numbers); k++)
        if (of_device(o) || !numbers[k].of_device)
            wf_json_print(&out, ",\n%s: %llu", numbers[k].key, (unsigned long long)numbers[k].value);
    wf_json_print(&out, "}");
    return wf_print_json(&out);
}

static void print_tensors(const struct weft_model *m, size_t n)
{
    printf("\n%-40s %-6s %-28s %12s\n", "tensor", "format", "dimensions", "bytes");
    for (size_t i = 0; i < n; i++) {
        struct weft_tensor_info t;
        char dims[96] = "";
        weft_model_tensor(m, i, &t);
        for (uint32_t d = 0, at = 0; d < WF_MIN(t.n_dims, 4u); d++)
            at += (uint32_t)snprintf(dims + at, sizeof dims - at, "%s%llu", d ? " x " : "",
                                     (unsigned long long)t.dims[d]);
        char name[4 * sizeof t.name];
        wf_show(name, sizeof name, t.name);
        printf("%-40s %-6s %-28s %12llu\n", name, t.dtype, dims, (unsigned long long)t.bytes);
    }
}

static void print_meta(const struct weft_model *m, size_t n)
{
    char key[96], value[160], shown_key[4 * sizeof key], shown_value[4 * sizeof value];
    printf("\nmetadata\n");
    for (size_t i = 0; i < n; i++) {
        weft_model_meta(m, i, key, sizeof key, value, sizeof value);
        wf_show(shown_key, sizeof shown_key, key);
        wf_show(shown_value, sizeof shown_value, value);
        printf("%-44s %s\n", shown_key, shown_value);
    }
}

static int print_model(const wf_opts *o)
{
    struct weft_model *m = NULL;
    int rc = wf_open_model(o, true, &m);
    if (rc) return rc;
    const struct weft_model_info *i = weft_model_info(m);
    if (o->json) {
        rc = i->unsupported ? wf_say_error(wf_fail(WEFT_ERR_UNSUPPORTED, "%s", i->unsupported)) : print_json(o, m);
        weft_model_close(m);
        return rc;
    }
    print_hyperparameters(i);
    print_vocabulary(m);
    if (i->n_tensors) {
        wf_storage f[WF_FORMATS];
        for (size_t k = 0, n = wf_formats(m, f); k < n; k++)
            printf("%-16s %-5s %zu tensors, %s\n", k ? "" : "formats", f[k].dtype, f[k].n, WF_HUMAN(f[k].bytes, true));
    } else
        printf("tensors          %s\n",
               i->unsupported ? "not read: weft does not support them" : "none: the file contains only a vocabulary");
    if (i->n_tensors && !i->unsupported) {
        char words[640], named[640];
        uint32_t own = weft_model_info(m)->context;
        uint32_t contexts[] = {WF_MIN(own, 4096u), own};
        size_t n = own > 4096 ? 2 : 1;
        if (wf_context_of(o, m)) contexts[0] = wf_context_of(o, m), n = 1;
        if (least_memory(o, m, contexts[0])) { /* an engine says why it cannot be opened */
            for (size_t k = 0; k < n; k++)
                printf(k ? ", %s with %u" : "memory need      %s with a context of %u tokens",
                       WF_HUMAN(least_memory(o, m, contexts[k]), true), contexts[k]);
            printf(n > 1 ? "\n" : " (one sequence)\n");
        }
        print_budget(o, m);
        /* How engines with the default options would run steps on the device, and why. */
        if (!weft_plan_source(m, &o->engine, words, sizeof words))
            wf_name_options(named, sizeof named, words), print_text("steps", named);
    }
    if (i->n_tensors && !i->unsupported && of_device(o)) rc = print_use(o, m);
    if (i->n_tensors && o->verbose) print_tensors(m, i->n_tensors);
    if (o->verbose) print_meta(m, i->n_meta);
    if (i->unsupported) rc = wf_say_error(wf_fail(WEFT_ERR_UNSUPPORTED, "%s", i->unsupported));
    weft_model_close(m);
    return rc;
}

static int cmd_info(const wf_opts *o)
{
    bool model = o->model || o->shape || o->json;
    if (!model && of_device(o)) return wf_usage(o->command, "--device needs a model: add -m FILE");
    return model ? print_model(o) : print_devices();
}

static const wf_opt rows[] = {
    {'m', "model", "FILE|FOLDER", "describe this GGUF file or folder, what it needs, and which devices it fits",
     WF_OPT_TEXT, AT(model)},
    {'c', "ctx-size", "CONTEXT", "context length for the memory estimate; 0: the model's own", WF_OPT_U32,
     AT(engine.context), 0, 16777216},
    {0, "max-num-seqs", "N", "most sequences in a batch, for the estimate (default: as of `weft serve`)", WF_OPT_U32,
     AT(engine.n_seqs), 1, 65536},
    {0, "kv-memory", "SIZE", "size of the KV cache, for the estimate (default: as of `weft serve`)", WF_OPT_SIZE,
     AT(engine.kv_memory), 1, 0x1p63},
    {0, "kv-dtype", "auto|f16|q8_0", "keys and values in the KV cache, for the estimate (default f16)", WF_OPT_CHOICE,
     AT(engine.kv_dtype)},
    {0, "kv-host", "SIZE", "host memory below the KV cache (default: none)", WF_OPT_SIZE, AT(engine.kv_host), 1,
     0x1p63},
    {0, "kv-disk", "PATH:SIZE", "a file below that (default: none)", WF_OPT_PLACE, AT(kv_disk)},
    {0, "gpu-memory-utilization", "PART",
     "most memory that a server takes of a GPU with memory of its own (default 0.9)", WF_OPT_REAL,
     AT(engine.memory_utilization), 0.01, 1},
    {0, "max-num-batched-tokens", "N", "most tokens in a step, for the estimate (default 512)", WF_OPT_U32,
     AT(engine.max_batched_tokens), 1, 65536},
    {0, "policy", "nanoflow|sarathi|orca|request", "scheduling policy, for the estimate (default nanoflow)",
     WF_OPT_CHOICE, AT(engine.policy)},
    {0, "attention-windows", "FILE",
     "file with attention windows (docs/tuning.md), for the estimate: where every head of a layer has one, sequences "
     "take less memory",
     WF_OPT_TEXT, AT(engine.attention_windows)},
    {0, "device", "DEVICE",
     "what fits this device, and how steps run there: activations of a token, longest context and largest batch, with "
     "and without reuse of buffers; auto, cpu, gpu, opencl:P.D, or part of a device's name (default: none is asked)",
     WF_OPT_TEXT, AT(engine.device)},
    {0, "json", NULL,
     "print the model's sizes and the memory estimate as JSON; without a model, those of the built-in one", WF_OPT_FLAG,
     AT(json)},
};
static const WF_GROUP(group, "Options", rows);
static const wf_opt_group *const groups[] = {&group, &wf_group_shape, &wf_group_general, NULL};

const wf_command wf_cmd_info = {
    .name = "info",
    .usage = "[MODEL [-c CONTEXT] [options]] [-v]",
    .summary = "Describes the devices, or a model file. Prints hyperparameters, formats and "
               "a memory estimate; with -v also all tensors and metadata.",
    .words = {"model"},
    .explicit_model = true,
    .groups = groups,
    .run = cmd_info,
};
