/* groups: options that several commands share. */
#include "cli/cli.h"

static const wf_opt model[] = {
    {'m', "model", "FILE",
     "GGUF file, or folder with config.json, tokenizer.json and safetensors (default: the built-in demo model)",
     WF_OPT_TEXT, AT(model)},
};
WF_GROUP(wf_group_model, "Model", model);

#define THREADS                                                                                                        \
    {                                                                                                                  \
        't', "threads", "THREADS", "CPU threads (default: one per core, one less from 16 cores on)", WF_OPT_U32,       \
            AT(engine.threads), 1, 4096                                                                                \
    }

static const wf_opt context[] = {
    {'c', "ctx-size", "CONTEXT", "context length in tokens; 0: the model's own (default: the same, at most 4096)",
     WF_OPT_U32, AT(engine.context), 0, 1 << 24},
    THREADS,
};
WF_GROUP(wf_group_context, "Context and threads", context);

static const wf_opt threads[] = {THREADS};
WF_GROUP(wf_group_threads, "Threads", threads);

static const wf_opt sampling[] = {
    {0, "temp", "T", "sampling temperature; 0: always the most likely token (default: the model's, else 1, and "
     "in a chat of `weft run` 0.8, with top-k 40, top-p 0.95 and min-p 0.05)",
     WF_OPT_REAL, AT(sampling.temperature), 0, 100},
    {0, "top-k", "K", "sample from the K most likely tokens; 0: off (default: the model's, else 0)", WF_OPT_I32,
     AT(sampling.top_k), 0, MANY},
    {0, "top-p", "P",
     "sample from the smallest set of tokens with total probability P; 1: off; 0: the most likely token (default: the "
     "model's, else 1)",
     WF_OPT_REAL, AT(sampling.top_p), 0, 1},
    {0, "min-p", "P", "drop tokens less likely than P times the most likely one; 0: off (default: the model's, else 0)",
     WF_OPT_REAL, AT(sampling.min_p), 0, 1},
    {0, "repeat-penalty", "X",
     "penalty on tokens of prompt and answer: divides positive logits by X, multiplies negative ones; 1: off (default: "
     "the model's, else 1)",
     WF_OPT_REAL, AT(sampling.repeat_penalty), 1e-3, 2}, /* the penalties have the ranges of the fields of requests */
    {0, "repeat-last-n", "N",
     "the repeat penalty covers the last N tokens; 0 or -1: all (default: the model's, else 0)", WF_OPT_I32,
     AT(sampling.repeat_last_n), -1, MANY},
    {0, "presence-penalty", "X", "subtract X from the logits of tokens that were generated before (default 0: off)",
     WF_OPT_REAL, AT(sampling.presence_penalty), -2, 2},
    {0, "frequency-penalty", "X", "the same, times how often (default 0: off)", WF_OPT_REAL,
     AT(sampling.frequency_penalty), -2, 2},
    {0, "seed", "SEED",
     "random seed; the same seed gives the same text; -1: a new one for each run, which is printed (default -1)",
     WF_OPT_SEED, AT(sampling.seed), 0, 0x1p64},
};
WF_GROUP(wf_group_sampling, "Sampling", sampling);
const wf_opt_group wf_group_sampling_defaults = {"Sampling of requests that do not say it", sampling,
                                                 WF_LEN(sampling) - 1}; /* all but the seed */

static const wf_opt text[] = {
    {'p', "prompt", "TEXT", "the text; '' is an empty text", WF_OPT_TEXT, AT(prompt)},
    {'f', "file", "FILE", "read the text from a file; - is standard input", WF_OPT_TEXT, AT(file)},
};
WF_GROUP(wf_group_text, "Input", text);

static const wf_opt special[] = {
    {0, "no-add-special", NULL, "do not add BOS or EOS, even if the model wants them", WF_OPT_FLAG, AT(no_add_special)},
};
WF_GROUP(wf_group_special, "Special tokens", special);

