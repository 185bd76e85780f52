/* arena: its slabs, on the null device: where regions lie, and what does not fit. Pages and prefixes are tested
 * with the scheduler. */
#include "dev/arena.h"
#include "support/null_device.h"
#include "support/suite.h"

enum { LARGEST = 1000 * 64 };

static wf_dev *open_null(void)
{
    wf_dev *d = NULL;
    assert_ok(wf_dev_open("null", &(wf_open_params){.max_alloc = LARGEST}, &d));
    return d;
}

/* Regions of all sizes lie in slabs that the device can allocate, aligned, and none reaches into another. */
static void regions_lie_apart(void **state)
{
    enum { N = 300 };
    wf_region r[N];
    uint64_t bytes[N];
    wf_arena a;
    wf_dev *d = open_null();
    wf_arena_init(&a, d, "weights", "use a smaller model");
    for (uint64_t i = 0; i < N; i++) {
        bytes[i] = i % 7 ? wf_random(1, i) % 2000 : LARGEST - i;
        assert_ok(wf_arena_reserve(&a, bytes[i], &r[i]));
        assert_int_equal(r[i].offset % d->align, 0);
        assert_true(r[i].offset + bytes[i] <= LARGEST);
        for (uint64_t j = 0; j < i; j++)
            assert_true(r[j].slab != r[i].slab || r[j].offset + WF_MAX(bytes[j], 1) <= r[i].offset);
    }
    assert_ok(wf_arena_commit(&a));
    for (size_t i = 0; i < N; i++) assert_true(r[i].offset + bytes[i] <= wf_arena_buf(&a, r[i])->size);
    wf_arena_free(&a);
    wf_dev_close(d);
    assert_int_equal(wf_null_alive(), 0);
}

/* What is larger than any buffer says what to do, and takes nothing. */
static void too_large(void **state)
{
    wf_arena a;
    wf_region r;
    wf_dev *d = open_null();
    wf_arena_init(&a, d, "KV cache", "use fewer tokens");
    assert_ok(wf_arena_reserve(&a, LARGEST, &r));
    assert_error(wf_arena_reserve(&a, LARGEST + 1, &r), WEFT_ERR_NOMEM, "KV cache: one tensor needs 62.56 KiB");
    assert_says("use fewer tokens");
    assert_int_equal(wf_arena_bytes(&a), LARGEST);
    d->info.memory = LARGEST - 1;
    assert_error(wf_arena_commit(&a), WEFT_ERR_NOMEM, "KV cache: need");
    wf_arena_free(&a);
    wf_dev_close(d);
    assert_int_equal(wf_null_alive(), 0);
}

SUITE(arena, NULL, NULL, CASE(regions_lie_apart), CASE(too_large))
