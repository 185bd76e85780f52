/* svg: the few shapes that our pictures consist of. A picture is one static file. */
#ifndef WF_SVG_H
#define WF_SVG_H

#include <stdio.h>

void wf_svg_begin(FILE *f, int width, int height); /* white */
void wf_svg_end(FILE *f);
/* anchor: "start", "middle", "end". The words may be any text. */
void wf_svg_text(FILE *f, double x, double y, const char *anchor, const char *colour, const char *words);
void wf_svg_line(FILE *f, double x0, double y0, double x1, double y1, const char *style); /* style: attributes */
/* With a title (NULL: none), which is shown under the pointer. */
void wf_svg_rect(FILE *f, double x, double y, double width, double height, const char *colour, const char *title);

#endif
