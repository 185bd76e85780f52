/* A conversation: each line of standard input is a message, and the model's chat template makes a prompt of all so far.
 * What was computed for earlier turns is found in the prefix cache.
 *
 *   cc chat.c $(pkg-config --cflags --libs weft) -o chat && ./chat [MODEL]
 */
#include <stdio.h>
#include <string.h>
#include <weft/weft.h>

enum { MOST = 64, LINE = 4096 };

/* For models without a template, such as the demo model. */
static const char simple[] = "{% for m in messages %}{{ m.content }}\n{% endfor %}";

/* Prints the answer and appends it to text, which holds LINE bytes with a zero byte. */
static enum weft_status print(struct weft_request *request, char *text)
{
    const struct weft_event *event;
    size_t len = 0;
    while (!weft_next(request, -1, &event)) {
        if (event->kind == WEFT_EVENT_DONE) return puts(event->message), event->status;
        if (event->kind != WEFT_EVENT_TOKEN) continue;
        fwrite(event->text, 1, event->text_len, stdout), fflush(stdout);
        size_t n = event->text_len < LINE - 1 - len ? event->text_len : LINE - 1 - len;
        memcpy(text + len, event->text, n);
        text[len += n] = 0;
    }
    return WEFT_ERR_INTERNAL;
}

static enum weft_status answer(struct weft_engine *engine, const struct weft_chat_params *chat, char *text)
{
    struct weft_request *request = NULL;
    struct weft_request_params p = {.chat = chat, .max_tokens = 60, .pull = true};
    enum weft_status s = weft_submit(engine, &p, &request);
    if (s) fprintf(stderr, "%s\n", weft_last_error());
    else s = print(request, text);
    weft_request_free(request);
    return s;
}

static enum weft_status talk(const struct weft_model *model, struct weft_engine *engine)
{
    static char texts[2 * MOST][LINE];
    static struct weft_message messages[2 * MOST];
    struct weft_chat_params chat = {.messages = messages,
                                    .chat_template = weft_model_info(model)->chat_template ? NULL : simple};
    while (chat.n_messages + 2 <= 2 * MOST && fgets(texts[chat.n_messages], LINE, stdin)) {
        char *text = texts[chat.n_messages];
        text[strcspn(text, "\n")] = 0;
        messages[chat.n_messages++] = (struct weft_message){"user", text};
        enum weft_status s = answer(engine, &chat, texts[chat.n_messages]);
        if (s) return s;
        messages[chat.n_messages] = (struct weft_message){"assistant", texts[chat.n_messages]};
        chat.n_messages++;
    }
    return WEFT_OK;
}

int main(int argc, char **argv)
{
    struct weft_model *model = NULL;
    struct weft_engine *engine = NULL;
    enum weft_status s = weft_model_open(&(struct weft_model_params){.path = argc > 1 ? argv[1] : WEFT_DEMO}, &model);
    if (!s) s = weft_engine_open(model, &(struct weft_engine_params){0}, &engine);
    if (s) fprintf(stderr, "%s\n", weft_last_error());
    else s = talk(model, engine);
    weft_engine_close(engine);
    weft_model_close(model);
    return s != WEFT_OK;
}
