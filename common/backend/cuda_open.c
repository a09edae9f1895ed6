/* Opens and closes the CUDA backend: the reserve, lanes, and facts about the schedule's ops. */
#include "common/backend/cuda_open.h"

#include "common/backend/cpu_control.h"
#include "common/backend/cuda_clock.h"
#include "common/backend/cuda_comm.h"
#include "common/backend/cuda_parts.h"
#include "common/backend/cuda_results.h"
#include "common/base/array.h"
#include "common/base/units.h"
#include "common/exec/core.h"
#include "common/model/halves.h"

#include <stdlib.h>
#include <string.h>

/* ENDS: most ops of a micro-batch that use token ids or targets: two of the embedding, three of a head that is
   recomputed. */
enum { ENDS = 5, CHECKERS = 5 };

/* ---- the reserve ---- */

/* Returns the bytes of a lane's scratch: the largest workspace of the device's kernels; 0 when none needs more than the
   graph's workspace, which fits the CPU's kernels. */
static int64_t scratch_bytes(const struct ht_cuda_api *api, const struct ht_model *m, enum ht_dtype param,
                             int64_t batch, int64_t seq)
{
    int64_t most = 0;
    bool lacks = false;
    for (int64_t u = 0; u < ht_model_units(m) && api->workspace_bytes; u++)
        for (int back = 0; back < 2; back++) {
            int64_t need = api->workspace_bytes(m, u, batch, seq, param, back);
            lacks |= need > ht_unit_workspace_bytes(m, u, batch, seq, param, back);
            if (need > most) most = need;
        }
    for (int i = 2; i < 2 * HT_N_SUB_OPS && api->workspace_bytes; i++) /* a half needs no more than its block */
        for (int back = 0; back < 2; back++) {
            unsigned half = i % 2 ? HT_ALL_SUB_OPS & ~ht_front(i / 2) : ht_front(i / 2);
            lacks |= api->block_workspace_bytes(m, half, batch, seq, param, back) >
                     ht_block_workspace_bytes(m, half, batch, seq, param, back);
        }
    return lacks ? ht_cuda_aligned(most) : 0;
}

int64_t ht_cuda_reserve_bytes(const struct ht_cuda_reserve *r)
{
    return r->products_bytes + r->scratch_bytes + r->results_bytes;
}

/* Returns the largest scratch of a whole model and of those parts that it may be cut into. */
static int64_t most_scratch_bytes(const struct ht_cuda_api *api, const struct ht_model *whole, enum ht_dtype param,
                                  int64_t batch, int64_t seq, int64_t most_parts)
{
    char what[64];
    int64_t most = scratch_bytes(api, whole, param, batch, seq);
    for (int32_t n = 2; n <= most_parts && api->workspace_bytes; n++)
        for (int sequence = 0; sequence < 2; sequence++) {
            if (ht_model_cannot_part(whole, n, what, sizeof(what)) || (sequence && batch * seq % n)) continue;
            struct ht_model m = ht_model_part(whole, 0, n);
            m.sequence = sequence;
            int64_t bytes = scratch_bytes(api, &m, param, batch, seq);
            if (bytes > most) most = bytes;
        }
    return most;
}

struct ht_cuda_reserve ht_cuda_reserve_for(const struct ht_cuda_api *given, const struct ht_model *m,
                                           enum ht_dtype param, int64_t batch, int64_t seq, int64_t n_micro_batches,
                                           int64_t most_parts)
{
    const struct ht_cuda_api *api = given ? given : ht_cuda_api_real();
    int64_t ids = 2 * ht_cuda_aligned(batch * seq * (int64_t)sizeof(int32_t)) + HT_CUDA_ALIGN;
    return (struct ht_cuda_reserve){
        .products_bytes = ht_cuda_aligned(api->products_bytes),
        .scratch_bytes = most_scratch_bytes(api, m, param, batch, seq, most_parts),
        .results_bytes = HT_CUDA_TURNS * ENDS * n_micro_batches * ids + CHECKERS * ht_cuda_aligned(api->partial_bytes),
    };
}

/* ---- lanes ---- */

bool ht_cuda_is_stream(enum ht_lane_kind kind)
{
    return kind != HT_LANE_HOST && kind != HT_LANE_DISK;
}

static bool multiplies(const struct ht_schedule *s, int32_t op)
{
    enum ht_op_kind kind = s->ops[op].kind;
    return kind == HT_OP_FORWARD || kind == HT_OP_RECOMPUTE || kind == HT_OP_BACKWARD;
}

/* A lane's part of the reserve: cuBLASLt's workspace and scratch if it multiplies matrices, a partial if it checks
   gradients. */
struct lane_share {
    int64_t products, scratch, partial;
};

