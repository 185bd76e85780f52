/* Stands in for all of pull in builds without libcurl: reports what to install. */
#include "pull/pull.h"

weft_status wf_pull(const wf_pull_params *p)
{
    return wf_fail(WEFT_ERR_IO,
                   "this build cannot fetch models: install libcurl4-openssl-dev and libssl-dev, then build again; "
                   "or fetch the file yourself into %s",
                   p->folder);
}
