/* front: what the files of the front share. */
#ifndef WF_FRONT_H
#define WF_FRONT_H

#include "dev/dev.h"

/* An error that says so if the device was lost; `what` is what was wanted. */
weft_status wf_dev_usable(const wf_dev *dev, const char *what);
/* What wf_prepare remembers (wf_dev.verdicts); freed before the device closes. NULL is allowed. */
void wf_verdicts_free(struct wf_verdicts *);

#endif
