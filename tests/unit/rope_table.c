/* rope_table: the tables of every kind of rotation that an architecture here has, at positions up to 131,071, against
 * their definitions in double precision. The models are folders of tests/model/data whose config.json has the rotation
 * of a published model instead; heads stay as small as theirs. */
#include <float.h>
#include <math.h>

#include "base/json.h"
#include "engine/engine.h"
#include "model/model.h"
#include "support/suite.h"

#define LONGEST 131072
#define LISTS_8                                                                                                        \
    "\"short_factor\":[1,1.05,1.1,1.1,1.2,1.25,1.4,1.7],\"long_factor\":[1.08,1.1,1.3,2.7,9.3,21.6,45.9,64.1]"
#define LISTS_6 "\"short_factor\":[1,1.02,1.1,1.2,1.4,1.6],\"long_factor\":[1,1.12,2.9,14.3,31.7,47.8]"

/* ---- definitions ------------------------------------------------------------------------------------------------ */

/* A pair i of `dims` / 2 turns by base^(-2i / dims) radians from one position to the next, and that is scaled: */
enum kind {
    STILL,  /* it does not turn */
    PLAIN,  /* not at all */
    LINEAR, /* divided by factor */
    LLAMA3, /* divided by factor, the more the slower it turns: not above `high` turns within `old` positions, wholly
               below `low` */
    YARN,   /* the same with other turns and another passage between, from one pair to another */
    LISTED  /* divided by numbers of a list */
};

typedef struct rotation {
    enum kind kind;
    uint32_t dims;
    double base, factor, old, low, high;
    bool exact;    /* YaRN: the passage begins and ends within a pair */
    float list[8]; /* as files have them */
    double gain;   /* of all cosines and sines; 0: 1 */
} rotation;

static double turns(const rotation *r, double pair)
{
    return r->old / (2 * M_PI) * pow(r->base, -2 * pair / r->dims);
}

/* Of the pair, how much of its step stays as it is. */
static double kept(const rotation *r, uint32_t i)
{
    if (r->kind == LLAMA3) return fmin(fmax((turns(r, i) - r->low) / (r->high - r->low), 0), 1);
    double a_pair = log(turns(r, 0) / turns(r, 1)), first = log(turns(r, 0) / r->high) / a_pair,
           last = log(turns(r, 0) / r->low) / a_pair;
    if (!r->exact) first = floor(first), last = ceil(last);
    first = fmax(first, 0), last = fmin(last, r->dims - 1.0);
    return 1 - fmin(fmax((i - first) / (last - first), 0), 1);
}

static double step_of(const rotation *r, uint32_t i)
{
    double step = pow(r->base, -2.0 * i / r->dims);
    switch (r->kind) {
    case STILL: return 0;
    case PLAIN: return step;
    case LINEAR: return step / r->factor;
    case LISTED: return step / r->list[i];
    default: return step * kept(r, i) + step / r->factor * (1 - kept(r, i));
    }
}

/* ---- models ------------------------------------------------------------------------------------------------------ */

static void link_file(const char *from, const char *name, const char *folder)
{
    char path[200], target[600], *whole;
    snprintf(path, sizeof path, "tests/model/data/%s/%s", from, name);
    snprintf(target, sizeof target, "%s/%s", folder, name);
    assert_non_null(whole = realpath(path, NULL));
    assert_int_equal(symlink(whole, target), 0);
    free(whole);
}

static void write_config(const char *from, const char *change, const char *folder)
{
    char path[600];
    snprintf(path, sizeof path, "tests/model/data/%s/config.json", from);
    wf_json *config, *changed = wf_json_read(change, strlen(change), NULL, NULL);
    wf_text out = {0};
    assert_ok(wf_json_load_file(path, 1 << 20, &config));
    assert_non_null(changed);
    wf_json_print(&out, "{'max_position_embeddings':%d", LONGEST);
    const wf_json *const both[] = {changed, config};
    for (int i = 0; i < 2; i++)
        WF_JSON_EACH_MEMBER(m, both[i]) {
            if (!strcmp(m->name.text, "max_position_embeddings") || (i && wf_json_get(changed, m->name.text))) continue;
            wf_json_print(&out, ",%s:", m->name.text);
            wf_json_put(&out, &m->value);
        }
    wf_text_print(&out, "}");
    snprintf(path, sizeof path, "%s/config.json", folder);
    FILE *f = fopen(path, "w");
    assert_true(f && fputs(out.data, f) != EOF && !fclose(f));
    free(out.data);
    wf_json_free(config);
    wf_json_free(changed);
}

