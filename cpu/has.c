/* Detects the SIMD levels of this processor. */
#include "cpu/ops/ops.h"

#if defined(__aarch64__)
#include <sys/auxv.h>
#endif

bool wf_cpu_has_c(void)
{
    return true;
}

#define ABSENT(level)                                                                              \
    bool wf_cpu_has_##level(void)                                                                  \
    {                                                                                              \
        return false;                                                                              \
    }

#if defined(__x86_64__)
/* Every processor with AVX2 has F16C; clang 14 cannot query it by name. */
bool wf_cpu_has_avx2(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}

#if defined(WF_NO_AVX512)
ABSENT(avx512)
#else
bool wf_cpu_has_avx512(void)
{
    return wf_cpu_has_avx2() && __builtin_cpu_supports("avx512f") &&
           __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vnni");
}
#endif
#else
ABSENT(avx2)
ABSENT(avx512)
#endif

#if defined(__aarch64__)
/* NEON is mandatory for Linux on 64-bit ARM. */
bool wf_cpu_has_neon(void)
{
    return true;
}

bool wf_cpu_has_dotprod(void)
{
    return getauxval(AT_HWCAP) & HWCAP_ASIMDDP;
}
#else
ABSENT(neon)
ABSENT(dotprod)
#endif

void wf_cpu_decode(uint8_t dtype, const void *src, float *dst, size_t n)
{
    if (wf_cpu_has_avx512())
        wf_cpu_decode_avx512(dtype, src, dst, n);
    else if (wf_cpu_has_avx2())
        wf_cpu_decode_avx2(dtype, src, dst, n);
    else if (wf_cpu_has_neon())
        wf_cpu_decode_neon(dtype, src, dst, n);
    else
        wf_cpu_decode_c(dtype, src, dst, n);
}
