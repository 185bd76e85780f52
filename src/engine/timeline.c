/* timeline: steps over time as Chrome trace JSON, which Perfetto opens. One track for the engine's thread, one for
 * the device. */
#include "engine/engine.h"

#include "base/file.h"
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct wf_timeline {
    FILE *f;
    uint64_t zero_ns;
};

weft_status wf_timeline_open(const char *path, wf_timeline **out)
{
    WF_TRY(wf_not_a_model(path));
    wf_timeline *t = wf_calloc(1, sizeof *t);
    if (!t) return WEFT_ERR_NOMEM;
    t->zero_ns = wf_now_ns();
    if (!(t->f = fopen(path, "w"))) {
        free(t);
        return wf_fail(WEFT_ERR_IO, "cannot write the timeline to %s: %s", path, strerror(errno));
    }
    fputs("[{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":1,\"tid\":1,\"args\":{\"name\":\"engine\"}},\n"
          "{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":1,\"tid\":2,\"args\":{\"name\":\"device\"}}", t->f);
    *out = t;
    return WEFT_OK;
}

void wf_timeline_span(wf_timeline *t, enum wf_track track, const char *name, uint64_t begin_ns, uint64_t end_ns, uint64_t step, uint32_t rows)
{
    if (!t) return;
    fprintf(t->f, ",\n{\"name\":\"%s\",\"ph\":\"X\",\"pid\":1,\"tid\":%d,\"ts\":%.3f,\"dur\":%.3f,\"args\":{\"step\":%" PRIu64 ",\"rows\":%u}}", name,
            track, ((double)begin_ns - (double)t->zero_ns) / 1e3, (double)(end_ns - begin_ns) / 1e3, step, rows);
}

void wf_timeline_close(wf_timeline *t)
{
    if (!t) return;
    fputs("]\n", t->f);
    if (fclose(t->f)) wf_log(WEFT_LOG_WARN, "the timeline is incomplete: %s", strerror(errno));
    free(t);
}
