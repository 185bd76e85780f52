/* The demo model as read-only data; DEMO_MODEL is its path, from meson.build. */
#include "base/embed.h"
WF_EMBED(wf_demo_model, DEMO_MODEL)
