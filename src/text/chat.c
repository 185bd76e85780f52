/* chat: the table of chat templates.
 *
 * A model file has its template as Jinja text. weft does not run code from a file: it recognises the family by phrases in that
 * text, and renders the conversation from a row of strings. To add a family, add one row to formats[]. In the strings \1
 * stands for the text of BOS and \2 for that of EOS.
 */
#include "text/text.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BOS "\1"
#define EOS "\2"

enum trim {
    KEEP,  /* contents unchanged */
    TRIM,  /* user and assistant contents without the white space around them */
    WHOLE, /* the same, applied to the first user turn together with the system text in it */
    ALL,   /* system contents too */
    ANSWER /* assistant contents only */
};

enum system_place { OWN_TURN, IN_FIRST_USER, IN_LAST_USER };

typedef struct chat_format {
    const char *name;
    const char *marks[5];  /* phrases that the template must contain; with a leading "!": must not */
    const char *open;      /* start of the text */
    const char *system[2]; /* around a system content; inside user[] unless place is OWN_TURN */
    enum system_place place;
    const char *user[2], *assistant[2];
    const char *tool[4];  /* around all results in a row, and around each of them: [0] [1] result [2] [1] result [2] [3]; NULL: none */
    const char *generate; /* start of the answer */
    enum trim trim;
    const char *system_default; /* for a conversation without a system message; NULL: none */
} chat_format;

