/*
 * The profiler's output (Sec. 3.1) for a scenario: what one block takes in memory and time, and what is constant.
 *
 * Times are those of the very ops that the schedule will have: a probe of one block is built with the shared building
 * blocks and its works are put to the profile. Bytes come from common/model, as the tensors' do.
 *
 * M_gc and M_cc. The paper gives "constant GPU storage requirements (e.g., activations) outside the transformer model"
 * and "the CPU storage requirements beyond the transformer model (e.g., the embedding layer)". Here
 *
 *     M_gc = embedding and head: compute copy, gradients, and (optimizer on the device) states
 *          + the head's input, kept activations, logits, input gradient and scratch, all live in its backward pass
 *     M_cc = embedding and head with their optimizer on the host: as a block there
 *          + of the largest unit, what a step reads and writes at once where eq. 2 lets the two share memory
 *
 * Control (common/build/control.h), which the paper does not have. Eq. 1 is about the transition from forward to backward,
 * when there are no gradients yet; that those of blocks stepped on the device then stay until the verdict, under rollback
 * with a log beside each, is the verifier's affair, as other gradients are. On the host, where eq. 2 counts all that there
 * ever is, rollback has the log, and the gradient beside the copy that the step makes.
 *
 * Several ranks (the paper says no more than that it used ZeRO-3). M_p is then a rank's share. On the device,
 *
 *     2 M'_a c + 2 M_a (L - c + 1) + (2 M_p / N) (L - p) + 2 M_p (1 at work + 1 gathered ahead) + (12 M_p / N) (L - o)
 * + M_gc
 *
 * so M_gc takes two whole blocks less the share that eq. 1 counts as "+1", and embedding and head gathered, with whole
 * gradients. Host bytes are those of all ranks of the node, M_cpu being the node's. t_fp and t_bp are at least what the
 * collectives of a block take, which run beside them; t_optim^cpu is N times a rank's, since the steps of N ranks share
 * the node's cores.
 */
#include "autohete/autohete.h"
#include "common/build/control.h"
#include "common/build/draft.h"

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* ---- bytes ----------------------------------------------------------------------------------------------------- */

/* Bytes of one parameter in each role. */
struct per_param {
    int64_t copy, state, shared, grad, sum; /* sum: of the accumulator, 0 for one micro-batch */
    int64_t host;                           /* of an offloaded unit on the host */
};

static struct per_param per_param_of(const struct ht_scenario *sc)
{
    const struct ht_numerics *n = &sc->numerics;
    bool master = ht_numerics_has_master(n), several = ht_equal_rounds(sc) > 1;
    bool logged = sc->control.mode == HT_CONTROL_ROLLBACK;
    int64_t grad = ht_dtype_bytes(ht_stepped_gradient(n, ht_equal_rounds(sc)));
    struct per_param b = {.copy = ht_dtype_bytes(n->param), .grad = ht_dtype_bytes(n->grad), .sum = several ? grad : 0};
    b.shared = master ? 0 : b.copy;
    b.state = ht_optimizer_state_bytes(n) + b.shared;
    /* 16 bit: the copy and the gradient never live together (14), unless sums outlast a micro-batch or gradients the
       step. */
    b.host = b.state + (!master ? grad : several || logged ? b.copy + grad : larger(b.copy, grad));
    return b;
}

/* The undo log of a rank's share of a unit; 0 where there is none. */
static int64_t log_bytes(const struct ht_scenario *sc, int64_t unit)
{
    return ht_control_log_bytes(&sc->control, ht_equal_shard(sc, unit));
}

/* Beside the shards: whole parameters and gradients. */
static int64_t gathered(const struct ht_scenario *sc, const struct per_param *b)
{
    const struct ht_model *m = &sc->model;
    if (ht_scenario_ranks(sc) == 1) return 0;
    int64_t ends = ht_unit_params(m, 0) + ht_unit_params(m, m->layers + 1);
    return (2 * ht_unit_params(m, 1) - ht_equal_shard(sc, 1)) * b->copy + ends * (b->copy + b->grad);
}

