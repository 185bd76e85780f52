/* svg: the few shapes that our pictures consist of. A picture is one static file. */
#ifndef WF_SVG_H
#define WF_SVG_H

#include <stdio.h>

void wf_svg_begin(FILE *f, int width, int height); /* white */
void wf_svg_end(FILE *f);
/* anchor: "start", "middle", "end". The words may be any text. */
void wf_svg_text(FILE *f, double x, double y, const char *anchor, const char *colour, const char *words);
void wf_svg_line(FILE *f, double x0, double y0, double x1, double y1, const char *style); /* style: attributes */
/* The same text upwards, its middle at that place. */
void wf_svg_text_up(FILE *f, double x, double y, const char *colour, const char *words);
/* With a title (NULL: none), which is shown under the pointer. */
void wf_svg_rect(FILE *f, double x, double y, double width, double height, const char *colour, const char *title);
void wf_svg_box(FILE *f, double x, double y, double width, double height, const char *style, const char *title); /* style: attributes */
/* Between ticks of an axis: the smallest of 1, 2, 5, 10, ... times a power of ten that is not below v. */
double wf_svg_step(double v);

#endif
