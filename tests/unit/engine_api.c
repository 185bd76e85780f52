/* engine_api: what programs build on: events that are pulled, opening that is given up, objects closed in any order,
 * prompts of all kinds, and parameters of a program for a newer weft. On the null device, and on the CPU's own kernels.
 */
#include <weft/debug.h>
#include "lab/lab.h"

#include <math.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>

#include "support/null_device.h"
#include "support/wraps.h"
#include "support/demo.h"

static const struct weft_debug plain = {.force = "gemm=ref,attention=ref"}; /* no library under the sanitizer */

static struct weft_engine *open_engine(const char *device)
{
    return demo_engine((struct weft_engine_params){
        .device = device, .n_seqs = 2, .context = 128, .threads = 2, .debug = &plain, .max_batched_tokens = 32});
}

/* What events say, in one line. */
typedef struct story {
    char text[8192];
    size_t len;
    const struct weft_request *of; /* of the last event */
    int n, strangers;              /* events; those of another request than the first */
    struct weft_event end;
} story;

static void tell(void *user, const struct weft_event *ev)
{
    story *s = user;
    s->strangers += s->n++ && ev->request != s->of;
    s->of = ev->request;
    float first = ev->logits ? ev->logits[0] : ev->n_top ? ev->top[ev->n_top - 1].logprob : 0;
    s->len += (size_t)snprintf(s->text + s->len, sizeof s->text - s->len, "%d %d %u '%.*s' %g %g|", ev->kind, ev->id,
                               ev->position, (int)ev->text_len, ev->text, (double)ev->logprob, (double)first);
    if (ev->kind == WEFT_EVENT_DONE) s->end = *ev;
}

static void pull_all(struct weft_request *r, story *s)
{
    const struct weft_event *ev;
    do {
        assert_ok(weft_next(r, -1, &ev));
        tell(s, ev);
    } while (ev->kind != WEFT_EVENT_DONE);
}

/* ---- pulling --------------------------------------------------------------------------------------------- */

/* The same events come both ways, with all that belongs to them; each carries its request. */
static void pulls_what_callbacks_get(void **state)
{
    struct weft_engine *e = open_engine("cpu");
    story told = {.n = 0}, pulled = {.n = 0};
    struct weft_request_params p = {.prompt = "One day a cat", .max_tokens = 12, .ignore_eos = true, .logprobs = true,
                                    .prompt_logprobs = true, .n_top = 3, .want_logits = true,
                                    .stop = (const char *const[]){"zzz"}, .n_stop = 1, .on_event = tell, .user = &told};
    struct weft_request *r = submit_to(e, p);
    assert_ok(weft_wait(r, 0));
    assert_ptr_equal(told.of, r);
    p.on_event = NULL, p.pull = true;
    struct weft_request *q = submit_to(e, p);
    pull_all(q, &pulled);
    assert_string_equal(pulled.text, told.text);
    assert_true(told.n > 20 && told.strangers + pulled.strangers == 0);
    assert_ptr_equal(pulled.of, q);
    assert_int_equal(pulled.end.n_generated, 12);
    assert_int_equal(pulled.end.finish, WEFT_FINISH_LENGTH);
    assert_string_equal(pulled.end.message, "");
    weft_request_free(r);
    weft_request_free(q);
    weft_engine_close(e);
}

static void refuse_pull(struct weft_request *r, weft_status s, const char *because)
{
    const struct weft_event *ev = (const struct weft_event *)&model;
    assert_int_equal(weft_next(r, 0, &ev), s);
    assert_null(ev);
    assert_says(because);
}

static bool readable(int fd)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    assert_true(fd >= 0);
    return poll(&p, 1, 0) == 1;
}

static void pulls_in_time(void **state)
{
    struct weft_engine *e = open_engine("null");
    const struct weft_event *ev;
    story rest = {.n = 0};
    close_gate(e);
    struct weft_request *r = submit_to(
        e, (struct weft_request_params){.prompt = "a", .max_tokens = 5, .ignore_eos = true, .pull = true});
    int fd = weft_request_fd(r);
    refuse_pull(r, WEFT_ERR_TIMEOUT, "0 ms");
    assert_int_equal(weft_next(r, 20, &ev), WEFT_ERR_TIMEOUT);
    assert_false(readable(fd));
    sem_post(&gate);
    assert_ok(weft_wait(r, 0)); /* nobody has read yet */
    assert_int_equal(weft_request_fd(r), fd);
    while (readable(fd)) {
        assert_ok(weft_next(r, 0, &ev));
        tell(&rest, ev);
    }
    assert_int_equal(rest.end.n_generated, 5);
    assert_int_equal(rest.n, 6);
    refuse_pull(r, WEFT_ERR_ARG, "last event");
    assert_int_equal(weft_next(r, -1, &ev), WEFT_ERR_ARG); /* which would never come */
    weft_request_free(r);
    weft_engine_close(e);
}

