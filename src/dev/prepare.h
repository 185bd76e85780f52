/* prepare: what wf_prepare remembers about a device between calls (wf_dev.verdicts). */
#ifndef WF_PREPARE_H
#define WF_PREPARE_H

struct wf_verdicts;
void wf_verdicts_free(struct wf_verdicts *); /* before the device closes; NULL is allowed */

#endif
