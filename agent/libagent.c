#include "agent/libagent.h"

#include "agent/base/compiler.h"

EXPORT const char *libagent_version(void)
{
    return LIBAGENT_VERSION;
}