/* The descriptor that is made when all events are there already. */
static void polls_late(void **state)
{
    struct weft_engine *e = open_engine("null");
    struct weft_request *r = submit_to(
        e, (struct weft_request_params){.prompt = "a", .max_tokens = 2, .ignore_eos = true, .pull = true});
    story s = {.n = 0};
    weft_wait(r, 0);
    assert_true(readable(weft_request_fd(r)));
    pull_all(r, &s);
    assert_false(readable(weft_request_fd(r)));
    weft_request_free(r);
    struct weft_request *called = submit_to(e, (struct weft_request_params){.prompt = "a", .max_tokens = 2});
    assert_int_equal(weft_request_fd(called), -1);
    refuse_pull(called, WEFT_ERR_ARG, "pull");
    weft_request_free(called);
    weft_engine_close(e);
}

static void *pull_slowly(void *arg)
{
    struct weft_request *r = arg;
    const struct weft_event *ev;
    intptr_t n = 0;
    while (!weft_next(r, -1, &ev)) {
        n++;
        usleep(200);
        if (ev->kind == WEFT_EVENT_DONE) break;
    }
    return (void *)n;
}

/* Readers of their own, one of which reads nothing while others' requests come and go. */
static void slow_readers_stall_nobody(void **state)
{
    enum { READERS = 3, ANSWER = 40 };
    struct weft_engine *e = open_engine("null");
    struct weft_request_params p = {.prompt = "a", .max_tokens = ANSWER, .ignore_eos = true, .pull = true};
    struct weft_request *unread = submit_to(e, p), *r[READERS];
    pthread_t threads[READERS];
    story s = {.n = 0};
    for (int i = 0; i < READERS; i++) r[i] = submit_to(e, p), pthread_create(&threads[i], NULL, pull_slowly, r[i]);
    for (int i = 0; i < READERS; i++) {
        void *n;
        pthread_join(threads[i], &n);
        assert_int_equal((intptr_t)n, ANSWER + 1);
        weft_request_free(r[i]);
    }
    assert_ok(weft_wait(unread, 0));
    pull_all(unread, &s);
    assert_int_equal(s.n, ANSWER + 1);
    weft_request_free(unread);
    weft_engine_close(e);
}

/* A reader that waits is woken by the end, whoever brings it about. */
static void cancelled_while_pulled(void **state)
{
    struct weft_engine *e = open_engine("null");
    pthread_t thread;
    void *n;
    close_gate(e);
    struct weft_request *r = submit_to(e,
                                       (struct weft_request_params){.prompt = "a", .ignore_eos = true, .pull = true});
    pthread_create(&thread, NULL, pull_slowly, r);
    weft_cancel(r);
    sem_post(&gate);
    pthread_join(thread, &n);
    assert_true((intptr_t)n >= 1);
    assert_int_equal(weft_wait(r, 0), WEFT_ERR_CANCELLED);
    weft_request_free(r);
    weft_engine_close(e);
}

static weft_status inside;
static void pull_inside(void *user, const struct weft_event *ev)
{
    const struct weft_event *other;
    struct weft_request *r = *(struct weft_request **)user;
    if (ev->kind == WEFT_EVENT_DONE)
        inside = weft_next(r, -1, &other); /* which can have none before the callback has returned */
}

static void pulls_in_a_callback(void **state)
{
    struct weft_engine *e = open_engine("null");
    struct weft_request *r = NULL;
    close_gate(e);
    struct weft_request *first = submit_to(
        e, (struct weft_request_params){
               .prompt = "a", .max_tokens = 1, .ignore_eos = true, .on_event = pull_inside, .user = &r, .priority = 9});
    r = submit_to(e, (struct weft_request_params){.prompt = "a", .max_tokens = 30, .ignore_eos = true, .pull = true});
    sem_post(&gate);
    weft_wait(first, 0);
    assert_true(inside == WEFT_OK || inside == WEFT_ERR_TIMEOUT);
    weft_request_free(first);
    weft_request_free(r);
    weft_engine_close(e);
}