static struct lane_share *shares_of(const struct ht_cuda_device *d, int64_t *sum)
{
    const struct ht_schedule *s = d->s;
    struct lane_share *shares = HT_NEW_ARRAY(struct lane_share, s->n_lanes);
    *sum = 0;
    for (int32_t op = 0; op < s->n_ops; op++) {
        const struct ht_work *w = &s->works[s->ops[op].work];
        struct lane_share *share = &shares[s->ops[op].lane];
        if (!d->lanes[s->ops[op].lane].is_stream) continue;
        if (s->ops[op].kind == HT_OP_VALIDATE) share->partial = ht_cuda_aligned(d->api->partial_bytes);
        if (!multiplies(s, op)) continue;
        struct ht_model m = ht_cuda_pass_model(d, op);
        int64_t bytes = scratch_bytes(d->api, &m, d->param, w->batch, w->seq);
        share->products = ht_cuda_aligned(d->api->products_bytes);
        if (bytes > share->scratch) share->scratch = bytes;
    }
    for (int32_t i = 0; i < s->n_lanes; i++) *sum += shares[i].products + shares[i].scratch + shares[i].partial;
    return shares;
}

/* Grows a reserve that is not fixed to `bytes`. */
static enum ht_status grow_reserve(struct ht_cuda_device *d, int64_t bytes, struct ht_error *err)
{
    char need[HT_QUANTITY_TEXT], have[HT_QUANTITY_TEXT];
    if (d->reserve_bytes >= bytes) return HT_OK;
    if (d->reserve_is_fixed)
        return ht_fail(err, HT_INFEASIBLE, "schedule '%s' takes %s beside its tensors on the GPU; the reserve has %s",
                       d->s->name, ht_format_quantity(HT_BYTES, (double)bytes, need),
                       ht_format_quantity(HT_BYTES, (double)d->reserve_bytes, have));
    if (d->reserve) (void)d->api->free(d->reserve);
    d->reserve = NULL;
    enum ht_status status = ht_cuda_device_reserve(d, bytes, err);
    d->reserve_is_fixed = false;
    return status;
}

/* Takes the next bytes of the reserve; NULL for 0 bytes. */
static void *take(char **at, int64_t bytes)
{
    char *here = *at;
    *at += bytes;
    return bytes ? here : NULL;
}

static enum ht_status lay_out(struct ht_cuda_device *d, struct ht_error *err)
{
    int64_t sum, partial = ht_cuda_aligned(d->api->partial_bytes); /* one more for checks while finalizing */
    struct lane_share *shares = shares_of(d, &sum);
    enum ht_status status = grow_reserve(d, sum + partial + ht_cuda_results_plan(d), err);
    char *at = (char *)ht_cuda_aligned((intptr_t)d->reserve);
    for (int32_t i = 0; i < d->s->n_lanes && status == HT_OK; i++) {
        struct ht_cuda_lane *l = &d->lanes[i];
        if (!l->is_stream) continue;
        status = ht_cuda_lane_open(d, l, take(&at, shares[i].products), err);
        l->scratch = take(&at, shares[i].scratch);
        l->partial = take(&at, shares[i].partial);
    }
    d->side.partial = take(&at, partial);
    if (status == HT_OK) status = ht_cuda_results_create(d, at, err);
    free(shares);
    return status;
}

/* ---- host dependencies of ops ---- */

/* Returns true for a step or an undo with a log among its effects. */
static bool has_log(const struct ht_schedule *s, int32_t op)
{
    if (s->ops[op].kind != HT_OP_OPTIMIZER_STEP && s->ops[op].kind != HT_OP_UNDO) return false;
    for (int64_t e = s->effects_begin[op]; e < s->effects_begin[op + 1]; e++)
        if (s->tensors[s->effects[e].tensor].class == HT_STAGING) return true;
    return false;
}

bool ht_cuda_is_finalized(const struct ht_schedule *s, int32_t op)
{
    return s->ops[op].kind == HT_OP_VALIDATE || (s->ops[op].kind == HT_OP_OPTIMIZER_STEP && has_log(s, op));
}

static bool is_final_check(const struct ht_schedule *s, int32_t op)
{
    return s->ops[op].kind == HT_OP_VALIDATE && s->ops[op].label.unit < 0;
}

/* Lists the host dependencies. The host learns only at the end of a logged step whether it was made. It must know that
   before the tensor's next step, whose count depends on it; and before the gradient is overwritten, because it checks
   the gradient of a step that was not made. (Undone and repeated steps depend on it as well, but they have a `when` and
   come after the final check.) */
