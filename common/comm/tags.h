/*
 * Who uses which tag of a job's messages. Ops of a schedule have their group's number (`match`), which is below half of
 * HT_COMM_TAGS; all others are listed here, so that no two conversations have the same. Messages of one tag between two
 * ranks keep their order (comm.h), so those who take turns may share one.
 */
#ifndef HT_COMM_TAGS_H
#define HT_COMM_TAGS_H

#include "common/comm/comm.h"

enum ht_comm_tag {
    HT_TAG_OPS_END = HT_COMM_TAGS / 2, /* ops: below this (common/backend/cpu_comm.c) */
    HT_TAG_NCCL = HT_COMM_TAGS - 7, /* what ranks tell each other about NCCL (common/comm/nccl.c), while others talk */
    HT_TAG_STATE =
        HT_COMM_TAGS - 6, /* parameters and optimizer state (harness/run/stream.c, persist.c), between two runs */
    HT_TAG_EMULATION = HT_COMM_TAGS - 5, /* the emulated clock's scale (harness/run/emulate.c), between two runs */
    HT_TAG_SUMS = HT_COMM_TAGS - 4,      /* what the report adds up (harness/run/ranks.c), between two runs */
    HT_TAG_TRACE = HT_COMM_TAGS - 3,     /* of all ranks, to rank 0 after a run (common/exec/run_ranks.c) */
    HT_TAG_NODE = HT_COMM_TAGS - 2,      /* processes and memory of a node, when it is made (common/exec/node.c) */
    HT_TAG_AGREE = HT_COMM_TAGS - 1,     /* whether all are well (common/exec/node.c) */
    HT_TAG_NOTES = HT_COMM_TAGS,         /* ht_comm_note; not for messages */
};

#endif