static int64_t device_const(const struct ht_scenario *sc, const struct per_param *b, bool on_host)
{
    const struct ht_model *m = &sc->model;
    int64_t head = m->layers + 1, ends = ht_equal_shard(sc, 0) + ht_equal_shard(sc, head);
    enum ht_dtype act = sc->numerics.param;
    int64_t params = on_host ? b->copy + larger(b->sum, b->grad) : b->copy - b->shared + b->state + b->sum + b->grad;
    int64_t input = ht_unit_input_bytes(m, head, sc->micro_batch, sc->seq, act);
    return params * ends + gathered(sc, b) + 2 * input +
           ht_unit_activation_bytes(m, head, sc->micro_batch, sc->seq, act) +
           ht_logits_bytes(m, sc->micro_batch, sc->seq) +
           larger(ht_unit_workspace_bytes(m, head, sc->micro_batch, sc->seq, act, false),
                  ht_unit_workspace_bytes(m, head, sc->micro_batch, sc->seq, act, true));
}

static int64_t host_const(const struct ht_scenario *sc, const struct per_param *b, bool on_host)
{
    const struct ht_model *m = &sc->model;
    int64_t block = ht_equal_shard(sc, 1), table = ht_equal_shard(sc, 0);
    int64_t ends = table + ht_equal_shard(sc, m->layers + 1), largest = on_host ? larger(block, table) : block;
    int64_t logs = log_bytes(sc, 0) + log_bytes(sc, m->layers + 1);
    return ((on_host ? b->host * ends + logs : 0) + larger(b->copy, b->grad) * largest) *
           ht_scenario_ranks_per_node(sc);
}

static void add_bytes(const struct ht_scenario *sc, bool on_host, struct autohete_profile *f)
{
    const struct ht_model *m = &sc->model;
    struct per_param b = per_param_of(sc);
    int64_t params = ht_equal_shard(sc, 1); /* M_p */
    f->input_bytes = ht_unit_input_bytes(m, 1, sc->micro_batch, sc->seq, sc->numerics.param);
    f->activation_bytes = f->input_bytes + ht_unit_activation_bytes(m, 1, sc->micro_batch, sc->seq, sc->numerics.param);
    f->copy_bytes = b.copy * params;
    f->state_bytes = b.state * params;
    f->shared_bytes = b.shared * params;
    f->sum_bytes = b.sum * params;
    f->host_bytes = (b.host * params + log_bytes(sc, 1)) * ht_scenario_ranks_per_node(sc);
    f->device_const_bytes = device_const(sc, &b, on_host);
    f->host_const_bytes = host_const(sc, &b, on_host);
    f->device_capacity_bytes = ht_scenario_device_bytes(sc);
    f->host_capacity_bytes = ht_scenario_host_bytes(sc);
}

/* ---- times ----------------------------------------------------------------------------------------------------- */

struct probe {
    struct ht_draft g;
    const struct ht_profile *costs;
    struct ht_error *err;
    enum ht_status status;
};

/* Cost of an op of the probe; after an error, 0. */
static int64_t ask(struct probe *p, int32_t op)
{
    const struct ht_schedule *s = p->g.schedule;
    int64_t ns = 0;
    if (p->status == HT_OK) p->status = ht_profile_cost(p->costs, 0, &s->works[s->ops[op].work], p->err, &ns);
    return p->status == HT_OK ? ns : 0;
}

static int64_t passes_of(struct probe *p, int32_t unit)
{
    int64_t forward = ask(p, ht_draft_forward(&p->g, unit, 0, true));
    return forward + ask(p, ht_draft_backward(&p->g, unit, 0));
}

static int64_t in_of(struct probe *p, int32_t unit)
{
    return ask(p, ht_draft_copy(&p->g, p->g.param[unit], HT_HOST, HT_DEVICE, HT_PRODUCE, false));
}

static int64_t out_of(struct probe *p, int32_t unit)
{
    return ask(p, ht_draft_copy(&p->g, p->g.grad[unit], HT_DEVICE, HT_HOST, HT_PRODUCE, true));
}

/* How many ranks do the same at a time on what the lane works with. */
static int64_t sharers(const struct probe *p, int32_t lane)
{
    return lane == p->g.lanes->host ? ht_scenario_ranks_per_node(p->g.scenario) : 1;
}

