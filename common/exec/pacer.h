/*
 * The bandwidth pacer of the emulated clock: says until when each running op is to be held.
 *
 * Lanes post what they begin in a table, one row a lane; one thread serves the table. It takes the modelled cost of the
 * op, shares the resources among the ops that hold lanes (flow.h: the simulator's arithmetic), and tells the lane when
 * its time is up. So transfers on one link slow one another down as in the simulator, although nothing is transferred
 * over it. The table has no pointers: in memory that processes share, the ranks of a job have one pacer between them.
 *
 * Modelled nanoseconds times `scale` are wall-clock nanoseconds. The members of a group are one flow, which begins when
 * the last of them has been posted.
 */
#ifndef HT_EXEC_PACER_H
#define HT_EXEC_PACER_H

#include "common/base/status.h"
#include "common/schedule/schedule.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct ht_pacer_table;

int64_t ht_pacer_table_bytes(int32_t n_lanes);
/* Zeroed memory becomes a table. Before any other process looks at it. */
struct ht_pacer_table *ht_pacer_table_init(void *memory, int32_t n_lanes);

struct ht_pacer;

/* Starts the thread that serves the table. cost_ns: [n_ops], copied; 0 < scale. The schedule and the table must outlive
   it. HT_BAD_INPUT for costs or capacities that the simulator would refuse, too. */
enum ht_status ht_pacer_start(const struct ht_schedule *s, const int64_t *cost_ns, double scale,
                              struct ht_pacer_table *table, struct ht_error *err, struct ht_pacer **out);
/* Lets everybody go who is still held, and all who come later: as Ctrl-C does. Accepts NULL. */
void ht_pacer_stop(struct ht_pacer *pacer);

/* The lane begins the op (of an iteration below 2^31); it holds nothing else. */
void ht_pacer_begin(struct ht_pacer_table *table, int32_t lane, int32_t iteration, int32_t op);
/* Its work is done: waits until its modelled time is up, too. Returns by how many wall nanoseconds the work came later
   than that; 0: it did not. Nobody waits any more when *cancelled (may be NULL) is true or the server's process is
   gone. */
int64_t ht_pacer_end(struct ht_pacer_table *table, int32_t lane, const atomic_bool *cancelled);
/* An op has failed: others may wait for its group. Any process that has the table. */
void ht_pacer_cancel(struct ht_pacer_table *table);

#endif
