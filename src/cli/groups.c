/* groups: option rows that several commands take. */
#include "cli/cli.h"

#define AT(field) offsetof(wf_opts, field)
#define MANY      2147483647.0

static const wf_opt model[] = {
    {'m', "model", "FILE", "GGUF model file; without it the built-in demo model", WF_OPT_TEXT,
     AT(model)},
};
WF_GROUP(wf_group_model, "Model", model);

static const wf_opt context[] = {
    {'c', "ctx-size", "CONTEXT", "tokens of context (default: the model's, at most 4096)",
     WF_OPT_U32, AT(engine.context), 1, MANY},
    {'t', "threads", "THREADS", "CPU threads (default: all cores)", WF_OPT_U32, AT(engine.threads),
     1, 4096},
};
WF_GROUP(wf_group_context, "Size", context);

static const wf_opt sampling[] = {
    {0, "temp", "T", "temperature; 0, the default, always takes the likeliest token", WF_OPT_REAL,
     AT(sampling.temperature), 0, 100},
    {0, "top-k", "K", "draw from the K likeliest tokens (default 0: off)", WF_OPT_I32,
     AT(sampling.top_k), 0, MANY},
    {0, "top-p", "P",
     "draw from the likeliest tokens that together have probability P (default 1: off)",
     WF_OPT_REAL, AT(sampling.top_p), 0, 1},
    {0, "min-p", "P", "drop tokens less likely than P times the likeliest (default 0: off)",
     WF_OPT_REAL, AT(sampling.min_p), 0, 1},
    {0, "repeat-penalty", "X", "divide the score of the last 64 tokens by X (default 1: off)",
     WF_OPT_REAL, AT(sampling.repeat_penalty), 0, 100},
    {0, "seed", "SEED", "the same seed gives the same text (default: a new one each time)",
     WF_OPT_U64, AT(sampling.seed), 0, 0x1p64},
};
WF_GROUP(wf_group_sampling, "Sampling", sampling);

static const wf_opt text[] = {
    {'p', "prompt", "TEXT", "the text; '' is the empty text", WF_OPT_TEXT, AT(prompt)},
    {'f', "file", "FILE", "read the text from a file", WF_OPT_TEXT, AT(file)},
};
WF_GROUP(wf_group_text, "Input", text);

static const wf_opt special[] = {
    {0, "no-add-special", NULL, "add no BOS and no EOS, even if the model asks for them",
     WF_OPT_FLAG, AT(no_add_special)},
    {0, "no-parse-special", NULL, "treat the names of control tokens as plain text", WF_OPT_FLAG,
     AT(no_parse_special)},
};
WF_GROUP(wf_group_special, "Special tokens", special);

static const wf_opt batching[] = {
    {0, "max-num-seqs", "N", "sequences that run together (default 64)", WF_OPT_U32,
     AT(engine.n_seqs), 1, 65536},
    {0, "kv-memory", "SIZE",
     "KV cache that they share (default: what 8 sequences of a whole context take)", WF_OPT_SIZE,
     AT(engine.kv_memory), 1, 0x1p63},
    {0, "max-num-batched-tokens", "N", "tokens computed in one step (default: as `weft tune` found, else 1024 on a GPU, 512 elsewhere; of the policies orca and request the context)", WF_OPT_U32,
     AT(engine.max_batched_tokens), 1, 65536},
    {0, "no-prefix-cache", NULL, "compute equal starts of prompts again", WF_OPT_FLAG,
     AT(engine.no_prefix)},
};
WF_GROUP(wf_group_batching, "Batching", batching);

static const wf_opt profile[] = {
    {0, "profile", NULL,
     "let the device note times. `bench throughput` then tells how long it had nothing to do while there was work, and /metrics "
     "step_seconds by class of work (compute, memory, network, host) and nano_batch_overlap_ratio. With a GPU's driver a "
     "single sequence may take a seventh longer",
     WF_OPT_FLAG, AT(engine.profile)},
};
WF_GROUP(wf_group_profile, "Profile", profile);

