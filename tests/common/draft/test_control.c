/* Gate and rollback by hand: the ops, their order and effects; and refusals. */
#include "tests/common/draft/control_oracle.h"

#include "common/kernels/undo.h"
#include "common/draft/draft.h"
#include "tests/support/lookup.h"
#include "tests/support/scenario.h"

/* A scenario of one block, so units 0, 1, 2. */
static struct ht_scenario scenario_of(const char *numerics, int64_t micro_batches, enum ht_control_mode mode,
                                      double clip)
{
    struct ht_scenario_request r = {.model = "gpt-tiny",
                                    .cluster = "autohete-1gpu",
                                    .batch = micro_batches,
                                    .micro_batch = 1,
                                    .seq = 16,
                                    .numerics = numerics};
    struct ht_scenario s = scenario_from(&r);
    s.model.layers = 1;
    s.cluster->nodes[0].has_ssds = true; /* of ON_DISK */
    s.cluster->nodes[0].n_ssds = 1;
    s.cluster->nodes[0].ssd = (struct ht_ssd){.capacity_bytes = 1000000000,
                                              .read_bytes_per_s = 1e9,
                                              .write_bytes_per_s = 1e9,
                                              .efficiency = 1,
                                              .striping = 1};
    s.control = (struct ht_control){.mode = mode, .options = {.clip = clip}};
    return s;
}

/* ---- builders that know nothing of control --------------------------------------------------------------------- */

enum style {
    ON_DEVICE, /* stepped at the end, on the device */
    EAGER,     /* there, right after each backward pass; the next op waits for the step's turn */
    OFFLOAD,   /* on the host, and copied back in the same iteration */
    FRESH,     /* on the host, which makes its 16-bit copy anew; it is read and freed by the next iteration's copy in */
    ON_DISK,   /* states (and FP32 parameters) come from the disk to be stepped, and go back */
    N_STYLES
};

static void place(struct ht_draft *g, enum style style)
{
    bool host = style >= OFFLOAD;
    for (int32_t u = 0; u < g->n_units; u++) {
        enum ht_tier states = style == ON_DISK ? HT_DISK : host ? HT_HOST : HT_DEVICE;
        g->realloc_on_step[u] = style == FRESH && g->master[u] >= 0;
        if (style != FRESH) ht_draft_place(g, g->param[u], HT_DEVICE);
        if (style == FRESH || style == OFFLOAD) ht_draft_place(g, g->param[u], HT_HOST);
        if (style == ON_DISK) ht_draft_place(g, g->param[u], HT_DISK);
        ht_draft_place_states(g, u, states);
    }
}

/* Moves all of a unit's state between host and disk. */
static void swap(struct ht_draft *g, int32_t lane, int32_t u, bool in)
{
    struct ht_schedule *s = g->schedule;
    int32_t rows[] = {g->param[u], g->momentum[u], g->variance[u], g->master[u]};
    struct ht_work w = {
        .kind = HT_OP_COPY, .where = HT_LANE_DISK, .bytes = 12 * s->tensors[rows[0]].bytes, .tp = 1, .ranks = 1};
    ht_add_op(s, HT_OP_COPY, lane, s->tensors[rows[0]].label, ht_add_work(s, &w));
    ht_op_name(s, in ? "in%d" : "out%d", u);
    for (int i = 0; i < (g->master[u] >= 0 ? 4 : 3); i++) {
        ht_op_effect(s, rows[i], HT_DISK, in ? HT_NEED : HT_UPDATE);
        ht_op_effect(s, rows[i], HT_HOST, in ? HT_PRODUCE : HT_NEED | (i ? HT_RELEASE : 0));
    }
}

static void update(struct ht_draft *g, enum style style, int32_t disk, int32_t u)
{
    bool host = style >= OFFLOAD;
    if (host) ht_draft_copy(g, g->grad[u], HT_DEVICE, HT_HOST, HT_PRODUCE, true);
    if (style == ON_DISK) swap(g, disk, u, true);
    ht_draft_step(g, host ? g->lanes->host : g->lanes->compute, u, 1, true);
    if (style == ON_DISK) swap(g, disk, u, false);
    if (style == OFFLOAD || style == ON_DISK)
        ht_draft_copy(g, g->param[u], HT_HOST, HT_DEVICE, HT_UPDATE, style == ON_DISK);
}

