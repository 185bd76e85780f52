/* Stands in for client.c in builds without libcurl: reports what to install. */
#include "loadgen/client.h"

#include <stdio.h>

int wf_client_run(const wf_client_params *p)
{
    (void)p;
    fprintf(stderr, "weft: error: this build cannot measure servers: install libcurl4-openssl-dev, then build again\n");
    return 1;
}
