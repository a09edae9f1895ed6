/* SysX's graphs: the paper's figures and closed forms, residencies and messages, and random graphs. The common parts of
   pipelines: tests/common/draft/test_pipe.c. */
#include "sysx/sysx.h"
#include "tests/support/random_pipes.h"
#include "tests/support/scenario.h"

static struct ht_pipe_style style_of(enum sysx_variant variant)
{
    struct sysx_choice c = {.v = 2, .d = 2, .strict = 1, .log = 1};
    return sysx_style(variant, &c);
}

static struct ht_pipe_style whole; /* all of SysX, by main */

/* Fig. 8's caption: backward stages of GPU 0 are S(7,1), S(5,1), S(3,1), S(1,1), i.e. 15, 11, 7, 3. Fig. 5(c): 3, 1 on
   GPU 0 and 2, 0 on GPU 1. Fig. 5(b): 1 on GPU 0. */
START_TEST(assignment)
{
    struct ht_pipe_shape fig8 = {4, 4, 2, 2, HT_PIPE_AFAB, sysx_backward_rank};
    struct ht_pipe_shape fig5c = {2, 2, 1, 2, HT_PIPE_AFAB, sysx_backward_rank};
    struct ht_pipe_shape fig5b = {2, 2, 1, 1, HT_PIPE_AFAB, sysx_backward_rank};
    static const int32_t of_rank[4][4] = {{15, 11, 7, 3}, {14, 10, 6, 2}, {13, 9, 5, 1}, {12, 8, 4, 0}};
    for (int r = 0; r < 4; r++)
        for (int k = 0; k < 4; k++) ck_assert_int_eq(ht_pipe_backward_rank(&fig8, of_rank[r][k]), r);
    for (int i = 0; i < 8; i++) ck_assert_int_eq(ht_pipe_forward_rank(&fig8, i), i % 4);
    for (int q = 0; q < 4; q++) ck_assert_int_eq(ht_pipe_backward_rank(&fig5c, q), q % 2 ? 0 : 1);
    ck_assert_int_eq(ht_pipe_backward_rank(&fig5b, 1), 0);
    ck_assert_int_eq(ht_pipe_backward_rank(&fig5b, 0), 1);
}
END_TEST

/* SysX, Fig. 5: two GPUs, two micro-batches; 9 ordinary, 8 decoupled, 7 with halves. */
START_TEST(fig5)
{
    pipe_times(pipe_with(pipe_mobius, 1, 1), 2, 2, (struct pipe_prices){1, 2, 0, 0, 0}, 9, 9);
    pipe_times(pipe_with(whole, 1, 1), 2, 2, (struct pipe_prices){1, 2, 0, 0, 0}, 8, 8);
    pipe_times(pipe_with(whole, 1, 2), 2, 2, (struct pipe_prices){1, 1, 0, 0, 0}, 7, 7);
}
END_TEST

/*
 * Figs. 2 and 8: four GPUs, four micro-batches, v = 2: 33, 30 and 27. With (p, g, o) = (1, 1, 2) of a backward stage of
 * SysX:
 *
 *     Mobius  first fetch 2, GPUs 33, offload 2, two steps of 4 = 45    24/45: 47% lost
 *     SysX    first fetch 2, GPUs 27, offload 1, one step of 2  = 32    24/32: 25% lost
 *
 * A block is a stage here, so Mobius' are twice as large as SysX's backward ones.
 */
START_TEST(fig8)
{
    pipe_times(pipe_mobius, 4, 4, (struct pipe_prices){1, 2, 0, 0, 0}, 33, 33);
    pipe_times(pipe_with(whole, 2, 1), 4, 4, (struct pipe_prices){1, 2, 0, 0, 0}, 30, 30);
    pipe_times(whole, 4, 4, (struct pipe_prices){1, 1, 0, 0, 0}, 27, 27);
    pipe_times(pipe_mobius, 4, 4, (struct pipe_prices){1, 2, 2, 2, 4}, 33, 45);
    pipe_times(whole, 4, 4, (struct pipe_prices){1, 1, 1, 1, 2}, 27, 32);
}
END_TEST

/* Fig. 7: d = 2, two steps a GPU: after the final check 7 + 2 o, at once 7 + o. The last of four steps: 27 + 4 on a
   lane for all as on four lanes; o = 5: a lane falls behind by one a stage, 27 + 8, four do not: 27 + 5. Mobius 33 + 2
   x 8, 33 + 2 x 10. */
