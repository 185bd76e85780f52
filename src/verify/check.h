/* check: random problems for every op, and the error of a kernel variant on them. The op tests, the self-test before
 * first use and weft_selftest share it.
 *
 * A check holds the operands of a problem and the reference's result (variant "ref" of the CPU backend, F32 outputs).
 * Every operand lies between guard zones. These, the padding between rows, KV slots that no row attends to and pages
 * outside the tables hold NaN, so that a wild read shows in the result. Outputs are filled with NaN first, and memory
 * that a call must not write is compared afterwards.
 */
#ifndef WF_CHECK_H
#define WF_CHECK_H

#include "dev/dev.h"

enum wf_case_windows {
    WF_WINDOWS_NONE,
    WF_WINDOWS_MIXED, /* one of each kind, as far as there are query heads */
    WF_WINDOWS_WIDE,  /* so wide that nothing is masked */
    WF_WINDOWS_AROUND, /* mixed, around each row; a row's position is the last key's */
};
/* One problem. The fields that each op uses:
 *
 *   GET_ROWS      m ids of n table rows of k columns, p.gain, rows to add if residual
 *   RMSNORM       m rows of n (0: 1) groups of k, residual
 *   LAYERNORM     m rows of k
 *   GEMM          m x n, depth k, with p.rope heads in p, of which n counts q, k and v
 *   ROPE_KV       m rows, n positions, heads in p
 *   ATTENTION     n_seqs sequences of at most max_kv keys, of which at most max_q are rows of this call, heads, phi and
 *                 its range in p, windows and with them p.sink, p.softcap, sinks
 *   SILU_MUL      m x k outputs, p.activation
 *   ACTIVATE      m rows of k, p.activation
 *   ROUTER        m rows of k scores, the `used` largest; fused (norm) m rows, scores of n experts, depth k
 *   GROUPED_GEMM  m rows, `used` of n_experts each, n columns of each, depth k
 *   WEIGHTED_SUM  m rows, `used` parts of k each, weights if bias
 *   ARGMAX        m x k inputs
 *   PAGE_COPY     m copies of pages of k elements between pools of about n pages
 *   SAMPLE        m x k inputs, every other row of them adjusted
 *   TOKEN_SUBST   m tokens from k
 */
typedef struct wf_case {
    enum wf_op op;
    uint64_t seed;
    uint8_t in, weight, out; /* enum wf_dtype of activations read, weight or table, activations written */
    uint32_t m, n, k;
    uint32_t n_seqs, max_kv, max_q;
    uint32_t n_experts, used; /* used 0: two, where there are two */
    bool file_layout; /* weights lie as in the file for variants that read that */
    bool one_x;      /* GROUPED_GEMM: all experts of a token take the same row of X */
    uint8_t windows; /* enum wf_case_windows */
    uint8_t kv;      /* enum wf_dtype of KV pools; 0: F16 */
    bool sinks;      /* ATTENTION: query heads have some */
    wf_op_params p;
    uint32_t pad;    /* elements between rows of every matrix that may have them */
    uint32_t max_groups; /* as in wf_call */
    /* GEMM, RMSNORM; residual: GET_ROWS adds, too; in_place: the output is where the SHARED input is, such as a
     * residual. */
    bool bias, residual, in_place;
    /* ROUTER: it is fused; GEMM: of X, which is F32 then. Products with p.silu: n counts gate and up; with p.rope: q, k
     * and v. */
    bool norm;
} wf_case;

typedef struct wf_check_operand {
    wf_view view;  /* without buf, offset and layout */
    uint8_t *data; /* its rows with the padding between them; NULL: absent */
    uint64_t bytes;
} wf_check_operand;

