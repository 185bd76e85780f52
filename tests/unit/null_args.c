/* null_args: public functions called with NULL where the headers do not allow it, and where they do. Each pointer of each function of include/weft has a
 * call here: the last test reads the headers and compares. */
#include <weft/debug.h>
#include <weft/tune.h>

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
    if (s != WEFT_ERR_ARG || !strstr(weft_last_error(), "NULL")) fail_msg("%s(%s): %s: %s", name, args, weft_status_name(s), weft_last_error());
}

static void check_passes(const char *name, const char *args, weft_status s)
{
    if (s && strstr(weft_last_error(), "NULL")) fail_msg("%s(%s): %s", name, args, weft_last_error());
}

#define REFUSES(f, ...) (note(#f, #__VA_ARGS__), check_refused(#f, #__VA_ARGS__, f(__VA_ARGS__)))
#define PASSES(f, ...)  (note(#f, #__VA_ARGS__), check_passes(#f, #__VA_ARGS__, f(__VA_ARGS__))) /* that NULL is none of its errors */
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
    assert_int_equal(weft_tokenize(model, NULL, 0, 0, &ids, &n), WEFT_OK);
    weft_free(ids);
    REFUSES(weft_detokenize, NULL, &id, 1, 0, &text, &len);
    REFUSES(weft_detokenize, model, NULL, 1, 0, &text, &len);
    REFUSES(weft_detokenize, model, &id, 1, 0, NULL, &len);
    REFUSES(weft_detokenize, model, &id, 1, 0, &text, NULL);
    assert_int_equal(weft_detokenize(model, NULL, 0, 0, &text, &len), WEFT_OK);
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
    struct weft_chat_params p = {.chat_template = "{{ messages }}"}, empty = {.chat_template = "{{ messages }}", .messages = &none, .n_messages = 1};
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
    assert_null(e);
    IGNORES(weft_engine_close, NULL);
    GIVES(NULL, weft_engine_device, NULL);
    GIVES(0, weft_engine_context, NULL);
    GIVES(0, weft_engine_max_batched_tokens, NULL);
    REFUSES(weft_engine_budget, NULL, &budget);
    REFUSES(weft_engine_budget, engine, NULL);
    IGNORES(weft_engine_stats, NULL, &stats);
    IGNORES(weft_engine_stats, engine, NULL);
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
    assert_int_equal(weft_submit(engine, &p, &r), WEFT_OK);
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

/* ---- tune.h ------------------------------------------------------------------------------------------------ */

static void no_op(void *user, const struct weft_op_row *row)
{
}

static void no_ablation(void *user, const struct weft_ablation_row *row)
{
}

static void no_kernel(void *user, const struct weft_kernel *k)
{
}

static void no_candidate(void *user, const struct weft_candidate *k)
{
}

static void measuring(void **state)
{
    struct weft_bench_params bench = {.n_gen = 1};
    struct weft_bench_result rate;
    struct weft_op_params ops = {.device = "null", .n_shapes = 1, .on_row = no_op};
    struct weft_tune_params tune = {.device = "null", .n_shapes = 1};
    const char *const nothing = NULL;
    char buf[64] = "same";
    REFUSES(weft_bench, NULL, &bench, &rate);
    REFUSES(weft_bench, engine, NULL, &rate);
    REFUSES(weft_bench, engine, &bench, NULL);
    REFUSES(weft_bench_ops, NULL);
    REFUSES(weft_bench_ops, &(struct weft_op_params){.device = "null"});
    REFUSES(weft_bench_ops, &ops);
    ops.shapes = &nothing;
    REFUSES(weft_bench_ops, &ops);
    REFUSES(weft_tune, NULL, buf, sizeof buf);
    REFUSES(weft_tune, &tune, buf, sizeof buf);
    PASSES(weft_tune, &(struct weft_tune_params){.device = "null", .model = model}, NULL, 8);
    REFUSES(weft_tune_chunk, NULL, &(struct weft_chunk_params){0}, buf, sizeof buf);
    REFUSES(weft_tune_chunk, engine, NULL, buf, sizeof buf);
    REFUSES(weft_tune_chunk, engine, &(struct weft_chunk_params){.n = 1}, buf, sizeof buf);
    PASSES(weft_tune_chunk, engine, &(struct weft_chunk_params){0}, NULL, 8);
    IGNORES(weft_device_file, NULL, buf, sizeof buf);
    IGNORES(weft_device_file, weft_engine_device(engine), NULL, 8);
    assert_string_equal(buf, "same");
    REFUSES(weft_ablation, NULL, &(struct weft_ablation_params){.on_row = no_ablation});
    REFUSES(weft_ablation, engine, NULL);
    REFUSES(weft_ablation, engine, &(struct weft_ablation_params){0});
}

static void calibrating(void **state)
{
    struct weft_calibrate_params p = {.text = "a", .len = 1};
    struct weft_calibration *c, none = {0};
    REFUSES(weft_calibrate, NULL, &p, &c);
    REFUSES(weft_calibrate, engine, NULL, &c);
    REFUSES(weft_calibrate, engine, &(struct weft_calibrate_params){0}, &c);
    REFUSES(weft_calibrate, engine, &p, NULL);
    REFUSES(weft_calibration_save, NULL, model, "/no");
    REFUSES(weft_calibration_save, &none, NULL, "/no");
    REFUSES(weft_calibration_save, &none, model, NULL);
    IGNORES(weft_calibration_free, NULL);
    note("weft_logit_quantile", "NULL, 0.5");
    assert_true(isnan(weft_logit_quantile(NULL, 0.5)));
}