START_TEST(optimizer_tail)
{
    struct ht_pipe_style first = pipe_with(whole, 1, 2), one_lane = whole;
    first.own = HT_CONTROL_GATE;
    first.hooks.add_lanes = one_lane.hooks.add_lanes = style_of(SYSX_CFG2).hooks.add_lanes;
    pipe_times(first, 2, 2, (struct pipe_prices){1, 1, 0, 0, 1}, 7, 9);
    pipe_times(pipe_with(whole, 1, 2), 2, 2, (struct pipe_prices){1, 1, 0, 0, 1}, 7, 8);
    pipe_times(first, 2, 2, (struct pipe_prices){1, 1, 0, 0, 2}, 7, 11);
    pipe_times(pipe_with(whole, 1, 2), 2, 2, (struct pipe_prices){1, 1, 0, 0, 2}, 7, 9);
    pipe_times(whole, 4, 4, (struct pipe_prices){1, 1, 0, 0, 4}, 27, 31);
    pipe_times(one_lane, 4, 4, (struct pipe_prices){1, 1, 0, 0, 4}, 27, 31);
    pipe_times(whole, 4, 4, (struct pipe_prices){1, 1, 0, 0, 5}, 27, 32);
    pipe_times(one_lane, 4, 4, (struct pipe_prices){1, 1, 0, 0, 5}, 27, 35);
    pipe_times(pipe_mobius, 4, 4, (struct pipe_prices){1, 2, 0, 0, 8}, 33, 49);
    pipe_times(pipe_mobius, 4, 4, (struct pipe_prices){1, 2, 0, 0, 10}, 33, 53);
}
END_TEST

/* Fewer micro-batches than GPUs: 27 and 25, not 21 and 15. */
START_TEST(stall)
{
    pipe_times(pipe_mobius, 4, 2, (struct pipe_prices){1, 2, 0, 0, 0}, 27, 27);
    pipe_times(whole, 4, 2, (struct pipe_prices){1, 1, 0, 0, 0}, 25, 25);
}
END_TEST

/* A bad iteration, Fig. 8 with (1, 1, 2): SysX undoes all stages at 32 on their own lanes, so 34, and the next one 66.
   Mobius has not stepped: 37, and the next one 82. */
START_TEST(bad_iteration)
{
    const bool bad[] = {true, false};
    struct ht_scenario a = pipe_scenario_for(&whole, 4, 1, 4), b = pipe_scenario_for(&pipe_mobius, 4, 1, 4);
    struct pipe_run r = pipe_run(pipe_build(&a, &whole), &whole, (struct pipe_prices){1, 1, 1, 1, 2}, 2, 0, bad);
    ck_assert_int_eq(r.trace->iteration_end_ns[0], pipe_ns(34));
    ck_assert_int_eq(r.trace->iteration_end_ns[1], pipe_ns(66));
    ck_assert_double_eq(pipe_start(&r, 0, "O0"), 30);
    ck_assert_double_eq(pipe_start(&r, 0, "undo15"), 32);
    ck_assert_double_eq(pipe_start(&r, 0, "undo0"), 32);
    ck_assert_double_eq(pipe_start(&r, 1, "undo0"), -1);
    pipe_run_free(&r);
    r = pipe_run(pipe_build(&b, &pipe_mobius), &pipe_mobius, (struct pipe_prices){1, 2, 2, 2, 4}, 2, 0, bad);
    ck_assert_int_eq(r.trace->iteration_end_ns[0], pipe_ns(37));
    ck_assert_int_eq(r.trace->iteration_end_ns[1], pipe_ns(82));
    ck_assert_double_eq(pipe_start(&r, 0, "O0"), -1);
    pipe_run_free(&r);
    ht_scenario_free(&a);
    ht_scenario_free(&b);
}
END_TEST

/* The closed form against the simulator: N_m (v T_f + v d T_b') + (N_g - 1) max(T_f, T_b'), of N_g 2, 3, 4, 8, v 1 ..
   3, d 1 .. 3, d T_b' = 2 or 3 T_f, N_m from N_g on. T_f = 1. */
