/* logprobs: the tokens of an answer, how likely they and others were, and where they stand in the text that the client
 * has. The old form of completions keys alternatives by their texts, which tokens may share: there each has a name. */
#include "serve/api/internal.h"

#include <string.h>

#define PIECE 1024 /* bytes of a token's text that are shown */
#define SLIPS 16  /* bytes that a tokenizer may make of others, before its tokens and the text are in step again */

static size_t piece_of_token(const wf_served *s, int32_t id, unsigned flags, char buf[PIECE])
{
    return WF_MIN(weft_token_text(s->model, id, flags, buf, PIECE), (size_t)PIECE);
}

/* ---- places ---------------------------------------------------------------------------------------------- */

/* A character that did not become whole is as many U+FFFD as it has bytes. */
static void close_char(wf_place *p)
{
    p->n += p->n_open;
    p->n_open = 0;
}

/* The place of a text that follows; moves behind it. What begins inside a character has the place of that. */
static size_t pass_text(wf_place *p, const char *text, size_t n)
{
    size_t start = p->n + (n && ((unsigned char)*text & 0xC0) != 0x80 ? p->n_open : 0);
    for (size_t i = 0; i < n; i++) {
        if (((unsigned char)text[i] & 0xC0) != 0x80) close_char(p);
        p->open[p->n_open++] = text[i];
        unsigned char lead = (unsigned char)p->open[0];
        unsigned whole = lead < 0xC2 || lead > 0xF4 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
        if (p->n_open < whole) continue;
        p->n_open = wf_utf8_len(p->open, whole) ? 1 : whole;
        close_char(p);
    }
    return start;
}

/* Bytes that a token of the prompt is at the end of its text so far. It may begin with a blank that the tokenizer has
 * put in, be in the text though it is hidden elsewhere, and be of other bytes than the text. */
static size_t span_of(const wf_served *s, int32_t id, const char *text, size_t end)
{
    char piece[PIECE];
    size_t n = piece_of_token(s, id, WEFT_TEXT_DEFAULT, piece);
    for (size_t blank = 0; blank <= (n && *piece == ' '); blank++)
        if (n - blank <= end && !memcmp(text + end - (n - blank), piece + blank, n - blank)) return n - blank;
    if (!weft_token_text(s->model, id, WEFT_TEXT_HIDE_SPECIAL, NULL, 0)) return 0;
    for (size_t slip = 1; slip <= SLIPS && n + slip <= end; slip++)
        if (!memcmp(text + end - slip - n, piece, n)) return n + slip;
    return WF_MIN(n, end);
}

bool wf_prompt_offsets(const wf_served *s, wf_prompt *p)
{
    wf_place place = {0};
    size_t end = p->len;
    if (!(p->offsets = wf_calloc(p->n + 1, sizeof *p->offsets))) return false;
    for (size_t i = p->n; i--;) end -= span_of(s, p->ids[i], p->text, end), p->offsets[i] = (uint32_t)end;
    pass_text(&place, p->text, end);
    for (size_t i = 0; i < p->n; i++) {
        size_t from = p->offsets[i], to = i + 1 < p->n ? p->offsets[i + 1] : p->len;
        p->offsets[i] = (uint32_t)pass_text(&place, p->text + from, to - from);
    }
    return true;
}

wf_place wf_place_begin(const wf_job *j, uint32_t choice)
{
    const wf_prompt *p = wf_prompt_of(&j->params, choice);
    wf_place place = {.prompt = p};
    if (j->params.echo) pass_text(&place, p->text, p->len);
    place.drop_space = p->n == 1 && p->ids[0] == weft_model_info(j->served->model)->bos;
    return place;
}

static size_t place_of(const wf_job *j, const wf_token *t, wf_place *p)
{
    char piece[PIECE], *alone = NULL;
    size_t len, cut = 0;
    if (t->prompt) return p->prompt->offsets[p->n_prompt++];
    size_t n = piece_of_token(j->served, t->id, j->params.skip_special ? WEFT_TEXT_HIDE_SPECIAL : 0, piece);
    if (n && p->drop_space && *piece == ' ' && !weft_detokenize(j->served->model, &t->id, 1, 0, &alone, &len))
        cut = len < n;
    weft_free(alone);
    p->drop_space &= !n;
    return pass_text(p, piece + cut, n - cut);
}

/* ---- for chats ------------------------------------------------------------------------------------------- */

/* Text, bytes and logprob; without the closing brace. */
static void put_chat_token(const wf_job *j, int32_t id, float logprob, wf_text *out)
{
    char buf[PIECE];
    size_t n = piece_of_token(j->served, id, WEFT_TEXT_DEFAULT, buf);
    wf_json_print(out, "{'token':%.*s,'logprob':%.9g,'bytes':[", (int)n, buf, (double)logprob);
    for (size_t i = 0; i < n; i++) wf_text_print(out, "%s%u", i ? "," : "", (unsigned char)buf[i]);
    wf_text_add(out, "]", 1);
}

