/* AMX for processors without it, which have AVX-512 with FP16: see amx_tiles.h. */
#include <cpuid.h>

#include "cpu/ops/ops.h"

#define LEAF7_FP16 (1u << 23) /* EDX */

bool wf_cpu_has_amx(void)
{
    unsigned a, b, c, d;
    return wf_cpu_has_avx512() && __get_cpuid_count(7, 0, &a, &b, &c, &d) && d & LEAF7_FP16;
}
