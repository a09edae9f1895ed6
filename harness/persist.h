/*
 * What a training begins with and leaves behind: --init, --save.
 *
 * The training state lives in a system's resident tensors while steps run. Between them it is a struct ht_state, which
 * is host memory beside the schedule's ledger: 12 bytes a parameter, and only when one of these options is given.
 */
#ifndef HT_HARNESS_PERSIST_H
#define HT_HARNESS_PERSIST_H

#include "common/ckpt/state.h"
#include "harness/job.h"

struct ht_persist {
    const struct ht_options *options;
    const struct ht_job *job;
    struct ht_state *state; /* NULL: none of the options is given */
    bool loaded;            /* the state holds what the next step begins with */
};

/* --init DIR alone: the model is what DIR/config.json says. Fills request->model, which then points to `path`. */
enum ht_status ht_persist_model(const struct ht_options *o, char path[4096], struct ht_error *err,
                                struct ht_scenario_request *request);

/* Reads what the training begins with. HT_BAD_INPUT with one line; nothing has been written then. */
enum ht_status ht_persist_open(const struct ht_options *options, const struct ht_job *job, struct ht_error *err,
                               struct ht_persist *out);
void ht_persist_close(struct ht_persist *p);

/* Writes what is asked for after the last step, from the state. */
enum ht_status ht_persist_save(struct ht_persist *p, struct ht_error *err);

#endif