START_TEST(closed_form)
{
    static const int32_t ranks[] = {2, 3, 4, 8};
    for (size_t k = 0; k < HT_COUNT(ranks); k++)
        for (int32_t v = 1; v <= 3; v++)
            for (int32_t d = 1; d <= 3; d++)
                for (int32_t b = 2; b <= 3; b++)
                    for (int32_t more = 0; more < 3; more += 2) {
                        int32_t n = ranks[k], m = n + more;
                        double fine = (double)b / d, length = m * (v + b * v) + (n - 1) * (fine > 1 ? fine : 1);
                        pipe_times(pipe_with(whole, v, d), n, m, (struct pipe_prices){1, fine, 0, 0, 0}, length,
                                   length);
                    }
}
END_TEST

/* 3/27 of Fig. 8's time. */
START_TEST(bubble)
{
    pipe_check_bubble(&whole, 1, 3.0 / 27);
}
END_TEST

static int count(const struct ht_schedule *s, enum ht_op_kind kind, char letter)
{
    int n = 0;
    for (int32_t op = 0; op < s->n_ops; op++) n += s->ops[op].kind == kind && (!letter || s->ops[op].name[0] == letter);
    return n;
}

/* Remote checkpoints: 2 of 2, 2 of 4; 8, 12, 24 a micro-batch. All of a message's lanes list them by timestep and then
   by backward stage: at a timestep forward stages end together, one on each GPU. */
START_TEST(checkpoints)
{
    static const int cases[][4] = {{2, 1, 1, 2}, {2, 1, 2, 2}, {4, 2, 1, 8}, {4, 2, 2, 12}, {4, 2, 3, 24}};
    for (size_t c = 0; c < HT_COUNT(cases); c++) {
        struct ht_pipe_style y = pipe_with(whole, cases[c][1], cases[c][2]);
        int n = cases[c][0], last_step = -1, last_unit = -1;
        struct ht_scenario sc = pipe_scenario_for(&y, n, 1, n + 1);
        struct ht_schedule *s = pipe_build(&sc, &y);
        ck_assert_int_eq(count(s, HT_OP_SEND, 'C'), cases[c][3] * (n + 1));
        for (int32_t op = 0; op < s->n_ops; op++) {
            if (s->ops[op].kind != HT_OP_SEND || s->ops[op].name[0] != 'C') continue;
            int unit = s->ops[op].label.unit, i = (unit - 1) / y.d; /* the one block of backward stage unit - 1 */
            int step = i % n + i / n * (n + 1) + s->ops[op].label.micro_batch;
            ck_assert(step > last_step || (step == last_step && unit > last_unit));
            last_step = step;
            last_unit = unit;
            ck_assert_int_eq(ht_op_rank(s, op), i % n);
            int32_t peer = s->ops[op + 1].match == s->ops[op].match ? op + 1 : op - 1;
            ck_assert_int_eq(ht_op_rank(s, peer), n - 1 - (unit - 1) % n);
        }
        ht_schedule_destroy(s);
        ht_scenario_free(&sc);
    }
}
END_TEST

/* Sent when wanted, a checkpoint is on the way of its backward: with messages of one unit (checkpoints alone) each of
   the 8 remote passes of a GPU waits; sent early, none does. Figure 5(c)'s shape: GPU 0 has b3 (remote) and b1 (local).
 */
START_TEST(early_checkpoints)
{
    struct ht_pipe_style y = pipe_with(whole, 1, 2);
    struct ht_scenario sc = pipe_scenario_for(&y, 2, 1, 4);
    double end[2];
    for (int early = 0; early < 2; early++) {
        y.hooks = style_of(early ? SYSX_CFG3 : SYSX_CFG1).hooks;
        struct ht_schedule *s = pipe_build(&sc, &y);
        struct pipe_run r = pipe_run(s, &y, (struct pipe_prices){1, 1, 0, 0, 0}, 1, 0, NULL);
        struct ht_sim_options options = {.iterations = 1};
        struct ht_error err = {0};
        for (int32_t op = 0; op < s->n_ops; op++)
            if (s->ops[op].kind == HT_OP_SEND && s->ops[op].name[0] == 'C') r.cost_ns[op] = pipe_ns(0.5);
        ht_trace_destroy(r.trace);
        ck_assert(ht_sim_run(s, r.cost_ns, &options, &err, &r.trace) == HT_OK);
        end[early] = (double)r.trace->end_ns / (double)PIPE_UNIT_NS;
        pipe_run_free(&r);
    }
    /* N_m (v T_f + w T_b') + (N_g - 1) T_b' = 4 x 3 + 1 = 13. Early: b3.0 on GPU 0 at 5 has f1.0's output since 2, and
       its checkpoint, sent by GPU 1 when f1.0 was done, since 2.5. When wanted: b3.j waits half a unit each, b0.j on
       GPU 1 too. */
    ck_assert_double_eq(end[1], 13);
    ck_assert_double_eq(end[0], 13 + 4 * 0.5 + 4 * 0.5);
    ht_scenario_free(&sc);
}
END_TEST