static const wf_opt device[] = {
    {0, "device", "DEVICE", "auto, cpu, gpu, opencl:P.D, or part of a device's name (default auto)",
     WF_OPT_TEXT, AT(engine.device)},
    {0, "tier", "base|simd|fp16|subgroup|matrix", "use kernels up to this tier only", WF_OPT_CHOICE,
     AT(engine.tier)},
    {0, "tuned", "FILE|none", "choose kernels by this file of `weft tune`, or by none (default: the device's own, if there is one)",
     WF_OPT_TEXT, AT(engine.tuned)},
    {0, "deterministic", NULL, "the same request gives the same bits alone and in any batch; slower", WF_OPT_FLAG, AT(engine.deterministic)},
    {0, "list-devices", NULL, "list the devices and end", WF_OPT_FLAG, AT(list_devices)},
};
WF_GROUP(wf_group_device, "Device", device);

static const wf_opt testing[] = {
    {0, "max-alloc", "SIZE", "pretend that no device buffer can be larger, e.g. 256M", WF_OPT_SIZE,
     AT(engine.max_alloc), 1, 0x1p63},
    {0, "nano-batches", "N", "split steps into N parts; attention of one runs beside the GEMMs of the others (default 1: off)", WF_OPT_U32,
     AT(engine.nano_batches), 1, 64},
    {0, "plan", "FILE", "run the plan in this file", WF_OPT_TEXT, AT(engine.plan)},
    {0, "dump-plan", "FILE", "write the plan to this file", WF_OPT_TEXT, AT(engine.dump_plan)},
    {0, "timeline", "FILE", "write a timeline of the steps to this file, as Chrome trace JSON (Perfetto opens it)", WF_OPT_TEXT, AT(engine.timeline)},
    {0, "calibration", "FILE", "ranges of attention logits (default: beside the model, if there)",
     WF_OPT_TEXT, AT(engine.calibration)},
    {0, "attention-windows", "FILE", "how many of the last keys each KV head of each layer sees, for sparse attention; query heads share the window of "
     "their KV head (README shows such a file)", WF_OPT_TEXT, AT(engine.attention_windows)},
    {0, "force", "OP=VARIANT,...", "take these kernel variants", WF_OPT_TEXT, AT(engine.force)},
    {0, "page-tokens", "N", "tokens of a KV page (default 16)", WF_OPT_U32, AT(engine.page_tokens),
     1, 1024},
    {0, "shuffle-pages", "SEED", "hand KV pages out in an order drawn from SEED", WF_OPT_U64,
     AT(engine.shuffle_pages), 0, 0x1p64},
    {0, "poison", NULL, "fill KV pages with NaN before use", WF_OPT_FLAG, AT(engine.poison)},
    {0, "check-calls", NULL, "check operands and shapes of each kernel call of each step", WF_OPT_FLAG, AT(engine.check_calls)},
    {0, "no-kernel-cache", NULL, "neither read nor write compiled kernels", WF_OPT_FLAG,
     AT(engine.no_kernel_cache)},
    {0, "watchdog", "MS", "a step longer than this is a lost device (default 60000)", WF_OPT_U32,
     AT(engine.watchdog_ms), 1, MANY},
};
WF_GROUP(wf_group_testing, "Testing", testing);

static const wf_opt results[] = {
    {0, "results", "FOLDER", "also append the rows to FOLDER/<device>.csv", WF_OPT_TEXT, AT(results)},
    {0, "peer", "FILE", "lines op,dtype,shape,peer,rate,unit that another program measured in the same run, to compare with",
     WF_OPT_TEXT, AT(peer)},
};
WF_GROUP(wf_group_results, "Results", results);

static const wf_opt general[] = {
    {'q', "quiet", NULL, "only errors on stderr", WF_OPT_FLAG, AT(quiet)},
    {'v', "verbose", NULL, "say more on stderr", WF_OPT_FLAG, AT(verbose)},
    {'h', "help", NULL, "this text", WF_OPT_FLAG, AT(help)},
};
WF_GROUP(wf_group_general, "General", general);