typedef struct wf_check {
    wf_case c;
    wf_check_operand in[WF_MAX_IN], out[WF_MAX_OUT];
    wf_check_operand expect[WF_MAX_OUT];
    double reduce; /* number of terms in the longest sum behind one output */
    double scale;  /* size of its terms' sum; 0: the output's own size; < 0: each element's own */
    double amplify; /* factor on internal rounding errors: large logits in a softmax */
    uint32_t plain; /* outputs, a bit each, that it is not for */
    double bytes, flops; /* that one run moves and computes at least */
    uint32_t redo_least, redo_most; /* ATTENTION with a phi: rows and heads that asynchronous variants recompute */
    bool in_flight; /* a lost device may still use its memory, which is then never freed */
} wf_check;

typedef struct wf_check_result {
    bool supported; /* false: nothing was run */
    bool ok;
    double error;   /* the worst, in units of its tolerance: ok when <= 1 */
    uint64_t hash;  /* of the outputs: equal for bit-identical results */
    uint64_t row_hash; /* the same of row rows / 2 of the first output alone */
    double median_ns; /* of one run; 0 unless timed */
    char message[224];
} wf_check_result;

/* Generates the operands of a case and runs the reference on ref, which must be the CPU backend. With ref NULL the
 * problem has no answer, and its operands have shapes but no numbers: it is for functions that look at no memory. */
weft_status wf_check_new(wf_dev *ref, const wf_case *c, wf_check **out);
void wf_check_free(wf_check *);
/* Runs one variant, and measures it if timed. An error means that it could not run; a wrong result sets out->ok to
 * false. */
weft_status wf_check_run(wf_check *, wf_dev *dev, wf_queue *q, int variant, bool timed,
                         wf_check_result *out);
/* The check of one row of k's first output alone, with the same operands, whose memory it borrows. False: the rows of
 * this op are not independent, or cannot be separated. */
bool wf_check_one_row(const wf_check *k, uint32_t row, wf_check *out);
/* k without its windows, which must mask nothing: the same result. It borrows the memory of k's operands. */
wf_check wf_check_no_windows(const wf_check *k);
/* k with NaN in all keys and values except those of the sequence of row rows / 2, whose result must stay the same: only
 * row_hash counts. False: not attention, or only one sequence. */
bool wf_check_poison_other_sequences(const wf_check *k, wf_check *out);
void wf_check_poison_free(wf_check *poisoned); /* the memory that it does not borrow from k */
/* Is each row of the results computed from that row of the inputs, and from vectors of numbers that all rows share? */
bool wf_op_row_wise(enum wf_op op);
/* The input whose first columns are the first output, too, when a case is in place; else -1. */
int wf_case_shared(const wf_case *);
/* Has the problem weights of some format? */
bool wf_case_has_weight(const wf_case *);
/* Are the dtypes of all of an op's operands fixed, as far as they are not optional? Else some are activations. */
bool wf_op_fixed(enum wf_op op);
/* The call of this check, for supports() and rank(): complete except for the buffers. */
void wf_check_call(const wf_check *, wf_dev *, const wf_variant *, wf_call *out);
/* The same with `stand_in` for the buffer of each operand that is there, for functions that look at no memory. */
void wf_check_stand_in(const wf_check *, wf_dev *, const wf_variant *, wf_buf *stand_in, wf_call *out);
/* Can the device run the variant on this problem? *out: what is bound or submitted for it then, with stand-ins. */
bool wf_check_supported_call(const wf_check *, wf_dev *, int variant, wf_buf *stand_in, wf_call *out);
bool wf_check_supported(const wf_check *, wf_dev *, int variant);
/* "M 7 N 64 K 4099 F16 -> F32 bias", for logs; always NUL-terminated. */
void wf_case_text(const wf_case *, char *buf, size_t cap);
/* Small problems of all ops and dtypes, i = 0, 1, ...; false past the last. */
bool wf_case_small(size_t i, uint64_t seed, wf_case *out);
/* The problems that variants for many rows or long sequences need; returns how many there are. */
size_t wf_cases_larger(const wf_case **out);
/* check_gen.c: fills c->in, c->out, reduce, scale, bytes, flops from c->c; with shapes_only without numbers. */
weft_status wf_check_generate(wf_check *c, bool shapes_only);

#endif
