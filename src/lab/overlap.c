/* overlap: `weft tune --overlap`, from measuring ops to the plans that the engine takes by itself. See overlap.h. */
#include "lab/overlap.h"

#include "base/file.h"
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SECONDS  300
#define CONTEXT  1024
#define OPS_PART 0.6   /* of the time, for ops; the rest is for plans */
#define PROBE_US 20000.0
#define TILE_GPU 128 /* the paper's; other devices are slower, and gain from smaller nano-batches */
#define TILE     8

bool wf_overlap_ends(wf_overlap *o)
{
    o->stopped = o->stopped || (o->p->stop && o->p->stop(o->p->user));
    o->out_of_time = wf_now_ns() >= o->end_ns;
    return o->stopped || o->out_of_time;
}

static bool ends(void *user) { return wf_overlap_ends(user); }

wf_stopper wf_overlap_bound_builds(wf_overlap *o) { return wf_stop_by(ends, o); }

void wf_overlap_free_builds(wf_stopper before) { wf_stop_by(before.fn, before.user); }

/* ---- files --------------------------------------------------------------------------------------------------- */

/* What is kept must be a file; where the user names something else, such as a pipe, that is meant. */
static weft_status find_path(const wf_overlap *o, const char *given, const char *what, char *buf, size_t cap)
{
    if (given) {
        wf_copy(buf, cap, given);
        return strlen(given) < cap ? WEFT_OK : wf_fail(WEFT_ERR_ARG, "the path is too long: %s", given);
    }
    WF_TRY(wf_stored_path(o->e->dev, &o->e->layout.graph, what, buf, cap));
    weft_status s = access(buf, F_OK) ? WEFT_OK : wf_need_regular(buf);
    return s == WEFT_OK ? s : wf_fail_context(s, "remove what is in the place of the kept file");
}

static weft_status find_paths(wf_overlap *o)
{
    char folder[600];
    WF_TRY(find_path(o, o->p->profile, "profile", o->profile_path, sizeof o->profile_path));
    WF_TRY(find_path(o, o->p->plan, "plan", o->plan_path, sizeof o->plan_path));
    WF_TRY(find_path(o, NULL, "profile", folder, sizeof folder));
    *strrchr(folder, '/') = 0;
    /* of the kept files, where the user named none */
    if (!o->p->profile || !o->p->plan) WF_TRY(wf_folder_check(folder));
    if (wf_same_file(o->profile_path, o->plan_path))
        return wf_fail(WEFT_ERR_ARG,
                       "%s cannot be the file for the times of ops and the one for the plans: name another one "
                       "(weft_overlap_params.plan, weft_overlap_params.profile)", o->plan_path);
    WF_TRY(wf_output_check(o->profile_path));
    return wf_output_check(o->plan_path);
}

/* ---- the profile --------------------------------------------------------------------------------------------- */

static weft_status new_profile(const wf_overlap *o, wf_op_profile *out)
{
    const struct weft_device_info *d = &o->e->dev->info;
    uint32_t threads = o->e->dev->params.threads;
    *out = (wf_op_profile){.groups = WF_MAX(1u, threads ? threads : d->compute_units),
                           .tile = d->type == WEFT_DEVICE_GPU ? TILE_GPU : TILE, .context = o->context};
    wf_show(out->device, sizeof out->device, d->name);
    const char *name = o->e->model->info.name ? o->e->model->info.name : o->e->model->info.arch;
    wf_show(out->model, sizeof out->model, name ? name : "");
    return wf_stored_sign(o->e->dev, &o->e->layout.graph, out);
}

/* Times go on from those of before, unless these were of other contexts or shares; in earnest, without those of a
 * trial. */
static void go_on_from(wf_overlap *o, wf_op_profile *old)
{
    const wf_op_profile *new = &o->profile;
    bool same = old->groups == new->groups && old->tile == new->tile && old->context == new->context;
    if (!same) {
        wf_log(WEFT_LOG_WARN, "%s: of other contexts, shares or tiles: measured anew", o->profile_path);
        wf_op_profile_free(old);
        return;
    }
    memcpy(old->device_key, new->device_key, sizeof old->device_key);
    memcpy(old->model_key, new->model_key, sizeof old->model_key);
    o->profile = *old;
    if (!o->p->quick) wf_op_profile_drop_quick(&o->profile);
}

/* Is there nothing that somebody else wrote? What is no file, such as a pipe, is meant. */
static bool may_write(const char *path)
{
    struct stat st;
    char line[16] = "";
    if (stat(path, &st) || !S_ISREG(st.st_mode) || !st.st_size) return true;
    FILE *f = fopen(path, "r");
    if (!f) return true; /* writing says why */
    bool read = fgets(line, sizeof line, f) != NULL;
    fclose(f);
    return read && !strncmp(line, WF_OP_PROFILE_HEAD, strlen(WF_OP_PROFILE_HEAD) - 1);
}

