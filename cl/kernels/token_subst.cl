/* token_subst: tokens of a step, of which those that the step before chose are taken from where it put them. A
 * work-item does one; y may be ids. */
#include "common.clh"

KERNEL void token_subst(IN(ids), IN(from), OUT(y), uint M, uint K)
{
    for (uint m = get_global_id(0); m < M; m += get_global_size(0)) {
        int id = IN_AT(int, ids)[m];
        uint at = ~(uint)id; /* -1 - id */
        OUT_AT(int, y)[m] = id >= 0 ? id : at < K ? IN_AT(int, from)[at] : -1;
    }
}
