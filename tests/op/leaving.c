/* See leaving.h. */
#include "op/leaving.h"

#include <string.h>

#include "base/base.h"

const char *const leaving_pattern[LEAVING_PATTERNS] = {"none", "one above", "one below", "one late",
                                                       "some", "all above", "all below", "all in the middle"};

static int32_t last_key(const leaving_rows *r, int32_t seq)
{
    int32_t last = -1;
    for (uint32_t m = 0; m < r->n; m++)
        if (r->seq[m] == seq) last = WF_MAX(last, r->pos[m]);
    return last;
}

static bool is_last(const leaving_rows *r, uint32_t m)
{
    return r->pos[m] == last_key(r, r->seq[m]);
}

static bool is_first(const leaving_rows *r, uint32_t m)
{
    for (uint32_t i = 0; i < r->n; i++)
        if (r->seq[i] == r->seq[m] && r->pos[i] < r->pos[m]) return false;
    return true;
}

void leaving_key(const leaving_rows *r, int32_t seq, int32_t j, float columns[LEAVING_COLUMNS])
{
    int32_t last = last_key(r, seq);
    columns[0] = 4, columns[1] = j == last ? 40 : 0, columns[2] = j == last / 2 ? 40 : 0;
}

void leaving_query(enum leaves l, float columns[LEAVING_COLUMNS])
{
    static const float of[][LEAVING_COLUMNS] = {
        [STAYS] = {0.25f}, [ABOVE] = {30}, [BELOW] = {-30}, [LATE] = {0.25f, 10}, [MIDDLE] = {0.25f, 0, 10}};
    memcpy(columns, of[l], sizeof of[l]);
}

static void choose_some(const leaving_rows *r, uint8_t *left)
{
    for (uint32_t m = 0; m < r->n; m++) {
        if (is_last(r, m))
            left[m * r->heads + (uint32_t)r->seq[m] % r->heads] = LATE, left[m * r->heads + r->heads - 1] = ABOVE;
        if (is_first(r, m)) left[m * r->heads + r->heads / 2] = BELOW;
    }
}

static void choose_one(const leaving_rows *r, enum leaves how, uint8_t *left)
{
    uint32_t m = r->n / 2;
    while (how == LATE && !is_last(r, m)) m = (m + 1) % r->n;
    left[m * r->heads + r->heads * 5 / 8] = (uint8_t)how;
}

static void choose_all(const leaving_rows *r, enum leaves how, uint8_t *left)
{
    for (uint32_t i = 0; i < r->n * r->heads; i++) {
        uint32_t m = i / r->heads;
        bool sees = how != MIDDLE || (!r->windows && r->pos[m] >= last_key(r, r->seq[m]) / 2);
        if (sees) left[i] = (uint8_t)how;
    }
}

uint32_t leaving_choose(const leaving_rows *r, const char *pattern, uint8_t *left)
{
    enum leaves how = strstr(pattern, "below")    ? BELOW
                      : strstr(pattern, "late")   ? LATE
                      : strstr(pattern, "middle") ? MIDDLE
                                                  : ABOVE;
    uint32_t n = 0;
    memset(left, STAYS, r->n * r->heads);
    if (!strncmp(pattern, "all", 3)) choose_all(r, how, left);
    if (!strncmp(pattern, "one", 3)) choose_one(r, how, left);
    if (!strcmp(pattern, "some")) choose_some(r, left);
    for (uint32_t i = 0; i < r->n * r->heads; i++) n += left[i] != STAYS;
    return n;
}

const char *leaving_wrong(const leaving_rows *r, const uint8_t *left, const leaving_results *got, uint32_t *row,
                          uint32_t *head)
{
    for (uint32_t i = 0; i < r->n * r->heads; i++) {
        uint64_t at = i / r->heads * got->stride + i % r->heads * got->head;
        const uint8_t *want = (left[i] ? got->sync : got->none);
        *row = i / r->heads, *head = i % r->heads;
        if (memcmp((const uint8_t *)got->async + at, want + at, got->head))
            return left[i] ? "a row that left differs from the synchronous kernel" : "a row that stayed has changed";
    }
    return NULL;
}
