/* fair: clients that share the scheduler. Random loads of some that flood it and some that come once, on many seeds,
 * policies and sizes; the bounds that src/sched/fair.c states hold in each, counted in tokens and steps.
 *
 * Service is counted here anew: prompt tokens that were computed, and WF_FAIR_OUTPUT for each token of an answer. */
#include "sched/sched.h"
#include "serve/api/places.h"
#include "support/suite.h"

enum {
    PAGE = 4,
    LONGEST = 64,
    PROMPT = 40,
    ANSWER = LONGEST - PROMPT,
    CLIENTS = 4,
    VISITORS = 24,
    SENDERS = CLIENTS + VISITORS
};

typedef struct request {
    wf_seq q; /* first, so that it is found from its sequence */
    int32_t tokens[LONGEST + 1];
    uint32_t want, sender, number; /* number: of those of its sender */
    bool admitted, had_pages;
    struct request *link; /* of all that have not ended */
} request;

/* Who sends: the first CLIENTS again and again, each visitor once and as somebody new. */
typedef struct sender {
    uint32_t sent, admitted, waiting;
    int64_t service;
    /* of a visitor, while it waits: */
    bool waits;
    uint32_t ahead[SENDERS], rivals; /* admitted since it came; clients that waited when it came */
    uint64_t came_tokens, came_steps;
} sender;

/* Two clients that have both been waiting: the differences of their service since. */
typedef struct pair {
    bool both;
    int64_t least, most;
} pair;

typedef struct world {
    wf_sched s;
    wf_batch b;
    request *alive;
    sender of[SENDERS];
    pair pairs[CLIENTS][CLIENTS];
    uint64_t tokens, steps;
    int preempted, waited, furthest; /* furthest: greatest difference of counters */
} world;

static const wf_limits worlds[] = {
    {.step_tokens = 24, .logit_rows = 6, .seqs = 5, .seq_pages = LONGEST / PAGE, .pages = 40},
    {.step_tokens = 32, .logit_rows = 32, .seqs = 12, .seq_pages = LONGEST / PAGE, .pages = 12 * LONGEST / PAGE},
    {.step_tokens = 24, .logit_rows = 12, .seqs = 12, .seq_pages = LONGEST / PAGE, .pages = LONGEST / PAGE + 3},
};

/* ---- the bounds ------------------------------------------------------------------------------------------------ */

static int64_t counter_bound(const world *w)
{
    return PROMPT + (int64_t)w->s.limits.seqs * (PROMPT + WF_FAIR_OUTPUT * ANSWER);
}

static void check_visitors(world *w, uint32_t admitted)
{
    for (uint32_t v = CLIENTS; v < SENDERS; v++) {
        sender *d = &w->of[v];
        if (!d->waits || v == admitted) continue;
        assert_int_equal(++d->ahead[admitted], 1);
        w->waited++;
    }
}

/* Tokens computed, and steps, while a visitor waits. */
static void check_waits(const world *w)
{
    for (uint32_t v = CLIENTS; v < SENDERS; v++) {
        const sender *d = &w->of[v];
        uint64_t bound = (uint64_t)(w->s.limits.seqs + d->rivals) * LONGEST;
        if (!d->waits) continue;
        assert_true(w->tokens - d->came_tokens <= bound);
        assert_true(w->steps - d->came_steps <= bound);
    }
}

/* Clients that go on waiting receive the same, up to a bound. */
static void check_pairs(world *w)
{
    for (int i = 0; i < CLIENTS; i++)
        for (int j = 0; j < i; j++) {
            pair *p = &w->pairs[i][j];
            int64_t d = w->of[i].service - w->of[j].service;
            bool before = p->both;
            p->both = w->of[i].waiting && w->of[j].waiting;
            if (!p->both) continue;
            p->least = before ? WF_MIN(p->least, d) : d;
            p->most = before ? WF_MAX(p->most, d) : d;
            assert_true(p->most - p->least <= 2 * counter_bound(w));
        }
}