/* What the user named stays as it is, unless times can be added or it is to be begun again; what weft itself kept
 * and cannot read is measured anew. */
static weft_status load_profile(wf_overlap *o)
{
    struct stat st;
    wf_op_profile old;
    WF_TRY(new_profile(o, &o->profile));
    if (!may_write(o->profile_path))
        return wf_fail(WEFT_ERR_ARG,
                       "%s: holds something else than times of ops: name another file (weft_overlap_params.profile)",
                       o->profile_path);
    if (o->p->anew || stat(o->profile_path, &st) || !S_ISREG(st.st_mode) || !st.st_size) return WEFT_OK;
    weft_status s = wf_op_profile_load(o->profile_path, &old);
    if (s == WEFT_OK) s = wf_stored_check(&old, &o->profile, o->profile_path);
    else if (!o->p->profile)
        return wf_log(WEFT_LOG_WARN, "%s: measured anew", wf_error()), wf_op_profile_free(&old), WEFT_OK;
    if (s == WEFT_OK) return go_on_from(o, &old), WEFT_OK;
    wf_op_profile_free(&old);
    char why[512];
    wf_copy(why, sizeof why, wf_error());
    return wf_fail(s == WEFT_ERR_FORMAT ? WEFT_ERR_ARG : s,
                   "%s: name another file (weft_overlap_params.profile), or begin this one again "
                   "(weft_overlap_params.anew)", why);
}

static weft_status tune_overlap(wf_overlap *o)
{
    uint64_t began = wf_now_ns();
    double seconds = o->p->seconds ? o->p->seconds : SECONDS;
    bool whole = false;
    WF_TRY(load_profile(o));
    WF_TRY(wf_exec_fill_kv(o->e->exec));
    o->end_ns = began + (uint64_t)(OPS_PART * 1e9 * seconds);
    WF_TRY(wf_overlap_measure(o, &whole));
    fprintf(o->f, "%s, %s: %zu ops, %s\n", o->profile.device, o->profile.model, o->profile.n_ops, o->profile_path);
    if (o->profile.groups == 1)
        fputs("this device has no shares that a kernel could leave to others: ops were measured with all of it only\n",
              o->f);
    wf_overlap_print_energy(o);
    if (o->stopped) return WEFT_OK;
    if (!whole) fputs("time is up before all was measured: the same command goes on from here\n", o->f);
    if (!o->profile.n_ops)
        return wf_fail(WEFT_ERR_UNSUPPORTED, "no op of this model takes any time on %s that could be measured",
                       o->e->dev->info.name);
    o->end_ns = began + (uint64_t)(1e9 * seconds);
    WF_TRY(wf_overlap_choose(o));
    if (o->stopped) return WEFT_OK;
    char kept[600]; /* engines look at one place only */
    WF_TRY(find_path(o, NULL, "plan", kept, sizeof kept));
    if (wf_same_file(o->plan_path, kept))
        fprintf(o->f, "\nkept in %s; engines with --nano-batches auto, which is the default, take it\n", o->plan_path);
    else
        fprintf(o->f,
                "\nwritten to %s; engines take it with --plan, and by themselves only what is kept in %s, which -o "
                "leaves as it was\n",
                o->plan_path, kept);
    return WEFT_OK;
}

weft_status weft_tune_overlap(struct weft_engine *e, const struct weft_overlap_params *p, FILE *f, bool *stopped)
{
    if (!e->dev->params.profile)
        return wf_fail(WEFT_ERR_ARG, "weft_tune_overlap: want an engine that was opened with `profile`");
    if (e->layout.plans.n != 1 || e->layout.plans.list[0].n_queues > 2)
        return wf_fail(WEFT_ERR_ARG, "weft_tune_overlap: want an engine that was opened with nano_batches 1");
    wf_overlap o = {.e = e, .p = p, .f = f, .probe_us = p->quick ? PROBE_US / 10 : PROBE_US,
                    .context = WF_MIN(p->context ? p->context : CONTEXT, e->layout.context)};
    weft_status s = find_paths(&o);
    if (s == WEFT_OK) o.power = wf_power_open(e->dev);
    wf_engine_lend(e);
    if (s == WEFT_OK) s = tune_overlap(&o);
    wf_engine_return(e);
    if (stopped) *stopped = o.stopped;
    wf_op_profile_free(&o.profile);
    wf_power_close(o.power);
    return s == WEFT_OK && fflush(f) ? wf_fail(WEFT_ERR_IO, "the result could not be written whole") : s;
}
