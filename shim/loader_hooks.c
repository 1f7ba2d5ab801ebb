/* loader_hooks.c: dlopen and dlclose, watched so that the list of objects is up to date.
 *
 * The loader searches by its caller: a name without a slash by the caller's DT_RUNPATH, or the
 * DT_RPATH of it and of all that led to its being loaded; and $ORIGIN is the caller's. Such a call
 * is passed on as a tail call, so that the loader sees the app's return address; the new object is
 * then found by a scan at the next dlsym, which is how its code is reached (passed on as a tail
 * call too: RTLD_NEXT means the caller's next). */
#include <string.h>

#include "agent/agent.h"
#include "shim/shim.h"

static bool depends_on_caller(const char *file)
{
    return file && (!strchr(file, '/') || strchr(file, '$'));
}

EXPORT void *dlopen(const char *file, int mode)
{
    void *(*next_dlopen)(const char *, int) = NEXT(dlopen);
    if (!next_dlopen)
        return NULL;
    if (depends_on_caller(file)) {
        agent_objects_will_change();
        return next_dlopen(file, mode);
    }
    void *handle = next_dlopen(file, mode);
    agent_objects_changed(handle);
    return handle;
}

EXPORT void *dlsym(void *handle, const char *name)
{
    agent_objects_used(handle);
    return NEXT(dlsym)(handle, name);
}

EXPORT int dlclose(void *handle)
{
    if (!NEXT(dlclose))
        return -1;
    int result = next.dlclose(handle);
    agent_objects_changed(NULL);
    return result;
}
