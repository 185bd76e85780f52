/* Whether this process may use AMX. */
#include <cpuid.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "cpu/ops/ops.h"

#define REQUEST_PERMISSION 0x1023 /* ARCH_REQ_XCOMP_PERM, which older headers lack */
#define TILE_DATA          18     /* XFEATURE_XTILEDATA */
#define LEAF7_AMX          (1u << 22 | 1u << 23 | 1u << 24 | 1u << 25) /* EDX: AMX-BF16, AVX512-FP16, AMX-TILE, AMX-INT8 */

static bool may_use;

/* Linux enables the tile registers, 8 KiB more state per thread, only on request. */
static void request(void)
{
    unsigned a, b, c, d;
    may_use = wf_cpu_has_avx512() && __get_cpuid_count(7, 0, &a, &b, &c, &d) &&
              (d & LEAF7_AMX) == LEAF7_AMX &&
              syscall(SYS_arch_prctl, REQUEST_PERMISSION, TILE_DATA) == 0;
}

bool wf_cpu_has_amx(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, request);
    return may_use;
}