static void check_counters(world *w)
{
    int64_t least = INT64_MAX, most = 0;
    for (const wf_client *c = w->s.clients; c; c = c->next)
        if (c->waiting) least = WF_MIN(least, c->served + c->promised), most = WF_MAX(most, c->served + c->promised);
    if (least > most) return;
    assert_true(most - least <= counter_bound(w));
    w->furthest = (int)WF_MAX(w->furthest, most - least);
}

/* ---- simulation ------------------------------------------------------------------------------------------------ */

static request *send(world *w, uint32_t from, uint32_t prompt, uint32_t answer)
{
    request *r = calloc(1, sizeof *r);
    sender *d = &w->of[from];
    *r = (request){.want = prompt + answer, .sender = from, .number = d->sent++, .link = w->alive};
    for (uint32_t i = 0; i < prompt; i++) r->tokens[i] = (int32_t)(i + 100 * from); /* those of a sender begin alike */
    r->q = (wf_seq){.tokens = r->tokens, .n_tokens = prompt, .max_tokens = LONGEST, .client_id = from + 1};
    for (const wf_client *c = w->s.clients; c; c = c->next) d->rivals += c->waiting != NULL;
    d->waiting++;
    d->waits = from >= CLIENTS;
    d->came_tokens = w->tokens;
    d->came_steps = w->steps;
    w->alive = r;
    wf_sched_add(&w->s, &r->q);
    return r;
}

static void note_admitted(world *w, request *r)
{
    sender *d = &w->of[r->sender];
    assert_int_equal(r->number, d->admitted); /* none of a client overtakes another */
    r->admitted = true;
    d->admitted++;
    d->waiting--;
    d->waits = false;
    d->service += r->q.n_prompt - r->q.n_cached;
    check_visitors(w, r->sender);
}

/* Youngest first: no younger one of the client that held pages runs on. Another client's may, which had none before. */
static void check_victim(world *w, const request *v)
{
    for (const wf_seq *q = w->s.running; q; q = q->next)
        assert_true(q->order < v->q.order || !((const request *)q)->had_pages || q->client != v->q.client);
    w->preempted++;
}

/* Of one client; admissions of one step are told apart by their numbers. */
static request *next_admitted(const world *w)
{
    request *next = NULL;
    for (request *r = w->alive; r; r = r->link)
        if (!r->admitted && r->q.state > WF_SEQ_WAITING && (!next || r->number < next->number)) next = r;
    return next;
}

static void end_request(world *w, request *r, bool finished)
{
    request **at = &w->alive;
    while (*at != r) at = &(*at)->link;
    *at = r->link;
    if (!r->admitted)
        w->of[r->sender].waiting--, w->of[r->sender].admitted++; /* it was the first or the last that waits */
    w->of[r->sender].waits = false;
    wf_sched_remove(&w->s, &r->q, finished);
    free(r);
}

static void step(world *w)
{
    for (request *r = w->alive; r; r = r->link) r->had_pages = r->q.state == WF_SEQ_RUNNING && r->q.kv.n_pages;
    bool had = w->s.n_running;
    wf_sched_batch(&w->s, &w->b);
    for (request *r; (r = next_admitted(w));) note_admitted(w, r);
    for (const request *r = w->alive; r; r = r->link)
        if (r->had_pages && r->q.state == WF_SEQ_PREEMPTED) check_victim(w, r);
    assert_true(w->b.n_tokens || !(had || w->s.n_running));
    check_pairs(w);
    w->steps++;
    w->tokens += w->b.n_tokens;
    wf_sched_advance(&w->s, false);
    for (request *r = w->alive, *next; r; r = next) {
        next = r->link;
        wf_seq *q = &r->q;
        if (q->state != WF_SEQ_RUNNING || !q->n_scheduled || q->n_computed < q->n_tokens) continue;
        w->of[r->sender].service += WF_FAIR_OUTPUT;
        r->tokens[q->n_tokens++] = 7;
        if (q->n_tokens >= r->want) end_request(w, r, true);
    }
    check_pairs(w);
    check_counters(w);
    check_waits(w);
}

