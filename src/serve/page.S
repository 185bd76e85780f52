/* The page for people as read-only data; SERVE_PAGE is its path, from meson.build. */
#include "base/embed.h"
WF_EMBED(wf_page, SERVE_PAGE)
