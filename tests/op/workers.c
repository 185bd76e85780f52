/* See workers.h. */
#include "op/workers.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { READY = -1, FREE = 0 }; /* owner of a claim; else a worker's number and 1 */

op_shared *op_shared_new(void)
{
    op_shared *s = mmap(NULL, sizeof *s, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (s == MAP_FAILED) return NULL;
    for (int i = 0; i < OP_MOST_WORKERS; i++) s->at[i] = -1;
    return s;
}

static uint32_t slot_of(op_shared *s, uint64_t key)
{
    for (uint32_t i = (uint32_t)key;; i++) {
        uint64_t found = 0;
        if (atomic_compare_exchange_strong(&s->claim[i % OP_CLAIMS].key, &found, key) || found == key)
            return i % OP_CLAIMS;
    }
}

enum op_claim op_claim(op_shared *s, uint64_t key, int worker)
{
    int32_t owner = FREE;
    if (atomic_compare_exchange_strong(&s->claim[slot_of(s, key)].owner, &owner, worker + 1)) return OP_MINE;
    return owner == READY ? OP_READY : OP_BUSY;
}

void op_claimed(op_shared *s, uint64_t key)
{
    atomic_store(&s->claim[slot_of(s, key)].owner, READY);
}

/* ---- progress ------------------------------------------------------------------------------------------- */

void op_progress(const op_shared *s, bool last)
{
    static uint64_t shown;
    static bool is_drawn;
    bool terminal = isatty(STDOUT_FILENO);
    uint64_t now = wf_now_ns(), every = terminal ? 200000000u : 10000000000u;
    if (last && is_drawn) printf("\r\033[K"), fflush(stdout), is_drawn = false;
    if (last || now - (shown ? shown : s->began_ns) < every) return;
    shown = now;
    printf("%s%u of %u cases, %u runs, %u failed, %.0f s%s", terminal ? "\r\033[K" : "", s->cases, s->n_cases, s->runs,
           s->failed, (double)(now - s->began_ns) / 1e9, terminal ? "" : "\n");
    is_drawn = terminal;
    fflush(stdout);
}

/* ---- processes ------------------------------------------------------------------------------------------ */

/* Programs that it was to build are anybody's. */
static void free_claims(op_shared *s, int worker)
{
    for (uint32_t i = 0; i < OP_CLAIMS; i++) {
        int32_t owner = worker + 1;
        atomic_compare_exchange_strong(&s->claim[i].owner, &owner, FREE);
    }
}

bool op_workers_run(op_shared *s, int jobs, bool (*work)(void *, int),
                    void (*on_death)(void *, int32_t index, int signal), void *user)
{
    pid_t pid[OP_MOST_WORKERS];
    bool good = true;
    int left = 0;
    fflush(stdout);
    for (int i = 0; i < jobs; i++, left++) {
        pid[i] = fork();
        if (pid[i] < 0) return perror("op_test: fork"), false;
        if (pid[i] == 0) exit(!work(user, i));
    }
    while (left) {
        int status;
        pid_t ended = waitpid(-1, &status, WNOHANG);
        op_progress(s, false);
        if (ended < 0 && errno != EINTR) break;
        if (ended <= 0) {
            wf_sleep_ns(20000000);
            continue;
        }
        int i = 0;
        while (i < jobs && pid[i] != ended) i++;
        if (i == jobs) continue;
        left--;
        good &= WIFEXITED(status) && !WEXITSTATUS(status);
        if (WIFEXITED(status)) continue;
        free_claims(s, i);
        on_death(user, s->at[i], WTERMSIG(status));
    }
    return good;
}