/* Whichever allocation of the engine's thread fails, the reader learns it from the last event. */
static void events_find_no_memory(void **state)
{
    struct weft_engine *e = open_engine("null");
    int refused = 0;
    for (int n = 0; n < 12; n++) {
        story s = {.n = 0};
        close_gate(e);
        struct weft_request *r = submit_to(
            e, (struct weft_request_params){.prompt = "a", .max_tokens = 6, .ignore_eos = true, .pull = true});
        test_alloc_countdown = n;
        sem_post(&gate);
        weft_status status = weft_wait(r, 0);
        test_alloc_countdown = -1;
        pull_all(r, &s);
        assert_int_equal(s.end.status, status);
        assert_true(status == WEFT_OK || status == WEFT_ERR_NOMEM);
        refused += status == WEFT_ERR_NOMEM;
        if (status) assert_true(s.end.finish == WEFT_FINISH_ERROR && strstr(s.end.message, "memory"));
        weft_request_free(r);
    }
    assert_true(refused > 2);
    weft_engine_close(e);
}

/* ---- closing in any order ---------------------------------------------------------------------------------- */

static void requests_outlive_their_engine(void **state)
{
    struct weft_engine *e = open_engine("cpu");
    story told = {.n = 0}, pulled = {.n = 0};
    struct weft_request *called = submit_to(
        e, (struct weft_request_params){.prompt = "a", .ignore_eos = true, .on_event = tell, .user = &told});
    struct weft_request *r = submit_to(
        e, (struct weft_request_params){.prompt = "One day", .ignore_eos = true, .pull = true});
    struct weft_request *waits = submit_to(e, (struct weft_request_params){.prompt = "The sun", .ignore_eos = true});
    const struct weft_event *ev;
    assert_ok(weft_next(r, -1, &ev));
    weft_engine_close(e);
    assert_int_equal(told.end.finish, WEFT_FINISH_CANCEL);
    pull_all(r, &pulled);
    assert_int_equal(pulled.end.status, WEFT_ERR_CANCELLED);
    weft_cancel(waits);
    assert_int_equal(weft_wait(waits, 0), WEFT_ERR_CANCELLED);
    assert_int_equal(weft_wait(r, 1), WEFT_ERR_CANCELLED);
    weft_request_free(called);
    weft_request_free(r);
    weft_request_free(waits);
}

static void *close_it(void *engine)
{
    weft_engine_close(engine);
    return NULL;
}

/* While others wait for requests. */
static void closed_beside_readers(void **state)
{
    for (int round = 0; round < 20; round++) {
        struct weft_engine *e = open_engine("null");
        struct weft_request *r = submit_to(e,
                                        (struct weft_request_params){.prompt = "a", .ignore_eos = true, .pull = true});
        struct weft_request *waits = submit_to(e, (struct weft_request_params){.prompt = "a", .ignore_eos = true});
        pthread_t reader, closer;
        pthread_create(&reader, NULL, pull_slowly, r);
        pthread_create(&closer, NULL, close_it, e);
        weft_wait(waits, 0);
        weft_request_free(waits);
        pthread_join(reader, NULL);
        weft_request_free(r);
        pthread_join(closer, NULL);
    }
}

static void close_inside(void *user, const struct weft_event *ev)
{
    if (ev->kind == WEFT_EVENT_TOKEN) weft_engine_close(*(struct weft_engine **)user);
}

/* It would wait for itself: nothing happens, and the engine works on. */
static void closed_in_a_callback(void **state)
{
    struct weft_engine *e = open_engine("null");
    struct weft_request *r = submit_to(
        e, (struct weft_request_params){
               .prompt = "a", .max_tokens = 2, .ignore_eos = true, .on_event = close_inside, .user = &e});
    assert_ok(weft_wait(r, 0));
    weft_request_free(r);
    weft_engine_close(e);
}

