/* The text of a program: what the compiler gets for a launch. A kernel names the parts that it is composed of by
 * `#include`. */
#include "cl/cl.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

const char *wf_cl_source(const char *name)
{
    for (const cl_source *s = wf_cl_sources; s->name; s++)
        if (!strcmp(s->name, name)) return s->text;
    return NULL;
}

/* The file of a storage format in a folder of kernels/. */
static const char *format_source(const char *folder, const char *type)
{
    char name[64] = "";
    snprintf(name, sizeof name, "%s/%s.clh", folder, type);
    for (char *p = name; *p; p++) *p = (char)tolower((unsigned char)*p);
    return wf_cl_source(name);
}

bool wf_cl_has_format(const char *wtype)
{
    return format_source("quant", wtype) != NULL;
}

/* A text to compile: the file of a kernel, in which each `#include` line gives way to the file it names, the first
 * time that it comes. Any file of quant/ or of kv/ stands for that of the launch's storage format. */
typedef struct text {
    char *s; /* NULL: only counts */
    size_t n;
    const char *wtype, *part[16]; /* storage format; texts of files */
    uint32_t n_parts;
    bool wrong; /* a file is missing, or the parts are too many */
} text;

static void text_add(text *t, const char *s, size_t n)
{
    if (t->s) memcpy(t->s + t->n, s, n);
    t->n += n;
}

/* Is it the first time that the text takes this file? */
static bool is_new(text *t, const char *file)
{
    for (uint32_t i = 0; i < t->n_parts; i++)
        if (t->part[i] == file) return false;
    if (!file || t->n_parts == WF_LEN(t->part)) t->wrong = true;
    else t->part[t->n_parts++] = file;
    return !t->wrong;
}

/* The text of the file whose name stands here, up to a quote; NULL: none. */
static const char *part_named(const text *t, const char *name)
{
    char path[64];
    if (!strncmp(name, "quant/", 6)) return t->wtype ? format_source("quant", t->wtype) : NULL;
    if (!strncmp(name, "kv/", 3)) return t->wtype ? format_source("kv", t->wtype) : NULL;
    snprintf(path, sizeof path, "%.*s", (int)strcspn(name, "\""), name);
    return wf_cl_source(path);
}

static void add_lines(text *t, const char *line)
{
    static const char include[] = "#include \"";
    for (size_t n; *line && !t->wrong; line += n) {
        n = strcspn(line, "\n");
        n += line[n] == '\n';
        if (strncmp(line, include, sizeof include - 1)) {
            text_add(t, line, n);
            continue;
        }
        const char *part = part_named(t, line + sizeof include - 1);
        if (is_new(t, part)) add_lines(t, part);
    }
}

static int32_t knob_of(const cl_launch *l, const char *name)
{
    uint32_t i = 0;
    while (strcmp(l->knob[i].name, name)) i++;
    return l->knob[i].value;
}

/* The same text without what it says of unrolling, line by line as before. */
static char *let_compiler_unroll(char *text)
{
    static const char *const said[] = {"#pragma unroll\n", "_Pragma(\"unroll\")"};
    for (size_t i = 0; text && i < WF_LEN(said); i++)
        for (char *p = text; (p = strstr(p, said[i]));) memset(p, ' ', strcspn(said[i], "\n"));
    return text;
}

static bool is_for_processors(const cl_variant *v)
{
    size_t n = strlen(v->family);
    return n > 5 && !strcmp(v->family + n - 5, "_host");
}

char *wf_cl_compose(const cl_quirks *quirks, const cl_variant *v, const cl_launch *l)
{
    char name[64];
    if (!strcmp(v->family, "gemm_wgmma")) {
        cl_fragments w = {(uint8_t)knob_of(l, "W_BITS"),
                          (uint8_t)knob_of(l, "W_GROUP"),
                          (uint8_t)knob_of(l, "W_MIN"),
                          (uint8_t)knob_of(l, "W_ZERO"),
                          NULL,
                          (enum wf_codes)knob_of(l, "W_CODES")};
        int32_t knob[WF_LEN(v->tile)];
        memcpy(knob, v->tile, sizeof knob);
        knob[WF_LEN(knob) - 1] = knob_of(l, "SPLIT_K");
        return wf_cl_wgmma_ptx(knob, knob_of(l, "SILU"), (cl_rotation){knob_of(l, "HEAD"), knob_of(l, "N_ROT")}, &w);
    }
    if (!strcmp(v->family, "attention_wgmma")) return wf_cl_attention_ptx(v->tile, knob_of(l, "D"));
    snprintf(name, sizeof name, "%s.cl", v->family);
    text t = {.wtype = l->wtype};
    const char *kernel = wf_cl_source(name);
    if (kernel) add_lines(&t, kernel);
    if (!kernel || t.wrong)
        return wf_fail(WEFT_ERR_INTERNAL, "no source of %s, or of a part that it includes", name), NULL;
    text filled = {.s = wf_calloc(t.n + 1, 1), .wtype = t.wtype};
    if (filled.s) add_lines(&filled, kernel);
    return quirks->rolled && !is_for_processors(v) ? let_compiler_unroll(filled.s) : filled.s;
}

void wf_cl_options(const cl_quirks *quirks, const cl_launch *l, char *buf, size_t cap)
{
    size_t n = (size_t)snprintf(buf, cap, "-cl-std=CL%s %s", l->c3 ? "3.0" : "1.2", quirks->options);
    for (uint32_t i = 0; i < l->n_knobs && n < cap; i++)
        n += (size_t)snprintf(buf + n, cap - n, " -D%s=%d", l->knob[i].name, (int)l->knob[i].value);
}
