/* attention_prefill: softmax(q . k * scale) v over paged keys for many rows of a sequence, on NVIDIA's matrix
 * units. R packed rows a work-group, 16 MT of them a warp: rows of HB query heads of one KV head.
 *
 *   page table --> cp.async --> BN keys and values in local memory, STAGES of them in flight
 *   for SK keys:  S [16, SK] = Q K^T   Q stays in registers, K by ldmatrix
 *                 P = 2^(S - maximum)  in registers: S's layout as a result is P's as an operand
 *                 O [16, D] += P V     V by ldmatrix, transposed
 *
 * A row of D values is D / 8 chunks of 16 bytes; chunk c of row r lies at c ^ (r % 8) where D is a multiple of
 * 64, else rows are an odd number of chunks apart, so that ldmatrix meets 8 different groups of banks.
 * Rows of a group that belong to several sequences are done as runs, one sequence after another; SHARE groups
 * share the runs of such rows, each taking every SHARE-th. Keys past
 * the last row of a run become zeros, so their slots may hold anything; keys that only later rows of the run
 * see weigh 0. Tiles begin at multiples of BN from key 0: a row's result does not depend on the others.
 * The longest rows come first, for the device to be full to the end.
 *
 * WINDOWS 1: each query head has a window (attention/mask.clh). Tiles of which no row of a run sees a key are left out,
 * and keys that none sees become zeros, too.
 *
 * Maximum of a row: synchronous, it is raised when a score exceeds it by 2^RESCALE_THRESHOLD, and sums are rescaled.
 * ASYNC n: it is given (base: such that the largest admissible score gives 2^15) and sums are just added, in steps of n
 * keys. Rows whose largest score leaves (low, 15), relative to base, are computed again in the synchronous way and by
 * its steps, so that they have its bits; count, if there is one, is raised by 1 for each such row and head. A row stops
 * by the end of the tile in which it leaves above: a product has 16 rows whatever they hold, so a warp goes on for the
 * rows that it still has, and the group until no warp has any. The second time only warps with rows that left multiply,
 * up to the last key that one of those sees.
 *
 * Knobs: D (head size, a multiple of 16), TP (16-token tiles a page), MT, BN (a multiple of SK), SK and ASYNC (of 16,
 * ASYNC at most SK), STAGES (2 to 4), HB, WINDOWS. WG: 2 R / MT. Pools are aligned to 16 bytes, q is F16, scale > 0.
 */
#ifndef WG
#define WG 128
#endif
#include "common.clh"
#include "nvidia.clh"
#include "attention/mask.clh"
#include "attention/softmax.clh"
#ifndef D
#define D 128
#endif
#ifndef TP
#define TP 1
#endif
#ifndef MT
#define MT 1
#define BN 32
#define SK 32
#define STAGES 3
#endif
#ifndef ASYNC
#define ASYNC 0
#endif

#ifndef HB
#define HB 4
#endif

#define R  (WG / 2 * MT)
#define BR (R / HB)
#define CH (D / 8)
#if D % 64 == 0
#define PITCH (D * 2)
#define CHUNK(r, c) ((((c) ^ (r)) & 7 | (c) & ~7u) << 4)
/* From the place of chunk 0 or 1 of a row to that of c chunks on, c even. */
#define ON(place, c) (((place) ^ ((c)&7) << 4) + ((c) >> 3 << 7))
#else
#define PITCH ((CH | 1) * 16)
#define CHUNK(r, c) ((c) << 4)
#define ON(place, c) ((place) + ((c) << 4))
#endif
#define TILE (BN * PITCH) /* bytes: keys, then as many of values */
#define LOADS ((BN * CH + WG - 1) / WG)
/* EVEN: a work-item copies the same chunk of every STEP-th row, and one page id serves 16 rows. */
#define STEP (WG / CH)
#define EVEN (WG % CH == 0 && (STEP == 8 || STEP == 16 || STEP == 4 && D % 64 == 0) && BN % STEP == 0)
#if EVEN
#define IDS (BN / 16)
#define ID_KEY(i, lid) ((i) * 16)
#else
#define IDS LOADS
#define ID_KEY(i, lid) (((lid) + (i) * WG) / CH)
#endif