static void reports(void **state)
{
    struct weft_engine_params params = {.device = "null"};
    struct weft_memory memory;
    struct weft_cost *cost;
    struct weft_explain_params explain = {0};
    REFUSES(weft_memory, NULL, &params, &memory);
    REFUSES(weft_memory, model, NULL, &memory);
    REFUSES(weft_memory, model, &params, NULL);
    REFUSES(weft_explain, NULL, &explain, stdout);
    REFUSES(weft_explain, engine, NULL, stdout);
    REFUSES(weft_explain, engine, &explain, NULL);
    REFUSES(weft_cost, NULL, &cost);
    REFUSES(weft_cost, &(struct weft_cost_params){.on = "h200"}, &cost);
    REFUSES(weft_cost, &(struct weft_cost_params){.model = model, .on = "h200"}, NULL);
    IGNORES(weft_cost_free, NULL);
}

static void plans(void **state)
{
    struct weft_search_params search = {.profile = "/no"};
    struct weft_overlap_params overlap = {0};
    bool stopped;
    REFUSES(weft_profile_print, NULL, stdout);
    REFUSES(weft_profile_print, "/no", NULL);
    REFUSES(weft_search, NULL, &search, stdout, &stopped);
    REFUSES(weft_search, engine, NULL, stdout, &stopped);
    REFUSES(weft_search, engine, &(struct weft_search_params){0}, stdout, &stopped);
    REFUSES(weft_search, engine, &search, NULL, &stopped);
    PASSES(weft_search, engine, &search, stdout, NULL);
    char words[64];
    struct weft_engine_params params = {.device = "null"};
    struct weft_timeline_params drawn = {0};
    struct weft_timeline *timeline = NULL;
    struct weft_profile *profile = NULL;
    REFUSES(weft_plan_source, NULL, &params, words, sizeof words);
    REFUSES(weft_plan_source, model, NULL, words, sizeof words);
    REFUSES(weft_plan_source, model, &params, NULL, sizeof words);
    REFUSES(weft_timeline, NULL, &drawn, &timeline);
    REFUSES(weft_timeline, engine, NULL, &timeline);
    REFUSES(weft_timeline, engine, &drawn, NULL);
    REFUSES(weft_profile_read, NULL, &profile);
    REFUSES(weft_profile_read, "/no", NULL);
    IGNORES(weft_timeline_free, NULL);
    IGNORES(weft_profile_free, NULL);
    note("weft_engine_plan_source", "NULL");
    assert_string_equal(weft_engine_plan_source(NULL), "");
    REFUSES(weft_tune_overlap, NULL, &overlap, stdout, &stopped);
    REFUSES(weft_tune_overlap, engine, NULL, stdout, &stopped);
    REFUSES(weft_tune_overlap, engine, &overlap, NULL, &stopped);
    PASSES(weft_tune_overlap, engine, &overlap, stdout, NULL);
}

/* Devices and tiers have defaults; one that does not exist ends the call early. */
static void kernels(void **state)
{
    const char *shape = "M=8,N=64,K=64";
    char *text;
    PASSES(weft_selftest, NULL, "no tier", 1, NULL, NULL);
    PASSES(weft_selftest, "no device", NULL, 1, NULL, NULL);
    PASSES(weft_kernels, NULL, "no tier", no_kernel, NULL);
    PASSES(weft_kernels, "no device", NULL, no_kernel, NULL);
    REFUSES(weft_kernels, "null", NULL, NULL, NULL);
    REFUSES(weft_engine_kernels, NULL, no_kernel, NULL);
    REFUSES(weft_engine_kernels, engine, NULL, NULL);
    PASSES(weft_candidates, NULL, "no tier", shape, "F16", no_candidate, NULL);
    PASSES(weft_candidates, "no device", NULL, shape, "F16", no_candidate, NULL);
    REFUSES(weft_candidates, "null", "base", NULL, "F16", no_candidate, NULL);
    PASSES(weft_candidates, "no device", "base", shape, NULL, no_candidate, NULL);
    REFUSES(weft_candidates, "null", "base", shape, "F16", NULL, NULL);
    PASSES(weft_kernel_source, NULL, "no kernel", &text);
    REFUSES(weft_kernel_source, "null", NULL, &text);
    REFUSES(weft_kernel_source, "null", "gemm/ref", NULL);
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
        const char *args = calls[k].args, *arg = strncmp(calls[k].name, name, n) || calls[k].name[n] ? NULL : part(args, args + strlen(args), i, &len);
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
        if (!has_call(name, (size_t)(open - name), i)) fail_msg("no call here has NULL for '%.*s' of %.*s", (int)len, parameter, (int)(open - name), name);
        found++;
    }
    return found;
}

static size_t check_header(const char *path)
{
    char *text;
    size_t len, found = 0;
    assert_int_equal(wf_read_file(path, 1 << 20, &text, &len), WEFT_OK);
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
    assert_true(check_header("include/weft/tune.h") > 40);
}

static int setup(void **state)
{
    weft_log_to(NULL, NULL, WEFT_LOG_ERROR);
    struct weft_engine_params p = {.device = "null", .n_seqs = 2, .context = 64};
    return weft_model_open(&(struct weft_model_params){.path = WEFT_DEMO}, &model) || weft_engine_open(model, &p, &engine);
}

static int teardown(void **state)
{
    weft_engine_close(engine);
    weft_model_close(model);
    return 0;
}

SUITE(null_args, setup, teardown, CASE(models), CASE(texts), CASE(chats), CASE(engines), CASE(requests),
      CASE(converting), CASE(measuring), CASE(calibrating), CASE(reports), CASE(plans), CASE(kernels), CASE(the_log),
      CASE(every_pointer_has_a_call))
