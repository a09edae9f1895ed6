/* Writing the ops of a graph under control. Internal. */
#ifndef HT_DRAFT_CONTROL_OPS_H
#define HT_DRAFT_CONTROL_OPS_H

#include "common/draft/control_rebuild.h"

/* Writes r->order into r->out. */
void ht_rebuild_write(struct ht_rebuild *r);

#endif
