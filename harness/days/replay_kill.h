/* Kills the ranks of a node, as the loss of its machine would. */
#ifndef HT_HARNESS_DAYS_REPLAY_KILL_H
#define HT_HARNESS_DAYS_REPLAY_KILL_H

#include <stdbool.h>
#include <stdint.h>

/* Kills the processes of the supervisor with this folder that are ranks of nodes that are gone. there: [n] by node. node_gpus: [n]
   ranks of each node, when the job uses it. Writes the moment as a fault to the incarnation's events before the first one is killed,
   and returns their number once all have ended. */
int32_t ht_replay_kill(const char *folder, const bool *there, const int32_t *node_gpus, int32_t n);

#endif
