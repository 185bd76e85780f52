/* hash: what files and clients choose as keys cannot be chosen to collide. */
#include <sys/wait.h>

#include "base/blake2b.h"
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

/* What Python's hashlib gives for n bytes, byte i being 7 i, and a key of n_key bytes, byte i being i; in pieces of any
 * size. */
static void blake2b_is_that_of_others(void **state)
{
    static const struct {
        size_t n, n_key, bytes;
        const char *hash;
    } rows[] = {
        {3, 0, 64, "fed14d4674b95b8f01131200012dea8038f0527549cf3a4b7a9479e3d31cef171de96eca5ba7037ab0c4ab9a409c316da23f4587cc9d37af686edf712ddc73cc"},
        {0, 0, 32, "0e5751c026e543b2e8ab2eb06099daa1d1e5df47778f7787faab45cdf12fe3a8"},
        {512, 5, 32, "769480082170134654bcad78e1fa79d03731a7e7378c08c6ec7eb6e13e0a7866"},
        {128, 0, 16, "06e5bcee475a6bf6d9b8a07c6f4ae80a"},
        {255, 64, 64, "0aca37aee997c7ceda40a26b1a04bf2dace2625ca4b04af8f4f49fdec445052c938d7f080c81c3c54adc91c5fef60144af9bb93235f80065346b4894136bf5f8"},
        {129, 0, 64, "31f95aa8eb1487ce670bc3c0c60ef98b83b7d7d88ff6b7d719fdc8838f301785591eed59d633b5f47b73aa828cf2dcdc775fc92c0de005ae9b7922b0f3251885"},
        {1000, 64, 1, "f5"},
    };
    uint8_t data[1000], key[64], hash[64];
    for (size_t i = 0; i < sizeof data; i++) data[i] = (uint8_t)(7 * i);
    for (size_t i = 0; i < sizeof key; i++) key[i] = (uint8_t)i;
    for (size_t r = 0; r < WF_LEN(rows); r++)
        for (size_t piece = 1; piece <= sizeof data; piece += 37) {
            char hex[129] = "";
            wf_blake2b b;
            wf_blake2b_begin(&b, rows[r].bytes, key, rows[r].n_key);
            for (size_t i = 0; i < rows[r].n; i += piece) wf_blake2b_add(&b, data + i, WF_MIN(piece, rows[r].n - i));
            wf_blake2b_end(&b, hash);
            for (size_t i = 0; i < rows[r].bytes; i++) snprintf(hex + 2 * i, 3, "%02x", hash[i]);
            assert_string_equal(hex, rows[r].hash);
        }
}

static void hash_fields(const char *a, const char *c, uint8_t *hash)
{
    wf_blake2b b;
    wf_blake2b_begin(&b, 32, NULL, 0);
    wf_blake2b_field(&b, a, strlen(a));
    wf_blake2b_field(&b, c, strlen(c));
    wf_blake2b_end(&b, hash);
}

/* The salt "ab" of an adapter "c" is not the salt "a" of an adapter "bc". */
static void fields_are_told_apart(void **state)
{
    uint8_t x[32], y[32];
    hash_fields("ab", "c", x);
    hash_fields("a", "bc", y);
    assert_memory_not_equal(x, y, sizeof x);
}

SUITE(hash, NULL, NULL, CASE(each_process_has_its_own), CASE(all_bytes_count), CASE(blake2b_is_that_of_others),
      CASE(fields_are_told_apart))