static void emit(struct ht_draft *g, const void *context)
{
    enum style style = *(const enum style *)context;
    int32_t disk = style == ON_DISK ? ht_add_lane(g->schedule, "disk", HT_LANE_DISK, g->rank, HT_FIFO) : -1, step = -1;
    place(g, style);
    for (int32_t j = 0; j < g->n_mb; j++) {
        bool last = j == g->n_mb - 1;
        for (int32_t u = 0; u < g->n_units; u++) {
            if (style == FRESH && j == 0)
                ht_draft_copy(g, g->param[u], HT_HOST, HT_DEVICE, HT_PRODUCE, g->realloc_on_step[u]);
            ht_draft_forward(g, u, j, HT_ALL_SUB_OPS);
        }
        for (int32_t u = g->n_units - 1; u >= 0; u--) {
            ht_draft_backward(g, u, j);
            if (style == FRESH && last && u != 0) ht_op_effect(g->schedule, g->param[u], HT_DEVICE, HT_RELEASE);
            if (style == EAGER && step >= 0) ht_op_after(g->schedule, step);
            if (j > 0) ht_draft_accumulate(g, g->lanes->compute, u, j);
            if (style == FRESH && last && u == 0) ht_op_effect(g->schedule, g->param[u], HT_DEVICE, HT_RELEASE);
            if (!last || style == ON_DEVICE) continue;
            update(g, style, disk, u);
            if (style == EAGER) step = g->schedule->n_ops - 1;
        }
    }
    for (int32_t u = 0; u < g->n_units && style == ON_DEVICE; u++) update(g, style, disk, u);
}

static enum ht_status build(const struct ht_scenario *sc, enum style style, struct ht_error *err,
                            struct ht_schedule **out)
{
    struct ht_program program = {
        .name = "plain", .host_order = style == FRESH ? HT_PRIORITY : HT_FIFO, .emit = emit, .context = &style};
    return ht_build_graph(sc, &program, err, out);
}

static struct ht_schedule *built(const struct ht_scenario *sc, enum style style)
{
    struct ht_error err = {0};
    struct ht_schedule *s = NULL;
    ck_assert_msg(build(sc, style, &err, &s) == HT_OK, "%s", err.text);
    return s;
}

/* ---- order and effects by hand --------------------------------------------------------------------------------- */

static void expect_order(const struct ht_schedule *s, const char *names)
{
    char text[1024] = "";
    for (int32_t op = 0; op < s->n_ops; op++) {
        static const char *const suffix[] = {"", "+", "-"}; /* when ok, when bad */
        size_t used = strlen(text);
        snprintf(text + used, sizeof text - used, "%s%s%s", op ? " " : "", s->ops[op].name, suffix[s->ops[op].when]);
    }
    ck_assert_str_eq(text, names);
}

static struct ht_effect *effect_of(struct ht_schedule *s, const char *name, enum ht_tensor_class class,
                                   enum ht_tier tier)
{
    int32_t op = op_named(s, name);
    for (int64_t k = s->effects_begin[op]; k < s->effects_begin[op + 1]; k++)
        if (s->tensors[s->effects[k].tensor].class == class && s->effects[k].tier == (uint8_t)tier)
            return &s->effects[k];
    return NULL;
}

static void expect_effect(struct ht_schedule *s, const char *name, enum ht_tensor_class class, enum ht_tier tier,
                          unsigned flags)
{
    const struct ht_effect *e = effect_of(s, name, class, tier);
    ck_assert_msg((e ? e->flags : 0u) == flags, "%s: %s has flags %u, not %u", name, ht_tensor_class_name(class),
                  e ? e->flags : 0u, flags);
}

