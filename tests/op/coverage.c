/* See coverage.h. */
#include "op/coverage.h"

#include <stdio.h>
#include <string.h>

#include "support/skip.h"

static bool reads_weights(enum wf_op op)
{
    int weight = wf_op_input(op, WF_OPERAND_WEIGHT);
    return weight >= 0 && !(wf_ops[op].in[weight].what & WF_OPERAND_OPTIONAL); /* else some variants read none */
}

static const char *kind_name(enum wf_op op)
{
    return reads_weights(op) ? "formats of weights" : op == WF_OP_ATTENTION ? "head sizes" : "kinds";
}

/* Head sizes are multiples of 4 up to 256. */
static uint64_t kind_of(const wf_case *c)
{
    if (c->op == WF_OP_ATTENTION) return 1ull << (c->p.head_dim / 4 - 1);
    return 1ull << (reads_weights(c->op) ? c->weight : 0);
}

void op_coverage_ask(op_coverage *o, const wf_case *c, int variant)
{
    if (variant < WF_MAX_VARIANTS) o->asked[c->op][variant] |= kind_of(c);
}

void op_coverage_met(op_coverage *o, const wf_case *c, int variant)
{
    if (variant < WF_MAX_VARIANTS) o->met[c->op][variant] |= kind_of(c);
}

bool op_coverage_has(const op_coverage *o, const wf_case *c, int variant)
{
    return variant < WF_MAX_VARIANTS && (o->met[c->op][variant] & kind_of(c));
}

/* A word of what the kernel says about this processor: not what weft thinks of it. */
static bool processor_has(const char *word)
{
    char line[4096];
    bool found = false;
    FILE *f = fopen("/proc/cpuinfo", "r");
    while (f && !found && fgets(line, sizeof line, f)) {
        if (strncmp(line, "flags", 5) && strncmp(line, "Features", 8)) continue;
        for (char *save = NULL, *w = strtok_r(line, " \t\n", &save); w && !found; w = strtok_r(NULL, " \t\n", &save))
            found = !strcmp(w, word);
    }
    if (f) fclose(f);
    return found;
}

/* By what a variant of the CPU path says that it needs (cpu/about.c). */
static bool cpu_has(wf_dev *d, enum wf_op op, int variant)
{
    static const struct { const char *needs, *flag;
    } levels[] = {
        {"AVX2", "avx2"},    {"AVX-512", "avx512_vnni"}, {"NEON", "asimd"}, {"ARM dot product", "asimddp"},
        {"AMX", "amx_bf16"},
    };
    wf_kernel_about about = {.needs = ""};
    d->fns->about(d, op, variant, &about);
    for (size_t i = 0; i < WF_LEN(levels); i++)
        if (!strncmp(about.needs, levels[i].needs, strlen(levels[i].needs))) return processor_has(levels[i].flag);
    return !*about.needs || strstr(d->info.features, "OpenBLAS");
}

/* Of registers, which only GPUs have many of, nothing tells but the variant's refusal. */
bool op_coverage_can(wf_dev *d, enum wf_op op, int variant)
{
    const wf_variant *v = wf_variant_at(d, op, variant);
    if (!strcmp(d->info.id, "cpu")) return cpu_has(d, op, variant);
    if (d->info.type == WEFT_DEVICE_CPU && !strcmp(v->name, "wide128")) return false;
    bool layout = wf_reads_layout(v, 0);
    for (int t = 0; t < WF_N_WEIGHT_DTYPES && !layout && d->fns->weight_layout; t++)
        layout = wf_reads_layout(v, d->fns->weight_layout(d, (enum wf_dtype)t, 4096, 4096));
    return layout && strstr(d->info.tiers, wf_tier_name_on(d, v->tier));
}

static unsigned count(uint64_t set)
{
    unsigned n = 0;
    for (; set; set &= set - 1) n++;
    return n;
}

static void name_lacking(wf_dev *d, enum wf_op op)
{
    const wf_variant *v;
    bool any = false;
    for (int i = 0; (v = wf_variant_at(d, op, i)); i++) {
        if (op_coverage_can(d, op, i)) continue;
        if (!any) printf("skipped: " NEEDS_HARDWARE "%s by", wf_ops[op].name);
        printf(" %s", v->name);
        any = true;
    }
    if (any) printf("\n");
}

unsigned op_coverage_missed(const op_coverage *o, wf_dev *d, enum wf_op op, bool every)
{
    unsigned missed = 0;
    const wf_variant *v;
    if (!o->asked[op][0]) return 0;
    name_lacking(d, op);
    for (int i = 0; (v = wf_variant_at(d, op, i)) && i < WF_MAX_VARIANTS; i++) {
        if (!op_coverage_can(d, op, i) || !(o->asked[op][i] & ~o->met[op][i]) || (!every && o->met[op][i])) continue;
        printf("FAIL %s %s met %u of %u %s\n", wf_ops[op].name, v->name, count(o->met[op][i]), count(o->asked[op][i]),
               kind_name(op));
        missed++;
    }
    return missed;
}