static void list_host_deps(struct ht_cuda_device *d)
{
    const struct ht_schedule *s = d->s;
    int32_t *final_check = HT_NEW_ARRAY(int32_t, s->n_ranks); /* op + 1 of each rank's; 0: none */
    int32_t *read_by = HT_NEW_ARRAY(int32_t, s->n_tensors);   /* the logged step that reads the tensor, likewise */
    d->host_deps = HT_NEW_ARRAY(struct ht_cuda_host_deps, s->n_ops);
    for (int32_t op = 0; op < s->n_ops; op++) {
        if (is_final_check(s, op)) final_check[ht_op_rank(s, op)] = op + 1;
        for (int64_t e = s->effects_begin[op]; ht_cuda_is_finalized(s, op) && e < s->effects_begin[op + 1]; e++)
            if (s->ops[op].kind == HT_OP_OPTIMIZER_STEP) read_by[s->effects[e].tensor] = op + 1;
    }
    for (int32_t op = 0; op < s->n_ops; op++) {
        struct ht_cuda_host_deps *a = &d->host_deps[op];
        int32_t check = final_check[ht_op_rank(s, op)] - 1;
        if (check >= 0 && ht_op_scales(s, op)) HT_PUSH(a->ops, a->n, a->cap, check);
        for (int64_t e = s->effects_begin[op]; e < s->effects_begin[op + 1]; e++) {
            const struct ht_effect *f = &s->effects[e];
            enum ht_tensor_class class = s->tensors[f->tensor].class;
            int32_t step = read_by[f->tensor] - 1;
            bool writes = f->flags & HT_UPDATE && (class == HT_GRAD || class == HT_MOMENTUM);
            if (step >= 0 && writes && (!a->n || a->ops[a->n - 1] != step)) HT_PUSH(a->ops, a->n, a->cap, step);
        }
    }
    free(read_by);
    free(final_check);
}

/* ---- open and close ---- */

void ht_cuda_close(void *ctx)
{
    struct ht_cuda_device *d = ctx;
    const struct ht_schedule *s = d->s;
    if (d->is_stuck) return;
    (void)d->api->select(d->index);
    ht_cuda_comm_close(d);
    for (int32_t i = 0; d->lanes && i < s->n_lanes; i++) ht_cuda_lane_close(d, &d->lanes[i]);
    for (int64_t i = 0; d->in_flight && i < (int64_t)s->n_ops * HT_CUDA_TURNS; i++) {
        if (d->in_flight[i].begin) (void)d->api->event_destroy(d->in_flight[i].begin);
        if (d->in_flight[i].end) (void)d->api->event_destroy(d->in_flight[i].end);
        free(d->in_flight[i].host_results);
        free(d->in_flight[i].buffers);
    }
    for (int32_t op = 0; d->host_deps && op < s->n_ops; op++) free(d->host_deps[op].ops);
    ht_cuda_clock_close(d);
    ht_cuda_results_destroy(d);
    free(d->lanes);
    free(d->in_flight);
    free(d->host_deps);
    d->lanes = NULL;
    d->in_flight = NULL;
    d->host_deps = NULL;
    d->s = NULL;
    ht_cpu_backend.close(d->cpu);
}

enum ht_status ht_cuda_open(void *ctx, const struct ht_schedule *s, struct ht_error *err)
{
    struct ht_cuda_device *d = ctx;
    enum ht_status status = ht_cpu_backend.open(d->cpu, s, err);
    if (status) return status;
    d->s = s;
    d->lanes = HT_NEW_ARRAY(struct ht_cuda_lane, s->n_lanes);
    d->in_flight = HT_NEW_ARRAY(struct ht_cuda_in_flight, (int64_t)s->n_ops * HT_CUDA_TURNS);
    status = ht_cuda_failed(d->api->select(d->index), "the GPU", err);
    for (int32_t i = 0; i < s->n_lanes; i++)
        d->lanes[i].is_stream = ht_cuda_is_stream(s->lanes[i].kind) && s->lanes[i].rank == d->rank;
    if (status == HT_OK) status = lay_out(d, err);
    if (status == HT_OK) status = ht_cuda_comm_open(d, err);
    for (int64_t i = 0; i < (int64_t)s->n_ops * HT_CUDA_TURNS && status == HT_OK; i++) {
        d->in_flight[i].d = d;
        d->in_flight[i].results = &d->results[i];
        d->in_flight[i].lane = &d->lanes[s->ops[i / HT_CUDA_TURNS].lane];
        d->in_flight[i].context = d->lanes[s->ops[i / HT_CUDA_TURNS].lane].context;
        d->in_flight[i].partial = d->lanes[s->ops[i / HT_CUDA_TURNS].lane].partial;
        d->in_flight[i].scratch = d->lanes[s->ops[i / HT_CUDA_TURNS].lane].scratch;
    }
    list_host_deps(d);
    if (status == HT_OK) status = ht_cuda_clock_open(d, err);
    if (status) ht_cuda_close(d);
    return ht_cuda_infeasible(status, err);
}