static void open_world(world *w, const wf_limits *l, enum wf_policy policy, uint32_t per_client)
{
    *w = (world){0};
    wf_sched_params p = {.policy = policy, .kv.page_tokens = PAGE, .seqs_per_client = per_client};
    assert_ok(wf_sched_init(&w->s, l, &p));
    assert_ok(wf_batch_init(&w->b, l));
}

static void close_world(world *w)
{
    while (w->alive) step(w);
    assert_int_equal(wf_pages_available(&w->s.kv.pages, w->s.limits.pages), w->s.limits.pages);
    wf_batch_free(&w->b);
    wf_sched_free(&w->s);
}

/* ---- random loads ---------------------------------------------------------------------------------------------- */

static uint32_t size_of(uint64_t seed, uint64_t i, uint32_t most)
{
    return 1 + (uint32_t)wf_random(seed, i) % most;
}

/* Client 0 floods, the others come in bursts of their own sizes; a visitor comes every few steps. */
static void arrivals(world *w, uint64_t seed, uint64_t t)
{
    for (uint32_t c = 0; c < CLIENTS; c++) {
        uint64_t dice = wf_random(seed, 1000 * t + c);
        uint32_t most = 1 + PROMPT * (c + 1) / CLIENTS, n = c        ? (dice % 40 == 0) * (1 + dice / 64 % 12)
                                                            : t == 0 ? 60
                                                                     : dice % 4 == 0;
        for (uint32_t i = 0; i < n; i++)
            send(w, c, size_of(seed, 1000 * t + 10 * c + i + 5, most),
                 size_of(seed, 1000 * t + 500 + 20 * c + i, ANSWER));
    }
    for (uint32_t v = CLIENTS; v < SENDERS; v++)
        if (t == 3 + wf_random(seed, v) % 150) send(w, v, size_of(seed, 77 * v, PROMPT), size_of(seed, 78 * v, ANSWER));
}

/* Now and then somebody goes: the first or the last of those of a client that wait, or one that runs. */
static void cancel_one(world *w, uint64_t seed, uint64_t t)
{
    uint64_t dice = wf_random(seed, 9000000 + t);
    for (request *r = w->alive; dice % 8 == 0 && r; r = r->link)
        if (r->admitted || r->number + 1 == w->of[r->sender].sent) {
            if (!r->admitted) w->of[r->sender].sent--, w->of[r->sender].admitted--;
            end_request(w, r, false);
            return;
        }
}

static void play(const wf_limits *l, enum wf_policy policy, uint64_t seed, int *waited, int *preempted, int *furthest)
{
    world w;
    open_world(&w, l, policy, 0);
    for (uint64_t t = 0; t < 160; t++) {
        arrivals(&w, seed, t);
        if (seed % 2) cancel_one(&w, seed, t);
        step(&w);
    }
    *waited += w.waited;
    *preempted += w.preempted;
    *furthest = WF_MAX(*furthest, w.furthest);
    close_world(&w);
}

enum { SEEDS = 250 };

static void test_bounds(void **state)
{
    for (size_t i = 0; i < WF_LEN(worlds); i++) {
        int waited = 0, preempted = 0, furthest = 0;
        for (uint64_t seed = 1; seed <= SEEDS; seed++)
            for (int policy = 0; policy < 4; policy++)
                play(&worlds[i], (enum wf_policy)policy, seed, &waited, &preempted, &furthest);
        printf("%d cases: counters at most %d apart, %d admitted before visitors, %d preempted\n", 4 * SEEDS, furthest,
               waited, preempted);
        assert_true(waited > SEEDS && furthest > PROMPT); /* or nothing was tried */
        if (i == 2) assert_true(preempted > SEEDS);
    }
}

/* ---- single rules ------------------------------------------------------------------------------------------------ */

