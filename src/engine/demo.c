/* demo: opens the model that is in the library, WEFT_DEMO. no_demo.c stands for it in a build with -Ddemo=false. */
#include "engine/engine.h"

extern const uint8_t wf_demo_model[], wf_demo_model_end[]; /* demo.S */

weft_status wf_demo_open(wf_gguf **out)
{
    return wf_gguf_open_memory(wf_demo_model, (size_t)(wf_demo_model_end - wf_demo_model), "built-in demo model", out);
}