uint pair_at(const __global half *p, bool aligned)
{
    const __global ushort *h = (const __global ushort *)p;
    return aligned ? *(const __global uint *)p : h[0] | (uint)h[1] << 16;
}

/* What a work-group does at a time: rows from m0 on, before m_end, HB heads of KV head kvh from head0 on. */
typedef struct block {
    uint m0, m_end, kvh, head0, per_kv;
    uint share, turn; /* of the runs, those with number turn, turn + share, ... are this work-group's */
} block;

typedef struct packed_row {
    uint token, head; /* head within those of the KV head */
    bool in;          /* false: padding */
} packed_row;

/* Row g (h 0) or g + 8 (h 1) of this warp's i-th 16, of the lane that asks. */
packed_row row_of(const block *b, int i, int h)
{
    uint lid = work_item(), r = ((lid >> 5) * MT + i) * 16 + (lid >> 2 & 7) + 8 * h;
    packed_row row = {b->m0 + r / HB, b->head0 + r % HB, false};
    row.in = row.token < b->m_end && r / HB < BR && row.head < b->per_kv;
    return row;
}

/* Rows m to end - 1, of one sequence. */
typedef struct run {
    uint m, end;
    bool contiguous; /* each row's position is that of the one before plus 1: */
    int from;    /* what a row's index is added to, to get its position */
} run;

/* The last key that a packed row sees: none in other runs. Padding is not held back. */
int last_of(const packed_row *row, const run *of, const __global int *pos)
{
    if (!row->in) return INT_MAX;
    if (row->token < of->m || row->token >= of->end) return -1;
    return of->contiguous ? of->from + (int)row->token : pos[row->token];
}

/* What it sees. */
sight sight_of_row(const mask_t *rule, const block *b, const packed_row *row, const run *of, const __global int *pos)
{
    int last = last_of(row, of, pos);
    sight s = sight_of(rule, row->in ? last : 0, row->in ? b->kvh * b->per_kv + row->head : 0);
    s.last = last;
    return s;
}

int lanes_min(int x, uint from)
{
    for (uint xor_distance = from; xor_distance < 32; xor_distance *= 2)
        x = min(x, as_int(lane_xor(as_float(x), xor_distance)));
    return x;
}

#define OPERANDS                                                                                   \
    IN(q), IN(kp), IN(vp), IN(seq), IN(pos), IN(indptr), IN(pages), OUT_ACT(o), uint M, uint Hq, uint Hkv, \
        uint P, uint page_stride, uint q_stride, uint o_stride, float scale WINDOW_ARGS
#define ARGS                                                                                       \
    q_base, q_off, kp_base, kp_off, vp_base, vp_off, seq_base, seq_off, pos_base, pos_off, indptr_base, \
        indptr_off, pages_base, pages_off, o_base, o_off, o_half, M, Hq, Hkv, P, page_stride, q_stride, o_stride, \
        scale WINDOWS_GIVEN
#if WINDOWS
#define WINDOWS_GIVEN , windows_base, windows_off, sink
#else
#define WINDOWS_GIVEN
#endif

#define INLINE __attribute__((always_inline))
/* For each of the lane's rows: 16-row tile i, half h. */
#define EACH_ROW(i, h) _Pragma("unroll") for (int i = 0; i < MT; i++) _Pragma("unroll") for (int h = 0; h < 2; h++)

/* ---- one run: its rows ---------------------------------------------------------------------------------- */

/* The run that begins at row m of the block; *seq_id: its sequence. */
INLINE run find_run(uint m, uint m_end, uint M, const __global int *seq, const __global int *pos, uint lane,
                    int *seq_id)
{
    int s = seq[m];
    run of = {m, m_end, true, pos[m] - (int)m};
    for (uint row = m + lane; row - lane < m_end; row += 32) {
        uint other = lanes_with(row < m_end && seq[min(row, M - 1)] != s);
        if (!other) continue;
        of.end = row - lane + 31 - clz(other & -other);
        break;
    }
    *seq_id = s;
    return of;
}

