#include "agent/late_thread.h"

#include "agent/agent_thread.h"
#include "agent/base/log.h"
#include "uploader/uploader.h"

bool late_thread_begins(void)
{
    if (folder_bar(true))
        return false;
    log_error("a thread of the agent is held up (a file system, a library): the program goes on, "
              "and nothing is written before that thread has ended");
    return true;
}

bool late_thread_is_gone(void)
{
    if (likely(!folder_is_barred()))
        return true;
    if (!agent_thread_are_gone())
        return false;
    if (folder_bar(false))
        agent_thread_go_on();
    return true;
}