static void engines_keep_their_model(void **state)
{
    struct weft_model *m = NULL;
    struct weft_engine *e[2];
    assert_ok(weft_model_open(&(struct weft_model_params){.path = WEFT_DEMO}, &m));
    for (int i = 0; i < 2; i++)
        assert_ok(weft_engine_open(
            m, &(struct weft_engine_params){.device = "cpu", .context = 64, .threads = 1, .debug = &plain}, &e[i]));
    weft_model_close(m);
    struct weft_request *last = NULL;
    for (int i = 0; i < 2; i++) {
        struct weft_request *r = submit_to(
            e[i], (struct weft_request_params){.prompt = "One day", .max_tokens = 3, .pull = true});
        assert_ok(weft_wait(r, 0));
        weft_request_free(last);
        last = r;
        weft_engine_close(e[i]);
    }
    story s = {.n = 0};
    pull_all(last, &s);
    assert_int_equal(s.end.n_generated, 3);
    weft_request_free(last);
}

/* ---- giving up --------------------------------------------------------------------------------------------- */

static bool stop_later(void *user)
{
    return --*(int *)user < 0;
}

/* Opens until it is not given up any more; returns how often it was asked then. */
static int give_up(const struct weft_engine_params *p)
{
    struct weft_engine *e = NULL;
    struct weft_engine_params given_up = *p;
    for (int n = 0;; n += n < 80 ? 1 : n / 4) { /* kernels are tested early */
        int left = n;
        given_up.stop = stop_later, given_up.user = &left;
        weft_status s = weft_engine_open(model, &given_up, &e);
        if (s == WEFT_OK) return weft_engine_close(e), n;
        assert_error(s, WEFT_ERR_CANCELLED, "cancelled");
        assert_int_equal(wf_null_alive(), 0);
    }
}

/* The same for a model. */
static void opening_a_model_is_given_up(void **state)
{
    struct weft_model *m = NULL;
    int n = 0;
    for (weft_status s = WEFT_ERR_CANCELLED; s; n++) {
        int left = n;
        s = weft_model_open(&(struct weft_model_params){.path = WEFT_DEMO, .stop = stop_later, .user = &left}, &m);
        if (!s) break;
        assert_int_equal(s, WEFT_ERR_CANCELLED);
        assert_string_equal(weft_last_error(), "opening the model was cancelled");
        assert_null(m);
    }
    assert_true(n >= 3);
    assert_true(weft_model_info(m)->n_vocab > 0);
    weft_model_close(m);
}

static void no_complaint(void *user, enum weft_log_level level, const char *line)
{
    fail_msg("%s", line);
}

/* Wherever it is: nothing is left, and the next one opens. No kernel counts as one that does not work. */
static void opening_is_given_up(void **state)
{
    weft_log_to(no_complaint, NULL, WEFT_LOG_WARN);
    assert_true(give_up(&(struct weft_engine_params){.device = "null", .context = 64}) > 10);
    assert_true(give_up(&(struct weft_engine_params){
                    .device = "cpu", .context = 64, .threads = 1, .debug = &plain, .no_kernel_cache = true}) > 30);
    weft_log_to(NULL, NULL, WEFT_LOG_ERROR);
}

/* ---- prompts ----------------------------------------------------------------------------------------------- */

/* The prompt's ids, as PROMPT events have them. */
static size_t prompt_of(struct weft_engine *e, struct weft_request_params p, int32_t *ids)
{
    const struct weft_event *ev;
    size_t n = 0;
    p.prompt_logprobs = p.prefill_only = p.pull = true;
    struct weft_request *r = submit_to(e, p);
    while (!weft_next(r, -1, &ev) && ev->kind == WEFT_EVENT_PROMPT && n < 128) ids[n++] = ev->id;
    weft_request_free(r);
    return n;
}

static void is_prompt(struct weft_engine *e, struct weft_request_params p, const int32_t *ids, size_t n)
{
    int32_t got[128];
    assert_int_equal(prompt_of(e, p, got), n);
    assert_memory_equal(got, ids, n * sizeof *ids);
}

static void prompts_have_a_length(void **state)
{
    struct weft_engine *e = open_engine("null");
    int32_t *ids, bos = weft_model_info(model)->bos;
    size_t n, short_n;
    assert_ok(weft_tokenize(model, "a\0b cat", 7, WEFT_TEXT_DEFAULT, &ids, &n));
    is_prompt(e, (struct weft_request_params){.prompt = "a\0b cat", .prompt_len = 7}, ids, n);
    weft_free(ids);
    assert_ok(weft_tokenize(model, "a", 1, WEFT_TEXT_DEFAULT, &ids, &short_n));
    is_prompt(e, (struct weft_request_params){.prompt = "a\0b cat"}, ids, short_n);
    is_prompt(e, (struct weft_request_params){.prompt = "ab", .prompt_len = 1}, ids, short_n);
    assert_true(short_n < n);
    weft_free(ids);
    is_prompt(e, (struct weft_request_params){.prompt = ""}, &bos, 1);
    is_prompt(e, (struct weft_request_params){0}, &bos, 1);
    weft_engine_close(e);
}

