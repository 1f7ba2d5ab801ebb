#include "agent/base/utc_time.h"

#include "agent/base/clock.h"
#include "agent/base/format.h"

/* Method: Howard Hinnant's civil_from_days. */
void utc_time(char out[UTC_TIME_SIZE], uint64_t unix_ns)
{
    uint64_t seconds = unix_ns / NS_PER_SEC;
    uint64_t days = seconds / 86400 + 719468; /* since 1 March of the year 0 */
    uint64_t era = days / 146097, day_of_era = days % 146097;
    uint64_t year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36524 - day_of_era / 146096) / 365;
    uint64_t day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    uint64_t march_month = (5 * day_of_year + 2) / 153;
    unsigned day = (unsigned)(day_of_year - (153 * march_month + 2) / 5 + 1);
    unsigned month = (unsigned)(march_month < 10 ? march_month + 3 : march_month - 9);
    unsigned year = (unsigned)(year_of_era + era * 400 + (month <= 2));
    format(out, UTC_TIME_SIZE, "%04u-%02u-%02uT%02u:%02u:%02u", year, month, day,
           (unsigned)(seconds / 3600 % 24), (unsigned)(seconds / 60 % 60),
           (unsigned)(seconds % 60));
}
