/* See host.h. Documents: AMD's ISA guides (CDNA3 7.1, RDNA3 7.9, RDNA4 7.12), Intel's extension text, NVIDIA's PTX ISA.
 */
#undef _FORTIFY_SOURCE /* which takes a jump to another stack for a mistake */
#include "op/host.h"

#include <math.h>
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

#include "tensor/tensor.h"

enum { MAX_ITEMS = 256, STACK = 256 << 10, K_STEP = 16, MAX_BARS = 256, MAX_COPIES = 2048, OWN_COPIES = 128 };

/* ---- the units ------------------------------------------------------------------------------------------ */

/* 4 of K a lane, 16 lanes a K block; C: 4 rows of one column. */
static place mfma_ab(int lane, int i) { return (place){lane % 16, 4 * (lane / 16) + i}; }
static place mfma_c(int lane, int v) { return (place){4 * (lane / 16) + v, lane % 16}; }
/* A row in lanes l and l + 16; C: even rows in the lower half of the wave, odd ones in the upper. */
static place gfx11_ab(int lane, int i) { return (place){lane % 16, i}; }
static place gfx11_c(int lane, int v) { return (place){2 * v + lane / 16, lane % 16}; }
/* K 0 to 7 in the lower half of the wave, 8 to 15 in the upper; C: rows likewise. */
static place gfx12_ab(int lane, int i) { return (place){lane % 16, 8 * (lane / 16) + i}; }
static place gfx12_c(int lane, int v) { return (place){8 * (lane / 16) + v, lane % 16}; }
/* A: component m is row m, of which each lane has its part; B and C: a lane is a column. */
static place dpas16_a(int lane, int i) { return (place){i, lane}; }
static place dpas8_a(int lane, int i) { return (place){i / 2, 2 * lane + i % 2}; }
static place dpas_b(int lane, int i) { return (place){lane, i}; }
static place dpas_c(int lane, int v) { return (place){v, lane}; }

/* PTX, mma.m16n8k16: pairs of K, the second ones in the rows 8 below, the third and fourth 8 of K on. */
static place nv_a(int lane, int i) { return (place){lane / 4 + i / 2 % 2 * 8, lane % 4 * 2 + i % 2 + i / 4 * 8}; }
static place nv_b(int lane, int i) { return (place){lane / 4, lane % 4 * 2 + i % 2 + i / 2 * 8}; }
static place nv_c(int lane, int v) { return (place){lane / 4 + v / 2 * 8, lane % 4 * 2 + v % 2}; }

const unit host_units[] = {
    {"mfma", "-D__AMDGCN__", 64, 16, 16, 4, 4, 4, mfma_ab, mfma_ab, mfma_c},
    {"wmma11", "-D__AMDGCN__", 32, 16, 16, 16, 16, 8, gfx11_ab, gfx11_ab, gfx11_c},
    {"wmma12", "-D__AMDGCN__ -D__GFX12__", 32, 16, 16, 8, 8, 8, gfx12_ab, gfx12_ab, gfx12_c},
    {"dpas16", "-DDPAS", 16, 8, 16, 8, 16, 8, dpas16_a, dpas_b, dpas_c},
    {"dpas8", "-DDPAS", 8, 8, 8, 16, 16, 8, dpas8_a, dpas_b, dpas_c},
    {"mma", "-D__NV_CL_C_VERSION=1", 32, 16, 8, 8, 4, 4, nv_a, nv_b, nv_c, .copies = true},
    {"nvidia", "", 32, 16, 8, 8, 4, 4, nv_a, nv_b, nv_c, .takes_nan = true},
};
const unsigned n_host_units = WF_LEN(host_units);

const unit *host_unit_named(const char *name)
{
    unsigned u = 0;
    while (u < n_host_units && strcmp(host_units[u].name, name)) u++;
    return u < n_host_units ? &host_units[u] : NULL;
}

/* ---- a work-group ----------------------------------------------------------------------------------------- */

enum stop { NOT_STARTED, RUNNING, AT_BARRIER, AT_UNIT, AT_WORDS, AT_MATRICES, ENDED };

/* Of 16 bytes, by one work-item. */
typedef struct small_copy {
    void *to;
    const void *from; /* NULL: zeros */
    unsigned group;   /* the number of its group */
} small_copy;

