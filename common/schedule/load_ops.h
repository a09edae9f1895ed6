/* Readers of a graph file's works and ops. Internal. */
#ifndef HT_SCHEDULE_LOAD_OPS_H
#define HT_SCHEDULE_LOAD_OPS_H

#include "common/schedule/load_rows.h"

/* Adds the file's works to the schedule. */
enum ht_status ht_load_works(struct ht_loader *l, const struct ht_node *list);
/* Adds the file's ops. All tables that they refer to have been loaded before. */
enum ht_status ht_load_ops(struct ht_loader *l, const struct ht_node *list);

#endif
