/* The rules of the verifier, one file each. Internal. A rule that is broken returns HT_FAILED with its text. All rules
   rely on ht_rule_shape, which proves that ids are in range. */
#ifndef HT_SCHEDULE_RULES_H
#define HT_SCHEDULE_RULES_H

#include "common/schedule/residency.h"
#include "common/schedule/verify.h"
#include "common/schedule/violation.h"

enum ht_status ht_rule_shape(const struct ht_schedule *s, struct ht_error *err);
enum ht_status ht_rule_groups(const struct ht_schedule *s, struct ht_error *err);     /* part of shape */
enum ht_status ht_rule_parts(const struct ht_schedule *s, struct ht_error *err);      /* part of shape */
enum ht_status ht_rule_boundaries(const struct ht_schedule *s, struct ht_error *err); /* part of shape */
/* n_branches: ht_n_branches, which looks through all ops, so that it is asked once. */
enum ht_status ht_rule_control(const struct ht_schedule *s, int n_branches, struct ht_error *err);
enum ht_status ht_rule_hazards(const struct ht_schedule *s, struct ht_residencies *p, int n_branches,
                               struct ht_error *err);
/* After the hazards rule, which proves presence at each access and notes it at the end. */
enum ht_status ht_rule_closure(const struct ht_schedule *s, const struct ht_residencies *p, int n_branches,
                               struct ht_error *err);
enum ht_status ht_rule_coverage(const struct ht_schedule *s, int n_branches, struct ht_error *err);
enum ht_status ht_rule_activations(const struct ht_schedule *s, struct ht_error *err); /* part of coverage */
enum ht_status ht_rule_updates(const struct ht_schedule *s, int n_branches, struct ht_error *err);
enum ht_status ht_rule_gradients(const struct ht_schedule *s, const struct ht_residencies *p, int n_branches,
                                 struct ht_error *err); /* part of updates */
/* Fills in footprints[ht_n_spaces]; without residencies those of the tensors alone. Returns HT_INFEASIBLE if a space does
   not fit. */
enum ht_status ht_rule_memory(const struct ht_schedule *s, const struct ht_residencies *residencies, int n_branches,
                              struct ht_error *err, struct ht_footprint *footprints);

/* Returns the number of branches to walk: both, or only the first if no op has a `when`. */
static inline int ht_n_branches(const struct ht_schedule *s)
{
    return ht_has_branches(s) ? 2 : 1;
}
static inline enum ht_when ht_branch(int i)
{
    return i == 0 ? HT_WHEN_OK : HT_WHEN_BAD;
}

#endif
