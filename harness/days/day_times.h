/* Times of a simulated day that come from no plan, and where they are from: assumed, given, or measured in drills. */
#ifndef HT_HARNESS_DAYS_DAY_TIMES_H
#define HT_HARNESS_DAYS_DAY_TIMES_H

#include "harness/days/goodput.h"

#include <jansson.h>

enum { HT_DAY_SOURCE = 256 };

/* "": the default's where the value is the default, else "as given". */
struct ht_day_sources {
    char detect[HT_DAY_SOURCE], plan[HT_DAY_SOURCE], relaunch[HT_DAY_SOURCE];
};

/* Returns the times that are the same for all policies where nothing else is said. */
struct ht_day_times ht_day_times_default(void);

/* Takes detection, planning and relaunch from recoveries that were measured: means over those after the loss of a rank or host. The file
   is what `elastic --drills N --json` or `elastic --json` prints, or a supervisor's state.json: JSON values one after the other, of which
   any may have "recoveries". HT_BAD_INPUT, with the line, for another file; *times is then unchanged. */
enum ht_status ht_day_times_read(const char *path, struct ht_error *err, struct ht_day_times *times,
                                 struct ht_day_sources *sources);

/* Returns {"detect_s", .., "sources": {"detect_s": "assumed", ..}}, which the caller owns. */
json_t *ht_day_times_json(const struct ht_day_times *t, const struct ht_day_sources *s);

#endif
