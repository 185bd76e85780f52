/* program: a plan bound to a device. Flat commands in the order of submission, each with its kernels chosen and built,
 * its operands located, its token range, queue, waits and signal. Running a step only walks them (exec.c).
 *
 * Only what depends on the batch is left open: where activations and inputs begin, how many rows there are, and which
 * of the kernels that are bound for each number of rows a command takes.
 */
#ifndef WF_PROGRAM_H
#define WF_PROGRAM_H

#include "exec/memory.h"
#include "plan/plan.h"

enum { WF_N_CONTEXTS = 5 }; /* choices of attention by the longest context: 512, 2,048, 8,192, 32,768, any */
enum { WF_N_SIZES = 17 };   /* powers of two up to the most tokens of a step */

/* Kernels of calls that differ only in the number of rows, the longest context and the operands' addresses; all layers
 * share them. */
typedef struct wf_kernels {
    wf_call like;      /* such a call */
    bool prefill;      /* attention of prefill, not of decodes */
    bool foreseen;     /* what they need was compiled ahead */
    uint32_t max_rows;
    uint32_t *of;      /* [contexts, max_rows + 1]: 1 + index in list; 0: not bound yet */
    wf_binding *list;
    size_t n, cap;
    float (*us)[WF_N_SIZES]; /* [contexts]: what calls of at most 2^i rows are expected to take; 0: unknown */
} wf_kernels;

/* What an operand's address depends on. */
enum wf_place {
    WF_PLACE_FIXED /* as in the template */,
    WF_PLACE_BUFFER,
    WF_PLACE_INPUT,
    WF_PLACE_STATE,
    WF_PLACE_POOL
};
typedef struct wf_ref {
    uint8_t place; /* enum wf_place */
    bool sliced;   /* only the rows of the command's range; else all that the step has */
    uint8_t rows;  /* enum wf_rows of the value */
    uint8_t table; /* of an input */
    uint32_t index;
    uint64_t add, pitch; /* bytes: of its column; from row to row */
} wf_ref;

typedef struct wf_command {
    const wf_node *node;
    const wf_nano *nano;
    wf_call call; /* all but what wf_ref leaves open */
    wf_ref in[WF_MAX_IN], out[WF_MAX_OUT];
    wf_kernels *kernels; /* of a kernel */
    uint32_t max_rows;   /* at a time */
} wf_command;

typedef struct wf_program {
    const wf_plan *plan;
    wf_command *commands; /* [plan->n_nanos] */
    size_t n;
} wf_program;

/* The numbers of one step, which fix the open parts. */
typedef struct wf_step_shape {
    uint32_t n_tokens, n_decodes, n_seqs, n_pages, n_logits, n_adjusted, n_allowed;
    uint32_t max_kv, max_q;
    /* Bytes in the input region: where they begin, and from one page table's to the next. */
    uint64_t input_at[WF_N_INPUTS], table_pitch[WF_N_INPUTS];
} wf_step_shape;

/* The memory that programs are bound to. */
typedef struct wf_bind_to {
    wf_dev *dev;
    const wf_graph *g;
    const wf_view *weights;
    const wf_memory *mem;
    const wf_view *inputs;   /* the input region, as one view: buf and offset */
    const wf_view *states;   /* [WF_N_STATES], whole */
    wf_limits limits;
    wf_kernels **kernels;    /* of all programs */
    size_t n_kernels, cap_kernels;
} wf_bind_to;

/* `to` and plan outlive the program. It has no kernels yet. */
weft_status wf_program_init(wf_program *p, wf_bind_to *to, const wf_plan *plan);
void wf_program_free(wf_program *p);
/* Chooses, builds and checks the kernels of all programs for every number of rows that a step may have, so that no step
 * compiles one. A device without a kernel for SAMPLE that works sets *can_sample to false. */
weft_status wf_programs_bind(wf_bind_to *to, wf_program *list, size_t n, bool *can_sample, weft_progress_fn progress,
                             void *user);
void wf_kernels_free(wf_bind_to *to);

/* The tokens, or rows of logits, that a command computes in a step. */
wf_range wf_command_range(const wf_command *c, const wf_step_shape *st);
/* The call for these rows of a step. */
void wf_command_call(const wf_bind_to *to, const wf_command *c, const wf_step_shape *st, wf_range rows, wf_call *out);
/* An operand of a copy in a step; *v is the command's template. */
void wf_command_view(const wf_bind_to *to, const wf_step_shape *st, wf_range rows, const wf_ref *ref, wf_view *v);
/* The kernels for that call; bound now if they were not. */
weft_status wf_command_kernels(const wf_bind_to *to, const wf_command *c, const wf_call *call, const wf_binding **out);
/* Such a call, of a step with that many rows; max_kv: keys of its longest context. */
void wf_command_like(const wf_bind_to *to, const wf_command *c, uint32_t rows, uint32_t max_kv, wf_call *out);
/* named.c: is there a call in the n programs that the variant can run, alone or as a part, if it is forced? */
bool wf_programs_can_run(const wf_bind_to *to, const wf_program *list, size_t n, enum wf_op op, int variant);
/* Is one of these kernels attention with asynchronous softmax? And is one bound to the layer's attention? */
bool wf_binding_is_async(wf_dev *, const wf_binding *);
bool wf_programs_use_async(const wf_bind_to *to, const wf_program *list, size_t n, int32_t layer);
/* An error if a plan or WEFT_FORCE names a kernel that runs nothing of what it is named for. */
weft_status wf_check_named(const wf_bind_to *to, const wf_program *list, size_t n);
/* pace.c. Drivers reset a device that takes some seconds for what they were given at once, so that a kernel takes no
 * more rows, and a queue holds no more work before it is flushed, than are expected to take this long. */
#define WF_SUBMISSION_US 1e6
/* What the kernels of a binding are expected to take together; 0: the backend does not know of all. */
double wf_binding_us(wf_dev *, const wf_call *, const wf_binding *);
void wf_note_us(const wf_bind_to *to, const wf_command *c, uint32_t context, uint32_t rows, const wf_call *call,
                const wf_binding *b);
double wf_rows_us(const wf_command *c, uint32_t context, uint32_t rows);
uint32_t wf_rows_at_once(const wf_command *c, uint32_t context);
uint32_t wf_context_class(enum wf_op, uint32_t max_kv); /* which of WF_N_CONTEXTS */
/* Chooses again for such calls: the device has dropped a kernel. */
void wf_command_unbind(const wf_command *c, const wf_call *call);

#endif