typedef struct item {
    ucontext_t
        start; /* for its first step alone: a swap of contexts asks the kernel for the signal mask, a jump does not */
    jmp_buf at;
    char *stack;
    enum stop stop;
    const uint16_t *a, *b;
    float *c;
    uint32_t word, from, got, ballot; /* given, and whose is asked for; that one, and a bit for each that is not 0 */
    const uint16_t *row; /* of a matrix that the wave loads */
    uint32_t *four;      /* where the lane's parts of four matrices go */
    bool turned;
    small_copy copy[OWN_COPIES]; /* that have not arrived */
    unsigned n_copies, groups;
} item;

/* A barrier that counts bytes (mbarrier): its phase ends when the one that expects them has come, and all bytes have.
 */
typedef struct bar {
    unsigned at, phase;
    bool expected; /* in this phase */
    long bytes;    /* still to come */
} bar;

typedef struct bulk_copy {
    void *to;
    const void *from;
    unsigned bytes, bar;
} bulk_copy;

static struct {
    const unit *unit;
    jmp_buf home;
    item item[MAX_ITEMS];
    unsigned n, now, group, groups;
    void (*body)(void);
    unsigned mistakes, products, barriers, conflicts;
    bool any; /* did an item say yes at the last barrier? */
    bar bar[MAX_BARS];
    bulk_copy copy[MAX_COPIES]; /* that have not arrived */
    unsigned n_bars, n_copies, draws;
} host;

#define EXPORT __attribute__((visibility("default")))
EXPORT unsigned host_local_id(void);
EXPORT unsigned host_group_id(void);
EXPORT unsigned host_num_groups(void);
EXPORT unsigned host_lane(void);
EXPORT unsigned host_wave(void);
EXPORT void host_barrier(void);
EXPORT unsigned host_barrier_any(unsigned yes);
EXPORT float host_from_half(unsigned long address);
EXPORT unsigned short host_to_half(float f);
EXPORT void host_mma(unsigned long a, unsigned long b, unsigned long c);
EXPORT unsigned host_word(unsigned word, unsigned from);
EXPORT unsigned host_ballot(unsigned word);
EXPORT float host_exp2(float x);
EXPORT float host_exp(float x);
EXPORT float host_tanh(float x);
EXPORT void host_bar_init(unsigned bar);
EXPORT void host_bar_expect(unsigned bar, unsigned bytes);
EXPORT void host_bar_await(unsigned bar, unsigned phase);
EXPORT void host_load_matrices(unsigned long row, unsigned turned, unsigned long four);
EXPORT void host_begin_copy(unsigned long to, unsigned long from, unsigned in);
EXPORT void host_end_copies(void);
EXPORT void host_await_copies(unsigned n);
EXPORT void host_bulk_copy(unsigned long to, unsigned long from, unsigned bytes, unsigned bar);

unsigned host_local_id(void) { return host.now; }
unsigned host_group_id(void) { return host.group; }
unsigned host_num_groups(void) { return host.groups; }
unsigned host_lane(void) { return host.now % (unsigned)host.unit->lanes; }
unsigned host_wave(void) { return host.now / (unsigned)host.unit->lanes; }
float host_from_half(unsigned long address) { return wf_half_to_float(*(const uint16_t *)address); }
unsigned short host_to_half(float f) { return wf_float_to_half(f); }

static void stop_at(enum stop where)
{
    item *me = &host.item[host.now];
    me->stop = where;
    if (!_setjmp(me->at)) _longjmp(host.home, 1);
}

void host_barrier(void) { stop_at(AT_BARRIER); }

unsigned host_barrier_any(unsigned yes)
{
    host.item[host.now].word = yes;
    stop_at(AT_BARRIER);
    return host.any;
}

void host_mma(unsigned long a, unsigned long b, unsigned long c)
{
    item *me = &host.item[host.now];
    me->a = (const uint16_t *)a, me->b = (const uint16_t *)b, me->c = (float *)c;
    stop_at(AT_UNIT);
}

static item *exchange(unsigned word, unsigned from)
{
    item *me = &host.item[host.now];
    me->word = word, me->from = from % (unsigned)host.unit->lanes;
    stop_at(AT_WORDS);
    return me;
}

unsigned host_word(unsigned word, unsigned from) { return exchange(word, from)->got; }
unsigned host_ballot(unsigned word) { return exchange(word, 0)->ballot; }

void host_load_matrices(unsigned long row, unsigned turned, unsigned long four)
{
    item *me = &host.item[host.now];
    me->row = (const uint16_t *)row, me->turned = turned, me->four = (uint32_t *)four;
    stop_at(AT_MATRICES);
}

/* Rounded: the same bits by whatever library. */
float host_exp2(float x) { return (float)exp2((double)x); }
float host_exp(float x) { return (float)exp((double)x); }
float host_tanh(float x) { return (float)tanh((double)x); }

