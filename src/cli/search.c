/* search: the part of `weft plan` that finds plans. */
#include "base/file.h"
#include "cli/cli.h"
#include "cli/rows.h"

#define AT(field) offsetof(wf_opts, field)

/* Before a model is opened, which takes long. */
int wf_search_check(const wf_opts *o)
{
    struct weft_profile *p = NULL;
    weft_status s = weft_profile_read(o->search.profile, &p);
    weft_profile_free(p);
    if (s == WEFT_OK && o->search.plan && wf_same_file(o->search.profile, o->search.plan))
        return wf_usage(o->command, "-o %s would overwrite the profile that is searched: name another file", o->search.plan);
    if (s == WEFT_OK && o->search.plan) s = wf_output_check(o->search.plan);
    return s ? wf_say_error(s) : 0;
}

int wf_search_plans(const wf_opts *o, struct weft_engine *e)
{
    wf_progress bar = {0};
    bool stopped = false;
    struct weft_search_params p = o->search;
    p.tokens = o->explain.tokens;
    p.decodes = o->explain.decodes;
    p.on_progress = wf_on_progress;
    p.stop = wf_ask_interrupted;
    p.user = o->quiet ? NULL : &bar;
    wf_catch_interrupt();
    weft_status s = weft_search(e, &p, stdout, &stopped);
    wf_progress_end(&bar);
    int rc = s ? wf_say_print_error(s) : 0;
    if (rc) return rc;
    if (p.plan) wf_note(o, "wrote %s", p.plan);
    return stopped ? wf_interrupted_exit() : 0;
}

/* What ops keep of their rate beside compute that loses a part of its own: NanoFlow's figure 5 and table 3. */
static weft_status print_rates(const char *path)
{
    static const wf_column columns[] = {{"class", .kind = WF_TEXT}, {"share"}, {"lost"}, {"rate"}, {"spread"}};
    struct weft_profile *p = NULL;
    wf_rows rows = WF_ROWS("json", columns);
    WF_TRY(weft_profile_read(path, &p));
    char device[4 * sizeof p->device], model[4 * sizeof p->model]; /* whatever the file calls them */
    wf_show(device, sizeof device, p->device);
    wf_show(model, sizeof model, p->model);
    puts("{");
    wf_json_text("device_name", device);
    wf_json_text("model_type", model);
    wf_json_number("context", p->context);
    printf("    \"rates\": %s", p->n_rates ? "" : "[]\n");
    for (const struct weft_profile_rate *r = p->rates; r < p->rates + p->n_rates; r++)
        wf_rows_add(&rows, (const wf_cell[]){{weft_class_name(r->op_class)}, {.number = r->share}, {.number = r->lost}, {.number = r->rate}, {.number = r->spread}});
    wf_rows_end(&rows);
    puts("}");
    weft_profile_free(p);
    return WEFT_OK;
}

int wf_print_profile(const wf_opts *o)
{
    weft_status s = o->json ? print_rates(o->print_profile) : weft_profile_print(o->print_profile, stdout);
    return s ? wf_say_print_error(s) : 0;
}

static const wf_opt rows[] = {
    {0, "search", "PROFILE", "search plans that overlap ops of this batch, by simulation from the times in this file; Ctrl-C ends it with the best so far", WF_OPT_TEXT, AT(search.profile)},
    {'o', "output", "FILE", "write the best plan to this file, for --plan; without a faster one, the sequential plan", WF_OPT_TEXT, AT(search.plan)},
    {0, "best", "N", "write the N best plans, to FILE, FILE.2 and so on, to be compared on the device (default 1)", WF_OPT_U32, AT(search.keep), 1, 15},
    {0, "seconds", "N", "most seconds to search (default 600)", WF_OPT_U32, AT(search.seconds), 1, 86400},
    {0, "profile", "PROFILE", "print the times in this file and nothing else; with --timeline, draw by them; with --json, what ops keep of their rates beside compute", WF_OPT_TEXT, AT(print_profile)},
};
const WF_GROUP(wf_group_search, "Search", rows);