START_TEST(test_gate_by_hand)
{
    struct ht_scenario sc = scenario_of("fp16", 1, HT_CONTROL_GATE, 0);
    struct ht_schedule *s = built(&sc, ON_DEVICE);
    expect_order(s, "F0 F1 F2 B2 V2 B1 V1 B0 V0 verdict U0+ free0- U1+ free1- U2+ free2-");
    expect_effect(s, "V1", HT_GRAD, HT_DEVICE, HT_NEED);
    expect_effect(s, "U1", HT_GRAD, HT_DEVICE, HT_NEED | HT_RELEASE);
    expect_effect(s, "free1", HT_GRAD, HT_DEVICE, HT_RELEASE);
    ht_schedule_destroy(s);

    /* B1 waits for U2's turn in the builder's graph: here for B2, before it on the lane, which needs no edge. */
    s = built(&sc, EAGER);
    expect_order(s, "F0 F1 F2 B2 V2 B1 V1 B0 V0 verdict U2+ free2- U1+ free1- U0+ free0-");
    ht_schedule_destroy(s);

    /* Copies out stay where they are, so gradients are checked on the host; copies in move. */
    s = built(&sc, OFFLOAD);
    expect_order(s, "F0 F1 F2 B2 G2 V2 B1 G1 V1 B0 G0 V0 verdict O2+ free2- P2 O1+ free1- P1 O0+ free0- P0");
    expect_effect(s, "V1", HT_GRAD, HT_HOST, HT_NEED);
    ht_schedule_destroy(s);

    /* The 16-bit copy that the step would have made is cast when it does not run. */
    s = built(&sc, FRESH);
    expect_order(s, "P0 F0 P1 F1 P2 F2 B2 G2 V2 B1 G1 V1 B0 G0 V0 verdict O2+ free2- cast2- O1+ free1- cast1- "
                    "O0+ free0- cast0-");
    expect_effect(s, "cast1", HT_MASTER, HT_HOST, HT_NEED);
    expect_effect(s, "cast1", HT_PARAM, HT_HOST, HT_PRODUCE);
    ck_assert_int_lt(s->ops[op_named(s, "verdict")].priority, 0); /* on a PRIORITY lane before all steps */
    ht_schedule_destroy(s);
    ht_scenario_free(&sc);

    /* FP32 has no copy to make. Two micro-batches: checked after the sum. */
    sc = scenario_of("fp32", 2, HT_CONTROL_GATE, 0);
    s = built(&sc, ON_DEVICE);
    expect_order(s, "F0.0 F1.0 F2.0 B2.0 B1.0 B0.0 F0.1 F1.1 F2.1 B2.1 A2.1 V2 B1.1 A1.1 V1 B0.1 A0.1 V0 verdict "
                    "U0+ free0- U1+ free1- U2+ free2-");
    ht_schedule_destroy(s);
    ht_scenario_free(&sc);
}
END_TEST

START_TEST(test_rollback_by_hand)
{
    struct ht_scenario sc = scenario_of("fp16", 1, HT_CONTROL_ROLLBACK, 1);
    struct ht_schedule *s = built(&sc, EAGER);
    expect_order(s,
                 "F0 F1 F2 B2 V2 U2 B1 V1 U1 B0 V0 U0 verdict undo2- redo2- free2+ undo1- redo1- free1+ undo0- redo0- "
                 "free0+");
    expect_effect(s, "U1", HT_GRAD, HT_DEVICE, HT_NEED);
    expect_effect(s, "U1", HT_STAGING, HT_DEVICE, HT_PRODUCE);
    expect_effect(s, "undo1", HT_GRAD, HT_DEVICE, HT_NEED);
    expect_effect(s, "undo1", HT_STAGING, HT_DEVICE, HT_NEED);
    expect_effect(s, "redo1", HT_GRAD, HT_DEVICE, HT_NEED | HT_RELEASE);
    expect_effect(s, "redo1", HT_STAGING, HT_DEVICE, HT_RELEASE);
    expect_effect(s, "redo1", HT_MASTER, HT_DEVICE, HT_UPDATE);
    expect_effect(s, "free1", HT_GRAD, HT_DEVICE, HT_RELEASE);
    expect_effect(s, "free1", HT_STAGING, HT_DEVICE, HT_RELEASE);
    int64_t n = ht_unit_params(&sc.model, 1);
    ck_assert_int_eq(s->tensors[effect_of(s, "U1", HT_STAGING, HT_DEVICE)->tensor].bytes,
                     ht_undo_log_bytes(n, ht_undo_usual_exceptions(n)));
    ht_schedule_destroy(s);

    s = built(&sc, OFFLOAD);
    expect_order(s, "F0 F1 F2 B2 G2 V2 O2 P2 B1 G1 V1 O1 P1 B0 G0 V0 O0 verdict P0 undo2- redo2- again2- free2+ undo1- "
                    "redo1- again1- free1+ undo0- redo0- again0- free0+");
    expect_effect(s, "again1", HT_PARAM, HT_DEVICE, HT_UPDATE);
    expect_effect(s, "again1", HT_PARAM, HT_HOST, HT_NEED);
    ht_schedule_destroy(s);

    /* The step makes its copy beside the gradient; the undo finds it there. */
    s = built(&sc, FRESH);
    expect_effect(s, "O1", HT_PARAM, HT_HOST, HT_PRODUCE);
    expect_effect(s, "undo1", HT_PARAM, HT_HOST, HT_UPDATE);
    ht_schedule_destroy(s);

    /* States that went back to the disk are fetched, and parameters too; the disk gets them again, and the device. */
    s = built(&sc, ON_DISK);
    expect_order(
        s, "F0 F1 F2 B2 G2 in2 V2 O2 out2 P2 B1 G1 in1 V1 O1 out1 P1 B0 G0 in0 V0 O0 verdict out0 P0 "
           "back2- back2- undo2- redo2- again2- again2- free2+ back1- back1- undo1- redo1- again1- again1- free1+ "
           "back0- back0- undo0- redo0- again0- again0- free0+");
    ht_schedule_destroy(s);
    ht_scenario_free(&sc);

    sc = scenario_of("fp32", 1, HT_CONTROL_ROLLBACK, 0); /* nothing to clip; but a log may have no room */
    s = built(&sc, EAGER);
    expect_order(s,
                 "F0 F1 F2 B2 V2 U2 B1 V1 U1 B0 V0 U0 verdict undo2- redo2- free2+ undo1- redo1- free1+ undo0- redo0- "
                 "free0+");
    ht_schedule_destroy(s);
    ht_scenario_free(&sc);
}
END_TEST

