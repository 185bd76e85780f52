/* iq4_values: what the 16 codes of IQ4_NL and IQ4_XS stand for: closer to each other near zero, where most weights are.
 */
#ifndef WF_IQ4_VALUES_H
#define WF_IQ4_VALUES_H

#include <stdint.h>

static const int8_t wf_iq4_values[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

#endif