/* Its last position, and the first one that is one; sets of->contiguous. */
INLINE int last_position(run *of, const __global int *pos, uint lane, int *first)
{
    bool contiguous = true;
    int end = -1, begin = INT_MAX;
    for (uint row = of->m + lane; row < of->end; row += 32) {
        end = max(end, pos[row]);
        if (WINDOWS && pos[row] >= 0) begin = min(begin, pos[row]);
        contiguous &= pos[row] - (int)row == of->from;
    }
    of->contiguous = !lanes_with(!contiguous);
    *first = WINDOWS ? lanes_min(begin, 1) : 0;
    return -lanes_min(-end, 1);
}

/* What some row of a run sees; where none sees a key, no window begins far behind all of them. */
INLINE void look_at_run(const mask_t *rule, const block *b, run *of, const __global int *pos, uint lane, sight *seen)
{
    int first, last = last_position(of, pos, lane, &first);
    see_by_any(rule, min(first, last), b->kvh * b->per_kv + b->head0, min((uint)HB, b->per_kv - b->head0), seen);
    seen->last = last;
}

/* What the rows of a warp see: all of them the keys up to each->last, but with windows for those from each->sink to
 * each->after - 1; none of those whose bit is set in wanted a key past most (below 0: none is in the run). Returns a
 * bit 2 i + h for each of the lane's rows that is in the run. */
INLINE uint look_at_rows(const mask_t *rule, const block *b, const run *of, const __global int *pos, uint wanted,
                         sight *each, int *most)
{
    uint mine = 0;
    int low = INT_MAX, high = INT_MAX, after = INT_MAX; /* the last two: negated, to seek the least of all */
    EACH_ROW(i, h)
    {
        packed_row row = row_of(b, i, h);
        sight s = sight_of_row(rule, b, &row, of, pos);
        low = min(low, s.last);
        if (row.in && wanted >> (2 * i + h) & 1) high = min(high, -s.last);
#if WINDOWS
        after = min(after, -s.after);
#endif
        if (row.in && row.token >= of->m && row.token < of->end) mine |= 1u << (2 * i + h);
    }
    each->last = lanes_min(low, 4);
#if WINDOWS
    each->after = -lanes_min(after, 4), each->sink = rule->sink;
#endif
    *most = -lanes_min(high, 4);
    return mine;
}

/* Some of a step's keys, which are so many from `first` on? each->last may be the largest integer. */
INLINE bool is_seen_in_part(sight each, int first, int keys)
{
#if WINDOWS
    if (first + keys > each.sink && first < each.after) return true;
#endif
    return first + keys - 1 > each.last;
}

/* ---- keys and values to local memory -------------------------------------------------------------------- */

/* What this work-item copies of each tile, and where to. */
typedef struct copier {
    const __global half *k, *v;
    const __global int *page; /* of the run's sequence */
    uint page_stride, from0, at0, lid;
    uint row0, to0; /* EVEN */
    sight seen;     /* other keys become zeros */
    int ids[IDS];   /* of the pages of the next tile */
} copier;

INLINE void load_ids(copier *c, int j)
{
#pragma unroll
    for (int i = 0; i < IDS; i++)
        c->ids[i] = c->page[min((uint)j * BN + ID_KEY(i, c->lid), (uint)c->seen.last) / (TP * 16)];
}

#if EVEN
INLINE void load_tile(const copier *c, int j, uint stage)
{
#pragma unroll
    for (int i = 0; i < LOADS; i++) {
        const uint r = i * STEP;
        ulong from = (ulong)(uint)c->ids[r / 16] * c->page_stride +
                     (c->from0 + ((uint)j * (BN / 16) + r / 16) % TP * (16 * D) + r % 16 * D);
        uint to = (c->to0 ^ r % 8 / 4 * 64) + stage * (2 * TILE) + r * PITCH;
        uint bytes = sees(c->seen, (int)((uint)j * BN + c->row0 + r)) ? 16 : 0;
        COPY16(to, c->k + from, bytes);
        COPY16(to + TILE, c->v + from, bytes);
    }
}
#else
INLINE void load_tile(const copier *c, int j, uint stage)
{
#pragma unroll
    for (int i = 0; i < LOADS; i++) {
        uint at = c->lid + i * WG, r = at / CH, chunk = at % CH, key = (uint)j * BN + r;
        if (BN * CH % WG && at >= BN * CH) break;
        ulong from = (ulong)(uint)c->ids[i] * c->page_stride + (c->from0 + key % (TP * 16) * D + chunk * 8);
        uint to = c->at0 + stage * (2 * TILE) + r * PITCH + CHUNK(r, chunk);
        uint bytes = sees(c->seen, (int)key) ? 16 : 0;
        COPY16(to, c->k + from, bytes);
        COPY16(to + TILE, c->v + from, bytes);
    }
}
#endif

