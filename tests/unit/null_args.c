/* null_args: public functions called with NULL where weft.h does not allow it, and where they do. Each pointer of each
 * function of include/weft has a call here: the last test reads the header and compares. */
#include <weft/debug.h>

#include <ctype.h>
#include <math.h>

#include "base/base.h"
#include "base/file.h"
#include "support/suite.h"

static struct weft_model *model;
static struct weft_engine *engine;

/* ---- calls and what they give ------------------------------------------------------------------------------ */

/* As they are written here. */
static struct {
    const char *name, *args;
} calls[256];
static size_t n_calls;

/* The last error says nothing of NULL before the call. */
static void note(const char *name, const char *args)
{
    struct weft_model *m;
    assert_true(n_calls < WF_LEN(calls));
    calls[n_calls].name = name, calls[n_calls++].args = args;
    assert_int_equal(weft_model_open(&(struct weft_model_params){0}, &m), WEFT_ERR_ARG);
    assert_null(strstr(weft_last_error(), "NULL"));
}

static void check_refused(const char *name, const char *args, weft_status s)
{
    if (s != WEFT_ERR_ARG || !strstr(weft_last_error(), "NULL"))
        fail_msg("%s(%s): %s: %s", name, args, weft_status_name(s), weft_last_error());
}

static void check_passes(const char *name, const char *args, weft_status s)
{
    if (s && strstr(weft_last_error(), "NULL")) fail_msg("%s(%s): %s", name, args, weft_last_error());
}

