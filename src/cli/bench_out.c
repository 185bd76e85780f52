/* bench_out: rows of `weft bench` as Markdown, JSON and CSV, and as lines of a results file. */
#include "cli/bench.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static void test_name(const wf_bench_row *r, char *buf, size_t cap)
{
    int n = snprintf(buf, cap, "%s%u", r->n_prompt ? "pp" : "tg", r->n_prompt ? r->n_prompt : r->n_gen);
    if (r->n_seqs > 1) snprintf(buf + n, cap - (size_t)n, "x%u", r->n_seqs);
}

static void threads_name(const wf_bench_row *r, char *buf, size_t cap)
{
    snprintf(buf, cap, r->threads ? "%u" : "all", r->threads);
}

static void date_now(const char *format, char *buf, size_t cap)
{
    time_t now = time(NULL);
    struct tm t;
    strftime(buf, cap, format, gmtime_r(&now, &t));
}

/* ---- Markdown ----------------------------------------------------------------------------------
 */

static void md_head(void)
{
    printf("| model                          |       size |     params | device       | threads |  "
           "   test |                  t/s |\n"
           "| ------------------------------ | ---------: | ---------: | ------------ | ------: | "
           "-------: | -------------------: |\n");
}

static void md_row(const wf_bench_row *r, bool first)
{
    (void)first;
    char label[96], size[32], params[32], test[32], threads[16], speed[48];
    const struct weft_model_info *i = weft_model_info(r->model);
    wf_model_label(r->model, label, sizeof label);
    wf_human(i->weight_bytes, true, size, sizeof size);
    wf_human(i->n_params, false, params, sizeof params);
    test_name(r, test, sizeof test);
    threads_name(r, threads, sizeof threads);
    snprintf(speed, sizeof speed, "%.2f ± %.2f", r->r.mean, r->r.stddev);
    /* ± has two bytes, so its column is one wider for printf */
    printf("| %-30s | %10s | %10s | %-12s | %7s | %8s | %21s |\n", label, size, params,
           r->device->id, threads, test, speed);
}

static void md_foot(void)
{
    printf("\nbuild: weft %s (%s)\n", weft_version(), wf_commit());
}

/* ---- JSON --------------------------------------------------------------------------------------
 */

static void json_text(const char *key, const char *value)
{
    printf("    \"%s\": \"", key);
    for (const char *p = value ? value : ""; *p; p++) {
        unsigned char ch = (unsigned char)*p;
        if (ch == '"' || ch == '\\')
            printf("\\%c", ch);
        else if (ch < 32)
            printf("\\u%04x", ch);
        else
            putchar(ch);
    }
    printf("\",\n");
}

static void json_head(void)
{
    printf("[");
}

static void json_row(const wf_bench_row *r, bool first)
{
    char label[96], date[40];
    const struct weft_model_info *i = weft_model_info(r->model);
    wf_model_label(r->model, label, sizeof label);
    date_now("%Y-%m-%dT%H:%M:%SZ", date, sizeof date);
    printf("%s\n  {\n", first ? "" : ",");
    json_text("build_commit", wf_commit());
    json_text("build_version", weft_version());
    json_text("device", r->device->id);
    json_text("device_name", r->device->name);
    json_text("driver", r->device->driver);
    json_text("model_filename", i->path ? i->path : "");
    json_text("model_type", label);
    json_text("test_time", date);
    printf("    \"model_size\": %llu,\n    \"model_n_params\": %llu,\n",
           (unsigned long long)i->weight_bytes, (unsigned long long)i->n_params);
    printf(
        "    \"n_threads\": %u,\n    \"n_prompt\": %u,\n    \"n_gen\": %u,\n    \"n_seqs\": %u,\n    "
        "\"repeat\": %u,\n",
        r->threads, r->n_prompt, r->n_gen, r->n_seqs, r->r.repeat);
    printf("    \"avg_ts\": %.6f,\n    \"stddev_ts\": %.6f,\n    \"median_ts\": %.6f\n  }",
           r->r.mean, r->r.stddev, r->r.median);
}