#define TEMPLATE                                                                                                       \
    "{{ bos_token }}{% for m in messages %}{{ m.role + ': ' + m.content + eos_token }}{% endfor %}{% if "              \
    "add_generation_prompt %}assistant:{% endif %}"

static size_t count(const int32_t *ids, size_t n, int32_t id)
{
    size_t found = 0;
    for (size_t i = 0; i < n; i++) found += ids[i] == id;
    return found;
}

/* As weft_chat_tokenize: one BOS, and control tokens of the template only, whatever messages spell. */
static void chats_are_prompts(void **state)
{
    struct weft_engine *e = open_engine("null");
    const struct weft_model_info *info = weft_model_info(model);
    struct weft_message turns[] = {{"user", "Hi</s><s> cat"}};
    struct weft_chat_params chat = {.chat_template = TEMPLATE, .messages = turns, .n_messages = 1};
    int32_t *ids, got[128];
    size_t n;
    assert_ok(weft_chat_tokenize(model, &chat, &ids, &n));
    is_prompt(e, (struct weft_request_params){.chat = &chat}, ids, n);
    weft_free(ids);
    n = prompt_of(e, (struct weft_request_params){.chat = &chat}, got);
    assert_int_equal(got[0], info->bos);
    assert_int_equal(count(got, n, info->bos), 1);
    assert_int_equal(count(got, n, info->eos), 1);
    chat.chat_template = "{{ raise_exception('not so') }}";
    struct weft_request *r = NULL;
    assert_error(weft_submit(e, &(struct weft_request_params){.chat = &chat}, &r), WEFT_ERR_ARG, "not so");
    chat.chat_template = NULL;
    assert_int_equal(weft_submit(e, &(struct weft_request_params){.chat = &chat}, &r),
                     WEFT_ERR_UNSUPPORTED); /* the demo model has none */
    assert_null(r);
    weft_engine_close(e);
}

static void contradictions_are_refused(void **state)
{
    struct weft_engine *e = open_engine("null");
    const struct weft_chat_params chat = {.chat_template = TEMPLATE},
                                  nobody = {.chat_template = TEMPLATE, .n_messages = 1};
    const int32_t id = 1;
    const struct weft_request_params bad[] = {{.prompt = "a", .tokens = &id, .n_tokens = 1},
                                              {.prompt = "a", .chat = &chat},
                                              {.tokens = &id, .n_tokens = 1, .chat = &chat},
                                              {.prompt_len = 3},
                                              {.prompt = "a", .pull = true, .on_event = tell},
                                              {.n_tokens = 3},
                                              {.prompt = "a", .n_stop_ids = 2},
                                              {.prompt = "a", .n_stop = 1},
                                              {.prompt = "a", .n_bias = 1},
                                              {.prompt = "a", .n_show_ids = 1},
                                              {.prompt = "a", .sampling.repeat_penalty = 1e-40f},
                                              {.chat = &nobody}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct weft_request *r = NULL;
        assert_int_equal(weft_submit(e, &bad[i], &r), WEFT_ERR_ARG);
        assert_null(r);
    }
    assert_int_equal(weft_submit(e, &(struct weft_request_params){.prompt = "a", .pull = true}, NULL), WEFT_ERR_ARG);
    weft_engine_close(e);
}

static void costs(struct weft_cost_params p)
{
    struct weft_cost *c = (void *)&p; /* anything but NULL */
    p.model = model, p.on = "h200";
    assert_int_equal(weft_cost(&p, &c), WEFT_ERR_ARG);
    assert_null(c);
}

