/* timeline: steps and ops over time as Chrome trace JSON, which Perfetto opens. It has a track for the engine's
 * thread, one for the device's steps, and one for the ops of each queue. */
#include "engine/engine.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct wf_timeline {
    FILE *f;
    char *path;
    uint64_t zero_ns;
};

static void name_track(wf_timeline *t, uint32_t track, const char *name)
{
    fprintf(t->f, "%s{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":1,\"tid\":%u,\"args\":{\"name\":\"%s\"}}",
            track == WF_TRACK_ENGINE ? "" : ",\n", track, name);
}

static weft_status cannot_write(const wf_timeline *t)
{
    return wf_fail(WEFT_ERR_IO, "cannot write %s: %s", t->path, strerror(errno));
}

weft_status wf_timeline_open(const char *path, uint32_t n_queues, wf_timeline **out)
{
    wf_timeline *t = wf_calloc(1, sizeof *t);
    if (!t) return WEFT_ERR_NOMEM;
    t->zero_ns = wf_now_ns();
    t->path = wf_strdup(path);
    t->f = t->path ? fopen(path, "w") : NULL;
    if (!t->f) {
        weft_status s = t->path ? cannot_write(t) : WEFT_ERR_NOMEM;
        free(t->path);
        return free(t), s;
    }
    fputc('[', t->f);
    name_track(t, WF_TRACK_ENGINE, "engine");
    name_track(t, WF_TRACK_DEVICE, "device");
    for (uint32_t q = 0; q < n_queues; q++) {
        char name[24];
        snprintf(name, sizeof name, "queue %u", q);
        name_track(t, WF_TRACK_QUEUES + q, name);
    }
    *out = t;
    return WEFT_OK;
}

void wf_timeline_span(wf_timeline *t, uint32_t track, const char *name, uint64_t begin_ns, uint64_t end_ns,
                      uint64_t step, uint32_t tokens)
{
    if (!t) return;
    fprintf(t->f,
            ",\n{\"name\":\"%s\",\"ph\":\"X\",\"pid\":1,\"tid\":%u,\"ts\":%.3f,\"dur\":%.3f,\"args\":{\"step\":%" PRIu64
            ",\"tokens\":%u}}",
            name, track, ((double)begin_ns - (double)t->zero_ns) / 1e3, (double)(end_ns - begin_ns) / 1e3, step,
            tokens);
}

weft_status wf_timeline_flush(wf_timeline *t)
{
    return !t || (!fflush(t->f) && !ferror(t->f)) ? WEFT_OK : cannot_write(t);
}

void wf_timeline_close(wf_timeline *t)
{
    if (!t) return;
    fputs("]\n", t->f);
    if (fclose(t->f)) wf_log(WEFT_LOG_WARN, "the timeline is incomplete: %s", strerror(errno));
    free(t->path);
    free(t);
}