/* The n-th tile of which some row sees a key. */
INLINE int tile_at(const copier *c, int n)
{
#if WINDOWS
    int whole = (c->seen.sink + BN - 1) / BN; /* those before have keys of the sink */
    if (n >= whole) n += max(0, c->seen.after / BN - whole);
#endif
    return n;
}

/* Begins to copy the n-th, if there is one, and asks for the pages of the one after. */
INLINE void fetch(copier *c, int n)
{
    int j = tile_at(c, n);
    if (j * BN <= c->seen.last) {
        load_tile(c, j, (uint)n % STAGES);
        load_ids(c, tile_at(c, n + 1));
    }
    COMMIT();
}

/* ---- products and softmax, a step of n times 8 keys, a constant -------------------------------------------------- */

/* What a lane keeps through a run. */
typedef struct state {
    float acc[MT][D / 8][4], row_max[MT][2], sum[MT][2];
    uint seen_max[MT][2]; /* the largest P, in pairs */
} state;

/* What a sequence left here does not reach the rows of another, be it NaN. */
INLINE void clear(state *s, float row_max)
{
#pragma unroll
    for (int i = 0; i < MT; i++) {
#pragma unroll
        for (int n = 0; n < D / 8; n++)
#pragma unroll
            for (int v = 0; v < 4; v++) s->acc[i][n][v] = 0;
#pragma unroll
        for (int h = 0; h < 2; h++) {
            s->row_max[i][h] = row_max;
            s->sum[i][h] = 0;
            s->seen_max[i][h] = 0;
        }
    }
}

INLINE void load_q(uint qf[MT][D / 16][4], const block *b, const __global half *q, uint q_stride, uint quad)
{
    EACH_ROW(i, h)
    {
        packed_row row = row_of(b, i, h);
        const __global half *from = q + (row.in ? (ulong)row.token * q_stride : 0) +
                                    (b->kvh * b->per_kv + (row.in ? row.head : 0)) * D + 2 * quad;
        bool aligned = ((ulong)from & 3) == 0;
#pragma unroll
        for (int k = 0; k < D / 16; k++) {
            qf[i][k][h] = row.in ? pair_at(from + k * 16, aligned) : 0;
            qf[i][k][2 + h] = row.in ? pair_at(from + k * 16 + 8, aligned) : 0;
        }
    }
}

/* S = Q K^T for the keys from k0 of the tile at k_at on. */
INLINE void multiply_keys(const int n8, float x[MT][SK / 8][4], uint qf[MT][D / 16][4], uint k_at, int k0)
{
#pragma unroll
    for (int i = 0; i < MT; i++)
#pragma unroll
        for (int n = 0; n < n8; n++)
#pragma unroll
            for (int v = 0; v < 4; v++) x[i][n][v] = 0;
#pragma unroll
    for (int k = 0; k < D / 16; k++)
#pragma unroll
        for (int n = 0; n < n8; n += 2) {
            uint f[4];
            LDMATRIX("", f[0], f[1], f[2], f[3], ON(k_at, k * 2) + (k0 + n * 8) * PITCH);
#pragma unroll
            for (int i = 0; i < MT; i++) {
                MMA(x[i][n], qf[i][k][0], qf[i][k][1], qf[i][k][2], qf[i][k][3], f[0], f[1]);
                MMA(x[i][n + 1], qf[i][k][0], qf[i][k][1], qf[i][k][2], qf[i][k][3], f[2], f[3]);
            }
        }
}

