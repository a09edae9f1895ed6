/*
 * The profiler's output (Sec. 3.1) for a scenario: memory and time of one block, and the constants.
 *
 * Times are those of the ops that the schedule will have, on the slowest rank, since all ranks share one plan
 * (common/draft/cost_query.h). Bytes come from common/model, like those of the tensors.
 *
 * M_gc and M_cc. The paper gives "constant GPU storage requirements (e.g., activations) outside the transformer model"
 * and "the CPU storage requirements beyond the transformer model (e.g., the embedding layer)". Here
 *
 *     M_gc = embedding and head: compute copy, gradients, and (optimizer on the device) states
 *          + the head's input, kept activations, logits, input gradient and scratch, all live in its backward pass
 *     M_cc = embedding and head (optimizer on the host): as a block there
 *          + what a step of the largest unit reads and writes at once, if eq. 2 lets the two share memory
 *
 * Control (common/draft/control.h) is not in the paper. Eq. 1 describes the transition from forward to backward, when
 * there are no gradients yet. Gradients of blocks stepped on the device then stay until the final check, with a log
 * beside each under rollback; these are left to the verifier, like other gradients. On the host eq. 2 counts all that
 * is ever there, so rollback adds the log, and the gradient beside the copy that the step makes.
 *
 * Several ranks (the paper says only that it used ZeRO-3). M_p is then a rank's share. On the device,
 *
 *     2 M'_a c + 2 M_a (L - c + 1) + (2 M_p / N) (L - p) + 2 M_p (1 at work + 1 gathered ahead) + (12 M_p / N) (L - o)
 *     + M_gc
 *
 * so M_gc takes two whole blocks, less the share that eq. 1 counts as "+1", and embedding and head gathered, with whole
 * gradients. Host bytes are those of all ranks of the fullest node, and M_cpu is the node's that has least for each
 * rank, as if it had as many. t_fp and t_bp are at least the
 * time of a block's collectives, which run beside them. t_optim^cpu is that of all ranks of a node, whose steps share
 * its cores; the slowest node's.
 */
#include "autohete/autohete.h"
#include "common/base/minmax.h"
#include "common/draft/control.h"
#include "common/draft/cost_query.h"
#include "common/draft/layout.h"

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
    /* In 16 bit the copy and the gradient are never live together (14), unless sums outlive a micro-batch or gradients
       outlive the step. */
    b.host = b.state + (!master ? grad : several || logged ? b.copy + grad : ht_max(b.copy, grad));
    return b;
}

/* Returns the bytes of the undo log of a rank's share of a unit; 0 without rollback. */
static int64_t log_bytes(const struct ht_scenario *sc, int64_t unit)
{
    return ht_control_log_bytes(&sc->control, ht_equal_shard(sc, unit));
}

/* Returns the bytes of whole parameters and gradients that a rank has beside its shards. */
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
    int64_t params = on_host ? b->copy + ht_max(b->sum, b->grad) : b->copy - b->shared + b->state + b->sum + b->grad;
    int64_t input = ht_unit_input_bytes(m, head, sc->micro_batch, sc->seq, act);
    return params * ends + gathered(sc, b) + 2 * input +
           ht_unit_activation_bytes(m, head, sc->micro_batch, sc->seq, act) +
           ht_logits_bytes(m, sc->micro_batch, sc->seq) +
           ht_max(ht_unit_workspace_bytes(m, head, sc->micro_batch, sc->seq, act, false),
                  ht_unit_workspace_bytes(m, head, sc->micro_batch, sc->seq, act, true));
}

static int64_t host_const(const struct ht_scenario *sc, const struct per_param *b, bool on_host)
{
    const struct ht_model *m = &sc->model;
    int64_t block = ht_equal_shard(sc, 1), table = ht_equal_shard(sc, 0);
    int64_t ends = table + ht_equal_shard(sc, m->layers + 1), largest = on_host ? ht_max(block, table) : block;
    int64_t logs = log_bytes(sc, 0) + log_bytes(sc, m->layers + 1);
    return ((on_host ? b->host * ends + logs : 0) + ht_max(b->copy, b->grad) * largest) *
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
    f->host_capacity_bytes = ht_scenario_shared_host_bytes(sc);
}

/* ---- times ----------------------------------------------------------------------------------------------------- */

/* Returns the time of a step or an addition on the rank that takes longest. On the host the ranks of a node do the same
   work at a time on its cores, so one of a large node may be slower than one of a node with slower cores. */
static int64_t on_lane(struct ht_cost_query *q, int64_t cost(struct ht_cost_query *, enum ht_lane_kind, int64_t),
                       enum ht_lane_kind where, int64_t unit)
{
    const struct ht_cluster *cluster = q->scenario->cluster;
    int64_t params = ht_equal_shard(q->scenario, unit), most = 0;
    if (where != HT_LANE_HOST) return cost(q, where, params);
    for (q->rank = 0; q->rank < cluster->n_gpus; q->rank++)
        most = ht_max(most, ht_cluster_node_of(cluster, q->rank, NULL)->n_gpus * cost(q, where, params));
    q->rank = HT_SLOWEST_RANK;
    return most;
}