static const char *const linked[] = {"model.safetensors", "tokenizer.json", "tokenizer_config.json"};

static struct weft_model *open_changed(const char *from, const char *change)
{
    char folder[] = "/tmp/weft-rope-XXXXXX", path[600];
    struct weft_model *m = NULL;
    assert_non_null(mkdtemp(folder));
    for (size_t i = 0; i < WF_LEN(linked); i++) link_file(from, linked[i], folder);
    write_config(from, change, folder);
    if (weft_model_open(&(struct weft_model_params){.path = folder}, &m))
        fail_msg("%s %s: %s", from, change, weft_last_error());
    for (size_t i = 0; i < WF_LEN(linked); i++) snprintf(path, sizeof path, "%s/%s", folder, linked[i]), unlink(path);
    snprintf(path, sizeof path, "%s/config.json", folder), unlink(path);
    rmdir(folder);
    return m;
}

/* ---- tables ------------------------------------------------------------------------------------------------------ */

static const wf_rope *table(const wf_weights *w, uint32_t number)
{
    for (size_t i = 0; i < w->n; i++)
        if (w->list[i].rope && !number--) return w->list[i].rope;
    fail_msg("the model lacks a table");
    return NULL;
}

/* Files have factors of pairs in single precision, and so far the angles may be off; then the table is rounded, and its
 * gain. */
static void check_pair(const rotation *r, uint64_t pos, uint32_t i, const float *got, const char *what)
{
    double angle = (double)pos * step_of(r, i), gain = r->gain > 0 ? r->gain : 1;
    double most = gain * (2 * FLT_EPSILON + (r->kind == LLAMA3 ? angle * FLT_EPSILON / 2 : 0));
    if (fabs(got[0] - gain * cos(angle)) <= most && fabs(got[1] - gain * sin(angle)) <= most) return;
    fail_msg("%s: pair %u at position %llu is (%.8f, %.8f), not (%.8f, %.8f)", what, i, (unsigned long long)pos, got[0],
             got[1], gain * cos(angle), gain * sin(angle));
}

static void check_table(const wf_rope *t, const rotation *r, uint32_t context, const char *what)
{
    static const uint64_t positions[] = {0, 1, 4095, 4096, 8191, 32767, LONGEST - 1};
    float row[2 * 64];
    assert_int_equal(2 * t->pairs, r->dims);
    for (size_t p = 0; p < WF_LEN(positions) && positions[p] < context; p++) {
        wf_rope_rows(t, positions[p], 1, row);
        for (uint32_t i = 0; i < t->pairs; i++) check_pair(r, positions[p], i, row + 2 * i, what);
    }
}

static void check(const char *from, const char *change, uint32_t context, const rotation *tables, uint32_t n)
{
    struct weft_model *m = open_changed(from, change);
    wf_graph g = {0};
    wf_weights w = {0};
    assert_ok(wf_model_build(m->arch, m->file, &m->hp,
                             &(wf_build_params){WF_F16, WF_F32, WF_F16, WF_STACK_ALIKE, true, context, 16}, &g, &w));
    for (uint32_t i = 0; i < n; i++) check_table(table(&w, i), &tables[i], context, change);
    wf_graph_free(&g);
    wf_weights_free(&w);
    weft_model_close(m);
}

#define CHECK(from, change, context, ...)                     \
    do {                                                      \
        const rotation tables[] = {__VA_ARGS__};              \
        check(from, change, context, tables, WF_LEN(tables)); \
    } while (0)

/* ---- what published models have ---------------------------------------------------------------------------------- */

static void one_base(void **state)
{
    CHECK("llama", "{\"rope_parameters\":{\"rope_type\":\"default\",\"rope_theta\":500000}}", LONGEST,
          {PLAIN, 16, 5e5});
    CHECK("qwen2", "{\"rope_parameters\":null,\"rope_theta\":1000000}", LONGEST, {PLAIN, 16, 1e6});
    CHECK("phi3",
          "{\"rope_parameters\":{\"rope_type\":\"default\",\"rope_theta\":10000,\"partial_rotary_factor\":0.5}}",
          LONGEST, {PLAIN, 8, 1e4});
    CHECK("smollm3", "{\"rope_parameters\":{\"rope_type\":\"default\",\"rope_theta\":5000000}}", LONGEST,
          {PLAIN, 16, 5e6}, {STILL, 16});
}

static void divided_positions(void **state)
{
    CHECK("llama", "{\"rope_parameters\":null,\"rope_scaling\":{\"type\":\"linear\",\"factor\":4}}", LONGEST,
          {LINEAR, 16, 1e4, 4});
}

