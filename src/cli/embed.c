/* embed: prints the embeddings of texts, a line of numbers each. */
#include "cli/cli.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One text, or token ids, after the other: what is measured is no server. */
static weft_status print_embedding(struct weft_engine *e, struct weft_request_params p)
{
    enum { LOOK_MS = 100 };
    struct weft_request *r = NULL;
    const struct weft_event *ev = NULL;
    p.embed = p.pull = true;
    WF_TRY(weft_submit(e, &p, &r));
    weft_status s = WEFT_ERR_TIMEOUT;
    while (s == WEFT_ERR_TIMEOUT && wf_goes_on(e)) s = weft_next(r, LOOK_MS, &ev);
    for (uint32_t i = 0; !s && i < ev->n_embedding; i++)
        printf("%.9g%c", (double)ev->embedding[i], i + 1 < ev->n_embedding ? ' ' : '\n');
    if (!s && ev->kind == WEFT_EVENT_DONE) s = wf_fail(ev->status, "%s", ev->message);
    if (s == WEFT_ERR_TIMEOUT) s = wf_fail(WEFT_ERR_CANCELLED, "interrupted");
    weft_request_free(r);
    return s;
}

static weft_status print_all(const wf_opts *o, struct weft_engine *e, const char *text, size_t len)
{
    weft_status s = WEFT_OK;
    if (o->tokens.n)
        return print_embedding(e, (struct weft_request_params){.tokens = (const int32_t *)o->tokens.v,
                                                               .n_tokens = o->tokens.n});
    if (!o->n_args) return print_embedding(e, (struct weft_request_params){.prompt = text, .prompt_len = len});
    for (size_t i = 0; !s && i < o->n_args; i++)
        s = print_embedding(e, (struct weft_request_params){.prompt = o->args[i]});
    return s;
}

static int cmd_embed(const wf_opts *o)
{
    struct weft_model *m = NULL;
    struct weft_engine *e = NULL;
    struct weft_engine_params p = o->engine;
    char *text = NULL;
    size_t len = 0;
    if (o->n_args && (o->prompt || o->file || o->tokens.n))
        return wf_usage(o->command, "texts as arguments conflict with -p, -f and --tokens: use one of them");
    int rc = o->n_args || o->tokens.n ? 0 : wf_read_text(o, &text, &len);
    if (!rc) rc = wf_open_model(o, false, &m);
    if (!rc) p.context = wf_context_of(o, m);
    if (!rc && !p.pooling && !weft_model_info(m)->pooling) p.pooling = "last";
    if (!rc) rc = wf_open_engine(o, m, p, &e);
    weft_status s = rc ? WEFT_OK : print_all(o, e, text, len);
    if (s) rc = wf_say_error(s);
    weft_engine_close(e);
    weft_model_close(m);
    free(text);
    return rc;
}

static const wf_opt embed_rows[] = {
    {0, "tokens", "1,2,3", "token ids, used as they are, in place of a text", WF_OPT_LIST, AT(tokens), 0, INT32_MAX},
};
static const WF_GROUP(embed_group, "Token ids", embed_rows);
static const wf_opt_group *const embed_groups[] = {
    &wf_group_model, &wf_group_text, &embed_group, &wf_group_context, &wf_group_device, &wf_group_parallel,
    &wf_group_general, NULL,
};

const wf_command wf_cmd_embed = {
    .name = "embed",
    .usage = "[-m MODEL] [TEXT... | -p TEXT | -f FILE] [options]",
    .summary = "Prints the embedding of each text on a line. A model that generates text gives that of its last token; "
               "WEFT_POOLING says otherwise.",
    .groups = embed_groups,
    .takes_args = true,
    .reads_stdin = true,
    .run = cmd_embed,
};