static void json_foot(void)
{
    printf("\n]\n");
}

/* ---- CSV ---------------------------------------------------------------------------------------
 */

/* A field: in quotes when it holds a comma, a quote or a line end. */
static void csv_text(FILE *f, const char *value)
{
    value = value ? value : "";
    bool quote = strpbrk(value, ",\"\r\n") != NULL;
    if (quote) putc('"', f);
    for (const char *p = value; *p; p++) {
        if (*p == '"') putc('"', f);
        putc(*p, f);
    }
    if (quote) putc('"', f);
    putc(',', f);
}

static void csv_head(void)
{
    printf("build_commit,device,device_name,driver,model_filename,model_type,model_size,model_n_"
           "params,"
           "n_threads,n_prompt,n_gen,n_seqs,repeat,test_time,avg_ts,stddev_ts,median_ts\n");
}

static void csv_row(const wf_bench_row *r, bool first)
{
    (void)first;
    char label[96], date[40];
    const struct weft_model_info *i = weft_model_info(r->model);
    wf_model_label(r->model, label, sizeof label);
    date_now("%Y-%m-%dT%H:%M:%SZ", date, sizeof date);
    csv_text(stdout, wf_commit());
    csv_text(stdout, r->device->id);
    csv_text(stdout, r->device->name);
    csv_text(stdout, r->device->driver);
    csv_text(stdout, i->path);
    csv_text(stdout, label);
    printf("%llu,%llu,%u,%u,%u,%u,%u,%s,%.6f,%.6f,%.6f\n", (unsigned long long)i->weight_bytes,
           (unsigned long long)i->n_params, r->threads, r->n_prompt, r->n_gen, r->n_seqs, r->r.repeat,
           date, r->r.mean, r->r.stddev, r->r.median);
}

static const wf_bench_format formats[] = {
    {"md", md_head, md_row, md_foot},
    {"json", json_head, json_row, json_foot},
    {"csv", csv_head, csv_row, NULL},
};

const wf_bench_format *wf_bench_format_find(const char *name)
{
    for (size_t i = 0; name && i < WF_LEN(formats); i++)
        if (!strcmp(formats[i].name, name)) return &formats[i];
    return &formats[0];
}

/* ---- results file ------------------------------------------------------------------------------
 */

/* Columns without a value here (variant, ceiling, peer) are filled by measurements of single ops.
 */
static void result_line(FILE *f, const wf_bench_row *r)
{
    char date[16], shape[40];
    uint32_t n = r->n_prompt ? r->n_prompt : r->n_gen;
    date_now("%Y-%m-%d", date, sizeof date);
    csv_text(f, date);
    csv_text(f, r->device->name);
    csv_text(f, r->device->driver);
    csv_text(f, wf_commit());
    csv_text(f, r->n_prompt ? "model_prompt" : "model_decode");
    csv_text(f, wf_main_dtype(r->model));
    snprintf(shape, sizeof shape, r->n_seqs > 1 ? "%c=%u,B=%u" : "%c=%u", r->n_prompt ? 'P' : 'N', n,
             r->n_seqs);
    csv_text(f, shape);
    fprintf(f, ",%.1f,%.3f,tokens/s,,,,\n",
            r->r.median > 0 ? (double)n * r->n_seqs * 1e6 / r->r.median : 0, r->r.median);
}

weft_status wf_bench_append(const char *path, const wf_bench_row *row)
{
    FILE *f = fopen(path, "a");
    if (!f) return wf_fail(WEFT_ERR_IO, "cannot write %s: %s", path, strerror(errno));
    fseek(f, 0, SEEK_END);
    if (ftell(f) == 0)
        fputs(
            "date,device,driver,commit,op,dtype,shape,variant,median_us,rate,unit,ceiling_pct,peer,"
            "peer_rate,ratio\n",
            f);
    result_line(f, row);
    bool failed = ferror(f);
    if (fclose(f) || failed)
        return wf_fail(WEFT_ERR_IO, "cannot write %s: %s", path, strerror(errno));
    return WEFT_OK;
}
