/* Shadow memory: who wrote and who read each word of a device, in an order that only queues, events and waits of the
 * host give. A command that touches a word which another one may still be using is a race, whatever the device did in
 * fact. One device at a time. */
#ifndef SHADOW_H
#define SHADOW_H

#include "dev/dev.h"

#include "support/suite.h"

enum { SHADOW_QUEUES = 10, SHADOW_EVENTS = 1 << 13, SHADOW_BUFS = 8 };

/* Of each queue, how many of its commands have surely ended. */
typedef struct ends {
    uint32_t of[SHADOW_QUEUES];
} ends;

typedef struct word {
    uint32_t wrote, writer;       /* the last write: its number in its queue, from 1, and the queue */
    uint32_t read[SHADOW_QUEUES]; /* the last read of each queue */
} word;

static struct {
    const wf_queue *queues[SHADOW_QUEUES];
    uint32_t n_queues, submitted[SHADOW_QUEUES];
    ends last[SHADOW_QUEUES], host; /* behind the last command of each queue; what the host has waited for */
    struct { const wf_event *event; ends at; } events[SHADOW_EVENTS];
    struct { const wf_buf *buf; word *words; } bufs[SHADOW_BUFS];
    uint32_t queue; /* of the command under way, its number there, what has ended before it begins, and its name */
    ends now;
    const char *name;
} shadow;

static void shadow_reset(void)
{
    for (size_t i = 0; i < SHADOW_BUFS; i++) free(shadow.bufs[i].words);
    memset(&shadow, 0, sizeof shadow);
}

static void join(ends *a, const ends *b)
{
    for (size_t q = 0; q < SHADOW_QUEUES; q++) a->of[q] = WF_MAX(a->of[q], b->of[q]);
}

/* Of an event that was never signalled: nothing. */
static ends *ends_of(const wf_event *e)
{
    size_t i = (size_t)((uintptr_t)e / 16 % SHADOW_EVENTS);
    while (shadow.events[i].event && shadow.events[i].event != e) i = (i + 1) % SHADOW_EVENTS;
    shadow.events[i].event = e;
    return &shadow.events[i].at;
}

static uint32_t queue_number(const wf_queue *q)
{
    uint32_t i = 0;
    while (i < shadow.n_queues && shadow.queues[i] != q) i++;
    assert_true(i < SHADOW_QUEUES);
    if (i == shadow.n_queues) shadow.queues[shadow.n_queues++] = q;
    return i;
}

static void shadow_begin(const wf_queue *q, wf_event *const *waits, uint32_t n_waits, const char *name)
{
    shadow.queue = queue_number(q);
    shadow.name = name;
    shadow.now = shadow.last[shadow.queue];
    join(&shadow.now, &shadow.host);
    for (uint32_t i = 0; i < n_waits; i++) join(&shadow.now, ends_of(waits[i]));
    shadow.submitted[shadow.queue]++;
}

static void shadow_end(const wf_event *signal)
{
    shadow.last[shadow.queue] = shadow.now;
    shadow.last[shadow.queue].of[shadow.queue] = shadow.submitted[shadow.queue];
    if (signal) *ends_of(signal) = shadow.last[shadow.queue];
}

static void shadow_waited(const wf_event *e)
{
    join(&shadow.host, ends_of(e));
}

static word *words_of(const wf_buf *buf)
{
    size_t i = 0;
    while (i < SHADOW_BUFS && shadow.bufs[i].buf && shadow.bufs[i].buf != buf) i++;
    assert_true(i < SHADOW_BUFS);
    if (!shadow.bufs[i].buf) {
        shadow.bufs[i].buf = buf;
        shadow.bufs[i].words = calloc((size_t)buf->size / 4 + 1, sizeof(word));
        assert_non_null(shadow.bufs[i].words);
    }
    return shadow.bufs[i].words;
}

static void touch_word(word *w, bool writes)
{
    if (w->writer != shadow.queue && w->wrote > shadow.now.of[w->writer])
        fail_msg("%s does not wait for what writes its operand", shadow.name);
    for (uint32_t q = 0; writes && q < SHADOW_QUEUES; q++)
        if (q != shadow.queue && w->read[q] > shadow.now.of[q])
            fail_msg("%s does not wait for what reads the memory that it writes", shadow.name);
    if (writes) *w = (word){.wrote = shadow.submitted[shadow.queue], .writer = shadow.queue};
    else w->read[shadow.queue] = shadow.submitted[shadow.queue];
}

/* The command under way reads or writes these bytes. */
static void shadow_touch(const wf_buf *buf, uint64_t off, uint64_t bytes, bool writes)
{
    assert_true(off % 4 == 0 && off + bytes <= buf->size);
    word *w = words_of(buf) + off / 4;
    for (uint64_t i = 0; i < (bytes + 3) / 4; i++) touch_word(&w[i], writes);
}

static void shadow_touch_view(const wf_view *v, bool writes)
{
    for (uint32_t row = 0; row < v->rows; row++)
        shadow_touch(v->buf, v->offset + row * wf_dtype_bytes(v->dtype, v->stride), wf_dtype_bytes(v->dtype, v->cols),
                     writes);
}

#endif