START_TEST(test_every_style)
{
    static const char *const numerics[] = {"fp32", "fp16", "bf16"};
    for (int n = 0; n < 3; n++)
        for (int64_t mb = 1; mb <= 3; mb++)
            for (int style = 0; style < N_STYLES; style++) {
                char what[64];
                struct ht_scenario sc =
                    scenario_of(numerics[n], mb, swept_controls[_i].mode, swept_controls[_i].options.clip);
                struct ht_schedule *s = built(&sc, (enum style)style);
                snprintf(what, sizeof what, "style %d, %s x%d, control %d", style, numerics[n], (int)mb, _i);
                prove_control(s, &sc, what, (uint64_t)(n + 10 * style + 1));
                ht_schedule_destroy(s);
                ht_scenario_free(&sc);
            }
}
END_TEST

/* ---- without control nothing changes --------------------------------------------------------------------------- */

START_TEST(test_none_is_a_copy)
{
    for (int style = 0; style < N_STYLES; style++) {
        struct ht_scenario sc = scenario_of("fp16", 2, HT_CONTROL_NONE, 0);
        struct ht_error err = {0};
        struct ht_schedule *s = built(&sc, (enum style)style), *copy = NULL;
        ck_assert(ht_control_apply(s, &sc.control, (struct ht_control_style){0}, &err, &copy) == HT_OK);
        ht_schedule_link(copy);
        ck_assert(ht_schedule_hash(copy) == ht_schedule_hash(s));
        ht_schedule_destroy(copy);
        ht_schedule_destroy(s);
        ht_scenario_free(&sc);
    }
}
END_TEST

/* ---- refusals ----------------------------------------------------------------------------------------------- */

static void refused(const struct ht_schedule *s, const char *text)
{
    struct ht_error err = {0};
    ck_assert_msg(ht_schedule_verify(s, &err, NULL) == HT_FAILED, "'%s' is not missed", text);
    ck_assert_msg(strstr(err.text, text) != NULL, "%s", err.text);
}

/* Removes an edge: replaces it by one that is there anyway. */
static void cut(int32_t *list, const int64_t *begin, int32_t op, int32_t before)
{
    for (int64_t k = begin[op]; k < begin[op + 1]; k++)
        if (list[k] == before) list[k] = list[k == begin[op] ? begin[op + 1] - 1 : begin[op]];
}

