/* no_demo: what a build with -Ddemo=false says of the demo model. See demo.c. */
#include "engine/engine.h"

weft_status wf_demo_open(wf_gguf **out)
{
    (void)out;
    return wf_fail(WEFT_ERR_UNSUPPORTED, "this weft was built without the demo model (-Ddemo=false): name a GGUF file "
                                         "or a folder (weft_model_params.path)");
}
