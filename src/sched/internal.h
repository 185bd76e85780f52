/* sched, inside: what its files call of each other. */
#ifndef WF_SCHED_INTERNAL_H
#define WF_SCHED_INTERNAL_H

#include "sched/sched.h"

uint32_t wf_sched_pages_for(const wf_sched *s, uint32_t tokens);
void wf_sched_insert(wf_seq **list, wf_seq *q); /* by order */
void wf_sched_unlink(wf_seq **list, wf_seq *q);
/* Records pages [0, n) of q as a copy before the next step; false: no memory for the record. */
bool wf_sched_move(wf_sched *s, wf_seq *q, bool out, uint32_t n);
void wf_sched_clear_moves(wf_sched *s);
void wf_sched_admit(wf_sched *s); /* as many of those waiting as fit */
bool wf_sched_preempt(wf_sched *s, const wf_seq *q); /* puts the last in order behind q aside; false: there is none */

#endif
