/* qwen: see qwen.h. */
#include "model/arch/qwen.h"
#include "base/json.h"

weft_status wf_qwen_moe_config(wf_gguf *g, const wf_json *config)
{
    (void)g;
    uint32_t step = 1;
    const wf_json *plain;
    WF_TRY(wf_json_u32(config, "decoder_sparse_step", &step));
    WF_TRY(wf_json_array(config, "mlp_only_layers", &plain));
    if (step != 1)
        return wf_fail(
            WEFT_ERR_UNSUPPORTED,
            "'decoder_sparse_step' is %u: layers between those with experts; weft computes experts in every layer",
            step);
    return wf_json_count(plain)
               ? wf_fail(WEFT_ERR_UNSUPPORTED,
                         "'mlp_only_layers' lists layers without experts; weft computes experts in every layer")
               : WEFT_OK;
}