/* The first row whose marks match applies. Omitted strings are empty. Sources: the tokenizer_config.json of the models named. */
static const chat_format formats[] = {
    {
        /* Qwen 2, Hermes 2 */
        .name = "chatml",
        .marks = {"<|im_start|>", "!<|im_sep|>", "!<end_of_utterance>"},
        .system = {"<|im_start|>system\n", "<|im_end|>\n"},
        .user = {"<|im_start|>user\n", "<|im_end|>\n"},
        .assistant = {"<|im_start|>assistant\n", "<|im_end|>\n"},
        .tool = {"<|im_start|>user", "\n<tool_response>\n", "\n</tool_response>", "<|im_end|>\n"},
        .generate = "<|im_start|>assistant\n",
    },
    {
        /* Llama 2 Chat */
        .name = "llama2",
        .marks = {"[INST]", "<<SYS>>"},
        .system = {"<<SYS>>\n", "\n<</SYS>>\n\n"},
        .place = IN_FIRST_USER,
        .user = {BOS "[INST] ", " [/INST]"},
        .assistant = {" ", " " EOS},
        .trim = WHOLE,
    },
    {
        /* Llama 3 Instruct */
        .name = "llama3",
        .marks = {"<|start_header_id|>", "<|end_header_id|>"},
        .open = BOS,
        .system = {"<|start_header_id|>system<|end_header_id|>\n\n", "<|eot_id|>"},
        .user = {"<|start_header_id|>user<|end_header_id|>\n\n", "<|eot_id|>"},
        .assistant = {"<|start_header_id|>assistant<|end_header_id|>\n\n", "<|eot_id|>"},
        .tool = {"", "<|start_header_id|>ipython<|end_header_id|>\n\n", "<|eot_id|>", ""},
        .generate = "<|start_header_id|>assistant<|end_header_id|>\n\n",
        .trim = ALL,
    },
    {
        /* Mistral Large 2411 */
        .name = "mistral-v7",
        .marks = {"[INST]", "[SYSTEM_PROMPT]"},
        .open = BOS,
        .system = {"[SYSTEM_PROMPT] ", "[/SYSTEM_PROMPT]"},
        .user = {"[INST] ", "[/INST]"},
        .assistant = {" ", EOS},
    },
    {
        /* Mistral 7B Instruct v0.1 and v0.2, Mixtral, since they take a system message */
        .name = "mistral",
        .marks = {" [INST] "},
        .open = BOS,
        .system = {"", "\n\n"},
        .place = IN_FIRST_USER,
        .user = {" [INST] ", " [/INST]"},
        .assistant = {" ", EOS},
    },
    {
        /* Mistral Nemo */
        .name = "mistral-tekken",
        .marks = {"\"[INST]\"", "[AVAILABLE_TOOLS]"},
        .open = BOS,
        .system = {"", "\n\n"},
        .place = IN_LAST_USER,
        .user = {"[INST]", "[/INST]"},
        .assistant = {"", EOS},
    },
    {
        /* Mistral 7B Instruct v0.3 */
        .name = "mistral-v3",
        .marks = {"[INST]", "[AVAILABLE_TOOLS]"},
        .open = BOS,
        .system = {"", "\n\n"},
        .place = IN_LAST_USER,
        .user = {"[INST] ", "[/INST]"},
        .assistant = {" ", EOS},
        .trim = ANSWER,
    },
    {
        /* Mistral 7B Instruct v0.1 as first published */
        .name = "mistral-v0.1",
        .marks = {"'[INST] '", "eos_token + ' '"},
        .open = BOS,
        .system = {"", "\n\n"},
        .place = IN_FIRST_USER,
        .user = {"[INST] ", " [/INST]"},
        .assistant = {"", EOS " "},
    },
    {
        /* Mistral 7B Instruct v0.2 as first published */
        .name = "mistral-v0.2",
        .marks = {"'[INST] '"},
        .open = BOS,
        .system = {"", "\n\n"},
        .place = IN_FIRST_USER,
        .user = {"[INST] ", " [/INST]"},
        .assistant = {"", EOS},
    },
    {
        /* Zephyr 7B, TinyLlama Chat */
        .name = "zephyr",
        .marks = {"<|user|>", "<|assistant|>", "eos_token", "!<|end|>", "!tools"},
        .system = {"<|system|>\n", EOS "\n"},
        .user = {"<|user|>\n", EOS "\n"},
        .assistant = {"<|assistant|>\n", EOS "\n"},
        .generate = "<|assistant|>\n",
    },
    {
        /* Vicuna 1.1, as written by converters */
        .name = "vicuna-v1.1",
        .marks = {"'USER: '", "'ASSISTANT: '", "!SYSTEM: "},
        .system = {"", "\n\n"},
        .user = {"USER: ", "\n"},
        .assistant = {"ASSISTANT: ", "</s>\n"},
        .generate = "ASSISTANT:",
    },
    {
        /* Vicuna 1.5 */
        .name = "vicuna",
        .marks = {"USER: ", "ASSISTANT:", "!SYSTEM: "},
        .user = {" USER: ", ""},
        .assistant = {" ASSISTANT: ", EOS},
        .generate = " ASSISTANT:",
        .trim = TRIM,
        .system_default = "A chat between a curious user and an artificial intelligence assistant. "
                          "The assistant gives helpful, detailed, and polite answers to the "
                          "user's questions.",
    },
    {
        /* DeepSeek LLM Chat, DeepSeek V2 Chat */
        .name = "deepseek",
        .marks = {"'User: '", "'Assistant: '"},
        .open = BOS,
        .system = {"", "\n\n"},
        .user = {"User: ", "\n\n"},
        .assistant = {"Assistant: ", EOS},
        .generate = "Assistant:",
    },
    {
        /* DeepSeek V3, R1 */
        .name = "deepseek3",
        .marks = {"<\xef\xbd\x9c"
                  "User\xef\xbd\x9c>",
                  "<\xef\xbd\x9c"
                  "Assistant\xef\xbd\x9c>"},
        .open = BOS,
        .user = {"<\xef\xbd\x9c"
                 "User\xef\xbd\x9c>",
                 ""},
        .assistant = {"<\xef\xbd\x9c"
                      "Assistant\xef\xbd\x9c>",
                      EOS},
        .generate = "<\xef\xbd\x9c"
                    "Assistant\xef\xbd\x9c>",
    },
    {
        /* Gemma 1 to 3 */
        .name = "gemma",
        .marks = {"<start_of_turn>"},
        .open = BOS,
        .system = {"", "\n\n"},
        .place = IN_FIRST_USER,
        .user = {"<start_of_turn>user\n", "<end_of_turn>\n"},
        .assistant = {"<start_of_turn>model\n", "<end_of_turn>\n"},
        .generate = "<start_of_turn>model\n",
        .trim = TRIM,
    },
};

/* ---- names ----------------------------------------------------------------------------------- */

static const char *names[WF_LEN(formats) + 1];

static void fill_names(void)
{
    for (size_t i = 0; i < WF_LEN(formats); i++) names[i] = formats[i].name;
}

const char *const *wf_chat_names(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, fill_names);
    return names;
}

static bool contains(const char *text, size_t len, const char *phrase)
{
    return memmem(text, len, phrase, strlen(phrase)) != NULL;
}

