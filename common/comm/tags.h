/*
 * Tags of a job's messages. Ops of a schedule use their group's number (`match`), which is below half of HT_COMM_TAGS.
 * All other tags are listed here, so that no two conversations share one. Messages of one tag between two ranks keep
 * their order (comm.h), so conversations that take turns may share a tag.
 */
#ifndef HT_COMM_TAGS_H
#define HT_COMM_TAGS_H

#include "common/comm/comm.h"

enum ht_comm_tag {
    HT_TAG_OPS_END = HT_COMM_TAGS / 2,  /* ops use tags below this (common/backend/cpu_comm.c) */
    HT_TAG_REPLICAS = HT_COMM_TAGS - 9, /* files of node stores, while a run goes on (harness/run/node_replicas.c) */
    HT_TAG_PACER = HT_COMM_TAGS - 8,    /* between the pacers of several hosts (common/exec/pacer_link.c) */
    HT_TAG_NCCL = HT_COMM_TAGS - 7,     /* letters about NCCL (common/comm/nccl.c), beside other messages */
    HT_TAG_STATE =
        HT_COMM_TAGS - 6, /* parameters and optimizer state between two runs (harness/run/stream.c, persist.c) */
    HT_TAG_EMULATION = HT_COMM_TAGS - 5, /* the emulated clock's scale between two runs (harness/run/emulate.c) */
    HT_TAG_SUMS = HT_COMM_TAGS - 4,      /* sums for the report, between two runs (harness/run/ranks.c) */
    HT_TAG_TRACE = HT_COMM_TAGS - 3,     /* traces to rank 0 after a run (common/exec/run_ranks.c) */
    HT_TAG_NODE = HT_COMM_TAGS - 2,      /* processes and memory of a node, at its creation (common/exec/node.c) */
    HT_TAG_AGREE = HT_COMM_TAGS - 1,     /* agreement on a status (common/exec/node.c) */
    HT_TAG_NOTIFY = HT_COMM_TAGS,        /* notifications; not for messages */
};

#endif