#define REFUSES(f, ...) (note(#f, #__VA_ARGS__), check_refused(#f, #__VA_ARGS__, f(__VA_ARGS__)))
#define PASSES(f, ...)                                                                                                 \
    (note(#f, #__VA_ARGS__), check_passes(#f, #__VA_ARGS__, f(__VA_ARGS__))) /* that NULL is none of its errors */
#define IGNORES(f, ...) (note(#f, #__VA_ARGS__), f(__VA_ARGS__))
#define GIVES(v, f, ...) (note(#f, #__VA_ARGS__), assert_true(f(__VA_ARGS__) == (v)))

/* ---- weft.h ------------------------------------------------------------------------------------------------ */

static void models(void **state)
{
    struct weft_model *m = NULL;
    struct weft_engine_params p = {.device = "null"};
    struct weft_budget budget;
    struct weft_device_info device = {.id = "null"};
    struct weft_sampling sampling;
    struct weft_tensor_info tensor;
    char text[8] = "same";
    REFUSES(weft_model_open, NULL, &m);
    REFUSES(weft_model_open, &(struct weft_model_params){.path = WEFT_DEMO}, NULL);
    IGNORES(weft_model_close, NULL);
    GIVES(NULL, weft_model_info, NULL);
    GIVES(0, weft_model_sampling, NULL, &sampling);
    assert_true(sampling.temperature == 1);
    GIVES(0, weft_model_sampling, model, NULL);
    IGNORES(weft_model_tensor, NULL, 0, &tensor);
    IGNORES(weft_model_tensor, model, 0, NULL);
    IGNORES(weft_model_meta, NULL, 0, text, sizeof text, text, sizeof text);
    IGNORES(weft_model_meta, model, 0, NULL, 8, text, sizeof text);
    IGNORES(weft_model_meta, model, 0, text, sizeof text, NULL, 8);
    assert_string_equal(text, "same");
    weft_model_meta(model, 0, text, sizeof text, NULL, 0);
    assert_string_not_equal(text, "same");
    REFUSES(weft_model_budget, NULL, &p, &budget);
    REFUSES(weft_model_budget, model, NULL, &budget);
    REFUSES(weft_model_budget, model, &p, NULL);
    REFUSES(weft_device_budget, NULL, &p, &device, &budget);
    REFUSES(weft_device_budget, model, NULL, &device, &budget);
    REFUSES(weft_device_budget, model, &p, NULL, &budget);
    REFUSES(weft_device_budget, model, &p, &device, NULL);
    GIVES(0, weft_model_memory, NULL, 64, 1);
}

static void texts(void **state)
{
    int32_t *ids, id = 300;
    size_t n, len;
    char *text, buf[64];
    REFUSES(weft_tokenize, NULL, "a", 1, 0, &ids, &n);
    REFUSES(weft_tokenize, model, NULL, 1, 0, &ids, &n);
    REFUSES(weft_tokenize, model, "a", 1, 0, NULL, &n);
    REFUSES(weft_tokenize, model, "a", 1, 0, &ids, NULL);
    assert_ok(weft_tokenize(model, NULL, 0, 0, &ids, &n));
    weft_free(ids);
    REFUSES(weft_tokenize_pair, NULL, "a", 1, "b", 1, &ids, &n, &len);
    REFUSES(weft_tokenize_pair, model, NULL, 1, "b", 1, &ids, &n, &len);
    REFUSES(weft_tokenize_pair, model, "a", 1, NULL, 1, &ids, &n, &len);
    REFUSES(weft_tokenize_pair, model, "a", 1, "b", 1, NULL, &n, &len);
    REFUSES(weft_tokenize_pair, model, "a", 1, "b", 1, &ids, NULL, &len);
    REFUSES(weft_tokenize_pair, model, "a", 1, "b", 1, &ids, &n, NULL);
    REFUSES(weft_detokenize, NULL, &id, 1, 0, &text, &len);
    REFUSES(weft_detokenize, model, NULL, 1, 0, &text, &len);
    REFUSES(weft_detokenize, model, &id, 1, 0, NULL, &len);
    REFUSES(weft_detokenize, model, &id, 1, 0, &text, NULL);
    assert_ok(weft_detokenize(model, NULL, 0, 0, &text, &len));
    weft_free(text);
    GIVES(0, weft_token_text, NULL, id, 0, buf, sizeof buf);
    n = weft_token_text(model, id, 0, buf, sizeof buf);
    assert_true(n > 0);
    GIVES(n, weft_token_text, model, id, 0, NULL, sizeof buf);
    IGNORES(weft_free, NULL);
}

static void chats(void **state)
{
    int32_t *ids;
    size_t n;
    char *text;
    struct weft_message none = {0};
    struct weft_chat_params p = {.chat_template = "{{ messages }}"},
                            empty = {.chat_template = "{{ messages }}", .messages = &none, .n_messages = 1};
    REFUSES(weft_chat_tokenize, NULL, &p, &ids, &n);
    REFUSES(weft_chat_tokenize, model, NULL, &ids, &n);
    REFUSES(weft_chat_tokenize, model, &p, NULL, &n);
    REFUSES(weft_chat_tokenize, model, &p, &ids, NULL);
    REFUSES(weft_chat_render, NULL, &(struct weft_chat_params){0}, &text, &n);
    REFUSES(weft_chat_render, model, NULL, &text, &n);
    REFUSES(weft_chat_render, model, &p, NULL, &n);
    REFUSES(weft_chat_render, model, &p, &text, NULL);
    PASSES(weft_chat_render, NULL, &p, &text, &n);
    weft_free(text);
    assert_int_equal(weft_chat_render(model, &empty, &text, &n), WEFT_ERR_ARG);
    PASSES(weft_chat_check, NULL, "{{ messages }}");
    PASSES(weft_chat_check, model, NULL);
    REFUSES(weft_chat_check, NULL, NULL);
}

static void engines(void **state)
{
    struct weft_engine *e = NULL;
    struct weft_engine_params p = {.device = "null"};
    struct weft_stats stats;
    struct weft_budget budget;
    uint32_t layer;
    uint64_t rows, recomputed;
    REFUSES(weft_engine_open, NULL, &p, &e);
    REFUSES(weft_engine_open, model, NULL, &e);
    REFUSES(weft_engine_open, model, &p, NULL);
    check_refused("weft_engine_open", "adapters", weft_engine_open(
        model, &(struct weft_engine_params){.device = "null", .n_adapters = 1}, &e));
    assert_null(e);
    IGNORES(weft_engine_close, NULL);
    GIVES(NULL, weft_engine_device, NULL);
    GIVES(0, weft_engine_context, NULL);
    GIVES(0, weft_engine_max_batched_tokens, NULL);
    GIVES(NULL, weft_engine_pooling, NULL);
    GIVES(0, weft_engine_adapters, NULL, NULL, 0);
    GIVES(0, weft_engine_adapters, engine, NULL, 4);
    REFUSES(weft_adapter_load, NULL, "a", "path");
    REFUSES(weft_adapter_load, engine, NULL, "path");
    REFUSES(weft_adapter_load, engine, "a", NULL);
    REFUSES(weft_adapter_unload, NULL, "a");
    REFUSES(weft_adapter_unload, engine, NULL);
    REFUSES(weft_engine_budget, NULL, &budget);
    REFUSES(weft_engine_budget, engine, NULL);
    IGNORES(weft_engine_stats, NULL, &stats);
    IGNORES(weft_engine_stats, engine, NULL);
    struct weft_kv_tier_stats tier;
    REFUSES(weft_engine_kv_tier_stats, NULL, WEFT_KV_TIER_HOST, &tier);
    REFUSES(weft_engine_kv_tier_stats, engine, WEFT_KV_TIER_HOST, NULL);
    GIVES(weft_devices(NULL, 0), weft_devices, NULL, 4);
    GIVES(0, weft_engine_softmax, NULL, &layer, &rows, &recomputed, 1);
    GIVES(weft_engine_softmax(engine, NULL, NULL, NULL, 0), weft_engine_softmax, engine, NULL, &rows, &recomputed, 1);
    GIVES(weft_engine_softmax(engine, NULL, NULL, NULL, 0), weft_engine_softmax, engine, &layer, NULL, &recomputed, 1);
    GIVES(weft_engine_softmax(engine, NULL, NULL, NULL, 0), weft_engine_softmax, engine, &layer, &rows, NULL, 1);
}

static void requests(void **state)
{
    struct weft_request_params p = {.prompt = "a", .max_tokens = 1, .pull = true}, q = {.prompt = "a", .max_tokens = 1};
    struct weft_request *r;
    const struct weft_event *ev;
    REFUSES(weft_submit, NULL, &p, &r);
    REFUSES(weft_submit, engine, NULL, &r);
    PASSES(weft_submit, engine, &q, NULL);
    assert_ok(weft_submit(engine, &p, &r));
    REFUSES(weft_next, NULL, 0, &ev);
    assert_null(ev);
    REFUSES(weft_next, r, 0, NULL);
    REFUSES(weft_wait, NULL, 0);
    GIVES(-1, weft_request_fd, NULL);
    IGNORES(weft_cancel, NULL);
    IGNORES(weft_request_free, NULL);
    weft_request_free(r);
}

static void converting(void **state)
{
    struct weft_convert_result out;
    REFUSES(weft_convert, NULL, &out);
    REFUSES(weft_convert, &(struct weft_convert_params){.out = "b", .type = "F16"}, &out);
    REFUSES(weft_convert, &(struct weft_convert_params){.path = "/no", .type = "F16"}, &out);
    REFUSES(weft_convert, &(struct weft_convert_params){.path = "/no", .out = "b"}, &out);
    PASSES(weft_convert, &(struct weft_convert_params){.path = "/no", .out = "b", .type = "F16"}, NULL);
}

static void the_log(void **state)
{
    IGNORES(weft_log_to, NULL, NULL, WEFT_LOG_ERROR);
}

/* ---- all of them ------------------------------------------------------------------------------------------- */

/* The i-th of the texts that commas outside of brackets separate; NULL: there are fewer. */
static const char *part(const char *p, const char *end, size_t i, size_t *len)
{
    int depth = 0;
    for (const char *from = p; p <= end; p++) {
        if (p < end && strchr("({[", *p)) depth++;
        if (p < end && strchr(")}]", *p)) depth--;
        if (p < end && (*p != ',' || depth)) continue;
        if (!i--) {
            while (isspace((unsigned char)*from)) from++;
            return *len = (size_t)(p - from), from;
        }
        from = p + 1;
    }
    return NULL;
}

static bool has_call(const char *name, size_t n, size_t i)
{
    for (size_t k = 0; k < n_calls; k++) {
        size_t len;
        const char *args = calls[k].args, *arg = strncmp(calls[k].name, name, n) || calls[k].name[n]
                                                     ? NULL
                                                     : part(args, args + strlen(args), i, &len);
        if (arg && len == 4 && !memcmp(arg, "NULL", 4)) return true;
    }
    return false;
}

static bool is_pointer(const char *p, size_t n)
{
    bool user = n >= 5 && !memcmp(p + n - 5, "*user", 5); /* weft only hands it on */
    return !user && (memchr(p, '*', n) || memmem(p, n, "_fn ", 4));
}

/* Counts the pointers of the declaration that ends in end. */
static size_t check_function(const char *p, const char *end)
{
    const char *open = memchr(p, '(', (size_t)(end - p)), *name = open, *parameter;
    size_t len, found = 0;
    assert_non_null(open);
    while (name > p && (isalnum((unsigned char)name[-1]) || name[-1] == '_')) name--;
    for (size_t i = 0; (parameter = part(open + 1, end - 1, i, &len)); i++) {
        if (!is_pointer(parameter, len)) continue;
        if (!has_call(name, (size_t)(open - name), i))
            fail_msg("no call here has NULL for '%.*s' of %.*s", (int)len, parameter, (int)(open - name), name);
        found++;
    }
    return found;
}

static size_t check_header(const char *path)
{
    char *text;
    size_t len, found = 0;
    assert_ok(wf_read_file(path, 1 << 20, &text, &len));
    for (const char *p = text; (p = strstr(p, "\nWEFT_API ")); p++) {
        const char *end = strchr(p, ';');
        assert_true(end && end[-1] == ')');
        found += check_function(p + 10, end);
    }
    free(text);
    return found;
}

/* Runs last. */
static void every_pointer_has_a_call(void **state)
{
    assert_true(check_header("include/weft/weft.h") > 40);
}

static int setup(void **state)
{
    weft_log_to(NULL, NULL, WEFT_LOG_ERROR);
    struct weft_engine_params p = {.device = "null", .n_seqs = 2, .context = 64};
    return weft_model_open(&(struct weft_model_params){.path = WEFT_DEMO}, &model) ||
           weft_engine_open(model, &p, &engine);
}

static int teardown(void **state)
{
    weft_engine_close(engine);
    weft_model_close(model);
    return 0;
}

SUITE(null_args, setup, teardown, CASE(models), CASE(texts), CASE(chats), CASE(engines), CASE(requests),
      CASE(converting), CASE(the_log), CASE(every_pointer_has_a_call))