/* ---- copies of a work-item -------------------------------------------------------------------------------- */

/* What lies there is gone at once, NaN; what comes is there when the work-item has awaited it. */
void host_begin_copy(unsigned long to, unsigned long from, unsigned in)
{
    item *me = &host.item[host.now];
    host.mistakes += (to | (in ? from : 0)) % 16 != 0;
    if (me->n_copies == OWN_COPIES) abort();
    memset((void *)to, 0xFF, 16);
    me->copy[me->n_copies++] = (small_copy){(void *)to, in ? (const void *)from : NULL, me->groups};
}

void host_end_copies(void) { host.item[host.now].groups++; }

void host_await_copies(unsigned n)
{
    item *me = &host.item[host.now];
    unsigned left = 0;
    for (unsigned i = 0; i < me->n_copies; i++) {
        const small_copy *c = &me->copy[i];
        if (c->group + n >= me->groups) me->copy[left++] = *c;
        else if (c->from) memcpy(c->to, c->from, 16);
        else memset(c->to, 0, 16);
    }
    me->n_copies = left;
}

/* ---- bulk copies ------------------------------------------------------------------------------------------ */

static bar *bar_at(unsigned at)
{
    for (unsigned i = 0; i < host.n_bars; i++)
        if (host.bar[i].at == at) return &host.bar[i];
    host.mistakes++; /* nobody has begun it */
    return &host.bar[0];
}

void host_bar_init(unsigned at)
{
    unsigned i = 0;
    while (i < host.n_bars && host.bar[i].at != at) i++;
    if (i == MAX_BARS) abort();
    host.n_bars = WF_MAX(host.n_bars, i + 1);
    host.bar[i] = (bar){.at = at};
}

static void end_phase(bar *b)
{
    if (!b->expected || b->bytes) return;
    b->phase ^= 1;
    b->expected = false;
}

void host_bar_expect(unsigned at, unsigned bytes)
{
    bar *b = bar_at(at);
    host.mistakes += b->expected;
    b->expected = true;
    b->bytes += bytes;
    end_phase(b);
}

static void arrive(const bulk_copy *c)
{
    bar *b = bar_at(c->bar);
    memcpy(c->to, c->from, c->bytes);
    b->bytes -= c->bytes;
    end_phase(b);
}

/* Some copies arrive before the next statement, the others not before somebody waits. */
void host_bulk_copy(unsigned long to, unsigned long from, unsigned bytes, unsigned at)
{
    bulk_copy c = {(void *)to, (const void *)from, bytes, at};
    host.mistakes += (to | from | bytes) % 16 != 0;
    if (host.n_copies == MAX_COPIES) abort();
    if (wf_random(7, host.draws++) % 2) arrive(&c);
    else host.copy[host.n_copies++] = c;
}

/* Only the warp's own lane, which was here before, sends copies to a barrier: what has not come by now never will. */
void host_bar_await(unsigned at, unsigned phase)
{
    unsigned left = 0;
    for (unsigned i = 0; i < host.n_copies; i++) {
        if (host.copy[i].bar == at) arrive(&host.copy[i]);
        else host.copy[left++] = host.copy[i];
    }
    host.n_copies = left;
    host.mistakes += bar_at(at)->phase == phase;
}

/* ---- waves --------------------------------------------------------------------------------------------------- */

/* Lanes that hold the same element must agree; NaN (never given to a unit by a right kernel) counts, too. */
static void gather(const item *wave, bool of_a, float m[16][K_STEP])
{
    const unit *u = host.unit;
    bool seen[16][K_STEP] = {{false}};
    for (int lane = 0; lane < u->lanes; lane++) {
        for (int i = 0; i < (of_a ? u->n_a : u->n_b); i++) {
            place p = of_a ? u->a(lane, i) : u->b(lane, i);
            float x = wf_half_to_float((of_a ? wave[lane].a : wave[lane].b)[i]);
            if ((isnan(x) && !u->takes_nan) || (seen[p.line][p.k] && m[p.line][p.k] != x)) host.mistakes++;
            m[p.line][p.k] = x;
            seen[p.line][p.k] = true;
        }
    }
}

static void multiply(item *wave)
{
    const unit *u = host.unit;
    float a[16][K_STEP], b[16][K_STEP];
    gather(wave, true, a);
    gather(wave, false, b);
    for (int lane = 0; lane < u->lanes; lane++) {
        for (int v = 0; v < u->n_c; v++) {
            place p = u->c(lane, v);
            double sum = wave[lane].c[v]; /* so that the order within a step changes nothing */
            for (int k = 0; k < K_STEP; k++) sum += (double)a[p.line][k] * b[p.k][k];
            wave[lane].c[v] = (float)sum;
        }
    }
    host.products++;
}

