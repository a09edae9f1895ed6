/* All scenarios that claims ask for, over the machine's processors. */
#include "harness/claims/observe.h"

#include "common/base/array.h"
#include "common/base/tasks.h"
#include "harness/result/evaluate.h"

#include <stdlib.h>
#include <string.h>

/* A scenario to evaluate, and the place for what is observed. */
struct errand {
    const char *variant;
    const struct ht_claim_setup *setup;
    struct ht_claim_point point;
    struct ht_observation *found;
};

struct gathering {
    struct errand *errands;
    size_t n, cap;
};

/* Adds a system's variants at a scenario, unless they are known or added already. */
static void add(struct gathering *g, const struct ht_observations *seen, const struct ht_claim_system *system,
                const struct ht_claim_setup *setup, struct ht_claim_point point)
{
    for (int v = 0; v < system->n_variants; v++) {
        char key[HT_OBSERVATION_KEY];
        ht_observation_key(system->variants[v], setup, point, key);
        bool known = ht_observation_of(seen, key) != NULL;
        for (size_t i = 0; i < g->n && !known; i++) known = !strcmp(g->errands[i].found->key, key);
        if (known) continue;
        struct errand e = {.variant = system->variants[v], .setup = setup, .point = point};
        e.found = HT_NEW(struct ht_observation);
        memcpy(e.found->key, key, sizeof(key));
        HT_PUSH(g->errands, g->n, g->cap, e);
    }
}

/* Adds a claim's scenarios: of its systems, or of the one that it divides by. */
static void add_side(struct gathering *g, const struct ht_observations *seen, const struct ht_claim *c, bool of_versus)
{
    const struct ht_claim_entries *entries = of_versus ? &c->versus_entries : &c->entries;
    int at[HT_N_CLAIM_AXES] = {0};
    do {
        struct ht_claim_point point;
        for (int axis = 0; axis < HT_N_CLAIM_AXES; axis++) point.at[axis] = entries->at[axis][at[axis]];
        add(g, seen, of_versus ? c->versus : c->systems[at[HT_CLAIM_BY_SYSTEM]], c->setup, point);
    } while (ht_claim_next(entries, (1u << HT_N_CLAIM_AXES) - 1, at));
}

static void add_claim(struct gathering *g, const struct ht_observations *seen, const struct ht_claim *c)
{
    if (c->unchecked[0] || c->setup->train_steps) return;
    add_side(g, seen, c, false);
    if (c->versus) add_side(g, seen, c, true);
}

static enum ht_status look(void *ctx, size_t i, struct ht_error *err)
{
    const struct errand *e = &((struct gathering *)ctx)->errands[i];
    return ht_look(e->variant, e->setup, e->point, err, e->found);
}

enum ht_status ht_claims_gather(const struct ht_claim *const *claims, size_t n, struct ht_observations *seen,
                                struct ht_error *err)
{
    struct gathering g = {0};
    for (size_t i = 0; i < n; i++) add_claim(&g, seen, claims[i]);
    double *bytes = HT_NEW_ARRAY(double, g.n);
    for (size_t i = 0; i < g.n; i++) bytes[i] = ht_look_bytes(g.errands[i].setup, g.errands[i].point);
    struct ht_tasks tasks = {
        .name = "reproduce", .noun = "scenarios", .n = g.n, .bytes = bytes, .ctx = &g, .run = look};
    enum ht_status status = ht_tasks_run(&tasks, err);
    for (size_t i = 0; i < g.n; i++) {
        if (status == HT_OK)
            HT_PUSH(seen->list, seen->n, seen->cap, g.errands[i].found);
        else
            ht_observation_destroy(g.errands[i].found);
    }
    free(bytes);
    free(g.errands);
    return status;
}