/* While the first does not fit, neither the next of its client nor that of another runs, though they would. */
static void test_none_overtakes(void **state)
{
    world w;
    open_world(
        &w,
        &(wf_limits){
            .step_tokens = 24, .logit_rows = 6, .seqs = 6, .seq_pages = LONGEST / PAGE, .pages = LONGEST / PAGE + 2},
        WF_POLICY_NANOFLOW, 0);
    send(&w, 0, PROMPT, ANSWER)->q.max_tokens = LONGEST - 8;
    step(&w);
    request *large = send(&w, 1, PROMPT, 4), *small = send(&w, 1, 1, 1), *other = send(&w, 2, 1, 1);
    small->q.max_tokens = other->q.max_tokens = 2;
    for (int i = 0; i < ANSWER / 2; i++) {
        step(&w);
        assert_int_equal(large->q.state, WF_SEQ_WAITING);
        assert_int_equal(small->q.state, WF_SEQ_WAITING);
        assert_int_equal(other->q.state, WF_SEQ_WAITING);
    }
    close_world(&w);
}

static void test_limit_per_client(void **state)
{
    world w;
    open_world(&w, &worlds[1], WF_POLICY_NANOFLOW, 2);
    for (int i = 0; i < 30; i++) send(&w, 0, 10, 10);
    step(&w);
    assert_int_equal(w.s.n_running, 2);
    for (int i = 0; i < 30; i++) send(&w, 1, 10, 10);
    while (w.alive) {
        step(&w);
        for (const wf_client *c = w.s.clients; c; c = c->next) assert_true(c->n_active <= 2);
    }
    close_world(&w);
}

/* Its prompt is computed before the long ones of who was admitted before: of these, one step's. */
static void test_short_prompt_goes_first(void **state)
{
    world w;
    open_world(&w, &worlds[1], WF_POLICY_NANOFLOW, 0);
    for (int i = 0; i < 11; i++) send(&w, 0, PROMPT, 1);
    step(&w);
    request *r = send(&w, 1, 3, 5);
    step(&w);
    step(&w);
    assert_int_equal(r->q.n_tokens, 4);
    close_world(&w);
}

/* Who has nothing does not wait for one of many sequences, the youngest of which makes room, unless they are more
 * urgent. */
static void test_a_place_for_who_has_none(void **state)
{
    for (int32_t priority = 0; priority < 2; priority++) {
        world w;
        open_world(&w, &worlds[1], WF_POLICY_NANOFLOW, 0);
        for (int i = 0; i < 20; i++) send(&w, 0, 4, ANSWER)->q.priority = priority;
        step(&w);
        request *r = send(&w, 1, 3, 2), *later = send(&w, 1, 3, 2);
        step(&w);
        assert_int_equal(w.s.n_running, 12);
        assert_int_equal(w.s.n_preempted, !priority);
        assert_int_equal(r->q.state, priority ? WF_SEQ_WAITING : WF_SEQ_RUNNING);
        assert_int_equal(later->q.state, WF_SEQ_WAITING);
        close_world(&w);
    }
}

/* A level of priority is worth a fixed number of tokens: a less urgent client gets its turn. */
static void test_priority_between_clients(void **state)
{
    world w;
    open_world(&w, &worlds[0], WF_POLICY_NANOFLOW, 0);
    for (int i = 0; i < 20; i++) send(&w, 0, 10, 10);
    request *urgent = calloc(1, sizeof *urgent);
    step(&w);
    w.of[1].sent = 1, w.of[1].waiting = 1;
    *urgent = (request){.want = 12, .sender = 1, .link = w.alive};
    urgent->q = (wf_seq){
        .tokens = urgent->tokens, .n_tokens = 10, .max_tokens = LONGEST, .client_id = 2, .priority = 1};
    w.alive = urgent;
    wf_sched_add(&w.s, &urgent->q);
    urgent->q.client->served += WF_PRIORITY_TOKENS / 2; /* less than the level is worth */
    while (urgent->q.state == WF_SEQ_WAITING) {
        uint32_t before = w.of[0].admitted;
        wf_sched_batch(&w.s, &w.b);
        for (request *r; (r = next_admitted(&w));) note_admitted(&w, r);
        assert_true(w.of[0].admitted == before || urgent->q.state != WF_SEQ_WAITING);
        wf_sched_advance(&w.s, false);
        for (request *r = w.alive, *next; r; r = next) {
            next = r->link;
            if (r->q.state == WF_SEQ_RUNNING && r->q.n_scheduled && r->q.n_computed == r->q.n_tokens)
                r->tokens[r->q.n_tokens++] = 7;
            if (r->q.n_tokens >= r->want && r != urgent) end_request(&w, r, true);
        }
    }
    while (w.alive) end_request(&w, w.alive, false);
    close_world(&w);
}

