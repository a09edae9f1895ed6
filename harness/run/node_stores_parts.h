/* Between node_stores.c (saving) and node_load.c (resuming). */
#ifndef HT_HARNESS_RUN_NODE_STORES_PARTS_H
#define HT_HARNESS_RUN_NODE_STORES_PARTS_H

#include "common/ckpt/state_map.h"
#include "harness/run/drill.h"
#include "harness/run/node_stores.h"

#include <pthread.h>
#include <stdatomic.h>

enum { MEMORY, DISK, REMOTE, N_STORES }; /* this rank's, in the order in which a save goes through them */

struct ht_node_stores {
    const struct ht_options *options;
    const struct ht_job *job;
    const struct ht_ranks *ranks;
    int32_t rank, node;
    bool leads;                        /* the first rank of its node */
    char dirs[N_STORES][HT_STORE_DIR]; /* "": none */
    int locks[N_STORES];
    uint64_t run;
    struct ht_drill drill;
    atomic_int_fast64_t said_ns; /* when rank 0 last said that it loads or saves */

    /* resuming */
    bool resumes;
    struct ht_version version;
    struct ht_catalog catalog;      /* the version's rows, of all ranks */
    struct ht_stored_state *stored; /* of rank 0 */

    /* saving */
    struct ht_store_part part;        /* the save in flight, or the last one */
    struct ht_store_part remote_part; /* its files that this rank sends to the remote store */
    pthread_t writer;
    bool in_flight; /* the same on all ranks */
    bool threaded;  /* the writer runs */
    atomic_bool stop;
    struct ht_error failed;            /* of the writer */
    double begun_s, written_s, safe_s; /* the save's begin; the writer's time; when the last writer had ended */
    struct ht_store_figures figures;
};

/* Lists what each rank holds, by extent and rank, each once; allocated. stale_too: also copies that are only written. */
struct ht_transfer_sink *ht_node_stores_sinks(const struct ht_schedule *s, const struct ht_model *m,
                                              const struct ht_state_map *map, bool stale_too, int64_t *n);
/* Returns all ranks as a team for this rank. ids: [ranks], filled in. */
struct ht_team ht_node_stores_team(const struct ht_node_stores *s, int32_t *ids);
/* Says, four times a second at most, that a load or a save goes on. Any thread of rank 0. */
void ht_node_stores_pulse(struct ht_node_stores *s);
/* Finds the newest whole step of all ranks' stores (node_load.c). */
enum ht_status ht_node_stores_find(struct ht_node_stores *s, struct ht_persist *persist, struct ht_error *err);

#endif