static void other_bases_of_local_layers(void **state)
{
    const rotation all = {LINEAR, 32, 1e6, 8}, local = {PLAIN, 32, 1e4};
    CHECK("gemma3", "{}", LONGEST, all, local);
    CHECK("gemma3",
          "{\"rope_parameters\":null,\"rope_theta\":1000000,\"rope_local_base_freq\":10000,\"rope_scaling\":{\"rope_"
          "type\":\"linear\",\"factor\":8}}",
          LONGEST, all, local);
}

static void llama3(void **state)
{
    CHECK("llama3",
          "{\"rope_parameters\":{\"rope_type\":\"llama3\",\"rope_theta\":500000,\"factor\":8,\"low_freq_factor\":1,"
          "\"high_freq_factor\":4,"
          "\"original_max_position_embeddings\":8192}}",
          LONGEST, {LLAMA3, 32, 5e5, 8, 8192, 1, 4});
    CHECK("llama3",
          "{\"rope_parameters\":null,\"rope_theta\":500000,\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":32,"
          "\"low_freq_factor\":1,\"high_freq_factor\":4,"
          "\"original_max_position_embeddings\":8192}}",
          LONGEST, {LLAMA3, 32, 5e5, 32, 8192, 1, 4});
}

static void yarn(void **state)
{
    CHECK("qwen2",
          "{\"rope_parameters\":null,\"rope_theta\":1000000,\"rope_scaling\":{\"type\":\"yarn\",\"factor\":4,"
          "\"original_max_position_embeddings\":32768}}",
          LONGEST, {YARN, 16, 1e6, 4, 32768, 1, 32, .gain = 0.1 * log(4) + 1});
    CHECK("yarn",
          "{\"rope_parameters\":{\"rope_type\":\"yarn\",\"rope_theta\":10000,\"factor\":32,\"original_max_position_"
          "embeddings\":4096,\"beta_fast\":16,\"beta_slow\":2,"
          "\"attention_factor\":1.25}}",
          LONGEST, {YARN, 16, 1e4, 32, 4096, 2, 16, .gain = 1.25});
    CHECK("gpt-oss",
          "{\"rope_parameters\":{\"rope_type\":\"yarn\",\"rope_theta\":150000,\"factor\":32,\"original_max_position_"
          "embeddings\":4096,\"beta_fast\":32,\"beta_slow\":1,"
          "\"truncate\":false}}",
          LONGEST, {YARN, 32, 150000, 32, 4096, 1, 32, true, .gain = 0.1 * log(32) + 1});
}

/* The list is one for contexts as long as the model had first, or one for longer ones, at all positions; the gain is of
 * both. */
static void longrope(void **state)
{
    const double gain = sqrt(1 + log(32) / log(4096));
    const rotation shorter = {LISTED, 16, 1e4, .list = {1, 1.05f, 1.1f, 1.1f, 1.2f, 1.25f, 1.4f, 1.7f}, .gain = gain};
    const rotation longer = {LISTED, 16, 1e4, .list = {1.08f, 1.1f, 1.3f, 2.7f, 9.3f, 21.6f, 45.9f, 64.1f},
                             .gain = gain};
    const rotation partly = {LISTED, 12, 1e4, .list = {1, 1.12f, 2.9f, 14.3f, 31.7f, 47.8f}, .gain = gain};
    const char *change = "{\"original_max_position_embeddings\":4096,\"rope_parameters\":{\"rope_type\":\"longrope\","
                         "\"rope_theta\":10000," LISTS_8 "}}";
    CHECK("phi3-long", change, 4096, shorter);
    CHECK("phi3-long", change, 4097, longer);
    CHECK("phi3-long", change, LONGEST, longer);
    CHECK("phi3-long",
          "{\"original_max_position_embeddings\":4096,\"rope_parameters\":null,\"rope_theta\":10000,\"rope_scaling\":{"
          "\"type\":\"su\"," LISTS_8 "}}",
          LONGEST, longer);
    CHECK("phi4",
          "{\"original_max_position_embeddings\":4096,\"rope_parameters\":{\"rope_type\":\"longrope\",\"rope_theta\":"
          "10000,\"partial_rotary_factor\":0.75," LISTS_6 "}}",
          LONGEST, partly);
}

SUITE(rope_table, NULL, NULL, CASE(one_base), CASE(divided_positions), CASE(other_bases_of_local_layers), CASE(llama3),
      CASE(yarn), CASE(longrope))
