/*
 * A block's activations in rows by sub-op, of which each is kept, moved to the host and back, or recomputed: whatever a
 * seed draws, training gives the bits of training in memory, on the CPU and on a GPU of threads, and the memory of
 * every draw is what was proved, to the byte. And what the verifier says of draws that were broken.
 */
#include "common/backend/measure.h"
#include "common/profile/profile.h"
#include "tests/support/fake_cuda.h"
#include "tests/support/sampled.h"
#include "tests/support/sanitized.h"
#include "tests/support/sub_op_rows.h"

#include <stdio.h>

enum { DRAWS = 200, ONE_IN = SANITIZED ? 16 : 2 };
static struct sampling sampling;

static const struct config {
    enum ht_arch arch;
    const char *numerics;
    bool on_gpu;
} configs[] = {
    {HT_ARCH_GPT, "fp32", false},   {HT_ARCH_GPT, "bf16", false},   {HT_ARCH_GPT, "fp16", false},
    {HT_ARCH_LLAMA, "fp32", false}, {HT_ARCH_LLAMA, "bf16", false}, {HT_ARCH_LLAMA, "fp16", false},
    {HT_ARCH_GPT, "fp32", true},    {HT_ARCH_GPT, "bf16", true},    {HT_ARCH_GPT, "fp16", true},
    {HT_ARCH_LLAMA, "fp32", true},  {HT_ARCH_LLAMA, "bf16", true},  {HT_ARCH_LLAMA, "fp16", true},
    {HT_ARCH_BERT, "fp32", false},  {HT_ARCH_BERT, "fp16", true},   {HT_ARCH_VIT, "fp32", true},
    {HT_ARCH_VIT, "bf16", false},
};

static const char *const arch_names[] = {"gpt", "llama", "bert", "vit"};

/* One op at a time, so that the peak is known; every fourth draw of a variant a second time as it overlaps. Attention
   keeps probabilities or is flash; some draws are under control. Half of the draws are run. */
START_TEST(test_draws)
{
    static const char *const controls[] = {NULL, NULL, NULL, "gate", "rollback"};
    const struct config *c = &configs[_i];
    const struct ht_cuda_api *api = c->on_gpu ? fake_cuda_api() : NULL;
    int seen[HT_N_SUB_OPS][N_FATES] = {{0}}, n_rows = 0, done = 0;
    for (int variant = 0; variant < 10; variant++) {
        struct ht_scenario sc = rows_scenario(c->arch, c->numerics, variant & 1, controls[variant / 2]);
        struct rows_outcome want = {0};
        struct ht_schedule *s = rows_build(&sc, NULL);
        rows_train(&sc, s, false, c->on_gpu, api, 0, &want);
        ht_schedule_destroy(s);
        for (int i = 0; i < DRAWS / 10; i++) {
            uint64_t seed = (uint64_t)(1000 * _i + variant + 10 * i);
            if (!is_sampled(&sampling, (uint64_t)((10 * _i + variant) * DRAWS / 10 + i), ONE_IN)) continue;
            struct rows_choice choice = rows_draw_choice(seed);
            for (int u = 0; u < ROWS_L; u++)
                for (int j = 0; j < ROWS_MB; j++) {
                    const struct rows_cut *cut = &choice.cuts[u][j];
                    n_rows += cut->n;
                    for (int sub = 0; sub < HT_N_SUB_OPS; sub++)
                        for (int f = 0; f < N_FATES; f++) seen[sub][f] += rows_of_fate(cut, (enum fate)f) >> sub & 1;
                }
            choice.blocking = true;
            rows_compare(&sc, &choice, c->on_gpu, api, seed, &want);
            choice.blocking = false;
            if (i % 4 == 0) rows_compare(&sc, &choice, c->on_gpu, api, seed, &want);
            done++;
        }
        rows_outcome_free(&want);
        ht_scenario_free(&sc);
    }
    ck_assert_int_ge(done, DRAWS / ONE_IN - 1);
    for (int sub = 0; sub < HT_N_SUB_OPS; sub++)
        for (int f = 0; f < N_FATES; f++) ck_assert_int_gt(seen[sub][f], 0);
    ck_assert_int_eq(fake_cuda_leaks(), 0);
    printf("%s %s on %s: %d draws, %d rows\n", arch_names[c->arch], c->numerics,
           c->on_gpu ? "a GPU of threads" : "the CPU", done, n_rows);
}
END_TEST

