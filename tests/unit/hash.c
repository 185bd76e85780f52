/* hash: what files and clients choose as keys cannot be chosen to collide. */
#include <sys/wait.h>

#include "base/base.h"
#include "support/suite.h"

/* The hash of a text in another process, before anyone here has asked for a seed. */
static uint64_t hash_elsewhere(void)
{
    int fd[2];
    uint64_t h = 0;
    assert_int_equal(pipe(fd), 0);
    pid_t pid = fork();
    if (!pid) {
        h = wf_hash("token", 5);
        _exit(write(fd[1], &h, sizeof h) != sizeof h);
    }
    assert_true(pid > 0);
    assert_int_equal(read(fd[0], &h, sizeof h), sizeof h);
    waitpid(pid, NULL, 0);
    close(fd[0]);
    close(fd[1]);
    return h;
}

static void each_process_has_its_own(void **state)
{
    uint64_t a = hash_elsewhere(), b = hash_elsewhere();
    assert_true(a != b);
    assert_true(wf_hash("token", 5) == wf_hash("token", 5));
}

static void all_bytes_count(void **state)
{
    char text[24] = "a text longer than word";
    uint64_t h = wf_hash(text, sizeof text);
    for (size_t i = 0; i < sizeof text; i++) {
        text[i] ^= 1;
        assert_true(wf_hash(text, sizeof text) != h);
        text[i] ^= 1;
    }
    uint64_t odd = wf_hash(text, 21);
    text[20] ^= 1;
    assert_true(wf_hash(text, 21) != odd);
    assert_true(wf_hash(text, 8) != wf_hash(text, 9));
    assert_true(wf_hash("a", 1) != wf_hash("a\0", 2));
}

SUITE(hash, NULL, NULL, CASE(each_process_has_its_own), CASE(all_bytes_count))