/* A stage's parameters lie once on its node and are fetched from there by the rank that runs it forward and the one
   that runs it backward. Over two nodes some come as one-sided reads, block by block: the first forward can begin with
   its first block at 1, waits for the second at 2, and is done at 2.5 instead of 3. */
START_TEST(shared_parameters)
{
    for (int nodes = 1; nodes <= 2; nodes++) {
        struct ht_scenario sc = pipe_scenario_for(&whole, 4, nodes, 4);
        struct ht_schedule *s = pipe_build(&sc, &whole);
        int local = 0, remote = 0;
        for (int32_t op = 0; op < s->n_ops; op++)
            for (int64_t e = s->effects_begin[op]; e < s->effects_begin[op + 1]; e++) {
                const struct ht_effect *x = &s->effects[e];
                if (s->tensors[x->tensor].class != HT_PARAM || x->tier != HT_DEVICE || !(x->flags & HT_PRODUCE))
                    continue;
                local += s->ops[op].kind == HT_OP_COPY;
                remote += s->ops[op].kind == HT_OP_RECEIVE;
                int32_t owner = 3 - (s->tensors[x->tensor].label.unit ? s->tensors[x->tensor].label.unit - 1 : 0) % 4;
                if (s->tensors[x->tensor].label.unit == s->n_units - 1) owner = 0; /* with stage 15 */
                bool same = s->rank_node[owner] == s->rank_node[ht_op_rank(s, op)];
                ck_assert(same == (s->ops[op].kind == HT_OP_COPY));
            }
        /* 16 blocks twice, embedding (forward) and head (backward) once; block 14 stays on GPU 2, where backward stage
           13 follows forward stage 6. Two nodes: GPUs 0 and 1 have forward stages 0, 1, 4, 5 and blocks of backward
           stages 15, 14, 11, 10, .. in their memory: half of what forward stages need is away. */
        ck_assert_int_eq(local + remote, 33);
        ck_assert_int_eq(remote, nodes == 1 ? 0 : 17 - 8);
        ht_schedule_destroy(s);
        pipe_check(&sc, &whole, (struct pipe_prices){1, 1, 0, 0, 0}, 27, 27);
        pipe_check(&sc, &whole, (struct pipe_prices){1, 1, 1, 1, 2}, nodes == 1 ? 27 : 27.5, nodes == 1 ? 32 : 31.5);
        ht_scenario_free(&sc);
    }
}
END_TEST

/* Writes "resource=amount ..." of the n-th op of that name; bytes in units of `unit`. */
static const char *uses(const struct ht_schedule *s, const char *name, int nth, int64_t unit, char buf[256])
{
    buf[0] = '\0';
    for (int32_t op = 0; op < s->n_ops; op++) {
        if (strcmp(s->ops[op].name, name) || nth-- > 0) continue;
        for (int64_t u = s->uses_begin[op]; u < s->uses_begin[op + 1]; u++) {
            const struct ht_resource *r = &s->resources[s->uses[u].resource];
            int64_t amount = r->kind == HT_RES_CORES ? s->uses[u].amount : s->uses[u].amount / unit;
            size_t at = strlen(buf);
            snprintf(buf + at, 256 - at, "%s%s=%lld", at ? ", " : "", r->name, (long long)amount);
        }
        return buf;
    }
    ck_abort_msg("there is no op '%s'", name);
    return NULL;
}

/* Shared resources, over two nodes of two GPUs: copies take their port and the domain's DRAM, messages both ports and
   between nodes both NICs, a read of another node's memory its DRAM, both NICs and the reader's port; host work the 8
   cores of its process's domain. */
