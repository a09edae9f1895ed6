/*
 * The largest size that fits: of a family of models, of the batch, or of the sequence. A size fits when the system has
 * a plan for it and the verifier proves the plan's schedule; nothing is simulated.
 *
 * A family is a list of models, each with the depth, the width and all else that its paper gives it. Between two of
 * them lie models of the smaller one's width with more blocks, up to the larger one's parameters; behind the last one
 * lie deeper ones, before the first one shallower ones. So every number of blocks is a size of its own.
 */
#ifndef HT_HARNESS_SWEEP_MAXSIZE_H
#define HT_HARNESS_SWEEP_MAXSIZE_H

#include "common/model/model_list.h"
#include "harness/run/options.h"

enum ht_size_of { HT_SIZE_MODEL, HT_SIZE_BATCH, HT_SIZE_SEQ, HT_N_SIZES };
extern const char *const ht_size_names[HT_N_SIZES]; /* "model", "batch", "seq" */

enum { HT_SEQ_STEP = 64, HT_MOST_BLOCKS = 2000, HT_MOST_SEQUENCES = 1 << 20 };

/* A model of a family, with the numbers of blocks that it stands for. */
struct ht_family_model {
    const char *name; /* owned by the family */
    struct ht_model model;
    int64_t least_blocks, most_blocks;
};

struct ht_family {
    struct ht_family_model *models; /* [n] rising parameters */
    size_t n, cap;
};

/* Loads the models of a list, as ht_model_list_create does. *out needs no freeing after an error. */
enum ht_status ht_family_create(const char *const *names, size_t n, struct ht_error *err, struct ht_family *out);
void ht_family_free(struct ht_family *f);

/* A size: a request's fields. 0 or NULL: the options' own. */
struct ht_size {
    const char *model;
    int64_t blocks, batch, seq;
};

/* Puts a size into a request. Positions grow with the sequence. */
void ht_size_apply(const struct ht_size *size, struct ht_scenario_request *request);

struct ht_maxsize {
    bool found;          /* some size fits */
    struct ht_size size; /* the largest that fits */
    bool limited;        /* a larger one does not fit: */
    struct ht_size next; /* the next one; if none fits, the smallest that lacks memory, or one that is refused */
    char status[24];     /* "oom", "infeasible", "refused" (bad input) or "beyond this machine" (cluster local) */
    char reason[1024];
    int lacks; /* 1 + the enum ht_tier whose memory does not suffice, also where a planner refuses; 0: another reason */
    char short_of[24]; /* the space that lacks memory; "" if no schedule was built */
    int64_t short_bytes;
    int64_t n_probes; /* plans that were made and proved */
};

/*
 * Finds the largest size.
 *
 * Of a family: the first model, from the largest down, of which some number of blocks fits; then its most blocks. Of
 * batch and sequence: steps are as many sequences as devices (times the micro-batch, if it was given), and HT_SEQ_STEP
 * tokens.
 *
 *     sizes     1 2 3 4 | 5 6 7 8 9 10 11 | 12 13 14 ..
 *               refused | fit             | lack memory
 *
 * A system may refuse small sizes, as a pipeline does that has more stages than the model has blocks. The first size that
 * fits is found by doubling while sizes are refused, and by bisection between a refused one and one that lacks memory.
 * From there sizes double until one does not fit; bisection follows. So a system that takes a size and, among larger
 * ones, refuses a smaller one may get less than the largest of all.
 *
 * options: those of the scenario. system: name. family: of batch and sequence, its first model. Returns HT_BAD_INPUT
 * if every size is bad input.
 */
enum ht_status ht_maxsize_find(const struct ht_options *options, const char *system, enum ht_size_of of,
                               const struct ht_family *family, struct ht_error *err, struct ht_maxsize *out);

#endif