static bool fits(const chat_format *f, const char *text, size_t len)
{
    for (size_t i = 0; i < WF_LEN(f->marks) && f->marks[i]; i++) {
        bool absent = f->marks[i][0] == '!';
        if (contains(text, len, f->marks[i] + absent) == absent) return false;
    }
    return true;
}

const char *wf_chat_recognise(const char *template_text, size_t len)
{
    for (size_t i = 0; template_text && i < WF_LEN(formats); i++)
        if (fits(&formats[i], template_text, len)) return formats[i].name;
    return NULL;
}

static const chat_format *format_find(const char *name)
{
    for (size_t i = 0; name && i < WF_LEN(formats); i++)
        if (!strcmp(formats[i].name, name)) return &formats[i];
    char known[512] = "";
    for (size_t i = 0, n = 0; wf_chat_names()[i] && n < sizeof known; i++)
        n += (size_t)snprintf(known + n, sizeof known - n, "%s%s", i ? ", " : "",
                              wf_chat_names()[i]);
    if (name)
        wf_fail(WEFT_ERR_UNSUPPORTED,
                "unknown chat template '%.64s'; --chat-template takes one of %s", name, known);
    else
        wf_fail(WEFT_ERR_UNSUPPORTED,
                "the model has no chat template that weft recognises; pass --chat-template NAME "
                "with one of %s",
                known);
    return NULL;
}

/* ---- rendering ------------------------------------------------------------------------------- */

typedef struct writer {
    wf_chat_text *out;
    size_t cap;
    const char *bos, *eos;
} writer;

typedef struct span {
    const char *p;
    size_t len;
} span;

static weft_status put(writer *w, const char *p, size_t len)
{
    wf_chat_text *o = w->out;
    if (w->cap - o->len <= len) {
        size_t cap = (o->len + len + 64) * 2;
        char *text = cap > len ? realloc(o->text, cap) : NULL;
        if (!text)
            return wf_fail(WEFT_ERR_NOMEM, "out of host memory: a chat text of %zu bytes",
                           o->len + len);
        o->text = text;
        w->cap = cap;
    }
    memcpy(o->text + o->len, p, len);
    o->text[o->len += len] = 0;
    return WEFT_OK;
}

/* Appends what a message says, and notes where it stands. */
static weft_status put_content(writer *w, span s)
{
    wf_chat_text *o = w->out;
    if (!s.len) return WEFT_OK;
    if (!wf_grow(&o->contents, o->n_contents, &o->cap_contents, sizeof *o->contents)) return WEFT_ERR_NOMEM;
    o->contents[o->n_contents++] = (wf_text_span){o->len, o->len + s.len};
    return put(w, s.p, s.len);
}

/* Appends a string of the table with \1 and \2 replaced; NULL: nothing. */
static weft_status put_fixed(writer *w, const char *s)
{
    for (; s && *s; s++) {
        const char *mark = *s == *BOS ? w->bos : *s == *EOS ? w->eos : NULL;
        WF_TRY(mark ? put(w, mark, strlen(mark)) : put(w, s, 1));
    }
    return WEFT_OK;
}

