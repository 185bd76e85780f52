/* Answers several prompts at once: the engine computes them together, in the steps of one batch.
 *
 *   cc batch.c $(pkg-config --cflags --libs weft) -o batch && ./batch MODEL PROMPT...
 */
#include <stdio.h>
#include <string.h>
#include <weft/weft.h>

enum { MOST = 64, TEXT = 4096 };

struct answer {
    struct weft_request *request;
    char text[TEXT]; /* cut to this */
    size_t len;
};

/* On the engine's thread: it keeps the text and returns at once. */
static void on_event(void *user, const struct weft_event *event)
{
    struct answer *a = user;
    if (event->kind != WEFT_EVENT_TOKEN || event->text_len > TEXT - a->len) return;
    memcpy(a->text + a->len, event->text, event->text_len);
    a->len += event->text_len;
}

static enum weft_status submit(struct weft_engine *engine, char **prompts, int n, struct answer *answers)
{
    for (int i = 0; i < n; i++) {
        struct weft_request_params p = {
            .prompt = prompts[i], .max_tokens = 40, .on_event = on_event, .user = &answers[i]};
        enum weft_status s = weft_submit(engine, &p, &answers[i].request);
        if (s) return s;
    }
    return WEFT_OK;
}

/* The first failure, if there is one; the others' answers are printed all the same. */
static enum weft_status print(char **prompts, int n, struct answer *answers)
{
    enum weft_status first = WEFT_OK;
    for (int i = 0; i < n; i++) {
        enum weft_status s = weft_wait(answers[i].request, 0);
        if (s) fprintf(stderr, "%s: %s\n", prompts[i], weft_last_error());
        else printf("%s%.*s\n\n", prompts[i], (int)answers[i].len, answers[i].text);
        if (!first) first = s;
    }
    return first;
}

int main(int argc, char **argv)
{
    static char *stories[] = {"One day", "The sun was", "A little dog"};
    static struct answer answers[MOST];
    char **prompts = argc > 2 ? argv + 2 : stories;
    int n = argc > 2 ? argc - 2 : 3;
    struct weft_model *model = NULL;
    struct weft_engine *engine = NULL;
    if (n > MOST) return fprintf(stderr, "at most %d prompts\n", MOST), 2;
    enum weft_status s = weft_model_open(&(struct weft_model_params){.path = argc > 1 ? argv[1] : WEFT_DEMO}, &model);
    /* deterministic: each answer is the one that its prompt gets alone, bit for bit, which costs some speed. */
    if (!s)
        s = weft_engine_open(
            model, &(struct weft_engine_params){.n_seqs = (uint32_t)n, .context = 512, .deterministic = true}, &engine);
    if (!s) s = submit(engine, prompts, n, answers);
    if (s) fprintf(stderr, "%s\n", weft_last_error());
    else s = print(prompts, n, answers);
    for (int i = 0; i < n; i++) weft_request_free(answers[i].request);
    weft_engine_close(engine);
    weft_model_close(model);
    return s != WEFT_OK;
}
