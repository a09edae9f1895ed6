/*
 * Faults of a drill: --inject KIND:STEP:NUMBER. STEP is the training's, counted from 1; the number picks the rest.
 *
 *     rank        a rank, by the number, is killed at one of its ops in the step
 *     leader      the first rank of a node is
 *     node        the same, and the node's stores go with it
 *     save        a rank is killed in the middle of the step's save, or of a later one
 *     full        a rank's disk is full in the step's save
 *     load        a rank is killed while the state is loaded, after the fault before this one (STEP 0)
 *     hang        a rank stops for ever at one of its ops in the step
 *     supervisor  the supervisor is killed once the step has ended
 *     notice      a node has notice once the step has ended
 *     join        the nodes that were lost come back once the step has ended
 *     corrupt     a file of the newest step is damaged when the training stands still the next time
 *
 * Faults come in their order, each once; a step that has passed by then is the next one.
 */
#ifndef HT_HARNESS_ELASTIC_FAULT_H
#define HT_HARNESS_ELASTIC_FAULT_H

#include "common/base/status.h"

#include <stdbool.h>
#include <stdint.h>

enum ht_fault_kind {
    HT_FAULT_RANK,
    HT_FAULT_LEADER,
    HT_FAULT_NODE,
    HT_FAULT_SAVE,
    HT_FAULT_FULL,
    HT_FAULT_LOAD,
    HT_FAULT_HANG,
    HT_FAULT_SUPERVISOR,
    HT_FAULT_NOTICE,
    HT_FAULT_JOIN,
    HT_FAULT_CORRUPT,
    HT_N_FAULT_KINDS
};
extern const char *const ht_fault_names[HT_N_FAULT_KINDS];

struct ht_fault {
    enum ht_fault_kind kind;
    int64_t step, number;
};

enum { HT_FAULT_TEXT = 96 };

/* Reads KIND:STEP:NUMBER. steps: the training's; HT_BAD_INPUT if the fault's step is after them. */
enum ht_status ht_fault_read(const char *text, int64_t steps, struct ht_error *err, struct ht_fault *out);
void ht_fault_print(const struct ht_fault *f, char text[HT_FAULT_TEXT]);
/* Returns true if the fault befalls a rank's process. */
bool ht_fault_is_of_process(const struct ht_fault *f);
/* Writes what --inject-process of train takes. rank_node: [n_ranks]; every: steps between saves; last: the last step. */
void ht_fault_for_train(const struct ht_fault *f, const int32_t *rank_node, int32_t n_ranks, int64_t every,
                        int64_t last, char text[HT_FAULT_TEXT]);
/* Draws a drill's faults for a training of so many steps, a save every `every`: at most `most`. The same seed draws the same ones.
   Returns their number. */
int32_t ht_faults_draw(uint64_t seed, int64_t steps, int64_t every, struct ht_fault *out, int32_t most);

#endif
