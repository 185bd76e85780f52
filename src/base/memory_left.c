#include "base/memory_left.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"

char *wf_kernel_text(const char *path)
{
    char *text;
    size_t n;
    return wf_read_file(path, 1u << 16, &text, &n) == WEFT_OK ? text : NULL;
}

/* The first number after `key` in a file; UINT64_MAX if there is none, for example "max". */
static uint64_t number_in(const char *path, const char *key)
{
    char *text = wf_kernel_text(path), *at = text ? strstr(text, key) : NULL, *end = at;
    uint64_t n = at ? strtoull(at + strlen(key), &end, 10) : 0;
    bool found = at && end > at + strlen(key);
    free(text);
    return found ? n : UINT64_MAX;
}

/* The smallest memory left within the limits of our control group and its parents. In a container the path may be
 * invisible; then its group is the root. */
static uint64_t groups_left(const char *mount, const char *group, const char *limit_name, const char *used_name)
{
    char path[1024], file[1200];
    uint64_t left = UINT64_MAX;
    snprintf(path, sizeof(path), "%s%s", mount, group);
    for (char *end;; *end = '\0') {
        snprintf(file, sizeof(file), "%s/%s", path, limit_name);
        uint64_t limit = number_in(file, ""), used = 0;
        snprintf(file, sizeof(file), "%s/%s", path, used_name);
        if (limit != UINT64_MAX) used = number_in(file, "");
        left = WF_MIN(left, limit - WF_MIN(limit, used));
        if (!(end = strrchr(path + strlen(mount), '/'))) return left;
    }
}

/* Versions 1 and 2, possibly both. The page cache counts as used. */
uint64_t wf_group_left(const char *root, char *text)
{
    uint64_t left = UINT64_MAX;
    for (char *line; (line = strsep(&text, "\n"));) {
        char mount[512], *names = strchr(line, ':'), *group = names ? strchr(names + 1, ':') : NULL;
        if (!group) continue;
        *group++ = '\0';
        bool v2 = !names[1];
        if (!v2 && strcmp(names + 1, "memory")) continue;
        snprintf(mount, sizeof(mount), "%s%s", root, v2 ? "" : "/memory");
        left = WF_MIN(left, v2 ? groups_left(mount, group, "memory.max", "memory.current")
                               : groups_left(mount, group, "memory.limit_in_bytes", "memory.usage_in_bytes"));
    }
    return left;
}

uint64_t wf_memory_left(void)
{
    uint64_t kib = number_in("/proc/meminfo", "MemAvailable:");
    uint64_t left = kib == UINT64_MAX ? 0 : kib * 1024;
    char *text = wf_kernel_text("/proc/self/cgroup");
    if (text) left = WF_MIN(left, wf_group_left("/sys/fs/cgroup", text));
    free(text);
    return left;
}
