/* Kernel binaries in the cache (base/cache.h). The key is everything that decides what a binary is: source, options,
 * device, driver, platform.
 *
 * A driver can crash on a binary of its own. Before one is loaded a canary file says which process is
 * at it; if that process is gone and its canary is not, the entry killed it and is removed. */
#include "cl/cl.h"

#include <stdio.h>
#include <unistd.h>

wf_cache_key wf_cl_key(const struct weft_device_info *i, const char *source, const char *options)
{
    return wf_cache_key_of("weft %s\n%s\n%s\n%s\n%s\n%s\n%s", WF_VERSION, i->platform, i->name, i->driver, i->version,
                           options, source);
}

bool wf_cl_canary_arm(const char *dir, const wf_cache_key *key)
{
    char path[700];
    if (wf_cache_remove_dead(dir, key, "loading")) {
        wf_log(WEFT_LOG_WARN, "a process died while loading kernel %s/%s.bin; building it again", dir,
               key->name);
        wf_cache_remove(dir, key);
        return false;
    }
    wf_cache_own_path(path, sizeof path, dir, key, "loading");
    FILE *f = fopen(path, "wb");
    if (!f) return false;
    return fclose(f) == 0;
}

void wf_cl_canary_clear(const char *dir, const wf_cache_key *key)
{
    char path[700];
    wf_cache_own_path(path, sizeof path, dir, key, "loading");
    unlink(path);
}
