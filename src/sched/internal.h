/* sched, internal: what its files call in each other. */
#ifndef WF_SCHED_INTERNAL_H
#define WF_SCHED_INTERNAL_H

#include "sched/sched.h"

/* fair.c */
void wf_fair_init(wf_sched *s);
void wf_fair_free(wf_sched *s);
void wf_fair_arrive(wf_sched *s, wf_seq *q);
void wf_fair_admit(wf_sched *s, wf_seq *q); /* q will run; tokens found in the prefix cache count as computed */
void wf_fair_found(wf_sched *s, wf_seq *q); /* what q has computed costs nothing, as above */
void wf_fair_computed(wf_sched *s, wf_seq *q, bool sampled); /* in a step; sampled: it gives a token */
void wf_fair_leave(wf_sched *s, wf_seq *q); /* q has ended; its state is still the last one */
/* the sequence to admit next; NULL: none may be admitted. first: of those whose client has no other */
wf_seq *wf_fair_next(const wf_sched *s, bool first);
/* running sequences: those of the least served client first; of one client in order */
void wf_fair_sort(wf_seq **list, uint32_t n);

void wf_sched_insert(wf_seq **list, wf_seq *q); /* keeps the list in order */
void wf_sched_unlink(wf_seq **list, wf_seq *q);
void wf_sched_admit(wf_sched *s); /* as many waiting sequences as fit */
/* prefix.c: q, which has nothing computed, takes over the blocks of the longest known prefix; below: also those that
 * have to be loaded first, where that is worth it. */
void wf_sched_find_prefix(wf_sched *s, wf_seq *q, bool below);
void wf_sched_complete_loads(wf_sched *s); /* sequences whose loads have ended go on */
bool wf_sched_preempt(wf_sched *s, const wf_seq *q); /* the last sequence in order after q; false: there is none */

#endif