static int64_t passes_of(struct ht_cost_query *q, int64_t unit)
{
    return ht_query_pass(q, HT_OP_FORWARD, unit) + ht_query_pass(q, HT_OP_BACKWARD, unit);
}

static int64_t in_of(struct ht_cost_query *q, int64_t unit)
{
    int64_t param_bytes = ht_dtype_bytes(q->scenario->numerics.param);
    return ht_query_copy(q, HT_LANE_H2D, ht_equal_shard(q->scenario, unit) * param_bytes);
}

static int64_t out_of(struct ht_cost_query *q, int64_t unit)
{
    enum ht_dtype grad = ht_stepped_gradient(&q->scenario->numerics, q->micro_batches);
    return ht_query_copy(q, HT_LANE_D2H, ht_equal_shard(q->scenario, unit) * ht_dtype_bytes(grad));
}

static int64_t sum_of(struct ht_cost_query *q, enum ht_lane_kind where, int64_t unit)
{
    return on_lane(q, ht_query_accumulate, where, unit);
}

static int64_t step_of(struct ht_cost_query *q, enum ht_lane_kind where, int64_t unit)
{
    return on_lane(q, ht_query_step, where, unit);
}

/* Returns the time of a collective of a block. All shards but the rank's own pass the rank. */
static int64_t collective_of(struct ht_cost_query *q, enum ht_op_kind kind, enum ht_dtype dtype)
{
    int64_t others = ht_scenario_ranks(q->scenario) - 1;
    return ht_query_collective(q, kind, dtype, others * ht_equal_shard(q->scenario, 1));
}

/* Returns the time of the embedding between B_1 and the next F_1: its passes, and its step with what goes with it. */
static int64_t turn_of(struct ht_cost_query *q, bool on_host)
{
    int64_t step = on_host ? out_of(q, 0) + step_of(q, HT_LANE_HOST, 0) + in_of(q, 0) : step_of(q, HT_LANE_COMPUTE, 0);
    return passes_of(q, 0) + step;
}

/* Returns the time that embedding and head keep the host's lane busy if their optimizer is there. */
static int64_t ends_host_of(struct ht_cost_query *q)
{
    int64_t ns = 0, ends[] = {0, q->scenario->model.layers + 1};
    for (int i = 0; i < 2; i++)
        ns += step_of(q, HT_LANE_HOST, ends[i]) + (q->micro_batches - 1) * sum_of(q, HT_LANE_HOST, ends[i]);
    return ns;
}

/* Returns the time of embedding and head. With their optimizer on the device: their passes, sums and steps on the
   compute lane. With it on the host: their passes, and what the embedding adds at the end of the iteration, where its
   gradient is the last and its parameters are the first to be needed: copy out, step, copy in. */
static int64_t const_of(struct ht_cost_query *q, bool on_host)
{
    const enum ht_lane_kind gpu = HT_LANE_COMPUTE, cpu = HT_LANE_HOST;
    int64_t embedding = 0, head = q->scenario->model.layers + 1;
    int64_t ns = q->micro_batches * (passes_of(q, embedding) + passes_of(q, head));
    if (on_host)
        return ns + out_of(q, embedding) + sum_of(q, cpu, embedding) + step_of(q, cpu, embedding) + in_of(q, embedding);
    ns += (q->micro_batches - 1) * (sum_of(q, gpu, embedding) + sum_of(q, gpu, head));
    return ns + step_of(q, gpu, embedding) + step_of(q, gpu, head);
}

enum ht_status autohete_measure(const struct ht_scenario *scenario, const struct ht_profile *costs, bool on_host,
                                struct ht_error *err, struct autohete_profile *out)
{
    const struct ht_numerics *n = &scenario->numerics;
    struct ht_cost_query q = ht_query_slowest(scenario, costs, err);
    struct autohete_profile f = {.layers = scenario->model.layers,
                                 .micro_batches = q.micro_batches,
                                 .apart = scenario->control.mode != HT_CONTROL_NONE};
    int64_t gather_ns = collective_of(&q, HT_OP_ALL_GATHER, n->param);
    int64_t scatter_ns = collective_of(&q, HT_OP_REDUCE_SCATTER, n->reduce);
    f.fp_ns = ht_max(ht_query_pass(&q, HT_OP_FORWARD, 1), gather_ns);
    f.bp_ns = ht_max(ht_query_pass(&q, HT_OP_BACKWARD, 1), gather_ns + scatter_ns);
    f.h2d_ns = in_of(&q, 1);
    f.d2h_ns = out_of(&q, 1);
    f.cpu_ns = step_of(&q, HT_LANE_HOST, 1);
    f.gpu_ns = step_of(&q, HT_LANE_COMPUTE, 1);
    f.cpu_sum_ns = sum_of(&q, HT_LANE_HOST, 1);
    f.gpu_sum_ns = sum_of(&q, HT_LANE_COMPUTE, 1);
    f.const_ns = const_of(&q, on_host);
    f.head_ns = passes_of(&q, f.layers + 1);
    f.turn_ns = turn_of(&q, on_host);
    f.ends_host_ns = on_host ? ends_host_of(&q) : 0;
    if (q.status != HT_OK) return q.status;
    add_bytes(scenario, on_host, &f);
    *out = f;
    return HT_OK;
}
