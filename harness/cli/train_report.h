/* The report on a training: predictions beside what was measured, as a table and as JSON. */
#ifndef HT_HARNESS_CLI_TRAIN_REPORT_H
#define HT_HARNESS_CLI_TRAIN_REPORT_H

#include "harness/result/result.h"
#include "harness/run/train.h"

/* The predictions before the run, by space. */
struct ht_prediction {
    int64_t *peak_bytes, *low_bytes, *high_bytes; /* without jitter; over the jittered runs */
    int64_t iteration_ns;
    struct ht_times model; /* of the very run under the emulated clock */
};

/* Writes why a step may take over 1.5 times its prediction, and what to do; "" if it does not. profiled: the prediction's
   costs were measured. Returns buf. */
enum { HT_STEP_COMMENT = 256 };
const char *ht_step_comment(double step_ns, double predicted_ns, bool profiled, char buf[HT_STEP_COMMENT]);

void ht_training_print(const struct ht_result *r, const struct ht_training *t, const struct ht_prediction *p,
                       const struct ht_persist *persist);
/* Returns JSON that the caller owns. */
json_t *ht_training_json(const struct ht_options *o, const struct ht_result *r, const struct ht_training *t,
                         const struct ht_prediction *p, const struct ht_persist *persist);

#endif
