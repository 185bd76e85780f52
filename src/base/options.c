/* options: what the program makes of messages of the library, which name parameters. See options.h. */
#include "base/options.h"

#include <string.h>

static const struct {
    const char *parameter, *option;
} options[] = {
    {"weft_engine_params.adapter_rank", "start with --lora FILE of that rank"},
    {"weft_engine_params.context", "-c"},
    {"weft_engine_params.deterministic", "--deterministic"},
    {"weft_engine_params.device", "--device"},
    {"weft_engine_params.dump_plan", "WEFT_DUMP_PLAN"},
    {"weft_engine_params.kv_memory", "--kv-memory"},
    {"weft_engine_params.max_batched_tokens", "--max-num-batched-tokens"},
    {"weft_engine_params.memory_utilization", "--gpu-memory-utilization"},
    {"weft_engine_params.most_adapters", "--lora, --allow lora"},
    {"weft_engine_params.n_seqs", "--max-num-seqs"},
    {"weft_engine_params.nano_batches", "--nano-batches"},
    {"weft_engine_params.threads", "-t"},
    {"weft_engine_params.tier", "--tier"},
    {"weft_model_params.path", "-m FILE"},
    {"weft_convert_params.force", "--force"},
    {"weft_convert_params.out", "-o OUT.gguf"},
    {"weft_convert_params.type", "--type"},
    {"weft_cost_params.devices", "WEFT_DEVICE_TABLE"},
    {"weft_cost_params.n_devices", "--tp"},
    {"weft_cost_params.on", "--on"},
    {"weft_op_params.shapes", "--shape"},
    {"weft_overlap_params.anew", "WEFT_ANEW=1"},
    {"weft_overlap_params.plan", "-o"},
    {"weft_overlap_params.profile", "--profile"},
    {"weft_timeline_params.measure", "WEFT_MEASURE=1"},
    {"weft_tune_params.path", "-f"},
    {"weft_chat_params.chat_template", "--chat-template FILE"},
};

void wf_name_options(char *out, size_t cap, const char *text)
{
    size_t at = 0;
    while (*text && at + 1 < cap) {
        size_t i = 0, n = 0;
        for (; i < WF_LEN(options); i++)
            if (!strncmp(text, options[i].parameter, n = strlen(options[i].parameter))) break;
        if (i == WF_LEN(options)) {
            out[at++] = *text++;
            continue;
        }
        wf_copy(out + at, cap - at, options[i].option);
        at += strlen(out + at), text += n;
    }
    out[at] = 0;
    if (*text) wf_mark_cut(out, cap);
}

const char *wf_last_error(void)
{
    static _Thread_local char text[1024];
    wf_name_options(text, sizeof text, weft_last_error());
    return text;
}
