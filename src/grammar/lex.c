/* Bytes of a JSON string, and the escapes that it may have. */
#include "grammar/internal.h"

#include <ctype.h>
#include <string.h>

static int hex_value(unsigned char c)
{
    if (c >= '0' && c <= '9') return c - '0';
    c |= 32;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static enum lexed lex_hex(string_lex *s, unsigned char c, unsigned char out[4], unsigned *n)
{
    int v = hex_value(c);
    if (v < 0) return LEX_BAD;
    s->code = (uint16_t)(s->code << 4 | v);
    bool second = s->half != 0;
    if (s->escape == 2 && second && v != 13) return LEX_BAD;
    if (s->escape == 3 && second && (s->code & 0xC) != 0xC) return LEX_BAD;
    if (s->escape == 3 && !second && (s->code >> 2) == (0xDC >> 2)) return LEX_BAD; /* a second half alone */
    if (s->escape++ < 5) return LEX_MORE;
    s->escape = 0;
    uint32_t code = s->code;
    s->code = 0;
    if (second) {
        code = 0x10000 + (((uint32_t)s->half - 0xD800) << 10) + (code - 0xDC00);
        s->half = 0;
    } else if (code >= 0xD800 && code < 0xDC00) {
        s->half = (uint16_t)code;
        s->escape = 6;
        return LEX_MORE;
    }
    if (code < 0x80 && isalnum((int)code)) return LEX_BAD; /* no printer of JSON escapes these */
    *n = (unsigned)re_utf8(code, out);
    return LEX_BYTES;
}

enum lexed string_lex_byte(string_lex *s, unsigned char c, unsigned char out[4], unsigned *n)
{
    if (s->escape) {
        static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
        if (s->escape == 6) {
            s->escape = 1;
            return c == '\\' ? LEX_MORE : LEX_BAD;
        }
        if (s->escape > 1) return lex_hex(s, c, out, n);
        const char *at = c && !s->half ? strchr(from, c) : NULL;
        s->escape = c == 'u' ? 2 : 0;
        if (c == 'u') return LEX_MORE;
        if (!at) return LEX_BAD;
        *out = (unsigned char)to[at - from], *n = 1;
        return LEX_BYTES;
    }
    *out = c, *n = 1;
    if (s->utf8) {
        if (c < s->low || c > s->high) return LEX_BAD;
        s->utf8--, s->low = 0x80, s->high = 0xBF;
        return LEX_BYTES;
    }
    if (c == '"') return LEX_QUOTE;
    if (c == '\\') {
        s->escape = 1;
        return LEX_MORE;
    }
    if (c < 0x20) return LEX_BAD;
    if (c < 0x80) return LEX_BYTES;
    if (c < 0xC2 || c > 0xF4) return LEX_BAD;
    s->utf8 = c < 0xE0 ? 1 : c < 0xF0 ? 2 : 3;
    s->low = c == 0xE0 ? 0xA0 : c == 0xF0 ? 0x90 : 0x80;
    s->high = c == 0xED ? 0x9F : c == 0xF4 ? 0x8F : 0xBF;
    return LEX_BYTES;
}
