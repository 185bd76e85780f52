/* What the fuzzers of the server share: one that has the demo model and listens nowhere. */
#ifndef WF_FUZZ_SERVE_H
#define WF_FUZZ_SERVE_H

#include <stdlib.h>

#include "serve/api/internal.h"

#define TEMPLATE                                                                                                       \
    "{% if tools %}{{ tools | tojson }}{% endif %}{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}{% " \
    "for c in m.tool_calls %}<tool_call>"                                                                              \
    "{{ c.function | tojson }}</tool_call>{% endfor %}<|im_end|>\n{% endfor %}<|im_start|>assistant\n"

static inline wf_served *served(void)
{
    static wf_server s = {.p = {.chat_template = TEMPLATE, .max_queue = 256}};
    static char names[1][128] = {"demo"};
    static wf_served only = {.server = &s, .names = names, .n_names = 1, .name = names[0], .context = 128,
                             .max_running = 16, .max_queue = 256, .state = WF_SERVED_READY};
    static struct weft_model *m;
    if (!m && weft_model_open(&(struct weft_model_params){.path = WEFT_DEMO}, &m)) abort();
    s.models.first = s.models.usual = &only;
    if (!only.model) only.model = m, wf_chat_style_find(&only);
    return &only;
}

/* A job whose body asks to generate: texts, chats, and chats of other interfaces. */
static inline wf_job job_of(size_t path)
{
    static const wf_route routes[] = {
        {.api = &wf_api_openai},
        {.chat = true, .api = &wf_api_openai},
        {.chat = true, .api = &wf_api_anthropic},
        {.chat = true, .api = &wf_api_responses},
        {.chat = true, .api = &wf_api_ollama},
        {.api = &wf_api_ollama},
        {.api = &wf_api_infill}};
    return (wf_job){.server = served()->server, .served = served(), .route = &routes[path % WF_LEN(routes)]};
}

#endif