/* Scores of keys that a row does not see; first: the lane's first key. */
INLINE void mask(const int n8, float x[MT][SK / 8][4], const mask_t *rule, const block *b, const run *of,
                 const __global int *pos, int first)
{
    EACH_ROW(i, h)
    {
        packed_row row = row_of(b, i, h);
        sight s = sight_of_row(rule, b, &row, of, pos);
        s.last -= first;
#if WINDOWS
        s.after -= first, s.sink -= first;
#endif
#pragma unroll
        for (int n = 0; n < n8; n++) {
            if (!sees(s, n * 8)) x[i][n][2 * h] = -INFINITY;
            if (!sees(s, n * 8 + 1)) x[i][n][2 * h + 1] = -INFINITY;
        }
    }
}

/* Raises row maxima that a score exceeds by the threshold, and rescales. */
INLINE void raise(state *s, float x[MT][SK / 8][4], float c)
{
    float seen[MT][2];
    bool any_raised = false;
    EACH_ROW(i, h)
    {
        float t = x[i][0][2 * h];
#pragma unroll
        for (int n = 0; n < SK / 8; n++) t = fmax(t, fmax(x[i][n][2 * h], x[i][n][2 * h + 1]));
        seen[i][h] = t * c;
        any_raised |= exceeds(seen[i][h], s->row_max[i][h]);
    }
    if (!lanes_with(any_raised)) return;
    EACH_ROW(i, h)
    {
        float t = fmax(seen[i][h], lane_xor(seen[i][h], 1));
        t = fmax(t, lane_xor(t, 2));
        t = raised(t, s->row_max[i][h]);
        float alpha = power_of_two(s->row_max[i][h] - t);
        s->row_max[i][h] = t;
        s->sum[i][h] *= alpha;
#pragma unroll
        for (int n = 0; n < D / 8; n++) {
            s->acc[i][n][2 * h] *= alpha;
            s->acc[i][n][2 * h + 1] *= alpha;
        }
    }
}

/* P = 2^(S - maximum), and its sums. */
INLINE void weigh(const int n8, uint p[MT][SK / 8][2], state *s, float x[MT][SK / 8][4], float c, bool online,
                  float base)
{
#pragma unroll
    for (int i = 0; i < MT; i++)
#pragma unroll
        for (int n = 0; n < n8; n++)
#pragma unroll
            for (int h = 0; h < 2; h++) {
                float above = online ? s->row_max[i][h] : base;
                float even = power_of_two(fma(x[i][n][2 * h], c, -above));
                float odd = power_of_two(fma(x[i][n][2 * h + 1], c, -above));
                s->sum[i][h] += even + odd;
                p[i][n][h] = f16_pair(even, odd);
                if (!online) s->seen_max[i][h] = larger_pair(s->seen_max[i][h], p[i][n][h]);
            }
}

/* O += P V for the values from k0 of the tile at v_at on. */
INLINE void add_values(const int n8, state *s, uint p[MT][SK / 8][2], uint v_at, int k0)
{
#pragma unroll
    for (int n = 0; n < n8; n += 2)
#pragma unroll
        for (int d = 0; d < D / 8; d += 2) {
            uint f[4];
            LDMATRIX(".trans", f[0], f[1], f[2], f[3], ON(v_at, d) + (k0 + n * 8) * PITCH);
#pragma unroll
            for (int i = 0; i < MT; i++) {
                MMA(s->acc[i][d], p[i][n][0], p[i][n][1], p[i][n + 1][0], p[i][n + 1][1], f[0], f[1]);
                MMA(s->acc[i][d + 1], p[i][n][0], p[i][n][1], p[i][n + 1][0], p[i][n + 1][1], f[2], f[3]);
            }
        }
}

/* The sum of a row, in all of its lanes. */
INLINE float row_sum(const state *s, int i, int h)
{
    float l = s->sum[i][h];
    l += lane_xor(l, 1);
    return l + lane_xor(l, 2);
}

#if ASYNC
/* Has some weight of the lane's rows left the range above? Then it is 2^15 or more, and this makes the sign of its
 * half. */
