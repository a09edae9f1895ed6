/* Choices of nodes, and plans that are handed to `train` in place of its planner. */
#include "harness/elastic/choose.h"

#include "harness/run/registry.h"
#include "tests/support/suite.h"

#include <string.h>

static struct ht_options four_nodes(const char *system)
{
    struct ht_options o = ht_options_default();
    o.words[0] = system;
    o.n_words = 1;
    o.request = (struct ht_scenario_request){
        .model = "gpt-tiny", .cluster = "local", .nodes = 4, .batch = 12, .micro_batch = 1, .seq = 16};
    return o;
}

/* A choice that is readied brings every variable of the plan that --set knows, or the system has none. The same nodes are not planned
   again. */
START_TEST(every_system_hands_its_plan_over)
{
    const struct ht_system *system;
    int planned = 0, handed = 0;
    for (size_t i = 0; (system = ht_system_at(i)) != NULL; i++) {
        struct ht_options o = four_nodes(system->name);
        struct ht_chooser *c;
        const struct ht_choice *x, *again;
        struct ht_error err = {0};
        ck_assert_msg(ht_chooser_create(&o, &err, &c) == HT_OK, "%s", err.text);
        if (ht_choose(c, "0,2,3", &err, &x) == HT_OK) {
            ck_assert(!x->beforehand && !x->n_sets);
            ht_choose_ready(c, "0,2,3");
            ck_assert(ht_choose(c, "0,2,3", &err, &again) == HT_OK && again == x && x->beforehand);
            ck_assert_msg(x->n_sets || !system->knobs, "%s on nodes %s", system->name, x->use);
            planned++;
            handed += x->n_sets > 0;
        }
        ht_chooser_destroy(c);
    }
    ck_assert_int_ge(planned, 20);
    ck_assert_int_ge(handed, 18);
}
END_TEST

static const char *find(const struct ht_choice *x, const char *name)
{
    size_t n = strlen(name);
    for (int32_t i = 0; i < x->n_sets; i++)
        if (!strncmp(x->sets[i], name, n) && x->sets[i][n] == '=') return x->sets[i];
    return NULL;
}

/* The user's own settings stay the user's: they are in the command already. */
START_TEST(given_settings_are_not_repeated)
{
    struct ht_options o = four_nodes("fsdp");
    struct ht_error err = {0};
    const struct ht_choice *x;
    o.plan.set[o.plan.n_set++] = "keep=1";
    struct ht_chooser *c;
    ck_assert_msg(ht_chooser_create(&o, &err, &c) == HT_OK, "%s", err.text);
    ht_choose_ready(c, "1,2,3");
    ck_assert(ht_choose(c, "1,2,3", &err, &x) == HT_OK && x->beforehand);
    ck_assert(!find(x, "keep"));
    ck_assert_str_eq(find(x, "m"), "m=1,1,1");
    ck_assert_str_eq(find(x, "l"), "l=4,4,4");
    ht_chooser_destroy(c);
}
END_TEST

/* 12 sequences over five nodes of one device: four can be used, the first four. */
START_TEST(as_many_nodes_as_can_be_planned_for)
{
    struct ht_options o = four_nodes("in_memory");
    struct ht_error err = {0};
    const struct ht_choice *x;
    o.request.nodes = 5;
    struct ht_chooser *c;
    ck_assert_msg(ht_chooser_create(&o, &err, &c) == HT_OK, "%s", err.text);
    ck_assert(ht_choose(c, "0,1,2,3,4", &err, &x) == HT_OK);
    ck_assert_str_eq(x->use, "0,1,2,3");
    ck_assert_int_eq(x->n_ranks, 4);
    ck_assert_int_eq(x->rank_node[3], 3);
    ht_choose_ready(c, ""); /* no nodes: no choice */
    ck_assert(ht_choose(c, "", &err, &x) == HT_INFEASIBLE);
    ht_chooser_destroy(c);
}
END_TEST

static void add(TCase *tc)
{
    tcase_add_test(tc, every_system_hands_its_plan_over);
    tcase_add_test(tc, given_settings_are_not_repeated);
    tcase_add_test(tc, as_many_nodes_as_can_be_planned_for);
}

int main(void)
{
    return run_suite("choose", add);
}