START_TEST(shares)
{
    char buf[256];
    struct ht_scenario sc = pipe_scenario_for(&whole, 4, 2, 4);
    struct ht_schedule *s = pipe_build(&sc, &whole);
    int64_t x = ht_unit_input_bytes(&sc.model, 1, 1, sc.seq, HT_F16), block = ht_unit_params(&sc.model, 2);
    ck_assert_str_eq(uses(s, "P12", 0, 2 * block, buf), "rank 0 pcie h2d=1, domain 0 dram=1");
    ck_assert_str_eq(uses(s, "G2", 0, 4 * block, buf), "rank 1 pcie d2h=1, domain 2 dram=1");
    ck_assert_str_eq(uses(s, "X3.0", 0, x, buf), "rank 0 pcie d2h=1"); /* f0 to f1, in the node */
    ck_assert_str_eq(uses(s, "X3.0", 1, x, buf), "rank 1 pcie h2d=1");
    ck_assert_str_eq(uses(s, "X5.0", 0, x, buf), "rank 1 pcie d2h=1, node 0 nic out=1"); /* f1 to f2 */
    ck_assert_str_eq(uses(s, "X5.0", 1, x, buf), "rank 2 pcie h2d=1, node 1 nic in=1");
    /* f0's second block, of GPU 2; members of a group come in ascending rank, so the receive is the first */
    ck_assert_str_eq(uses(s, "P2", 1, 2 * block, buf), "domain 4 dram=1, node 1 nic out=1");
    ck_assert_str_eq(uses(s, "P2", 0, 2 * block, buf), "rank 0 pcie h2d=1, node 0 nic in=1");
    /* 24 bytes a parameter of FP32 states, 4 of the sum, 2 of the copy, 3.01 written of the log */
    ck_assert_str_eq(uses(s, "O2", 0, 33 * block, buf), "domain 2 cores=8, domain 2 dram=1");
    ck_assert_str_eq(uses(s, "V2", 0, 4 * block, buf), "domain 2 cores=8, domain 2 dram=1");
    ck_assert_str_eq(uses(s, "b2.0", 0, 1, buf), "");
    ht_schedule_destroy(s);
    struct ht_pipe_style y = whole;
    y.free_messages = true;
    s = pipe_build(&sc, &y);
    ck_assert_str_eq(uses(s, "X5.0", 0, x, buf), "");
    for (int32_t op = 0; op < s->n_ops; op++) {
        if (s->ops[op].kind != HT_OP_SEND && s->ops[op].kind != HT_OP_RECEIVE) continue;
        ck_assert(s->works[s->ops[op].work].free == (s->ops[op].name[0] != 'P'));
    }
    ht_schedule_destroy(s);
    ht_scenario_free(&sc);
}
END_TEST

/* Two buffers: on GPU 0 of Fig. 8 with p = 1, forward stage 4 (units 9, 10) is fetched behind stage 0 at 2; backward
   stage 15 (unit 16) when stage 4 begins at 6 and stage 0 has left, 11 (unit 12) when 15 begins, and so on. */
START_TEST(two_buffers)
{
    struct ht_scenario sc = pipe_scenario_for(&whole, 4, 1, 4);
    struct pipe_run r = pipe_run(pipe_build(&sc, &whole), &whole, (struct pipe_prices){1, 1, 1, 1, 2}, 1, 0, NULL);
    ck_assert_double_eq(pipe_start(&r, 0, "P0"), 0);
    ck_assert_double_eq(pipe_start(&r, 0, "P9"), 2);
    ck_assert_double_eq(pipe_start(&r, 0, "P16"), 6);
    ck_assert_double_eq(pipe_start(&r, 0, "P12"), 10);
    ck_assert_double_eq(pipe_start(&r, 0, "P8"), 14);
    pipe_run_free(&r);
    ht_scenario_free(&sc);
}
END_TEST

