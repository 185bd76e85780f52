/* gguf_cut: files cut at every byte, changed in every byte, with a million names, and paths that
 * are no files. A good file must open after each. */
#include "support/gguf_check.h"
#include "support/suite.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

static void cut_everywhere(void **state)
{
    bytes b = {0};
    gguf_good(&b);
    for (size_t n = 0; n < b.len; n++) {
        wf_gguf *g = NULL;
        uint8_t *copy;
        weft_status s = gguf_open_copy(b.data, n, &g, &copy);
        if (s != WEFT_ERR_FORMAT) print_error("cut to %zu of %zu bytes: %s\n", n, b.len, weft_status_name(s));
        assert_int_equal(s, WEFT_ERR_FORMAT);
        if (!strstr(wf_error(), "cut short") && !strstr(wf_error(), "remain") && n)
            fail_msg("cut to %zu of %zu bytes: %s", n, b.len, wf_error());
        free(copy);
    }
    bytes_free(&b);
    gguf_good_opens();
}

static weft_status count_bytes(void *user, uint64_t i, wf_str s)
{
    for (size_t k = 0; k < s.len; k++) *(size_t *)user += (unsigned char)s.data[k];
    return WEFT_OK;
}

/* Everything a loader would look at. */
static size_t read_all(const wf_gguf *g)
{
    size_t sum = 0;
    for (size_t i = 0; i < g->n_kv; i++) {
        const wf_gguf_kv *kv = &g->kv[i];
        char text[64], key[64] = "";
        wf_gguf_print(kv, text, sizeof text);
        sum += strlen(text);
        if (kv->key.len < sizeof key) {
            memcpy(key, kv->key.data, kv->key.len);
            assert_ptr_equal(wf_gguf_find(g, key), kv);
            if (kv->type == WF_GGUF_ARRAY && kv->item == WF_GGUF_STRING)
                assert_ok(wf_gguf_strings(g, key, true, NULL, count_bytes, &sum));
        }
        if (kv->type == WF_GGUF_ARRAY)
            for (uint64_t k = 0; k < kv->count; k++) sum += wf_gguf_num_at(kv, k) != 0;
    }
    for (size_t i = 0; i < g->n_tensors; i++)
        for (uint64_t k = 0; k < g->tensors[i].bytes; k++) sum += g->tensors[i].data[k];
    return sum;
}

/* One changed byte: any result will do that reads only what is there (for the sanitizers to judge).
 */
static void change_everywhere(void **state)
{
    static const uint8_t masks[] = {1, 2, 4, 8, 16, 32, 64, 128, 255, 127};
    bytes b = {0};
    size_t sum = 0, opened = 0;
    gguf_good(&b);
    for (size_t at = 0; at < b.len; at++)
        for (size_t m = 0; m < WF_LEN(masks); m++) {
            wf_gguf *g;
            uint8_t *copy;
            b.data[at] ^= masks[m];
            if (!gguf_open_copy(b.data, b.len, &g, &copy)) {
                opened++;
                sum += read_all(g);
                wf_gguf_close(g);
            }
            b.data[at] ^= masks[m];
            free(copy);
        }
    assert_true(opened > 0 && sum > 0);
    bytes_free(&b);
    gguf_good_opens();
}

/* A million names: hopeless if looking for duplicates were quadratic. */
static void many_names(void **state)
{
    const uint32_t n = 1000000;
    bytes b = {0};
    char name[32];
    gguf_head(&b, 3, n, n);
    for (uint32_t i = 0; i < n; i++) {
        snprintf(name, sizeof name, "key.%u", i);
        gguf_kv_u32(&b, name, i);
    }
    for (uint32_t i = 0; i < n; i++) {
        snprintf(name, sizeof name, "tensor.%u", i);
        gguf_tensor(&b, name, 1, (uint64_t[]){1}, 0, (uint64_t)i * 32);
    }
    bytes_align(&b, 32);
    bytes_zero(&b, (size_t)n * 32);
    wf_gguf *g = NULL;
    uint32_t v = 0;
    assert_ok(wf_gguf_open_memory(b.data, b.len, "many.gguf", &g));
    assert_ok(wf_gguf_u32(g, "key.777777", true, &v));
    assert_int_equal(v, 777777);
    assert_int_equal(wf_gguf_tensor_find(g, "tensor.999999")->offset, 999999 * 32);
    wf_gguf_close(g);
    bytes_free(&b);
}

/* ---- paths ----------------------------------------------------------------------------------- */

static void path_fails(const char *path, const char *message)
{
    wf_gguf *g = (wf_gguf *)"";
    assert_int_equal(wf_gguf_open(path, &g), WEFT_ERR_IO);
    assert_null(g);
    if (!strstr(wf_error(), message) || !strstr(wf_error(), path))
        fail_msg("%s: \"%s\" lacks \"%s\" or the path", path, wf_error(), message);
}

static void paths(void **state)
{
    char dir[] = "/tmp/weft-test-XXXXXX", path[64];
    assert_non_null(mkdtemp(dir));
    path_fails(dir, "is a directory");
    path_fails("/dev/zero", "is a character device");
    path_fails("/nonexistent/model.gguf", "No such file");
    snprintf(path, sizeof path, "%s/fifo", dir);
    assert_int_equal(mkfifo(path, 0600), 0);
    path_fails(path, "is a FIFO"); /* and does not wait for a writer */
    unlink(path);
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    snprintf(addr.sun_path, sizeof addr.sun_path, "%s/sock", dir);
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&addr, sizeof addr), 0);
    path_fails(addr.sun_path, "is a socket");
    close(fd);
    unlink(addr.sun_path);
    snprintf(path, sizeof path, "%s/empty", dir);
    fd = open(path, O_CREAT | O_WRONLY, 0600);
    close(fd);
    wf_gguf *g;
    assert_error(wf_gguf_open(path, &g), WEFT_ERR_FORMAT, "empty");
    unlink(path);
    rmdir(dir);
}

SUITE(gguf_cut, NULL, NULL, CASE(cut_everywhere), CASE(change_everywhere), CASE(many_names), CASE(paths))
