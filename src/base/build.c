/* build: which build of weft this is. */
#include "base/base.h"

#include <link.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

static char build_id[2 * 32 + 1];

/* Is that the file, program or library, which this function was linked into? */
static bool is_ours(const struct dl_phdr_info *o)
{
    uintptr_t here = (uintptr_t)build_id;
    for (const ElfW(Phdr) *p = o->dlpi_phdr; p < o->dlpi_phdr + o->dlpi_phnum; p++)
        if (p->p_type == PT_LOAD && here - (o->dlpi_addr + p->p_vaddr) < p->p_memsz) return true;
    return false;
}

static void print_id(const uint8_t *id, size_t size)
{
    for (size_t i = 0; i < size && 2 * i + 2 < sizeof build_id; i++) snprintf(build_id + 2 * i, 3, "%02x", id[i]);
}

/* Notes are headers, each with a name and data behind it that begin at multiples of `align`. */
static void read_notes(const uint8_t *at, size_t size, size_t align)
{
    for (ElfW(Nhdr) n; size >= sizeof n;) {
        memcpy(&n, at, sizeof n);
        size_t data = WF_UP(sizeof n + n.n_namesz, align), next = WF_UP(data + n.n_descsz, align);
        if (data + n.n_descsz > size) return;
        if (n.n_type == NT_GNU_BUILD_ID && n.n_namesz == 4 && !memcmp(at + sizeof n, "GNU", 4))
            print_id(at + data, n.n_descsz);
        at += WF_MIN(next, size);
        size -= WF_MIN(next, size);
    }
}

static int visit(struct dl_phdr_info *o, size_t size, void *user)
{
    (void)size;
    (void)user;
    if (!is_ours(o)) return 0;
    for (const ElfW(Phdr) *p = o->dlpi_phdr; p < o->dlpi_phdr + o->dlpi_phnum; p++)
        if (p->p_type == PT_NOTE)
            read_notes((const uint8_t *)(o->dlpi_addr + p->p_vaddr), p->p_memsz, p->p_align == 8 ? 8 : 4);
    return 1;
}

static void find(void) { dl_iterate_phdr(visit, NULL); }

const char *wf_build_id(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, find);
    return build_id;
}
