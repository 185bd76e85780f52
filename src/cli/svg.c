/* svg: see svg.h. */
#include "cli/svg.h"

#include <math.h>

void wf_svg_begin(FILE *f, int width, int height)
{
    fprintf(f, "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" font-family=\"sans-serif\" font-size=\"12\">\n", width, height);
    wf_svg_rect(f, 0, 0, width, height, "#fff", NULL);
}

void wf_svg_end(FILE *f)
{
    fputs("</svg>\n", f);
}

static void put_words(FILE *f, const char *words)
{
    for (; *words; words++) {
        if (*words == '<') fputs("&lt;", f);
        else if (*words == '>') fputs("&gt;", f);
        else if (*words == '&') fputs("&amp;", f);
        else fputc((unsigned char)*words < 32 ? ' ' : *words, f);
    }
}

void wf_svg_text(FILE *f, double x, double y, const char *anchor, const char *colour, const char *words)
{
    fprintf(f, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\" fill=\"%s\">", x, y, anchor, colour);
    put_words(f, words);
    fputs("</text>\n", f);
}

void wf_svg_text_up(FILE *f, double x, double y, const char *colour, const char *words)
{
    fprintf(f, "<g transform=\"translate(%.1f,%.1f) rotate(-90)\">\n", x, y);
    wf_svg_text(f, 0, 0, "middle", colour, words);
    fputs("</g>\n", f);
}

void wf_svg_line(FILE *f, double x0, double y0, double x1, double y1, const char *style)
{
    fprintf(f, "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" %s/>\n", x0, y0, x1, y1, style);
}

void wf_svg_rect(FILE *f, double x, double y, double width, double height, const char *colour, const char *title)
{
    char style[64];
    snprintf(style, sizeof style, "fill=\"%s\"", colour);
    wf_svg_box(f, x, y, width, height, style, title);
}

void wf_svg_box(FILE *f, double x, double y, double width, double height, const char *style, const char *title)
{
    fprintf(f, "<rect x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" height=\"%.2f\" %s", x, y, width, height, style);
    if (!title) {
        fputs("/>\n", f);
        return;
    }
    fputs("><title>", f);
    put_words(f, title);
    fputs("</title></rect>\n", f);
}

double wf_svg_step(double v)
{
    double ten = pow(10, floor(log10(v))), m = v / ten;
    return ten * (m <= 1 + 1e-9 ? 1 : m <= 2 + 1e-9 ? 2 : m <= 5 + 1e-9 ? 5 : 10);
}