START_TEST(test_mutations_are_refused)
{
    struct ht_scenario sc = scenario_of("fp16", 2, HT_CONTROL_ROLLBACK, 1);
    char why[256];

    struct ht_schedule *s = built(&sc, OFFLOAD);
    /* F1 of the next iteration reads what again1 wrote. */
    int32_t reader = op_named(s, "F1.0"), again = op_named(s, "again1");
    cut(s->prev, s->prev_begin, reader, again);
    refused(s, "(F1.0): reads tensor");
    ht_schedule_destroy(s);

    s = built(&sc, OFFLOAD); /* the device keeps what was undone: the verifier does not follow values */
    s->ops[again].when = HT_WHEN_OK;
    ck_assert(!values_hold(s, "stale", 1, why));
    ck_assert_msg(strstr(why, "param of unit 1 stays device as version") != NULL, "%s", why);
    ht_schedule_destroy(s);

    s = built(&sc, OFFLOAD); /* the copy does not wait for the redo */
    cut(s->deps, s->deps_begin, again, op_named(s, "redo1"));
    refused(s, "(again1): reads tensor");
    ht_schedule_destroy(s);

    s = built(&sc, OFFLOAD); /* freed before the undo */
    effect_of(s, "O1", HT_GRAD, HT_HOST)->flags |= HT_RELEASE;
    refused(s, "which does not hold it");
    ht_schedule_destroy(s);

    s = built(&sc, OFFLOAD); /* no redo of one unit */
    effect_of(s, "redo1", HT_MOMENTUM, HT_HOST)->flags = HT_NEED;
    refused(s, "times an iteration");
    ht_schedule_destroy(s);

    s = built(&sc, OFFLOAD); /* an undo that does not wait for the final check */
    s->ops[op_named(s, "verdict")].lane = s->ops[op_named(s, "F0.0")].lane;
    cut(s->deps, s->deps_begin, op_named(s, "undo1"), op_named(s, "verdict"));
    refused(s, "has a 'when' without an edge from a final check");
    ht_schedule_destroy(s);

    s = built(&sc, OFFLOAD); /* a final check that does not wait for all */
    cut(s->deps, s->deps_begin, op_named(s, "verdict"), op_named(s, "V1"));
    refused(s, "has edges from 2 of the 3 gradient checks");
    ht_schedule_destroy(s);

    s = built(&sc, OFFLOAD); /* the next iteration waits for the first op of this one only */
    for (int64_t k = 0; k < s->prev_begin[s->n_ops]; k++) s->prev[k] = 0;
    refused(s, "does not wait for its rank's final check of the iteration before");
    ht_schedule_destroy(s);
    ht_scenario_free(&sc);

    sc = scenario_of("fp16", 2, HT_CONTROL_GATE, 0);
    s = built(&sc, ON_DEVICE); /* a gradient that nothing checks */
    effect_of(s, "V1", HT_GRAD, HT_DEVICE)->tensor = effect_of(s, "V2", HT_GRAD, HT_DEVICE)->tensor;
    refused(s, "(U1): steps with tensor");
    ht_schedule_destroy(s);

    s = built(&sc, ON_DEVICE); /* checked before the second micro-batch is added */
    struct ht_op early = s->ops[op_named(s, "V1")];
    int32_t sum = op_named(s, "A1.1");
    ck_assert_int_eq(op_named(s, "V1"), sum + 1);
    s->ops[sum + 1] = s->ops[sum];
    s->ops[sum] = early;
    struct ht_effect *grad_check = &s->effects[s->effects_begin[sum + 1]];
    struct ht_effect saved = *grad_check;
    int64_t n = s->effects_begin[sum + 1] - s->effects_begin[sum]; /* of the sum: two; of the check: one */
    ck_assert_int_eq(n, 2);
    s->effects[s->effects_begin[sum] + 2] = s->effects[s->effects_begin[sum] + 1];
    s->effects[s->effects_begin[sum] + 1] = s->effects[s->effects_begin[sum]];
    s->effects[s->effects_begin[sum]] = saved;
    s->effects_begin[sum + 1] = s->effects_begin[sum] + 1;
    int32_t final_check = op_named(s, "verdict");
    for (int64_t k = s->deps_begin[final_check]; k < s->deps_begin[final_check + 1]; k++)
        if (s->deps[k] == sum + 1) s->deps[k] = sum;
    refused(s, "(U1): steps with tensor");
    ht_schedule_destroy(s);

    s = built(&sc, FRESH); /* no copy is made when the step is left out */
    s->ops[op_named(s, "cast1")].when = HT_WHEN_OK;
    refused(s, "when");
    ht_schedule_destroy(s);
    ht_scenario_free(&sc);
}
END_TEST

