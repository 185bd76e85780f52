/* cost_plot: the cost model as a picture: for each op, and in total, how long compute, memory, network and energy take by themselves. */
#include "base/file.h"
#include "cli/cost.h"
#include "cli/svg.h"

enum { LEFT = 170, RIGHT = 90, TOP = 74, BAR = 9, ROW = WEFT_N_LIMITS * BAR + 10, WIDTH = 860, INNER = WIDTH - LEFT - RIGHT };

static const char *const colours[WEFT_N_LIMITS] = {"#0072b2", "#e69f00", "#009e73", "#d55e00"};

static void legend(FILE *f)
{
    for (int i = 0; i < WEFT_N_LIMITS; i++) {
        double x = LEFT + 110.0 * i;
        wf_svg_rect(f, x, 46, 14, 10, colours[i], NULL);
        wf_svg_text(f, x + 20, 55, "start", "#333", weft_limit_name((enum weft_limit)i));
    }
}

static void bars(FILE *f, const struct weft_cost_op *r, double y, double most)
{
    char words[96];
    wf_svg_text(f, LEFT - 8, y + 2 * BAR + 4, "end", "#333", r->name);
    for (int i = 0; i < WEFT_N_LIMITS; i++) {
        double ms = r->seconds[i] * 1e3, at = y + i * BAR;
        if (ms <= 0) continue;
        snprintf(words, sizeof words, "%s: %s %.3f ms", r->name, weft_limit_name((enum weft_limit)i), ms);
        wf_svg_rect(f, LEFT, at, INNER * ms / most, BAR - 1, colours[i], words);
        snprintf(words, sizeof words, "%.3g ms", ms);
        if (i == (int)r->bound) wf_svg_text(f, LEFT + INNER * ms / most + 4, at + BAR, "start", "#333", words);
    }
    wf_svg_line(f, LEFT, y - 4, LEFT, y + ROW - 6, "stroke=\"#333\"");
}

static void draw(const struct weft_cost *c, const struct weft_model *m, FILE *f)
{
    char title[320], label[96];
    double most = c->total.seconds[c->total.bound] * 1e3;
    wf_model_label(m, label, sizeof label);
    wf_svg_begin(f, WIDTH, TOP + ROW * ((int)c->n_ops + 1) + 16);
    snprintf(title, sizeof title, "%s on %u x %s, %.0f tokens a step: at best %.0f tokens/s, bound by %s", label, c->n_devices, c->device, c->decodes + c->prefill,
             c->optimum, weft_limit_name(c->total.bound));
    wf_svg_text(f, 16, 26, "start", "#000", title);
    legend(f);
    for (size_t i = 0; i < c->n_ops; i++) bars(f, &c->ops[i], TOP + ROW * (double)i, most);
    bars(f, &c->total, TOP + ROW * (double)c->n_ops, most);
    wf_svg_end(f);
}

weft_status wf_cost_plot(const struct weft_cost *c, const struct weft_model *m, const char *path)
{
    wf_output o;
    WF_TRY(wf_output_open(path, &o));
    draw(c, m, o.f);
    return wf_output_end(&o, true);
}
