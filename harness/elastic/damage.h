/* Damages node stores for drills, and finds steps that were never whole. */
#ifndef HT_HARNESS_ELASTIC_DAMAGE_H
#define HT_HARNESS_ELASTIC_DAMAGE_H

#include "harness/run/options.h"

/* Removes a node's stores: it is lost with all that it has. */
void ht_damage_lose_node(const struct ht_state_options *o, int32_t node);
/* Inverts a byte in the middle of a file of the newest step: which one, the number says. */
void ht_damage_corrupt(const struct ht_state_options *o, uint64_t number);
/* Gives the disk back the room that a drill has taken (harness/run/drill.h). */
void ht_damage_make_room(const struct ht_state_options *o);
/* Removes all steps of the nodes' stores: none was ever whole. */
void ht_damage_forget(const struct ht_state_options *o);

/* Removes a folder and all in it. */
void ht_damage_remove(const char *dir);

#endif