/* Graphs that the transform itself refuses, with the op's name. */
START_TEST(test_refusals)
{
    struct ht_scenario sc = scenario_of("fp16", 1, HT_CONTROL_GATE, 0);
    struct ht_error err = {0};
    struct ht_schedule *s = built(&sc, ON_DEVICE), *out = NULL;
    ck_assert_int_eq(ht_control_apply(s, &sc.control, (struct ht_control_style){0}, &err, &out), HT_FAILED); /* twice */
    ck_assert_msg(strstr(err.text, "(V2)") && strstr(err.text, "already has"), "%s", err.text);
    ht_schedule_destroy(s);

    struct ht_control none = {.mode = HT_CONTROL_NONE};
    sc.control = none;
    s = built(&sc, ON_DEVICE);
    struct ht_control gate = {.mode = HT_CONTROL_GATE};
    effect_of(s, "U1", HT_MOMENTUM, HT_DEVICE)->flags = HT_NEED;
    ck_assert_int_eq(ht_control_apply(s, &gate, (struct ht_control_style){0}, &err, &out), HT_INFEASIBLE);
    ck_assert_msg(strstr(err.text, "(U1): it has no gradient or no momentum") != NULL, "%s", err.text);
    ht_schedule_destroy(s);
    ht_scenario_free(&sc);
}
END_TEST

/* Each rank has its own final check, after an agreement of all. Without the agreement it would know only its own rank's
   gradients. */
START_TEST(test_several_ranks)
{
    struct ht_error err = {0};
    struct ht_scenario sc;
    for (int mode = 0; mode < 2; mode++) {
        struct ht_scenario_request r = {
            .model = "gpt-tiny", .cluster = "autohete-4gpu", .control = mode ? "rollback" : "gate", .clip = 1};
        ck_assert(ht_scenario_create(&r, &err, &sc) == HT_OK);
        struct ht_schedule *s = built(&sc, ON_DEVICE);
        int32_t agreed = 0, final_checks = 0;
        for (int32_t op = 0; op < s->n_ops; op++) {
            bool whole = s->ops[op].label.unit < 0;
            agreed += whole && s->ops[op].kind == HT_OP_ALL_REDUCE;
            if (!whole || s->ops[op].kind != HT_OP_VALIDATE) continue;
            bool waits = false;
            for (int64_t k = s->deps_begin[op]; k < s->deps_begin[op + 1]; k++)
                waits |= s->ops[s->deps[k]].kind == HT_OP_ALL_REDUCE && ht_op_rank(s, s->deps[k]) == ht_op_rank(s, op);
            ck_assert_msg(waits, "the verdict of rank %d waits for no agreement", ht_op_rank(s, op));
            final_checks++;
        }
        ck_assert_int_eq(agreed, 4);
        ck_assert_int_eq(final_checks, 4);
        ck_assert_msg(ht_schedule_verify(s, &err, NULL) == HT_OK, "%s", err.text);
        ht_schedule_destroy(s);
        ht_scenario_free(&sc);
    }
}
END_TEST

/* ---- scenarios ------------------------------------------------------------------------------------------------- */

static enum ht_status asked(struct ht_scenario_request r, struct ht_error *err, struct ht_scenario *out)
{
    r.model = "gpt-tiny";
    r.cluster = "autohete-1gpu";
    *err = (struct ht_error){0};
    return ht_scenario_create(&r, err, out);
}