/* PTX, ldmatrix.x4: lanes 8 i and on have the rows of matrix i. A lane gets two elements of row lane / 4; turned, of
 * column lane / 4. */
static void load_matrices(item *wave)
{
    for (int i = 0; i < 4; i++) {
        const item *row = &wave[8 * i];
        unsigned banks = 0;
        for (int j = 0; j < 8; j++) {
            host.mistakes += (uintptr_t)row[j].row % 16 != 0 || row[j].turned != wave->turned;
            banks |= 1u << (uintptr_t)row[j].row / 16 % 8;
        }
        host.conflicts += banks != 0xFF;
        for (int lane = 0; lane < 32; lane++) {
            int line = lane / 4, two = lane % 4 * 2;
            uint16_t low = wave->turned ? row[two].row[line] : row[line].row[two];
            uint16_t high = wave->turned ? row[two + 1].row[line] : row[line].row[two + 1];
            wave[lane].four[i] = low | (uint32_t)high << 16;
        }
    }
}

static void start_item(void)
{
    host.body();
    stop_at(ENDED);
}

static void enter(item *it)
{
    getcontext(&it->start);
    it->start.uc_stack.ss_sp = it->stack;
    it->start.uc_stack.ss_size = STACK;
    it->stop = NOT_STARTED;
    it->n_copies = it->groups = 0;
    makecontext(&it->start, start_item, 0);
}

/* Returns at its next stop. */
static void resume(item *it)
{
    bool begins = it->stop == NOT_STARTED;
    if (_setjmp(host.home)) return;
    it->stop = RUNNING;
    if (begins) setcontext(&it->start);
    else _longjmp(it->at, 1);
}

static void hand_out(item *wave)
{
    unsigned lanes = (unsigned)host.unit->lanes;
    uint32_t ballot = 0;
    for (unsigned l = 0; l < lanes; l++) ballot |= (uint32_t)(wave[l].word != 0) << l % 32;
    for (unsigned l = 0; l < lanes; l++) wave[l].ballot = ballot, wave[l].got = wave[wave[l].from].word;
}

/* A wave to its next stop, which must be the same for all lanes. */
static void advance(unsigned first)
{
    item *wave = &host.item[first];
    for (unsigned l = 0; l < (unsigned)host.unit->lanes; l++) {
        host.now = first + l;
        resume(&wave[l]);
        if (wave[l].stop != wave->stop) host.mistakes += l > 0;
    }
    if (wave->stop == AT_UNIT) multiply(wave);
    if (wave->stop == AT_WORDS) hand_out(wave);
    if (wave->stop == AT_MATRICES) load_matrices(wave);
}

/* Each wave to the next barrier, or to its end; true: all ended. */
static bool to_barrier(void)
{
    unsigned ended = 0, lanes = (unsigned)host.unit->lanes;
    bool any = false;
    for (unsigned first = 0; first < host.n; first += lanes) {
        do advance(first);
        while (host.item[first].stop != AT_BARRIER && host.item[first].stop != ENDED && !host.mistakes);
        ended += host.item[first].stop == ENDED;
    }
    for (unsigned i = 0; i < host.n; i++) any |= host.item[i].word != 0;
    host.any = any; /* that of the barrier before was read on the way here */
    host.barriers++;
    if (ended && ended != host.n / lanes) host.mistakes++;
    return ended || host.mistakes;
}

static void run_group(void)
{
    for (unsigned i = 0; i < host.n; i++) enter(&host.item[i]);
    while (!to_barrier()) continue;
    for (unsigned i = 0; i < host.n; i++) host.mistakes += host.item[i].n_copies > 0; /* that nobody waited for */
    host.mistakes += host.n_copies > 0;
    host.n_bars = host.n_copies = 0;
}

/* ---- what programs call ------------------------------------------------------------------------------------- */

void host_start(const unit *u)
{
    memset(&host, 0, sizeof host);
    host.unit = u;
    for (unsigned i = 0; i < MAX_ITEMS; i++) host.item[i].stack = malloc(STACK);
}

void host_groups(unsigned items, unsigned groups, void (*body)(void))
{
    host.n = items, host.groups = groups, host.body = body;
    for (host.group = 0; host.group < groups; host.group++) run_group();
}

host_run host_result(void)
{
    return (host_run){host.mistakes, host.products, host.barriers, host.conflicts};
}

void host_end(void)
{
    for (unsigned i = 0; i < MAX_ITEMS; i++) free(host.item[i].stack);
}