INLINE bool some_left(const state *s)
{
    uint signs = 0;
    EACH_ROW(i, h) signs |= s->seen_max[i][h] + 0x08000800u;
    return signs & 0x80008000u;
}

/* Which rows, in all of their lanes: a bit 2 i + h for each. */
INLINE uint rows_left(const state *s)
{
    uint left = 0;
    EACH_ROW(i, h) if (larger_of_pair(s->seen_max[i][h]) >= 32768) left |= 1u << (2 * i + h);
    left |= as_uint(lane_xor(as_float(left), 1));
    return left | as_uint(lane_xor(as_float(left), 2));
}

/* A barrier that tells whether some work-item says yes. */
#define MEET(yes) any_at_barrier(yes)
#else
#define some_left(s) false
#define rows_left(s) 0u
#define MEET(yes) (barrier(CLK_LOCAL_MEM_FENCE), true)
#endif

/* Did the given maximum suit the row? */
INLINE bool suits(const state *s, int i, int h, float low)
{
    float t = larger_of_pair(s->seen_max[i][h]);
    t = fmax(t, lane_xor(t, 1));
    t = fmax(t, lane_xor(t, 2));
    return t < 32768 && t > power_of_two(low);
}

/* ---- a block --------------------------------------------------------------------------------------------- */

/* Does those rows of a block whose bit (2 i + h of a lane) is set in wanted, and writes them. Returns those that the
 * given maximum did not suit: they are not written. */
INLINE uint attend(const bool online, uint wanted, const block *b, __local uchar *tiles, float base, float low,
                   OPERANDS)
{
    uint lid = get_local_id(0), lane = lid & 31, quad = lane & 3;
    const __global int *pos = IN_AT(int, pos), *seq = IN_AT(int, seq);
    const mask_t rule = MASK;
    const int step = online ? SK : ASYNC;
    float c = scale * 1.44269504f;
    uint at0 = (uint)(ulong)tiles;
    /* What this lane gives ldmatrix: of K rows 0 to 7 at two chunks, then 8 to 15; of V rows 0 to 15 at two. */
    uint k_row = (lane & 7) + (lane >> 4 << 3), v_row = lane & 15;
    uint k_place = k_row * PITCH + CHUNK(k_row, lane >> 3 & 1), v_place = v_row * PITCH + CHUNK(v_row, lane >> 4);
    uint qf[MT][D / 16][4];
    state s;
    load_q(qf, b, IN_AT(half, q), q_stride, quad);
    uint redo = 0;
    /* But for page and tile. */
    copier copy = {.k = IN_AT(half, kp),
                   .v = IN_AT(half, vp),
                   .page_stride = page_stride,
                   .from0 = b->kvh * P * D,
                   .at0 = at0,
                   .lid = lid};
#if EVEN
    copy.row0 = lid / CH, copy.to0 = at0 + copy.row0 * PITCH + CHUNK(copy.row0, lid % CH);
    copy.from0 += copy.row0 * D + lid % CH * 8;
#endif

    for (uint m = b->m0, turn = 0; m < b->m_end; turn++) { /* runs of rows of one sequence */
        int seq_id, most;
        sight each;
        run of = find_run(m, b->m_end, M, seq, pos, lane, &seq_id);
        int first_page = IN_AT(int, indptr)[seq_id];
        m = of.end;
        if (turn % b->share != b->turn) continue;
        look_at_run(&rule, b, &of, pos, lane, &copy.seen);
        uint mine = look_at_rows(&rule, b, &of, pos, wanted, &each, &most);
        clear(&s, online ? NO_MAX : base);
        copy.page = IN_AT(int, pages) + first_page;
        if (copy.seen.last >= 0) load_ids(&copy, tile_at(&copy, 0));
#pragma unroll
        for (int n = 0; n < STAGES - 1; n++) fetch(&copy, n);
        for (int n = 0, j; (j = tile_at(&copy, n)) * BN <= copy.seen.last; n++) {
            WAIT(LATER(STAGES));
            if (!MEET(j * BN <= most)) break; /* tile j is there; everyone is done with the one that is overwritten */
            fetch(&copy, n + STAGES - 1);
            if (j * BN > most) continue;
            uint k_at = at0 + (uint)n % STAGES * (2 * TILE) + k_place;
            uint v_at = at0 + (uint)n % STAGES * (2 * TILE) + TILE + v_place;
#pragma unroll
            for (int k0 = 0; k0 < BN; k0 += step) {
                float x[MT][SK / 8][4];
                uint p[MT][SK / 8][2];
                multiply_keys(step / 8, x, qf, k_at, k0);
                if (is_seen_in_part(each, j * BN + k0, step))
                    mask(step / 8, x, &rule, b, &of, pos, j * BN + k0 + (int)(2 * quad));
                if (online) raise(&s, x, c);
                weigh(step / 8, p, &s, x, c, online, base);
                add_values(step / 8, &s, p, v_at, k0);
            }
            if (!online && lanes_with(some_left(&s)))
                look_at_rows(&rule, b, &of, pos, wanted & ~rows_left(&s), &each, &most);
        }
        WAIT(0);
        barrier(CLK_LOCAL_MEM_FENCE); /* the next run overwrites all tiles */
        EACH_ROW(i, h)
        {
            packed_row row = row_of(b, i, h);
            uint bit = 1u << (2 * i + h);
            float l = row_sum(&s, i, h);
            if (!online && !suits(&s, i, h, low) && mine & bit && pos[row.token] >= 0) redo |= bit;
            if (!(mine & wanted & ~redo & bit)) continue;
            float over = l == 0 ? 0 : 1 / l;
            ulong to = (ulong)row.token * o_stride + (b->kvh * b->per_kv + row.head) * D + 2 * quad;
#pragma unroll
            for (int n = 0; n < D / 8; n++) {
                STORE(o, to + n * 8, s.acc[i][n][2 * h] * over)
                STORE(o, to + n * 8 + 1, s.acc[i][n][2 * h + 1] * over)
            }
        }
    }
    return redo;
}