/* The head in both passes: on the rank of the last forward stage for its loss, and again where its backward is. */
START_TEST(head_in_both_passes)
{
    struct ht_pipe_style y = whole;
    struct ht_scenario sc = pipe_scenario_for(&y, 4, 1, 4);
    for (int both = 0; both < 2; both++) {
        y.forward_head = both;
        struct ht_schedule *s = pipe_build(&sc, &y);
        int32_t head = s->n_units - 1, forward[4] = {0}, again[4] = {0};
        for (int32_t op = 0; op < s->n_ops; op++) {
            if (s->ops[op].label.unit != head) continue;
            if (s->ops[op].kind == HT_OP_FORWARD) forward[ht_op_rank(s, op)]++;
            if (s->ops[op].kind == HT_OP_RECOMPUTE) again[ht_op_rank(s, op)]++;
        }
        ck_assert_int_eq(forward[3], both ? 4 : 0);
        ck_assert_int_eq(forward[0], both ? 0 : 4);
        ck_assert_int_eq(again[0], both ? 4 : 0);
        ht_schedule_destroy(s);
    }
    ht_scenario_free(&sc);
}
END_TEST

/* 25 GB of 16-bit parameters a node for 100e9 parameters on eight (Sec. 4): what a node's memory holds of them. */
START_TEST(host_bytes)
{
    struct ht_scenario_request r = {
        .model = "sysx-110b", .cluster = "sysx-8node", .batch = 128, .micro_batch = 2, .seq = 1024};
    struct ht_error err = {0};
    struct ht_pipe_style y = pipe_with(whole, 2, 3);
    struct ht_scenario sc = scenario_from(&r);
    struct ht_schedule *s = pipe_build(&sc, &y);
    double of_node[8] = {0}, all = 0;
    for (int32_t t = 0; t < s->n_tensors; t++)
        if (s->tensors[t].class == HT_PARAM) of_node[s->rank_node[s->tensors[t].rank]] += (double)s->tensors[t].bytes;
    for (int n = 0; n < 8; n++) {
        all += of_node[n];
        ck_assert_double_eq_tol(of_node[n] * 8, 2.0 * (double)ht_model_params(&sc.model), 0.02 * 2e11);
    }
    ck_assert_double_eq(all, 2.0 * (double)ht_model_params(&sc.model));
    /* the estimate is what the graph holds, but for rounding to 512 bytes */
    struct ht_proof v;
    ck_assert_msg(ht_schedule_verify(s, &err, &v) == HT_OK, "%s", err.text);
    int64_t most = 0, host = ht_pipe_host_bytes(&sc, &y);
    for (int n = 0; n < 8; n++)
        if (v.spaces[32 + n].peak_bytes > most) most = v.spaces[32 + n].peak_bytes;
    ck_assert_int_ge(most, host);
    ck_assert_int_le(most, host + 1000000);
    ht_proof_free(&v);
    ht_schedule_destroy(s);
    ht_scenario_free(&sc);
}
END_TEST

/* 500 random graphs: placement and hooks of any configuration, with anything else that a pipeline may have. */
START_TEST(random_pipelines)
{
    for (uint64_t seed = 0; seed < 500; seed++) {
        uint64_t at = 0;
        struct ht_pipe_style y = random_style(seed, &at);
        struct ht_pipe_style one = style_of((enum sysx_variant)draw(seed, &at, SYSX_CFG4 + 1));
        y.order = HT_PIPE_AFAB;
        y.d = 1 + (int32_t)draw(seed, &at, 4);
        y.offload = y.recompute = true;
        y.segment = y.recomputed = 0; /* whole stages: the backward pass is on another rank */
        y.attention_only = false;
        y.backward_rank = one.backward_rank;
        y.hooks = one.hooks;
        check_random(seed, &at, y);
    }
}
END_TEST

int main(void)
{
    TCase *tc = tcase_create("figures");
    whole = style_of(SYSX_CFG3);
    tcase_add_test(tc, assignment);
    tcase_add_test(tc, fig5);
    tcase_add_test(tc, fig8);
    tcase_add_test(tc, optimizer_tail);
    tcase_add_test(tc, stall);
    tcase_add_test(tc, bad_iteration);
    tcase_add_test(tc, closed_form);
    tcase_add_test(tc, bubble);
    tcase_add_test(tc, checkpoints);
    tcase_add_test(tc, early_checkpoints);
    tcase_add_test(tc, shared_parameters);
    tcase_add_test(tc, shares);
    tcase_add_test(tc, two_buffers);
    tcase_add_test(tc, head_in_both_passes);
    tcase_add_test(tc, host_bytes);
    tcase_add_test(tc, random_pipelines);
    return pipe_main("SysX's figures", tc);
}
