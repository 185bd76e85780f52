/* Writes a text while it is generated: events are pulled, on the thread that prints them.
 *
 *   cc stream.c $(pkg-config --cflags --libs weft) -o stream && ./stream [MODEL [PROMPT]]
 */
#include <stdio.h>
#include <weft/weft.h>

/* Prints until the request has ended; its status. */
static enum weft_status print(struct weft_request *request)
{
    const struct weft_event *event;
    while (!weft_next(request, -1, &event)) {
        if (event->kind == WEFT_EVENT_TOKEN) fwrite(event->text, 1, event->text_len, stdout), fflush(stdout);
        if (event->kind != WEFT_EVENT_DONE) continue;
        if (event->status) fprintf(stderr, "%s\n", event->message);
        else fprintf(stderr, "\n%u tokens in, %u out\n", event->n_prompt, event->n_generated);
        return event->status;
    }
    fprintf(stderr, "%s\n", weft_last_error());
    return WEFT_ERR_INTERNAL;
}

int main(int argc, char **argv)
{
    struct weft_model *model = NULL;
    struct weft_engine *engine = NULL;
    struct weft_request *request = NULL;
    struct weft_model_params mp = {.path = argc > 1 ? argv[1] : WEFT_DEMO};
    struct weft_request_params rp = {.prompt = argc > 2 ? argv[2] : "One day", .max_tokens = 60, .pull = true};
    enum weft_status s = weft_model_open(&mp, &model);
    if (!s) s = weft_engine_open(model, &(struct weft_engine_params){0}, &engine);
    if (!s) s = weft_submit(engine, &rp, &request);
    if (s) fprintf(stderr, "%s\n", weft_last_error());
    else s = print(request);
    weft_request_free(request);
    weft_engine_close(engine);
    weft_model_close(model);
    return s != WEFT_OK;
}
