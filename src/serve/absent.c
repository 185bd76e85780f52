/* serve in a build without libmicrohttpd or jansson: an error message. */
#include "serve/serve.h"

#include <stdio.h>

int wf_serve(const wf_serve_params *p)
{
    (void)p;
    fprintf(stderr, "weft: error: this build cannot serve: install libmicrohttpd-dev and "
                    "libjansson-dev, then build again\n");
    return 1;
}