/* n that come once and leave; each owes so much then. Returns how many were known at most. */
static uint32_t pass_by(world *w, uint64_t n, uint64_t first, int64_t owes)
{
    int32_t token = 1;
    uint32_t most = 0;
    for (uint64_t i = 0; i < n; i++) {
        wf_seq q = {.tokens = &token, .n_tokens = 1, .max_tokens = 2, .client_id = first + i};
        wf_sched_add(&w->s, &q);
        q.client->served += owes;
        wf_sched_remove(&w->s, &q, false);
        most = WF_MAX(most, w->s.n_clients);
    }
    return most;
}

/* However many come, few are kept: those with requests, and of those that owe so many. */
static void test_memory_is_bounded(void **state)
{
    world w;
    open_world(&w, &worlds[1], WF_POLICY_NANOFLOW, 0);
    send(&w, 0, PROMPT, ANSWER);
    step(&w); /* a part of its prompt is left: it competes */
    assert_in_range(pass_by(&w, 20000, 1000, 0), 1, 3);
    assert_in_range(pass_by(&w, 20000, 1000000, 1000), WF_IDLE_CLIENTS, WF_IDLE_CLIENTS + 2);
    close_world(&w);
}

/* ---- places of the server's queue -------------------------------------------------------------------------------- */

/* Clients that take what they can get in any order, all or some of it, and give some back. */
static void take_and_leave(uint64_t seed, size_t places, size_t n_clients)
{
    size_t own[8] = {0}, used = 0;
    for (uint64_t k = 0; k < 400; k++) {
        size_t c = wf_random(seed, 3 * k) % n_clients, most = own[c] ? own[c] : 1,
               n = 1 + wf_random(seed, 3 * k + 1) % places;
        if (wf_random(seed, 3 * k + 2) % 4) {
            while (n && !wf_places_allow(places, used, own[c], n)) n--;
            used += n;
            own[c] += n;
        } else if (own[c]) {
            used -= n % most;
            own[c] -= n % most;
        }
        assert_in_range(own[c], 0, places / 2);
        assert_true((places - used) << n_clients >= places);
        if (places >> n_clients >= 2) assert_true(wf_places_allow(places, used, 0, 1));
    }
}

static void test_no_client_fills_the_queue(void **state)
{
    for (uint64_t seed = 0; seed < 200; seed++)
        for (size_t n_clients = 1; n_clients <= 8; n_clients++)
            take_and_leave(seed, 2 + 2 * (wf_random(seed, n_clients) % 600), n_clients);
    assert_true(wf_places_allow(8, 0, 0, 4));
    assert_false(wf_places_allow(8, 4, 4, 1));
    assert_true(wf_places_allow(8, 4, 0, 2));
    assert_false(wf_places_allow(8, 4, 0, 3));
}

SUITE(fair, NULL, NULL, CASE(test_bounds), CASE(test_none_overtakes), CASE(test_limit_per_client),
      CASE(test_short_prompt_goes_first),
      CASE(test_a_place_for_who_has_none), CASE(test_priority_between_clients), CASE(test_memory_is_bounded),
      CASE(test_no_client_fills_the_queue))