/* One more micro-batch's gradient of the unit, and its step. */
static int64_t sum_of(struct probe *p, int32_t lane, int32_t unit)
{
    return p->g.n_mb > 1 ? sharers(p, lane) * ask(p, ht_draft_accumulate(&p->g, lane, unit, 1)) : 0;
}

/* The step, and what control has beside it: the gradient judged, the log written. */
static int64_t step_of(struct probe *p, int32_t lane, int32_t unit)
{
    const struct ht_schedule *s = p->g.schedule;
    int32_t op = ht_draft_step(&p->g, lane, unit, 1, true);
    int64_t ns = 0, judge_ns = 0;
    if (p->g.scenario->control.mode == HT_CONTROL_NONE) return sharers(p, lane) * ask(p, op);
    struct ht_work step = s->works[s->ops[op].work], judge;
    ht_control_works(&p->g.scenario->control, &step, &judge);
    if (p->status == HT_OK) p->status = ht_profile_cost(p->costs, 0, &step, p->err, &ns);
    if (p->status == HT_OK) p->status = ht_profile_cost(p->costs, 0, &judge, p->err, &judge_ns);
    return sharers(p, lane) * (ns + judge_ns);
}

/* Of the block's collectives; 0 when it has none of that kind. */
static int64_t collective_of(struct probe *p, enum ht_op_kind kind)
{
    const struct ht_schedule *s = p->g.schedule;
    for (int32_t op = 0; op < s->n_ops; op++)
        if (s->ops[op].kind == kind && s->ops[op].label.unit == 1) return ask(p, op);
    return 0;
}

/* Embedding and head: their passes, sums and steps on the compute lane; or, on the host, what the embedding adds at the
   iteration's boundary, where its gradient is the last and its parameters are the first: copy out, step, copy in. */
static int64_t const_of(struct probe *p, int64_t micro_batches, bool on_host)
{
    const int32_t embedding = 0, head = 2, gpu = p->g.lanes->compute;
    int64_t ns = micro_batches * (passes_of(p, embedding) + passes_of(p, head));
    if (on_host)
        return ns + out_of(p, embedding) + sum_of(p, p->g.lanes->host, embedding) + step_of(p, p->g.lanes->host, embedding) +
               in_of(p, embedding);
    ns += (micro_batches - 1) * (sum_of(p, gpu, embedding) + sum_of(p, gpu, head));
    return ns + step_of(p, gpu, embedding) + step_of(p, gpu, head);
}

enum ht_status autohete_measure(const struct ht_scenario *scenario, const struct ht_profile *costs, bool on_host,
                                struct ht_error *err, struct autohete_profile *out)
{
    /* The probe: one block, and two micro-batches where the scenario has several. */
    struct ht_scenario one = *scenario;
    int64_t m = ht_equal_rounds(scenario);
    one.model.layers = 1;
    one.batch = (m > 1 ? 2 : 1) * one.micro_batch * ht_scenario_ranks(scenario);
    struct probe p = {.costs = costs, .err = err};
    struct autohete_profile f = {.layers = scenario->model.layers, .micro_batches = m};
    ht_draft_begin(&p.g, &one, "probe");
    f.fp_ns = ask(&p, ht_draft_forward(&p.g, 1, 0, true));
    f.bp_ns = ask(&p, ht_draft_backward(&p.g, 1, 0));
    int64_t gather_ns = collective_of(&p, HT_OP_ALL_GATHER);
    f.fp_ns = larger(f.fp_ns, gather_ns);
    f.bp_ns = larger(f.bp_ns, gather_ns + collective_of(&p, HT_OP_REDUCE_SCATTER));
    f.h2d_ns = in_of(&p, 1);
    f.d2h_ns = out_of(&p, 1);
    f.cpu_ns = step_of(&p, p.g.lanes->host, 1);
    f.gpu_ns = step_of(&p, p.g.lanes->compute, 1);
    f.cpu_sum_ns = sum_of(&p, p.g.lanes->host, 1);
    f.gpu_sum_ns = sum_of(&p, p.g.lanes->compute, 1);
    f.const_ns = const_of(&p, m, on_host);
    ht_schedule_destroy(ht_draft_end(&p.g));
    if (p.status != HT_OK) return p.status;
    add_bytes(scenario, on_host, &f);
    *out = f;
    return HT_OK;
}
