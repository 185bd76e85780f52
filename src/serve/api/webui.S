/* The page for people as read-only data; SERVE_WEBUI is its path, from meson.build. */
#include "base/embed.h"
WF_EMBED(wf_webui, SERVE_WEBUI)
