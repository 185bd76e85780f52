/* judged: is what a kernel wrote right that runs without a device (host.h), in F16 arithmetic? */
#ifndef WF_TEST_JUDGED_H
#define WF_TEST_JUDGED_H

#include "verify/judge.h"

/* rows: output o of the check, which was filled with bytes of 0xFF, NaN, before. An infinite error is a write outside
 * of its columns. */
wf_check_result judged(const wf_check *k, int o, const uint8_t *rows);

#endif
