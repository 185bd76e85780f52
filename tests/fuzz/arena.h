/* Memory for jansson in a fuzzer, with a check that a run gives all of it back. */
#ifndef WF_FUZZ_ARENA_H
#define WF_FUZZ_ARENA_H

#include <jansson.h>

void arena_begin(void);
void arena_end(void); /* every block must have been freed */

#endif