static bool is_space(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

static span trimmed(span s)
{
    while (s.len && is_space(s.p[0])) s.p++, s.len--;
    while (s.len && is_space(s.p[s.len - 1])) s.len--;
    return s;
}

static weft_status put_turn(writer *w, const char *const around[2], const char *content, bool trim)
{
    span s = {content, strlen(content)};
    if (trim) s = trimmed(s);
    WF_TRY(put_fixed(w, around[0]));
    WF_TRY(put_content(w, s));
    return put_fixed(w, around[1]);
}

/* A user turn with a system text in it. */
static weft_status put_user(writer *w, const chat_format *f, const char *system,
                            const char *content)
{
    bool trim = f->trim == TRIM || f->trim == WHOLE || f->trim == ALL;
    if (!system) return put_turn(w, f->user, content, trim);
    WF_TRY(put_fixed(w, f->user[0]));
    WF_TRY(put_turn(w, f->system, system, false));
    span s = {content, strlen(content)};
    if (f->trim == WHOLE) /* the system text comes before it, so only its end is trimmed */
        while (s.len && is_space(s.p[s.len - 1])) s.len--;
    else if (trim)
        s = trimmed(s);
    WF_TRY(put_content(w, s));
    return put_fixed(w, f->user[1]);
}

/* A result of a tool, the i-th message. */
static weft_status put_tool(writer *w, const chat_format *f, const struct weft_message *msgs, size_t n, size_t i)
{
    bool first = !i || strcmp(msgs[i - 1].role, "tool"), last = i + 1 == n || strcmp(msgs[i + 1].role, "tool");
    const char *const around[2] = {f->tool[1], f->tool[2]};
    if (first) WF_TRY(put_fixed(w, f->tool[0]));
    WF_TRY(put_turn(w, around, msgs[i].content, f->trim == ALL));
    return last ? put_fixed(w, f->tool[3]) : WEFT_OK;
}

enum role { SYSTEM, USER, ASSISTANT, TOOL };

static weft_status check(const struct weft_message *m, size_t i, enum role *role)
{
    static const char *const roles[] = {"system", "user", "assistant", "tool"};
    if (!m->role || !m->content)
        return wf_fail(WEFT_ERR_ARG, "message %zu has no %s", i, m->role ? "content" : "role");
    for (size_t k = 0; k < WF_LEN(roles); k++) {
        *role = (enum role)k;
        if (!strcmp(m->role, roles[k])) return WEFT_OK;
    }
    return wf_fail(WEFT_ERR_ARG,
                   "message %zu has the role '%.32s'; roles are system, user, assistant and tool", i,
                   m->role);
}

/* Checks all messages. *user: the user message that gets the system text; n: none. */
static weft_status plan(const chat_format *f, const struct weft_message *msgs, size_t n,
                        size_t *user)
{
    *user = n;
    for (size_t i = 0; i < n; i++) {
        enum role role = SYSTEM;
        WF_TRY(check(&msgs[i], i, &role));
        if (role == TOOL && !f->tool[1])
            return wf_fail(WEFT_ERR_UNSUPPORTED, "message %zu: the chat template %s has no place for messages of tools; send the result in a user message",
                           i, f->name);
        if (role == USER && (*user == n || f->place == IN_LAST_USER)) *user = i;
        if (role == SYSTEM && i && f->place != OWN_TURN)
            return wf_fail(
                WEFT_ERR_ARG,
                "message %zu: the chat template %s takes a system message only as the first one", i,
                f->name);
    }
    if (*user == n) return wf_fail(WEFT_ERR_ARG, "the conversation has no user message");
    return WEFT_OK;
}

static weft_status render(writer *w, const chat_format *f, const struct weft_message *msgs,
                          size_t n)
{
    size_t taker;
    WF_TRY(plan(f, msgs, n, &taker));
    bool has_system = !strcmp(msgs[0].role, "system");
    WF_TRY(put_fixed(w, f->open));
    if (!has_system && f->system_default) {
        WF_TRY(put_fixed(w, f->system[0]));
        WF_TRY(put_fixed(w, f->system_default));
        WF_TRY(put_fixed(w, f->system[1]));
    }
    for (size_t i = 0; i < n; i++) {
        enum role role = SYSTEM;
        WF_TRY(check(&msgs[i], i, &role));
        bool inside = has_system && f->place != OWN_TURN;
        if (role == USER)
            WF_TRY(put_user(w, f, inside && i == taker ? msgs[0].content : NULL, msgs[i].content));
        else if (role == ASSISTANT)
            WF_TRY(put_turn(w, f->assistant, msgs[i].content, f->trim != KEEP));
        else if (role == TOOL)
            WF_TRY(put_tool(w, f, msgs, n, i));
        else if (!inside)
            WF_TRY(put_turn(w, f->system, msgs[i].content, f->trim == ALL));
    }
    return put_fixed(w, f->generate);
}

weft_status wf_chat_render(const char *name, const char *bos, const char *eos,
                           const struct weft_message *msgs, size_t n, wf_chat_text *out)
{
    *out = (wf_chat_text){0};
    const chat_format *f = format_find(name);
    if (!f) return WEFT_ERR_UNSUPPORTED;
    writer w = {.out = out, .bos = bos ? bos : "", .eos = eos ? eos : ""};
    weft_status s = put(&w, "", 0);
    if (!s) s = render(&w, f, msgs, n);
    if (s) return wf_chat_text_free(out), s;
    bool own = !out->n_contents || out->contents[0].begin >= strlen(w.bos);
    out->has_bos = *w.bos && own && !strncmp(out->text, w.bos, strlen(w.bos));
    return WEFT_OK;
}

void wf_chat_text_free(wf_chat_text *t)
{
    free(t->text);
    free(t->contents);
    *t = (wf_chat_text){0};
}
