/* table: single fields of JSON and CSV output. */
#include "cli/bench.h"

#include <string.h>
#include <time.h>

void wf_date(const char *format, char *buf, size_t cap)
{
    time_t now = time(NULL);
    struct tm t;
    strftime(buf, cap, format, gmtime_r(&now, &t));
}

void wf_json_text(const char *key, const char *value)
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

void wf_csv_text(FILE *f, const char *value)
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
