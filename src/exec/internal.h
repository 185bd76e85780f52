/* exec internals: declarations that the files of exec share. */
#ifndef WF_EXEC_INTERNAL_H
#define WF_EXEC_INTERNAL_H

#include "exec/exec.h"

/* A step between submission and the end of its work. */
typedef struct wf_inflight {
    const wf_program *program;
    wf_step_shape step;
    wf_host staging;     /* the batch's arrays, packed as on the device */
    /* A uint32_t a layer: softmax rows that asynchronous attention computed again, in all steps up to this one. */
    wf_host recomputed;
    wf_event *done;
    wf_event *late;      /* inputs that came late are on the device */
    wf_event **ends;     /* by command */
    wf_event **starts;   /* likewise: the first kernel of several; NULL unless times are wanted */
    bool *fired;         /* by command: its event stands for this step */
    bool used[WF_MAX_QUEUES], is_late; /* is_late: `late` stands for this step */
} wf_inflight;

/* A copy beside steps; its ticket is its place in the list. */
typedef struct wf_exec_copy {
    wf_event *end;
    uint64_t began_ns;
    bool runs, is_void; /* is_void: the device has broken off what it copies */
} wf_exec_copy;

/* A step during its submission. */
typedef struct wf_submission {
    wf_inflight *f;
    const wf_batch *b;
    wf_step_io io;
    wf_event *before; /* the end of the step before, and of moves that it waits for; or NULL */
    uint64_t upload_bytes;
    size_t next; /* command */
} wf_submission;

struct wf_exec {
    wf_dev *dev;
    const wf_graph *g;
    const wf_plans *plans;
    wf_limits limits;
    wf_program *programs; /* by plan */
    size_t only;          /* the plan that runs; WF_BY_BUCKET */
    wf_bind_to to;
    wf_queue *queues[WF_MAX_QUEUES];
    uint32_t n_queues;
    uint64_t scratch_bytes; /* of all queues */
    wf_event *ends[WF_MAX_QUEUES];
    double queued_us[WF_MAX_QUEUES]; /* expected of what was not flushed */
    wf_inflight in_flight[WF_EXEC_DEPTH];
    bool counts;          /* attention with asynchronous softmax counts rows that it computes again */
    bool can_sample;
    wf_exec_stats stats;
    uint64_t ended_ns;    /* the last step, on the device's clock; 0: there was nothing to do since */
    uint64_t first;       /* steps waited for: in_flight[first % WF_EXEC_DEPTH] is the oldest in flight */
    uint32_t n_in_flight;
    wf_submission rest;   /* commands of the newest step that wait for what comes late; f NULL: none do */
    wf_memory mem;
    wf_view inputs, states[WF_N_STATES];
    wf_region input_region, state_regions[WF_N_STATES];
    uint64_t input_bytes;
    struct {
        wf_queue *queues[2]; /* to the device, and to the host; NULL until they are opened */
        wf_exec_copy list[WF_MOVES];
        /* Those that steps wait for end in turn; last: the end of the newest, NULL: none is in flight. passed: on queue
         * 0, where a step waits. */
        wf_event *gates[2], *last, *passed;
        bool gated; /* the next step waits */
    } moves;
    wf_exec_group group;
    struct {
        wf_host host;    /* no data: no group. Two halves of what this device gives, a message, and room for others' */
        uint64_t part, n; /* bytes of a half; exchanges so far */
        uint8_t *message, *room;
        wf_queue *queue; /* what large exchanges give the device comes on it; or NULL */
        wf_event *here[2], *back; /* of pieces by turns: it is in host memory; of an exchange: the device has it */
    } exchanged;
    wf_exec_observer observer; /* or NULL */
    void *observer_user;
};

/* collective.c: a node of the network in a group. */
weft_status wf_collective_run(wf_exec *e, const wf_submission *now, const wf_command *c, wf_range rows,
                              wf_event *const *waits, uint32_t n_waits, wf_event *end);
void wf_collective_close(wf_exec *e);
/* moves.c: */
void wf_moves_close(wf_exec *e);
/* Queue 0 waits for the moves that the next step waits for; where there are any, `before` becomes their end. */
weft_status wf_moves_gate(wf_exec *e, wf_event **before);
void wf_moves_void(wf_exec *e); /* the device breaks off what is in flight */
/* inputs.c: packs the batch's arrays into the staging memory, and sets f->step.input_at and upload_bytes. */
void wf_inputs_pack(wf_exec *e, wf_submission *now);
/* Uploads what comes late on a queue, and signals f->late. */
weft_status wf_inputs_late(wf_exec *e, const wf_submission *now, wf_queue *q, wf_event *const *waits, uint32_t n_waits);
/* What a step uploads that samples nothing, without the gaps between. */
uint64_t wf_inputs_greedy_bytes(const wf_exec *e, const wf_step_shape *st);
/* Rows of a state. */
uint32_t wf_state_rows(const wf_limits *l, enum wf_state s);

#endif
