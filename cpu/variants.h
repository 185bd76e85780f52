/* variants: when each kernel of variants.def can run, how well it suits, and what the CPU offers. */
#ifndef WF_CPU_VARIANTS_H
#define WF_CPU_VARIANTS_H

#include "cpu/cpu.h"

uint32_t wf_cpu_rank_ref(const wf_call *);

/* Fills tiers, features and driver of the device's description. */
void wf_cpu_describe(struct weft_device_info *);

#endif
