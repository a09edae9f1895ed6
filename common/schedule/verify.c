/* Runs the verifier's rules in order and stops at the first that is broken. */
#include "common/schedule/verify.h"

#include "common/base/array.h"
#include "common/schedule/rules.h"

#include <stdlib.h>

const char *ht_rule_name(enum ht_rule r)
{
    static const char *const names[HT_N_RULES] = {
        [HT_RULE_SHAPE] = "shape",       [HT_RULE_HAZARD] = "hazards", [HT_RULE_CONTROL] = "control",
        [HT_RULE_COVERAGE] = "coverage", [HT_RULE_UPDATE] = "updates", [HT_RULE_CLOSURE] = "closure",
        [HT_RULE_MEMORY] = "memory",
    };
    return (unsigned)r < HT_N_RULES ? names[r] : "?";
}

void ht_proof_free(struct ht_proof *v)
{
    if (!v) return;
    free(v->spaces);
    *v = (struct ht_proof){0};
}

enum ht_status ht_schedule_verify(const struct ht_schedule *s, struct ht_error *err, struct ht_proof *proof)
{
    struct ht_proof v = {0};
    struct ht_residencies residencies = {0};
    enum ht_status status;
    int n;

    if ((status = ht_rule_shape(s, err)) || (status = ht_rule_groups(s, err)) || (status = ht_rule_parts(s, err)) ||
        (status = ht_rule_boundaries(s, err)))
        goto out;
    v.proved[HT_RULE_SHAPE] = true;
    n = ht_n_branches(s);
    if ((status = ht_rule_control(s, n, err))) goto out;
    v.proved[HT_RULE_CONTROL] = true;
    ht_residencies_init(&residencies, s);
    if ((status = ht_rule_hazards(s, &residencies, n, err))) goto out;
    v.proved[HT_RULE_HAZARD] = true;
    if ((status = ht_rule_closure(s, &residencies, n, err))) goto out;
    v.proved[HT_RULE_CLOSURE] = true;
    if ((status = ht_rule_coverage(s, n, err)) || (status = ht_rule_activations(s, err))) goto out;
    v.proved[HT_RULE_COVERAGE] = true;
    if ((status = ht_rule_updates(s, n, err)) || (status = ht_rule_gradients(s, &residencies, n, err))) goto out;
    v.proved[HT_RULE_UPDATE] = true;

    v.n_spaces = ht_n_spaces(s);
    v.spaces = HT_NEW_ARRAY(struct ht_footprint, v.n_spaces);
    status = ht_rule_memory(s, &residencies, n, err, v.spaces);
    v.proved[HT_RULE_MEMORY] = status == HT_OK;
out:
    ht_residencies_free(&residencies);
    if (proof && (status == HT_OK || status == HT_INFEASIBLE))
        *proof = v;
    else
        ht_proof_free(&v);
    if (proof && status == HT_FAILED) *proof = (struct ht_proof){0};
    return status;
}
