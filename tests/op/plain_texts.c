/* plain_texts: writes the programs that GPUs without NVIDIA's instructions and matrix units run, for matrix.py.
 *
 *   plain_texts FOLDER     a line for each device, variant, call and format: device, kernel, variant and call, format,
 * then build options; its text is FOLDER/DEVICE-NAME-FORMAT.cl
 */
#include "unit/cl_offline.h"

enum { COLUMNS = 4096, LONG = 14336, NORM = 1, SILU = 2, TURNS = 4 };

static const struct simulated {
    const char *name;
    cl_caps caps;
} devices[] = {
    {"amd", {.gpu = true, .fma = true, .registers = true, .dot = WF_CL_DOT_AMD, .max_group = 256, .units = 96,
             .local_bytes = 64 << 10, .mem_align = 128, .panels = 1 << 30, .tier = WF_TIER_DOT}},
    {"intel", {.gpu = true, .fma = true, .dot = WF_CL_DOT_KHRONOS, .max_group = 1024, .units = 512,
               .local_bytes = 64 << 10, .mem_align = 128, .panels = 1 << 30, .tier = WF_TIER_DOT}},
};

/* Products: of m rows of X, with what is fused. */
static const struct product_row {
    const char *name, *variant;
    uint32_t m, k, fused;
} products[] = {
    {"gemv", "gemv", 1, COLUMNS, 0},
    {"gemv-silu", "gemv", 1, COLUMNS, SILU},
    {"gemv-rope", "gemv", 2, COLUMNS, TURNS},
    {"gemv-8", "gemv", 8, COLUMNS, 0},
    {"int16", "gemv_int16", 1, LONG, 0},
    {"int16-silu", "gemv_int16", 1, COLUMNS, NORM | SILU},
    {"int16-rope", "gemv_int16", 2, COLUMNS, NORM | TURNS},
    {"int16-4", "gemv_int16", 4, COLUMNS, 0},
    {"dot16", "dot16", 16, COLUMNS, 0},
    {"dot64", "dot64", 100, COLUMNS, 0},
    {"dot64-parts", "dot64_parts", 30, COLUMNS, 0},
    {"dot128", "dot128", 500, COLUMNS, 0},
    {"tile8", "tile8", 16, COLUMNS, 0},
    {"tile64", "tile64", 64, COLUMNS, 0},
    {"tile64-shares", "tile64_shares", 64, COLUMNS, 0},
    {"tile64-wide", "tile64_wide", 500, COLUMNS, 0},
};
static const uint8_t formats[] = {WF_F16, WF_Q4_0, WF_Q4_K, WF_Q6_K, WF_Q8_0};
static const char *const attentions[] = {"flash",        "flash_async",  "decode",
                                         "decode_async", "decode_split", "decode_wide"};

static wf_call call_of(const struct product_row *p, uint8_t format)
{
    wf_call c = p->fused & TURNS ? qkv(p->m, 128, 128, 0) : product(p->m, COLUMNS, p->k);
    c.in[WF_GEMM_W].dtype = format, c.in[WF_GEMM_W].layout = format == WF_F16 ? WF_CL_ROWS : WF_CL_PLANES;
    if (p->fused & SILU) c.p.silu = 1, c.out[WF_GEMM_Y].cols = c.out[WF_GEMM_Y].stride = COLUMNS / 2;
    if (p->fused & NORM) c.in[WF_GEMM_NORM] = (wf_view){c.in[WF_GEMM_X].buf, 0, 1, p->k, p->k, WF_F32, 0};
    return c;
}

/* Returns whether the device runs the call so. */
static bool write_program(const char *folder, const struct simulated *d, const char *variant, const wf_call *c,
                          const char *name, const char *of)
{
    const cl_variant *v = wf_cl_variant_at(c->op, variant_named(c->op, variant));
    cl_launch l = {0};
    char options[1024], path[4096];
    if (!v->configure(&d->caps, v, c, 0, &l)) return false;
    snprintf(path, sizeof path, "%s/%s-%s-%s.cl", folder, d->name, name, of);
    FILE *f = fopen(path, "w");
    char *text = wf_cl_compose(&(cl_quirks){0}, v, &l);
    if (!f || !text || fputs(text, f) < 0 || fclose(f)) exit(1);
    free(text);
    wf_cl_options(&(cl_quirks){.options = ""}, &l, options, sizeof options);
    printf("%s %s %s %s %s\n", d->name, v->family, name, of, options);
    return true;
}

static bool write_products(const char *folder, const struct simulated *d)
{
    bool all = true;
    for (size_t p = 0; p < WF_LEN(products); p++) {
        bool any = false;
        for (size_t f = 0; f < WF_LEN(formats); f++) {
            wf_call c = call_of(&products[p], formats[f]);
            any |= write_program(folder, d, products[p].variant, &c, products[p].name, wf_dtypes[formats[f]].name);
        }
        if (!any) fprintf(stderr, "%s: no %s\n", d->name, products[p].name);
        all &= any;
    }
    return all;
}

static bool write_attention(const char *folder, const struct simulated *d)
{
    bool all = true;
    for (size_t i = 0; i < WF_LEN(attentions); i++)
        for (uint32_t head = 64; head <= 256; head *= 2) {
            char of[16];
            wf_call c = attention(4, 4096, head, 64);
            c.p.phi_lo = -8, c.p.phi_hi = 8;
            snprintf(of, sizeof of, "%u", head);
            bool runs = write_program(folder, d, attentions[i], &c, attentions[i], of);
            if (!runs) fprintf(stderr, "%s: no %s of heads of %u\n", d->name, attentions[i], head);
            all &= runs;
        }
    return all;
}

int main(int argc, char **argv)
{
    bool all = argc == 2;
    for (size_t d = 0; all && d < WF_LEN(devices); d++)
        all = write_products(argv[1], &devices[d]) && write_attention(argv[1], &devices[d]);
    return all ? 0 : 1;
}