static const wf_opt batching[] = {
    {0, "max-num-seqs", "N",
     "most sequences in a batch (default: as many whole contexts as the KV cache holds, at least 64 and at most 256)",
     WF_OPT_U32, AT(engine.n_seqs), 1, 65536},
    {0, "kv-memory", "SIZE",
     "size of the KV cache, e.g. 4G (default: on a GPU with memory of its own what --gpu-memory-utilization leaves "
     "beside the weights and activations, as far as the sequences can use it; on CPUs and GPUs that share the host's "
     "memory 8 sequences of full context length, fewer where there is less)",
     WF_OPT_SIZE, AT(engine.kv_memory), 1, 0x1p63},
    {0, "gpu-memory-utilization", "PART",
     "most memory that weights, activations and the default KV cache take of a GPU with memory of its own, of what is "
     "free if its driver tells (default 0.9)",
     WF_OPT_REAL, AT(engine.memory_utilization), 0.01, 1},
    {0, "max-num-batched-tokens", "N",
     "most tokens in a step (default: as `weft tune` measured, else 1024 on GPUs and 512 elsewhere; for the policies "
     "orca and request the context length)",
     WF_OPT_U32, AT(engine.max_batched_tokens), 1, 65536},
    {0, "kv-host", "SIZE",
     "host memory below the KV cache, e.g. 16G: blocks that it has no room for stay there, for prompts that begin "
     "alike (default: none)",
     WF_OPT_SIZE, AT(engine.kv_host), 1, 0x1p63},
    {0, "kv-disk", "PATH:SIZE",
     "a file below that, which keeps blocks over restarts, e.g. /var/cache/kv:100G (default: none)", WF_OPT_PLACE, AT(kv_disk)},
    {0, "no-prefix-cache", NULL, "do not reuse the KV cache of common prompt prefixes", WF_OPT_FLAG,
     AT(engine.no_prefix)},
};
WF_GROUP(wf_group_batching, "Batching", batching);

static const wf_opt draft[] = {
    {0, "draft-max", "N",
     "speculative decoding by prompt lookup: draft up to N tokens from what the text said before, and verify them in "
     "one step, where that is faster; for answers that repeat their prompt, as edited code does (default 0: off)",
     WF_OPT_U32, AT(engine.draft_tokens), 0, 64},
    {0, "draft-model", "FILE",
     "a smaller model of the same vocabulary, which drafts where prompt lookup finds nothing, --draft-max tokens "
     "(default 8), for 4 sequences at a time; its memory comes on top",
     WF_OPT_TEXT, AT(draft_model)},
};
WF_GROUP(wf_group_draft, "Speculative decoding", draft);

static const wf_opt adapters[] = {
    {0, "lora", "NAME=FILE",
     "LoRA adapter for the model, a GGUF file or a folder of PEFT; repeatable, or with commas between. Requests to "
     "`weft serve` name one as their model, `weft run` takes it. Without NAME it has that of its file",
     WF_OPT_WORDS, AT(adapters)},
};
WF_GROUP(wf_group_adapters, "Adapters", adapters);

static const wf_opt profile[] = {
    {0, "profile", NULL,
     "record device timestamps. `bench throughput` then reports how long the device idled while work was waiting, and "
     "/metrics has step_seconds by class of work (compute, memory, network, copy, host) and "
     "nano_batch_overlap_ratio. On GPUs this can slow a single sequence by up to 15 %",
     WF_OPT_FLAG, AT(engine.profile)},
};
WF_GROUP(wf_group_profile, "Profile", profile);

static const wf_opt device[] = {
    {0, "device", "DEVICE",
     "auto, cpu, gpu, opencl (its best device), opencl:P.D, or part of a device's name; with --tp and --pp a list of "
     "devices, with commas between (default auto)",
     WF_OPT_TEXT, AT(engine.device)},
    {0, "tier", "base|dot|simd|neutral|matrix",
     "highest kernel tier to use: simd on CPUs; dot (products of bytes) and neutral (matrix units, by kernels that "
     "all vendors share) on OpenCL; matrix units on both (default: the best available)",
     WF_OPT_CHOICE, AT(engine.tier)},
};
WF_GROUP(wf_group_device, "Device", device);