static void numbers_are_checked(void **state)
{
    struct weft_cost *c;
    struct weft_tensor_info tensor = {.dtype = "some"};
    char key[16] = "key", value[16] = "value";
    costs((struct weft_cost_params){.input_len = -1});
    costs((struct weft_cost_params){.input_len = NAN});
    costs((struct weft_cost_params){.input_len = INFINITY});
    costs((struct weft_cost_params){.output_len = -1});
    costs((struct weft_cost_params){.output_len = NAN});
    assert_ok(weft_cost(&(struct weft_cost_params){.model = model, .on = "h200"}, &c));
    weft_cost_free(c);
    weft_model_tensor(model, 1000000, &tensor);
    assert_null(tensor.dtype);
    weft_model_tensor(model, weft_model_info(model)->n_tensors - 1, &tensor);
    assert_non_null(tensor.dtype);
    weft_model_meta(model, 1000000, key, sizeof key, value, sizeof value);
    assert_string_equal(key, "");
    assert_string_equal(value, "");
    assert_string_equal(weft_limit_name((enum weft_limit)77), "unknown");
    assert_string_equal(weft_limit_name(WEFT_LIMIT_ENERGY), "energy");
    assert_string_equal(weft_class_name((enum weft_class)77), "unknown");
}

static void one_source_of_each(void **state)
{
    struct weft_model *m = model;
    struct weft_message turn = {"user", "a"};
    char *text;
    size_t len;
    assert_int_equal(weft_model_open(&(struct weft_model_params){.path = WEFT_DEMO, .shape = "llama3-8b"}, &m),
                     WEFT_ERR_ARG);
    assert_says("shape");
    struct weft_chat_params both = {
        .chat_template = TEMPLATE, .messages = &turn, .n_messages = 1, .messages_json = "[]"};
    assert_error(weft_chat_render(model, &both, &text, &len), WEFT_ERR_ARG, "messages_json");
}

/* What was there before is no object of the call that failed. */
static void failures_leave_no_object(void **state)
{
    char anything;
    struct weft_engine *e = open_engine("null"), *other = (void *)&anything;
    struct weft_model *m = (void *)&anything;
    struct weft_request *r = (void *)&anything;
    struct weft_timeline *timeline = (void *)&anything;
    struct weft_calibration *calibration = (void *)&anything;
    struct weft_profile *profile = (void *)&anything;
    assert_int_equal(weft_model_open(&(struct weft_model_params){.path = "/nonexistent"}, &m), WEFT_ERR_IO);
    assert_null(m);
    assert_int_equal(
        weft_engine_open(model, &(struct weft_engine_params){.device = "null", .tile = UINT32_MAX}, &other),
        WEFT_ERR_ARG);
    assert_null(other);
    assert_int_equal(weft_submit(e, &(struct weft_request_params){.prompt_len = 3}, &r), WEFT_ERR_ARG);
    assert_null(r);
    assert_int_equal(weft_timeline(e, &(struct weft_timeline_params){.measure = true}, &timeline), WEFT_ERR_ARG);
    assert_null(timeline);
    assert_int_equal(weft_calibrate(e, &(struct weft_calibrate_params){.text = "a", .len = 1}, &calibration),
                     WEFT_ERR_ARG);
    assert_null(calibration);
    assert_true(weft_profile_read("/nonexistent", &profile));
    assert_null(profile);
    weft_engine_close(e);
}

/* Somebody who is asked whether to stop may open something, and is asked again afterwards. */
static bool opens(void *user)
{
    struct weft_model *m = NULL;
    int *n = user;
    if (++*n == 1) assert_ok(weft_model_open(&(struct weft_model_params){.path = WEFT_DEMO}, &m));
    weft_model_close(m);
    return *n > 1;
}

static void stop_functions_nest(void **state)
{
    int n = 0;
    struct weft_model *m = NULL;
    assert_int_equal(weft_model_open(&(struct weft_model_params){.path = WEFT_DEMO, .stop = opens, .user = &n}, &m),
                     WEFT_ERR_CANCELLED);
    assert_int_equal(n, 2);
}

/* In the order of the folder's tensors, and only while it is read. */
static void hears(void *user, const char *what, double fraction)
{
    double *last = user;
    assert_string_equal(what, "read");
    assert_true(fraction >= *last && fraction < 1);
    *last = fraction;
}

static void folders_tell_how_far_they_are(void **state)
{
    double last = 0, none = 0;
    struct weft_model *m = NULL;
    assert_ok(weft_model_open(
        &(struct weft_model_params){.path = "tests/model/data/gpt-oss", .on_progress = hears, .user = &last}, &m));
    weft_model_close(m);
    assert_true(last > 0);
    assert_ok(weft_model_open(&(struct weft_model_params){.path = WEFT_DEMO, .on_progress = hears, .user = &none}, &m));
    weft_model_close(m);
    assert_true(none == 0);
}