static void put_chat_logprobs(const wf_job *j, const wf_token *tokens, size_t n, const struct weft_logprob *top,
                              wf_text *out)
{
    wf_json_print(out, "{'content':[");
    for (size_t i = 0; i < n; i++) {
        wf_json_comma(out);
        put_chat_token(j, tokens[i].id, tokens[i].logprob, out);
        wf_json_print(out, ",'top_logprobs':[");
        for (uint32_t k = 0; k < tokens[i].n_top; k++, top++) {
            wf_json_comma(out);
            put_chat_token(j, top->id, top->logprob, out);
            wf_text_add(out, "}", 1);
        }
        wf_text_add(out, "]}", 2);
    }
    wf_text_add(out, "]}", 2);
}

/* ---- for completions ------------------------------------------------------------------------------------- */

typedef struct named { /* a token and its alternatives, the last one itself */
    struct {
        int32_t id;
        size_t n;
        char text[PIECE];
    } of[WEFT_MAX_TOP + 1];
    uint32_t n;
} named;

/* Its text, or its bytes as OpenAI writes them where they are no text. Of tokens that have the same the last of the
 * vocabulary has that name, since single bytes stand at its beginning; others have their number, as vLLM writes it. */
static void put_name(const named *all, uint32_t i, wf_text *out)
{
    int32_t id = all->of[i].id;
    const char *text = all->of[i].text;
    size_t n = all->of[i].n;
    for (uint32_t k = 0; k < all->n; k++) {
        if (all->of[k].id <= id || all->of[k].n != n || memcmp(all->of[k].text, text, n)) continue;
        wf_text_print(out, "\"token_id:%d\"", id);
        return;
    }
    if (wf_utf8_valid(text, n) == n) {
        wf_json_put_string(out, text, n);
        return;
    }
    wf_text_print(out, "\"bytes:");
    for (size_t b = 0; b < n; b++) wf_text_print(out, "\\\\x%02x", (unsigned char)text[b]);
    wf_text_add(out, "\"", 1);
}

/* One of the lists of a token and its alternatives. */
static void put_of_token(const wf_job *j, const wf_token *t, const struct weft_logprob *top, int list, wf_text *out)
{
    named all;
    bool first = t->prompt && !t->n_top && t->logprob == 0; /* it has none */
    if (list != 1 && (!first || !list)) {
        all.n = 1 + WF_MIN(t->n_top, (uint32_t)WEFT_MAX_TOP);
        for (uint32_t i = 0; i < all.n; i++) {
            all.of[i].id = i + 1 < all.n ? top[i].id : t->id;
            all.of[i].n = piece_of_token(j->served, all.of[i].id, WEFT_TEXT_DEFAULT, all.of[i].text);
        }
    }
    if (!list) put_name(&all, all.n - 1, out);
    else if (first) wf_text_add(out, "null", 4);
    else if (list == 1) wf_json_print(out, "%.9g", (double)t->logprob);
    else {
        wf_text_add(out, "{", 1);
        for (uint32_t k = 0; k + 1 < all.n; k++) {
            wf_json_comma(out);
            put_name(&all, k, out);
            wf_json_print(out, ":%.9g", (double)top[k].logprob);
        }
        wf_text_add(out, "}", 1);
    }
}

void wf_reply_logprobs(const wf_job *j, const wf_token *tokens, size_t n, const struct weft_logprob *top,
                       wf_place *place, wf_text *out)
{
    if (!(j->params.chat ? j->params.chat_logprobs : WF_GIVEN(&j->params, LOGPROBS))) wf_text_add(out, "null", 4);
    else if (j->params.chat) put_chat_logprobs(j, tokens, n, top, out);
    else {
        /* Four parallel lists. */
        static const char *const names[] = {"{\"tokens\":[", "],\"token_logprobs\":[", "],\"top_logprobs\":["};
        for (int list = 0; list < 3; list++) {
            const struct weft_logprob *at = top;
            wf_text_print(out, "%s", names[list]);
            for (size_t i = 0; i < n; at += tokens[i++].n_top) {
                wf_json_comma(out);
                put_of_token(j, &tokens[i], at, list, out);
            }
        }
        wf_json_print(out, "],'text_offset':[");
        for (size_t i = 0; i < n; i++) wf_text_print(out, "%s%zu", i ? "," : "", place_of(j, &tokens[i], place));
        wf_text_add(out, "]}", 2);
    }
}