/* How many runs there are among rows m to end - 1. */
uint runs_of(uint m, uint end, const __global int *seq)
{
    uint n = 1, lane = work_item() & 31;
    for (uint row = m + 1 + lane; row - lane < end; row += 32)
        n += popcount(lanes_with(row < end && seq[min(row, end - 1)] != seq[min(row, end - 1) - 1]));
    return n;
}

KERNEL void attention_prefill(OPERANDS, uint SHARE, IN(count), float base, float low)
{
    __local uchar tiles[STAGES * 2 * TILE] __attribute__((aligned(128)));
    uint per_kv = Hq / Hkv, blocks = (per_kv + HB - 1) / HB, columns = Hkv * blocks, row_tiles = (M + BR - 1) / BR;

    for (ulong item = get_group_id(0); item < (ulong)row_tiles * columns * SHARE; item += get_num_groups(0)) {
        uint turn = (uint)(item / columns), column = (uint)(item % columns);
        uint m0 = (row_tiles - 1 - turn / SHARE) * BR, m_end = min(M, m0 + BR);
        block b = {m0, m_end, column / blocks, column % blocks * HB, per_kv, SHARE, turn % SHARE};
        if (b.turn && b.turn >= runs_of(m0, m_end, IN_AT(int, seq))) continue;
#if !ASYNC
        attend(true, ~0u, &b, tiles, base, low, ARGS);
#else
        uint redo = attend(false, ~0u, &b, tiles, base, low, ARGS);
        __local uint *any_redo = (__local uint *)tiles; /* do rows of any warp have to be computed again? */
        if (get_local_id(0) == 0) *any_redo = 0;
        barrier(CLK_LOCAL_MEM_FENCE);
        if (redo) atomic_or(any_redo, 1u);
        if (redo && get_local_id(0) % 4 == 0 && count_off != NONE)
            atomic_add((volatile __global uint *)(count_base + count_off), popcount(redo));
        barrier(CLK_LOCAL_MEM_FENCE);
        bool some = *any_redo;
        barrier(CLK_LOCAL_MEM_FENCE); /* tiles are written again */
        if (some) attend(true, redo, &b, tiles, base, low, ARGS);
#endif
    }
}
