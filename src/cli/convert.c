/* convert: a model file or folder in another storage format. */
#include "cli/cli.h"

#include <string.h>

static int cmd_convert(const wf_opts *o)
{
    wf_progress bar = {0};
    struct weft_convert_result r = {0};
    if (!o->model) return wf_usage(o->command, "-m is required: the model to convert");
    if (!o->write_to) return wf_usage(o->command, "-o is required: the file to write");
    if (!strcmp(o->write_to, "-"))
        return wf_usage(o->command, "-o - (standard output) is not possible, for the beginning of a GGUF file is "
                                    "written last: write a file; one named - is -o ./-");
    if (!o->type) return wf_usage(o->command, "--type is required, such as --type Q4_K_M");
    struct weft_convert_params p = {.path = o->model,
                                    .out = o->write_to,
                                    .type = o->type,
                                    .force = o->force,
                                    .threads = o->engine.threads,
                                    .on_progress = wf_on_progress,
                                    .stop = wf_ask_interrupted,
                                    .user = o->quiet ? NULL : &bar};
    wf_catch_end(NULL);
    weft_status s = weft_convert(&p, &r);
    wf_progress_end(&bar);
    if (s == WEFT_ERR_CANCELLED) return wf_interrupted_exit();
    if (s) return r.bytes_in || s == WEFT_ERR_ARG ? wf_say_error(s) : wf_say_model_error(o, s);
    wf_note(o, "wrote %s: %zu tensors, %s (from %s)", o->write_to, r.n_tensors, WF_HUMAN(r.bytes, true),
            WF_HUMAN(r.bytes_in, true));
    if (r.n_other)
        wf_note(o, "%zu tensors have rows that are no multiple of their format's block and got another format",
                r.n_other);
    if (r.n_again)
        wf_note(o, "%zu tensors were quantised before: converting the original model loses less", r.n_again);
    return 0;
}

static const wf_opt rows[] = {
    {'m', "model", "FILE|FOLDER", "the model: a GGUF file, or a folder as Hugging Face lays it out", WF_OPT_TEXT,
     AT(model)},
    {'o', "output", "FILE", "the GGUF file to write", WF_OPT_TEXT, AT(write_to)},
    {0, "type", "TYPE",
     "storage format: F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q2_K, Q3_K_S, Q3_K_M, Q3_K_L, Q4_K_S, Q4_K_M, "
     "Q5_K_S, Q5_K_M, Q6_K, IQ4_NL, IQ4_XS or MXFP4",
     WF_OPT_TEXT, AT(type), .words = wf_file_types},
    {0, "force", NULL, "replace the output file if it exists", WF_OPT_FLAG, AT(force)},
    {'t', "threads", "N", "threads (default: one a core)", WF_OPT_U32, AT(engine.threads), 1, 1024},
};
static const WF_GROUP(group, "Options", rows);
static const wf_opt_group *const groups[] = {&group, &wf_group_general, NULL};

const wf_command wf_cmd_convert = {
    .name = "convert",
    .usage = "-m FILE|FOLDER -o OUT.gguf --type TYPE",
    .summary = "Writes a model in another storage format, as a GGUF file. Formats of the tensors are chosen as "
               "llama.cpp does for files of that type.",
    .explicit_model = true,
    .groups = groups,
    .run = cmd_convert,
};
