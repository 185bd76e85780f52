/* sched: random requests through the scheduler with no device; every rule of a batch holds at each step. */
#include "sched/sched.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#define PAGE 4

typedef struct sim {
    wf_seq q;
    int32_t tokens[64];
    uint32_t want;
} sim;

static const wf_limits limits = {.rows = 24, .logit_rows = 6, .seqs = 5, .seq_pages = 16, .pages = 40};

/* Rows are in range, positions go on where the sequence stood, slots lie in its own pages and in no other's. */
static void check_batch(const wf_sched *s, const wf_batch *b)
{
    assert_true(b->n_rows <= limits.rows && b->n_logits <= limits.logit_rows && b->n_seqs <= limits.seqs);
    char *slot_used = calloc(limits.pages * PAGE, 1), *page_used = calloc(limits.pages, 1);
    for (const wf_seq *q = s->running; q; q = q->next)
        for (uint32_t i = 0; i < q->n_pages; i++) {
            assert_false(page_used[q->pages[i]]);
            page_used[q->pages[i]] = 1;
        }
    for (uint32_t r = 0; r < b->n_rows; r++) {
        int32_t seq = b->in[WF_INPUT_SEQ][r], pos = b->in[WF_INPUT_POS][r], slot = b->in[WF_INPUT_SLOT][r];
        int32_t page = b->in[WF_INPUT_PAGES][b->in[WF_INPUT_INDPTR][seq] + pos / PAGE];
        assert_true(seq >= 0 && (uint32_t)seq < b->n_seqs && (uint32_t)pos < b->max_kv);
        assert_true(b->in[WF_INPUT_INDPTR][seq] + pos / PAGE < b->in[WF_INPUT_INDPTR][seq + 1]);
        assert_int_equal(slot, page * PAGE + pos % PAGE);
        assert_false(slot_used[slot]);
        slot_used[slot] = 1;
    }
    for (uint32_t i = 0; i < b->n_logits; i++) assert_in_range(b->in[WF_INPUT_LOGIT_ROWS][i], 0, b->n_rows - 1);
    free(slot_used);
    free(page_used);
}

/* Decodes come first and none is left out. */
static void check_decodes(const wf_sched *s)
{
    for (const wf_seq *q = s->running; q; q = q->next)
        if (q->n_done && q->n_tokens - q->n_done == 1) assert_int_equal(q->n_rows, 1);
}

static sim *new_request(uint64_t seed, uint64_t i)
{
    sim *r = calloc(1, sizeof *r);
    uint32_t prompt = 1 + wf_random(seed, 3 * i) % 40;
    r->want = prompt + wf_random(seed, 3 * i + 1) % (64 - prompt);
    r->q = (wf_seq){.tokens = r->tokens, .n_tokens = prompt, .max_tokens = r->want};
    r->q.all_logits = wf_random(seed, 3 * i + 2) % 5 == 0;
    r->q.no_logits = r->want == prompt;
    return r;
}

static void run(uint64_t seed, int n_requests)
{
    wf_sched s;
    wf_batch b;
    int sent = 0, ended = 0, steps = 0;
    assert_int_equal(wf_sched_init(&s, &limits, PAGE, seed), WEFT_OK);
    assert_int_equal(wf_batch_init(&b, &limits), WEFT_OK);
    while (ended < n_requests) {
        assert_true(++steps < 100 * n_requests);
        for (; sent < n_requests && wf_random(seed, 1000 + steps) % 3; sent++) wf_sched_add(&s, &new_request(seed, sent)->q);
        wf_sched_batch(&s, &b);
        check_batch(&s, &b);
        check_decodes(&s);
        wf_sched_advance(&s);
        for (wf_seq *q = s.running, *next; q; q = next) {
            next = q->next;
            if (!q->n_rows || q->n_done < q->n_tokens) continue;
            assert_int_equal(q->n_logits, q->all_logits ? q->n_rows : !q->no_logits);
            if (q->n_tokens < ((sim *)q)->want) q->n_tokens++;
            else wf_sched_remove(&s, q), free(q), ended++;
        }
    }
    assert_int_equal(s.pages.n_free, limits.pages);
    assert_true(!s.running && !s.waiting && !s.n_running && !s.n_waiting);
    wf_batch_free(&b);
    wf_sched_free(&s);
}

static void test_random_requests(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 50; seed++) run(seed, 100);
}

static void test_cancel_waiting(void **state)
{
    (void)state;
    wf_sched s;
    wf_batch b;
    sim *r[8];
    assert_int_equal(wf_sched_init(&s, &limits, PAGE, 0), WEFT_OK);
    assert_int_equal(wf_batch_init(&b, &limits), WEFT_OK);
    for (int i = 0; i < 8; i++) wf_sched_add(&s, &(r[i] = new_request(5, i))->q);
    wf_sched_batch(&s, &b);
    assert_true(s.n_waiting > 0 && s.n_running > 0);
    for (int i = 7; i >= 0; i--) wf_sched_remove(&s, &r[i]->q), free(r[i]);
    assert_int_equal(s.pages.n_free, limits.pages);
    wf_batch_free(&b);
    wf_sched_free(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_random_requests), cmocka_unit_test(test_cancel_waiting)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
