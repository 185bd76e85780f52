/* The generated programs of wgmma and of its attention, without the device that runs them: sound as texts, and for
 * NVIDIA's assembler, where there is one. */
#include "unit/cl_test.h"
#include "support/suite.h"


static size_t count(const char *text, const char *what)
{
    size_t n = 0;
    for (const char *p = text; (p = strstr(p, what)); p += strlen(what)) n++;
    return n;
}

/* Every label that is jumped to exists once. */
static void check_labels(const char *text)
{
    for (const char *p = text; (p = strstr(p, " bra ")); p++) {
        char label[64];
        size_t n = strcspn(p + 5, "; \n");
        assert_true(n && n + 2 < sizeof label);
        snprintf(label, sizeof label, "\n%.*s:", (int)n, p + 5);
        assert_int_equal(count(text, label), 1);
    }
}

/* Registers of a kind are declared as "kind<n>": none beyond. */
static void check_registers(const char *text, const char *kind)
{
    char declared[16];
    snprintf(declared, sizeof declared, " %s<", kind);
    const char *at = strstr(text, declared);
    assert_non_null(at);
    long most = strtol(at + strlen(declared), NULL, 10);
    for (const char *p = text; (p = strpbrk(p, "{, ")); p++)
        if (!strncmp(p + 1, kind, strlen(kind)) && p[1 + strlen(kind)] >= '0' && p[1 + strlen(kind)] <= '9')
            assert_true(strtol(p + 1 + strlen(kind), NULL, 10) < most);
}

static void assemble(const char *text, const char *name)
{
    char path[] = "/tmp/weft-ptx-XXXXXX", command[256];
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    close(fd);
    snprintf(command, sizeof command, "ptxas -arch=sm_90a -o /dev/null %s", path);
    int rc = system(command);
    unlink(path);
    if (rc) fail_msg("%s does not assemble", name);
}

/* Not in sanitized builds: the texts are the same there, and the assembler, which takes most of this test's time, is
 * not sanitized. */
static bool can_assemble(void)
{
#ifdef __SANITIZE_ADDRESS__
    return false;
#else
    static int found = -1;
    if (found < 0) found = system("ptxas --version >/dev/null 2>&1") == 0;
    return found;
#endif
}

/* Frees the text. kinds: of registers, NULL at the end; kib: local memory that it may ask for. */
static void check_program(char *text, const char *name, const char *const *kinds, long kib)
{
    assert_non_null(text);
    assert_int_equal(strncmp(text, ".version", 8), 0);
    assert_null(strstr(text, "(null)"));
    long local = strtol(strstr(text, "smem[") + 5, NULL, 10);
    assert_true(local > 0 && local <= kib << 10);
    check_labels(text);
    for (; *kinds; kinds++) check_registers(text, *kinds);
    if (can_assemble()) assemble(text, name);
    else print_message("%s is not assembled\n", name);
    free(text);
}

#define MULTIPROCESSOR 227 /* KiB of local memory */

/* Whether a format before it has the same programs but for the constants of a table. */
static bool is_repeated(enum wf_dtype dtype)
{
    const cl_fragments *w = wf_cl_fragments(dtype);
    for (int d = 0; d < (int)dtype && w; d++) {
        const cl_fragments *f = wf_cl_fragments((enum wf_dtype)d);
        if (f && f->bits == w->bits && f->group == w->group && f->min == w->min && f->zero == w->zero &&
            !f->codes == !w->codes)
            return true;
    }
    return false;
}

static void wgmma_programs_are_sound(void **state)
{
    static const char *const kinds[] = {"a", "acc", "r", NULL};
    int found = 0;
    for (int i = 0; i < (int)wf_cl_n_variants(WF_OP_GEMM); i++) {
        const cl_variant *v = wf_cl_variant_at(WF_OP_GEMM, i);
        if (v->configure != wf_cl_configure_wgmma) continue;
        for (int dtype = 0; dtype < WF_N_WEIGHT_DTYPES; dtype++) {
            const cl_fragments *w = wf_cl_fragments((enum wf_dtype)dtype);
            if (is_repeated((enum wf_dtype)dtype) || (dtype != WF_F16 && v->tile[4] != 1))
                continue; /* cuts of K are the same text for all */
            for (int more = 0; more < (dtype == WF_F16 ? 3 : 2) && w;
                 more++, found++) { /* nothing, SiLU, the rotation, whose text no format changes */
                bool silu = more == 1;
                cl_rotation rope = more == 2 ? (cl_rotation){128, 96} : (cl_rotation){0};
                int32_t knob[WF_LEN(v->tile)];
                memcpy(knob, v->tile, sizeof knob);
                if (!knob[4]) knob[4] = 5; /* what a call decides */
                check_program(wf_cl_wgmma_ptx(knob, silu, rope, w), v->name, kinds,
                              MULTIPROCESSOR / wf_cl_wgmma_shape(knob, silu, w).resident);
            }
        }
    }
    assert_true(found > 0);
}

static void attention_programs_are_sound(void **state)
{
    static const char *const kinds[] = {"s", "o", "p", "to", NULL};
    int found = 0;
    for (int i = 0; i < (int)wf_cl_n_variants(WF_OP_ATTENTION); i++) {
        const cl_variant *v = wf_cl_variant_at(WF_OP_ATTENTION, i);
        if (v->configure != wf_cl_configure_attention_wgmma) continue;
        for (int d = 64; d <= 128; d += 64)
            check_program(wf_cl_attention_ptx(v->tile, d), v->name, kinds, MULTIPROCESSOR);
        found++;
    }
    assert_true(found > 0);
}

SUITE(cl_ptx, NULL, NULL, CASE(wgmma_programs_are_sound), CASE(attention_programs_are_sound))