START_TEST(test_scenarios)
{
    static const struct {
        struct ht_scenario_request r;
        enum ht_control_mode mode;
        bool dynamic;
        double scale, clip;
    } good[] = {
        {{.numerics = "fp16"}, HT_CONTROL_NONE, false, 1, 0}, /* the papers' times */
        {{.numerics = "fp16", .training = true}, HT_CONTROL_GATE, true, 65536, 0},
        {{.numerics = "bf16", .training = true}, HT_CONTROL_NONE, false, 1, 0},
        {{.numerics = "fp32", .training = true}, HT_CONTROL_NONE, false, 1, 0},
        {{.numerics = "bf16", .training = true, .clip = 1}, HT_CONTROL_GATE, false, 1, 1},
        {{.numerics = "fp16", .training = true, .control = "none"}, HT_CONTROL_NONE, false, 1, 0},
        {{.numerics = "fp16", .training = true, .control = "rollback"}, HT_CONTROL_ROLLBACK, true, 65536, 0},
        {{.numerics = "fp32", .control = "rollback", .clip = 0.5}, HT_CONTROL_ROLLBACK, false, 1, 0.5},
        {{.numerics = "fp16", .control = "gate", .loss_scale = "1024"}, HT_CONTROL_GATE, false, 1024, 0},
        {{.numerics = "bf16", .control = "gate", .loss_scale = "dynamic"}, HT_CONTROL_GATE, true, 65536, 0},
        {{.numerics = "fp16", .loss_scale = "128"}, HT_CONTROL_NONE, false, 128, 0},
        {{.numerics = "fp16", .control = "gate", .initial_scale = 0.5}, HT_CONTROL_GATE, true, 0.5, 0},
    };
    static const struct {
        struct ht_scenario_request r;
        const char *text;
    } bad[] = {
        {{.control = "gates"}, "control 'gates' is not known"},
        {{.clip = 1}, "clipping needs to know all gradients"},
        {{.clip = -1, .control = "gate"}, "invalid clip -1: expected a positive norm"},
        {{.loss_scale = "dynamic"}, "a dynamic loss scale needs to know all gradients"},
        {{.training = true, .clip = 1, .control = "none"}, "clipping needs"},
        {{.loss_scale = "big"}, "invalid loss scale 'big': expected"},
        {{.loss_scale = "0"}, "invalid loss scale '0': expected"},
        {{.initial_scale = 8}, "an initial scale is for a dynamic loss scale"},
        {{.numerics = "fp16", .control = "gate", .loss_scale = "1024", .growth_interval = 8},
         "a growth interval is for a dynamic loss scale"},
        {{.accumulate = "fp64"}, "accumulation in 'fp64' is not known"},
        {{.accumulate = "16", .numerics = "fp32"}, "needs 16-bit gradients"},
    };
    struct ht_scenario s;
    struct ht_error err;
    for (size_t i = 0; i < HT_COUNT(good); i++) {
        ck_assert_msg(asked(good[i].r, &err, &s) == HT_OK, "%d: %s", (int)i, err.text);
        ck_assert_msg(s.control.mode == good[i].mode && s.control.options.dynamic == good[i].dynamic &&
                          s.control.options.loss_scale == good[i].scale && s.control.options.clip == good[i].clip,
                      "case %d", (int)i);
        ht_scenario_free(&s);
    }
    for (size_t i = 0; i < HT_COUNT(bad); i++) {
        ck_assert_int_eq(asked(bad[i].r, &err, &s), HT_BAD_INPUT);
        ck_assert_msg(strstr(err.text, bad[i].text) != NULL, "%s", err.text);
    }
    for (int64_t interval = 0; interval <= 7; interval += 7) {
        struct ht_scenario_request grows = {.numerics = "fp16", .control = "gate", .growth_interval = interval};
        ck_assert(asked(grows, &err, &s) == HT_OK && s.control.options.growth_interval == (interval ? 7 : 2000));
        ht_scenario_free(&s);
    }
    struct ht_scenario_request r = {.numerics = "bf16", .accumulate = "16"};
    ck_assert(asked(r, &err, &s) == HT_OK && s.numerics.accumulate == HT_BF16);
    ht_scenario_free(&s);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("control");
    TCase *t = tcase_create("control");
    tcase_set_timeout(t, 120);
    tcase_add_test(t, test_gate_by_hand);
    tcase_add_test(t, test_rollback_by_hand);
    tcase_add_loop_test(t, test_every_style, 0, (int)HT_COUNT(swept_controls));
    tcase_add_test(t, test_none_is_a_copy);
    tcase_add_test(t, test_mutations_are_refused);
    tcase_add_test(t, test_refusals);
    tcase_add_test(t, test_several_ranks);
    tcase_add_test(t, test_scenarios);
    suite_add_tcase(suite, t);
    SRunner *r = srunner_create(suite);
    srunner_run_all(r, CK_NORMAL);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed != 0;
}
