/* environment: variables for what only measuring and testing need. They are rows as those of options, and are read as
 * these. See cli.h. */
#include "cli/cli.h"

#include <stdio.h>
#include <stdlib.h>

#define AT(field) offsetof(wf_opts, field)
#define MANY      2147483647.0

/* docs/command-line.md has the same list. */
static const wf_opt rows[] = {
    {0, "WEFT_FORCE", "OP=VARIANT,...", "use these kernel variants; `weft kernels` lists them", WF_OPT_TEXT,
     AT(debug.force)},
    {0, "WEFT_NO_KERNEL_CACHE", NULL, "compile kernels and test them anew, without the cache of both", WF_OPT_FLAG,
     AT(engine.no_kernel_cache)},
    {0, "WEFT_CHECK_CALLS", NULL, "check operands and shapes of each kernel call of each step", WF_OPT_FLAG,
     AT(debug.check_calls)},
    {0, "WEFT_MAX_ALLOC", "SIZE", "limit the size of device buffers", WF_OPT_SIZE, AT(debug.max_alloc), 1, 0x1p63},
    {0, "WEFT_PAGE_TOKENS", "N", "tokens per KV page (16)", WF_OPT_U32, AT(engine.page_tokens), 1, 1024},
    {0, "WEFT_SHUFFLE_PAGES", "SEED", "allocate KV pages in a random order", WF_OPT_U64, AT(debug.shuffle_pages), 0,
     0x1p64},
    {0, "WEFT_POISON", NULL, "fill KV pages with NaN before use", WF_OPT_FLAG, AT(debug.poison)},
    {0, "WEFT_WATCHDOG", "MS", "a step that takes longer means that the device is lost (60000)", WF_OPT_U32,
     AT(engine.watchdog_ms), 1, MANY},
    {0, "WEFT_DUMP_PLAN", "FILE", "write the execution plan, for --plan", WF_OPT_TEXT, AT(engine.dump_plan)},
    {0, "WEFT_DEVICE_TABLE", "FILE", "the table of `weft plan --cost --on` (src/plan/devices.txt)", WF_OPT_TEXT,
     AT(costs.devices)},
    {0, "WEFT_LAYERS", "N", "layers of --shape (as many as the model has)", WF_OPT_U32, AT(layers), 1, 1000},
    {0, "WEFT_MEASURE", NULL,
     "`weft plan`: measure the device's peak rates anew, and estimate times by them; with --timeline run the step, too",
     WF_OPT_FLAG, AT(costs.measure)},
    {0, "WEFT_N_DEVICES", "N", "`weft plan --cost`: devices that share every matrix (1)", WF_OPT_U32,
     AT(costs.n_devices), 1, 1024},
    {0, "WEFT_VARIANT", "NAME",
     "`weft bench ops`: measure this kernel variant; all: each but the references (the one that is selected)",
     WF_OPT_TEXT, AT(variant)},
    {0, "WEFT_ROTATE", "SIZE",
     "copies of the operands that measured kernels cycle through (GPUs 4G, else more than twice the last-level cache)",
     WF_OPT_SIZE, AT(rotate), 1, 0x1p63},
    {0, "WEFT_WORK_GROUPS", "N", "most work-groups of a launch of `weft bench ops`, on the CPU threads (all)",
     WF_OPT_U32, AT(work_groups), 1, UINT32_MAX},
    {0, "WEFT_ASYNC", NULL, "`weft bench ops`: the asynchronous softmax, as of a calibrated model", WF_OPT_FLAG,
     AT(async)},
    {0, "WEFT_PEAK_TFLOPS", "T", "peak of NanoFlow's optimum in `weft bench throughput` (measured)", WF_OPT_REAL,
     AT(load.peak_tflops), 1e-6, 1e9},
    {0, "WEFT_TUNE_SIZE", "N", "`weft tune`: most tokens of a batch, or keys of a sequence (2048)", WF_OPT_U32,
     AT(max_size), 1, 1048576},
    {0, "WEFT_QUICK", NULL, "`weft tune --overlap`: fewer sizes, shares and repetitions", WF_OPT_FLAG,
     AT(overlaps.quick)},
    {0, "WEFT_ANEW", NULL, "`weft tune --overlap`: measure also what was measured before", WF_OPT_FLAG,
     AT(overlaps.anew)},
    {0, "WEFT_BEST", "N", "plans that `weft plan --search` writes (1) and `weft tune --overlap` runs (4)", WF_OPT_U32,
     AT(search.keep), 1, 15},
    {0, "WEFT_RANDOM_PROMPTS", "auto|ids|words", "`weft bench serve`: random prompts as token ids or words (auto)",
     WF_OPT_CHOICE, AT(load.prompts)},
    {0, "WEFT_BURSTINESS", "B", "`weft bench serve`: of arrivals; less: burstier, more: more regular (1: Poisson)",
     WF_OPT_REAL, AT(client.burstiness), 1e-3, 1e6},
    {0, "WEFT_LABEL", "TEXT", "`weft bench serve`: label in the result and in its file name", WF_OPT_TEXT,
     AT(client.label)},
    {0, "WEFT_BOS", "TEXT", "`weft template`: text of bos_token (the model's)", WF_OPT_TEXT, AT(conversation.bos)},
    {0, "WEFT_EOS", "TEXT", "`weft template`: text of eos_token (the model's)", WF_OPT_TEXT, AT(conversation.eos)},
    {0, "WEFT_NOW", "DATE", "`weft template`: the date as YYYY-MM-DD (today)", WF_OPT_TEXT, AT(conversation.now)},
    {0, "WEFT_PULL_RETRIES", "N", "tries of `weft pull` after a failure in a row (6)", WF_OPT_U32, AT(pull.retries), 0,
     1000},
    {0, "WEFT_PULL_DELAY", "S", "seconds before the first of them; it doubles (1)", WF_OPT_REAL, AT(pull.retry_s), 0,
     3600},
    {0, "WEFT_PULL_STALL", "S", "seconds without a byte that end a connection of `weft pull` (60)", WF_OPT_U32,
     AT(pull.stall_s), 1, 86400},
};
const WF_GROUP(wf_environment, "Variables for testing and measuring", rows);