/* ---- broken draws ---- */

enum fault { UNREAD, UNREAD_SOURCE, DROPPED_SOURCE, TWICE, N_FAULTS };

/* Returns true for an effect on a part of a block's activations that the fault can strike. */
static bool can_strike(const struct ht_schedule *s, int32_t op, int64_t e, enum fault fault)
{
    const struct ht_tensor *t = &s->tensors[s->effects[e].tensor];
    int kind = s->ops[op].kind;
    if (t->class != HT_ACTIVATION || t->label.unit < 1 || t->label.unit > ROWS_L || t->label.sub_ops == HT_ALL_SUB_OPS)
        return false;
    if (fault == UNREAD || fault == TWICE) return kind == HT_OP_BACKWARD;
    return kind == HT_OP_RECOMPUTE && s->effects[e].flags == HT_NEED;
}

/* The row's effects of a kind of op. */
static struct ht_effect *effect_of(struct ht_schedule *s, enum ht_op_kind kind, int32_t tensor)
{
    for (int32_t op = 0; op < s->n_ops; op++)
        for (int64_t e = s->effects_begin[op]; e < s->effects_begin[op + 1]; e++)
            if (s->ops[op].kind == kind && s->effects[e].tensor == tensor) return &s->effects[e];
    return NULL;
}

static void remove_effect(struct ht_schedule *s, int32_t op, int64_t e)
{
    int64_t n = s->effects_begin[s->n_ops];
    memmove(&s->effects[e], &s->effects[e + 1], (size_t)(n - e - 1) * sizeof(*s->effects));
    for (int32_t i = op + 1; i <= s->n_ops; i++) s->effects_begin[i]--;
}

/* Breaks the schedule there; returns false where it cannot be broken like that. Writes what is to be said of it. */
static bool strike(struct ht_schedule *s, int32_t op, int64_t e, enum fault fault, char *say, size_t n)
{
    int32_t row = s->effects[e].tensor, other = row + 1;
    const struct ht_label *l = &s->tensors[row].label;
    unsigned reads =
        ht_sub_ops_read(s->works[s->ops[op].work].arch, s->ops[op].label.sub_ops & ~(1u << HT_SUB_FC2)).sub_ops;
    unsigned names = fault == UNREAD_SOURCE ? l->sub_ops & reads
                     : fault == TWICE       ? l->sub_ops & -l->sub_ops
                                            : l->sub_ops;
    char text[64];
    switch (fault) {
    case UNREAD:
        s->effects[e].flags = HT_RELEASE;
        break;
    case UNREAD_SOURCE:
        remove_effect(s, op, e);
        break;
    case DROPPED_SOURCE:
        if (effect_of(s, HT_OP_COPY, row) || effect_of(s, HT_OP_FORWARD, row)->flags != HT_PRODUCE) return false;
        effect_of(s, HT_OP_FORWARD, row)->flags |= HT_RELEASE;
        break;
    default: /* the next row is of the same block and micro-batch, or is not */
        if (other >= s->n_tensors || s->tensors[other].class != HT_ACTIVATION ||
            s->tensors[other].label.unit != l->unit || s->tensors[other].label.micro_batch != l->micro_batch)
            return false;
        s->tensors[other].label.sub_ops |= names;
    }
    snprintf(say, n, " of unit %d (%s), micro-batch %d", l->unit, ht_sub_ops_text(names, text, sizeof(text)),
             l->micro_batch);
    return true;
}

/* A row that a backward pass or a recomputation does not read, that is dropped before, or that has what another has:
   the verifier names block, micro-batch and sub-ops. */