static const wf_opt parallel[] = {
    {0, "tp", "N",
     "tensor parallel: N devices compute each layer together, each with its part of weights and KV cache (default 1)",
     WF_OPT_U32, AT(engine.tensor_parallel), 1, 64},
    {0, "pp", "N",
     "pipeline parallel: N devices, or N times --tp, each have a part of the layers and compute different sequences at "
     "the same time (default 1)",
     WF_OPT_U32, AT(engine.pipeline_parallel), 1, 64},
    {0, "experts", "DEVICE[=N]",
     "this device, such as cpu, has the experts of a mixture, or of its first N layers, and --device all else: for "
     "models that are larger than a GPU's memory",
     WF_OPT_TEXT, AT(engine.experts)},
};
WF_GROUP(wf_group_parallel, "Several devices", parallel);

static const wf_opt kernels[] = {
    {0, "tuned", "FILE|none",
     "kernel choices written by `weft tune`; none: default costs (default: the file of this device, if any)",
     WF_OPT_TEXT, AT(engine.tuned)},
    {0, "deterministic", NULL, "batch-invariant kernels: a request gives the same bits alone and in any batch; slower",
     WF_OPT_FLAG, AT(engine.deterministic)},
    {0, "kv-dtype", "auto|f16|q8_0",
     "keys and values in the KV cache: f16 (auto), or q8_0, bytes with a scale for 32, which take 0.53 of the memory, "
     "of device, host and disk; heads must be a multiple of 32",
     WF_OPT_CHOICE, AT(engine.kv_dtype)},
};
WF_GROUP(wf_group_kernels, "Choice of kernels", kernels);

static const wf_opt testing[] = {
    {0, "nano-batches", "auto|N",
     "auto: each step as `weft tune --overlap` found it to be the fastest on this device, if that has run; N: split "
     "each step into N nano-batches, so that the attention of one overlaps with the GEMMs of the others, on a second "
     "queue; 1: no split (default auto)",
     WF_OPT_U32, AT(engine.nano_batches), 1, 64},
    {0, "plan", "FILE",
     "run the execution plan in this file, which WEFT_DUMP_PLAN wrote and you may have edited (docs/plans.md)",
     WF_OPT_TEXT, AT(engine.plan)},
    {0, "timeline", "FILE",
     "write a timeline of all steps as Chrome trace JSON, for Perfetto; `weft plan`: draw one step (FILE.svg), or "
     "write it in the same way (FILE.json)",
     WF_OPT_TEXT, AT(engine.timeline)},
    {0, "calibration", "FILE|auto|none",
     "attention logit ranges for the asynchronous softmax: those that `weft calibrate` wrote; auto: MODEL.calibration "
     "if it exists, else measured at the model's first start, where it gains, and kept; none: synchronous softmax "
     "(default auto; perplexity and calibrate do not measure)",
     WF_OPT_TEXT, AT(engine.calibration)},
    {0, "attention-windows", "FILE",
     "file with the attention window, in keys, of each query head or KV head of each layer (sparse attention; "
     "docs/tuning.md has an example)",
     WF_OPT_TEXT, AT(engine.attention_windows)},
};
WF_GROUP(wf_group_testing, "Advanced", testing);

static const wf_opt results[] = {
    {0, "results", "FOLDER", "also append the results to FOLDER/<device>.csv", WF_OPT_TEXT, AT(results)},
};
WF_GROUP(wf_group_results, "Results", results);

static const wf_opt general[] = {
    {'q', "quiet", NULL, "print only errors to stderr: no progress, also where kernels are compiled for long",
     WF_OPT_FLAG, AT(quiet)},
    {'v', "verbose", NULL, "print more to stderr", WF_OPT_FLAG, AT(verbose)},
    {'h', "help", NULL, "print this help and exit", WF_OPT_FLAG, AT(help)},
};
WF_GROUP(wf_group_general, "General", general);

static const wf_opt shape_rows[] = {
    {0, "shape", "NAME",
     "a model of this shape without a file, with random weights that the device makes: llama3-8b, llama3-70b, ... (a "
     "wrong name lists them)",
     WF_OPT_TEXT, AT(shape), .words = wf_shape_names},
    {0, "type", "TYPE", "storage format of --shape, as of `weft convert` (default F16)", WF_OPT_TEXT, AT(type),
     .words = wf_file_types},
};
const WF_GROUP(wf_group_shape, "Model without a file", shape_rows);
