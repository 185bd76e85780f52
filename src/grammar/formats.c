/* Formats of strings (Draft 2020-12, Validation, 7.3) as patterns. A format that is not here says nothing. */
#include "grammar/internal.h"

#include <string.h>

#define DATE                                                                                                           \
    "(?:[0-9]{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|"              \
    "02-(?:0[1-9]|1[0-9]|2[0-8]))|(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)-02-29)"
#define TIME "(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\\.[0-9]{1,9})?(?:[Zz]|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])"
#define LABEL "[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?"
#define HOST LABEL "(?:\\." LABEL ")*"
#define BYTE "(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
#define IPV4 BYTE "(?:\\." BYTE "){3}"
#define H "[0-9a-fA-F]{1,4}"
#define LS32 "(?:" H ":" H "|" IPV4 ")"
#define IPV6                                                                                                           \
    "(?:(?:" H ":){6}" LS32 "|::(?:" H ":){5}" LS32 "|(?:" H ")?::(?:" H ":){4}" LS32                                  \
    "|(?:(?:" H ":){0,1}" H ")?::(?:" H ":){3}" LS32 "|(?:(?:" H ":){0,2}" H ")?::(?:" H ":){2}" LS32                  \
    "|(?:(?:" H ":){0,3}" H ")?::" H ":" LS32 "|(?:(?:" H ":){0,4}" H ")?::" LS32                                      \
    "|(?:(?:" H ":){0,5}" H ")?::" H "|(?:(?:" H ":){0,6}" H ")?::)"
#define ATOM "[a-zA-Z0-9!#$%&'*+/=?^_`{|}~-]+"
#define URI_CHAR "[a-zA-Z0-9._~!$&'()*+,;=:@/?-]|%[0-9a-fA-F]{2}"
#define URI_TAIL "(?:" URI_CHAR "|\\[|\\])*(?:#(?:" URI_CHAR ")*)?"

static const struct {
    const char *name, *pattern;
} formats[] = {
    {"date", DATE},
    {"time", TIME},
    {"date-time", DATE "[Tt]" TIME},
    {"email", ATOM "(?:\\." ATOM ")*@(?:" HOST ")"},
    {"hostname", HOST},
    {"ipv4", IPV4},
    {"ipv6", IPV6},
    {"uuid", "[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}"},
    {"uri", "[a-zA-Z][a-zA-Z0-9+.-]*:" URI_TAIL},
    {"duration", "P(?:[0-9]+W|(?:[0-9]+Y(?:[0-9]+M(?:[0-9]+D)?)?|[0-9]+M(?:[0-9]+D)?|[0-9]+D)"
                 "(?:T(?:[0-9]+H(?:[0-9]+M(?:[0-9]+S)?)?|[0-9]+M(?:[0-9]+S)?|[0-9]+S))?"
                 "|T(?:[0-9]+H(?:[0-9]+M(?:[0-9]+S)?)?|[0-9]+M(?:[0-9]+S)?|[0-9]+S))"},
};

re format_pattern(wf_grammar *g, const char *name)
{
    for (size_t i = 0; i < WF_LEN(formats); i++)
        if (!strcmp(formats[i].name, name))
            return re_parse(g->pool, formats[i].pattern, strlen(formats[i].pattern), true);
    return RE_ALL;
}