START_TEST(test_broken_draws)
{
    static const char *const verbs[] = {"does not read the activations", "does not read the activations",
                                        "which does not hold it", "writes the activations"};
    struct ht_scenario sc = rows_scenario(HT_ARCH_GPT, "fp32", true, NULL);
    int struck[N_FAULTS] = {0};
    for (uint64_t seed = 0; seed < (SANITIZED ? 80 : 400); seed++) {
        struct rows_choice choice = rows_draw_choice(seed);
        struct ht_schedule *s = rows_build(&sc, &choice);
        struct ht_error err = {0};
        char say[160];
        enum fault fault = (enum fault)(seed % N_FAULTS);
        bool done = false;
        for (int32_t i = 0, at = (int32_t)ht_random_below(seed, 1, (uint64_t)s->n_ops); i < s->n_ops && !done; i++) {
            int32_t op = (at + i) % s->n_ops;
            for (int64_t e = s->effects_begin[op]; e < s->effects_begin[op + 1] && !done; e++)
                done = can_strike(s, op, e, fault) && strike(s, op, e, fault, say, sizeof(say));
        }
        if (done) {
            ht_schedule_link(s); /* the hazards are others now */
            ck_assert_int_eq(ht_schedule_verify(s, &err, NULL), HT_FAILED);
            ck_assert_msg(strstr(err.text, verbs[fault]) && strstr(err.text, say), "seed %d: %s; expected %s..%s",
                          (int)seed, err.text, verbs[fault], say);
            ck_assert_int_eq(strstr(err.text, " twice") != NULL, fault == TWICE);
            struck[fault]++;
        }
        ht_schedule_destroy(s);
    }
    for (int f = 0; f < N_FAULTS; f++) ck_assert_int_gt(struck[f], 3);
    ht_scenario_free(&sc);
}
END_TEST

/* ---- measured ---- */

/* Recomputations of some sub-ops are works of their own: each is measured, and found in the profile again. */
START_TEST(test_measured)
{
    struct ht_scenario sc = rows_scenario(HT_ARCH_LLAMA, "bf16", false, NULL);
    struct rows_choice choice = rows_draw_choice(3);
    struct ht_schedule *s = rows_build(&sc, &choice);
    struct ht_measure_options o = {.model = sc.model,
                                   .numerics = sc.numerics,
                                   .tokens_per_iteration = ROWS_B * ROWS_T * ROWS_MB,
                                   .split = {.shared = true, .n_device = 1, .n_host = 1},
                                   .iterations = 2};
    struct ht_samples samples = {0};
    struct ht_error err = {0};
    struct ht_profile *profile = ht_profile_create("measured", "here");
    int64_t *cost_ns = HT_NEW_ARRAY(int64_t, s->n_ops);
    int partial = 0;
    ck_assert_msg(ht_measure(s, &o, &err, &samples) == HT_OK, "%s", err.text);
    ht_samples_sort(&samples);
    for (size_t i = 0; i < samples.n; i++) {
        ht_profile_add(profile, samples.rows[i].key, 1000 + (int64_t)i);
        partial += strncmp(samples.rows[i].key, "recompute block llama sub_ops=", 30) == 0;
    }
    ck_assert_int_ge(partial, 3);
    ck_assert_msg(ht_profile_costs(profile, s, cost_ns, &err) == HT_OK, "%s", err.text);
    for (int32_t op = 0; op < s->n_ops; op++) {
        char key[HT_WORK_KEY_MAX];
        if (s->works[s->ops[op].work].free) continue; /* of fc2 alone */
        ck_assert_str_eq(samples.rows[cost_ns[op] - 1000].key,
                         ht_work_key(&s->works[s->ops[op].work], key, sizeof(key)));
    }
    free(cost_ns);
    ht_profile_destroy(profile);
    ht_samples_free(&samples);
    ht_schedule_destroy(s);
    ht_scenario_free(&sc);
}
END_TEST

int main(void)
{
    sampling = sampling_begin();
    Suite *s = suite_create("sub_op_rows");
    TCase *tc = tcase_create("sub_op_rows");
    tcase_set_timeout(tc, 600);
    tcase_add_test(tc, test_broken_draws);
    tcase_add_test(tc, test_measured);
    tcase_add_loop_test(tc, test_draws, 0, (int)HT_COUNT(configs));
    suite_add_tcase(s, tc);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
