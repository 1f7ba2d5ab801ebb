#include "uploader/spool_log.h"

#include <errno.h>
#include <string.h>

#include "agent/base/error_text.h"
#include "agent/base/log.h"
#include "agent/base/stats.h"
#include "uploader/upload_url.h"

static bool in_failure;                       /* of puts */
static unsigned lost;                         /* not yet said */
static unsigned untaken[UPLOAD_DESTINATIONS]; /* at the last claim of each */

void spool_log_start(void)
{
    in_failure = false;
    lost = 0;
    memset(untaken, 0, sizeof(untaken));
}

static void count_losses(const struct spool *spool, const struct spool_losses *losses)
{
    stats_add(STAT_UPLOADS_DROPPED, losses->dropped);
    stats_add(STAT_UPLOADS_UNKNOWN, losses->unknown);
    if (losses->dropped)
        log_info("profiles in %s that were too old, too many or torn, and are dropped: %u",
                 spool->folder, losses->dropped);
}

void spool_log_put(const struct spool *spool, int error, const struct spool_losses *losses)
{
    count_losses(spool, losses);
    if (error && !in_failure)
        log_error("a profile cannot be kept in %s (LIBAGENT_SPOOL): %s (errno %d)", spool->folder,
                  error_text(error), -error);
    in_failure = error != 0;
    lost += in_failure;
}

void spool_log_claim(const struct spool *spool, size_t index, const struct spool_losses *losses)
{
    count_losses(spool, losses);
    bool is_news = losses->error && !untaken[index];
    untaken[index] = losses->untaken;
    if (!is_news)
        return;
    bool is_of_others = losses->error == -EACCES || losses->error == -EPERM;
    log_warn("%s/%s (LIBAGENT_SPOOL) cannot be taken: %s (errno %d); it stays there and is tried "
             "again%s",
             spool->folder, losses->name, error_text(losses->error), -losses->error,
             is_of_others ? "; who sends needs the user of the program that left it, or a group "
                            "that both have and that owns the folder, which then has mode 2770"
                          : "");
}

bool spool_log_has_losses(void)
{
    return lost;
}

void spool_log_say_losses(const struct spool *spool)
{
    if (lost)
        log_error("profiles that could not be kept in %s (LIBAGENT_SPOOL) and are lost: %u",
                  spool->folder, lost);
    lost = 0;
}

unsigned spool_log_untaken(void)
{
    unsigned count = 0;
    for (size_t i = 0; i < UPLOAD_DESTINATIONS; i++)
        count += untaken[i];
    return count;
}
