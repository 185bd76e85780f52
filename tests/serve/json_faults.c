/* json_faults: preloaded into the server, makes one allocation of the JSON library fail: the one that a countdown in the shared file
 * $JSON_FAULTS reaches 0 with. While its reader is at work every malloc fails: it must not need any. */
#include <dlfcn.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

static _Atomic int64_t *left;

static _Thread_local bool reading __attribute__((tls_model("initial-exec")));
static json_malloc_t theirs = malloc;

void *__libc_malloc(size_t size);

__attribute__((visibility("default"))) void *malloc(size_t size)
{
    return reading && left ? NULL : __libc_malloc(size);
}

__attribute__((visibility("default"))) json_t *json_loadb(const char *text, size_t len, size_t flags, json_error_t *e)
{
    json_t *(*next)(const char *, size_t, size_t, json_error_t *) = (json_t * (*)(const char *, size_t, size_t, json_error_t *)) dlsym(RTLD_NEXT, "json_loadb");
    reading = true;
    json_t *j = next(text, len, flags, e);
    reading = false;
    return j;
}

static void *counted(size_t size)
{
    return !reading && left && atomic_fetch_sub(left, 1) == 1 ? NULL : theirs(size);
}

__attribute__((visibility("default"))) void json_set_alloc_funcs(json_malloc_t m, json_free_t f)
{
    void (*next)(json_malloc_t, json_free_t) = (void (*)(json_malloc_t, json_free_t))dlsym(RTLD_NEXT, "json_set_alloc_funcs");
    theirs = m;
    next(counted, f);
}

__attribute__((constructor)) static void begin(void)
{
    const char *path = getenv("JSON_FAULTS");
    int fd = path ? open(path, O_RDWR) : -1;
    void *p = fd < 0 ? MAP_FAILED : mmap(NULL, sizeof *left, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (p == MAP_FAILED) return;
    left = p;
}
