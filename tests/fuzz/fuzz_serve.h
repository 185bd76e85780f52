/* What the fuzzers of the server share: one that has the demo model and listens nowhere. */
#ifndef WF_FUZZ_SERVE_H
#define WF_FUZZ_SERVE_H

#include <stdlib.h>

#include "serve/api/internal.h"

#define TEMPLATE                                                                                                       \
    "{% if tools %}{{ tools | tojson }}{% endif %}{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}{% " \
    "for c in m.tool_calls %}<tool_call>"                                                                              \
    "{{ c.function | tojson }}</tool_call>{% endfor %}<|im_end|>\n{% endfor %}<|im_start|>assistant\n"

static inline wf_server *server(void)
{
    static wf_server s = {.p = {.chat_template = TEMPLATE, .max_queue = 256},
                          .only = {.server = &s, .name = "demo", .context = 128, .max_running = 16}};
    static struct weft_model *m;
    if (!m && weft_model_open(&(struct weft_model_params){.path = WEFT_DEMO}, &m)) abort();
    if (!s.only.model) s.only.model = m, wf_chat_style_find(&s.only);
    return &s;
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
    return (wf_job){.server = server(), .served = &server()->only, .route = &routes[path % WF_LEN(routes)]};
}

#endif