static void calibration_is_stopped(void **state)
{
    char text[4000];
    struct weft_engine *e = open_engine("cpu");
    struct weft_calibration *c = NULL;
    for (size_t i = 0; i < sizeof text; i++) text[i] = "One day a cat. "[i % 15];
    for (int n = 0; n < 3; n += 2) {
        int left = n;
        struct weft_calibrate_params p = {.text = text, .len = sizeof text, .stop = stop_later, .user = &left};
        assert_int_equal(weft_calibrate(e, &p, &c), WEFT_ERR_CANCELLED);
        assert_null(c);
    }
    assert_ok(weft_calibrate(e, &(struct weft_calibrate_params){.text = text, .len = 200}, &c));
    weft_calibration_free(c);
    weft_engine_close(e);
}

/* ---- models, versions, the future -------------------------------------------------------------------------- */

static void models_are_named(void **state)
{
    struct weft_model *m = NULL;
    assert_error(weft_model_open(&(struct weft_model_params){0}, &m), WEFT_ERR_ARG, "path");
    assert_null(m);
}

static void versions_agree(void **state)
{
    char text[32];
    snprintf(text, sizeof text, "%d.%d.%d", WEFT_VERSION_MAJOR, WEFT_VERSION_MINOR, WEFT_VERSION_PATCH);
    assert_string_equal(weft_version(), text); /* the build's, from meson.build */
    assert_true(WEFT_VERSION == WEFT_VERSION_MAJOR * 1000000 + WEFT_VERSION_MINOR * 1000 + WEFT_VERSION_PATCH);
}

static void is_newer(weft_status s)
{
    assert_error(s, WEFT_ERR_UNSUPPORTED, "newer weft");
}

#define NEWER                                                                                                          \
    .reserved = {[sizeof((struct weft_request_params *)0)->reserved / sizeof(uint64_t) - 1] = 1} /* the shortest */

/* Parameters that this weft does not know of are not ignored. */
static void newer_programs_are_refused(void **state)
{
    struct weft_model *m = NULL;
    struct weft_engine *e = open_engine("null"), *other = NULL;
    struct weft_budget budget;
    struct weft_request *r = NULL;
    int32_t *ids;
    size_t n;
    char *text;
    const struct weft_debug debug = {NEWER};
    const struct weft_chat_params chat = {.chat_template = TEMPLATE, NEWER};
    is_newer(weft_model_open(&(struct weft_model_params){.path = WEFT_DEMO, NEWER}, &m));
    is_newer(weft_model_budget(model, &(struct weft_engine_params){NEWER}, &budget));
    is_newer(weft_engine_open(model, &(struct weft_engine_params){.device = "null", NEWER}, &other));
    is_newer(weft_engine_open(model, &(struct weft_engine_params){.device = "null", .debug = &debug}, &other));
    is_newer(weft_submit(e, &(struct weft_request_params){.prompt = "a", NEWER}, &r));
    is_newer(weft_submit(e, &(struct weft_request_params){.prompt = "a", .sampling.reserved = {1}}, &r));
    is_newer(weft_submit(e, &(struct weft_request_params){.chat = &chat}, &r));
    is_newer(weft_chat_tokenize(model, &chat, &ids, &n));
    is_newer(weft_chat_render(model, &chat, &text, &n));
    is_newer(weft_convert(&(struct weft_convert_params){.path = "a", .out = "b", .type = "F16", NEWER}, NULL));
    assert_null(m);
    assert_null(other);
    assert_null(r);
    weft_engine_close(e);
}

SUITE(engine_api, open_demo, close_demo, CASE(pulls_what_callbacks_get), CASE(pulls_in_time), CASE(polls_late),
      CASE(slow_readers_stall_nobody), CASE(cancelled_while_pulled), CASE(pulls_in_a_callback),
      CASE(events_find_no_memory), CASE(requests_outlive_their_engine), CASE(closed_beside_readers),
      CASE(closed_in_a_callback), CASE(engines_keep_their_model), CASE(opening_is_given_up),
      CASE(opening_a_model_is_given_up), CASE(prompts_have_a_length), CASE(chats_are_prompts),
      CASE(contradictions_are_refused), CASE(numbers_are_checked), CASE(one_source_of_each),
      CASE(failures_leave_no_object), CASE(stop_functions_nest), CASE(folders_tell_how_far_they_are),
      CASE(calibration_is_stopped), CASE(models_are_named), CASE(versions_agree), CASE(newer_programs_are_refused))
