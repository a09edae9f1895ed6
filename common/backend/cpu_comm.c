/*
 * ALL_GATHER, REDUCE_SCATTER, ALL_REDUCE, SEND and RECEIVE, and the exchange inside passes over parts. Each member of a
 * group runs its own op, in its own process. It knows the other members' tensors from their effects, which every rank
 * has.
 */
#include "common/backend/cpu_call.h"
#include "common/base/array.h"
#include "common/model/halves.h"
#include "common/comm/tags.h"

#include <stdlib.h>
#include <string.h>

/* The op's group: its members are [first, first + n). */
struct group {
    int32_t first, n, me;
    int32_t *ranks;
    bool *without; /* members without a micro-batch in this round, and so without a whole tensor */
};

static enum ht_status find_group(struct ht_cpu_call *c, struct group *g)
{
    const struct ht_schedule *s = c->s;
    int32_t match = c->op->match;
    if (match < 0 || match >= HT_TAG_OPS_END) return ht_cpu_fail(c, "has the group %d", match);
    *g = (struct group){.first = c->id};
    while (g->first > 0 && s->ops[g->first - 1].match == match) g->first--;
    while (g->first + g->n < s->n_ops && s->ops[g->first + g->n].match == match) g->n++;
    g->me = c->id - g->first;
    g->ranks = HT_NEW_ARRAY(int32_t, g->n);
    g->without = HT_NEW_ARRAY(bool, g->n);
    for (int32_t i = 0; i < g->n; i++) {
        g->ranks[i] = ht_op_rank(s, g->first + i);
    }
    if (!c->status && !c->check_only && !c->options->comm)
        ht_cpu_fail(c, "takes several ranks, each in a process of its own; there is one");
    return c->status;
}

static void free_group(struct group *g)
{
    free(g->ranks);
    free(g->without);
}

static struct ht_team team_of(const struct group *g)
{
    return (struct ht_team){.ranks = g->ranks, .n = g->n, .me = g->me, .without = g->without};
}

static enum ht_comm_type type_of(enum ht_dtype t)
{
    return t == HT_F32 ? HT_COMM_F32 : t == HT_F16 ? HT_COMM_F16 : HT_COMM_BF16;
}

/* ---- shards ----------------------------------------------------------------------------------------------------- */

/* Returns the op's first effect on a `class` tensor that is a shard (or whole) and has one of the flags; -1: none. */
static int64_t effect_of(const struct ht_schedule *s, int32_t op, enum ht_tensor_class class, bool shard,
                         unsigned flags)
{
    for (int64_t e = s->effects_begin[op]; e < s->effects_begin[op + 1]; e++) {
        const struct ht_tensor *t = &s->tensors[s->effects[e].tensor];
        if (t->class == class && t->sharded == shard && (s->effects[e].flags & flags)) return e;
    }
    return -1;
}

/* Counts the elements of each member's shard; together they are the unit's, or a half's, in the members' order. */
static enum ht_status count_shards(struct ht_cpu_call *c, const struct group *g, enum ht_tensor_class class,
                                   unsigned flags, int64_t *counts)
{
    const struct ht_schedule *s = c->s;
    struct ht_range all = {0, -1};
    int64_t end = 0;
    for (int32_t i = 0; i < g->n && !c->status; i++) {
        int64_t e = effect_of(s, g->first + i, class, true, flags);
        if (e < 0) return ht_cpu_fail(c, "rank %d has no shard of a %s", g->ranks[i], ht_tensor_class_name(class));
        const struct ht_tensor *t = &s->tensors[s->effects[e].tensor];
        struct ht_model part = ht_tensor_model(t, &c->options->model);
        if (c->op->label.unit >= 0) all = ht_sub_ops_params(&part, c->op->label.unit, t->label.sub_ops);
        if (i == 0) end = all.begin;
        counts[i] = t->shard_end - t->shard_begin;
        if (t->shard_begin != end || counts[i] < 0)
            ht_cpu_fail(c, "the shard of rank %d begins at element %lld, expected %lld", g->ranks[i],
                        (long long)t->shard_begin, (long long)end);
        end = t->shard_end;
    }
    if (end != all.end && !c->status)
        ht_cpu_fail(c, "the shards end at element %lld, the unit at %lld", (long long)end, (long long)all.end);
    return c->status;
}

/* Returns the first member that has a whole tensor in the group's collective, or -1. Marks those that have none. */
static int32_t find_without(struct ht_cpu_call *c, struct group *g, enum ht_tensor_class class, unsigned flags)
{
    int32_t first = -1;
    for (int32_t i = g->n - 1; i >= 0; i--) {
        g->without[i] = effect_of(c->s, g->first + i, class, false, flags) < 0;
        if (!g->without[i]) first = i;
    }
    if (first < 0) ht_cpu_fail(c, "no member of its group has a whole %s", ht_tensor_class_name(class));
    return first;
}

bool ht_cpu_scatters_whole(const struct ht_schedule *s, int32_t op)
{
    int32_t match = s->ops[op].match, i = op;
    while (i > 0 && s->ops[i - 1].match == match) i--;
    for (; i < s->n_ops && s->ops[i].match == match; i++)
        if (effect_of(s, i, HT_GRAD, false, HT_CPU_READ) < 0) return false;
    return true;
}

static const struct ht_buffer *buffer_of(struct ht_cpu_call *c, enum ht_tensor_class class, bool shard, unsigned flags,
                                         int64_t bytes)
{
    int64_t e = effect_of(c->s, c->id, class, shard, flags);
    const struct ht_buffer *b = e < 0 ? NULL : &c->buffers[e - c->s->effects_begin[c->id]];
    if (!b)
        ht_cpu_fail(c, "has no %s %s", shard ? "shard of a" : "whole", ht_tensor_class_name(class));
    else if (shard ? b->bytes < bytes : b->bytes != bytes)
        ht_cpu_fail(c, "its %s %s has %lld bytes, expected %lld", shard ? "shard of a" : "whole",
                    ht_tensor_class_name(class), (long long)b->bytes, (long long)bytes);
    return b;
}

static int64_t sum_of(const int64_t *counts, int32_t n)
{
    int64_t sum = 0;
    for (int32_t i = 0; i < n; i++) sum += counts[i];
    return sum;
}

/* Rounds the FP32 master to the shard that the collective sends. */
static void cast_shard(struct ht_cpu_call *c, const struct ht_buffer *shard, int64_t count)
{
    if (!(shard->flags & HT_PRODUCE)) return;
    const struct ht_buffer *master = buffer_of(c, HT_MASTER, true, HT_NEED, 4 * count);
    if (!c->status && !c->check_only)
        c->kernels->round_copy(c->device, c->args.pool, master->data, shard->data, c->args.dtype, count);
}

static enum ht_status gather(struct ht_cpu_call *c, struct group *g, int64_t *counts)
{
    int64_t each = ht_dtype_bytes(c->args.dtype);
    if (count_shards(c, g, HT_PARAM, HT_NEED | HT_PRODUCE, counts)) return c->status;
    if (find_without(c, g, HT_COMM, HT_CPU_WRITE) < 0) return c->status;
    const struct ht_buffer *shard = buffer_of(c, HT_PARAM, true, HT_NEED | HT_PRODUCE, counts[g->me] * each),
                           *whole = NULL;
    if (!g->without[g->me]) whole = buffer_of(c, HT_COMM, false, HT_CPU_WRITE, sum_of(counts, g->n) * each);
    if (!c->status) cast_shard(c, shard, counts[g->me]);
    if (c->status || c->check_only) return c->status;
    return ht_comm_all_gather(c->comm, team_of(g), c->op->match, shard->data, whole ? whole->data : NULL, counts,
                              type_of(c->args.dtype), c->err);
}

/* Joins the members' slices of a boundary tensor, of any contents. A member that has several puts its own together first. */
static enum ht_status join(struct ht_cpu_call *c, struct group *g, int64_t *counts)
{
    const struct ht_schedule *s = c->s;
    int64_t whole = -1, begin = 0, end = 0;
    for (int64_t e = s->effects_begin[c->id]; e < s->effects_begin[c->id + 1]; e++)
        if (s->effects[e].flags & HT_CPU_WRITE) whole = e - s->effects_begin[c->id];
    if (whole < 0) return ht_cpu_fail(c, "has no tensor to join slices in");
    char *all = c->buffers[whole].data;
    for (int32_t i = 0; i < g->n; i++) {
        int32_t op = g->first + i;
        if (i == g->me) begin = end;
        for (int64_t e = s->effects_begin[op]; e < s->effects_begin[op + 1] && !c->status; e++) {
            const struct ht_tensor *t = &s->tensors[s->effects[e].tensor];
            if (!ht_is_boundary_shard(t) || !(s->effects[e].flags & HT_NEED)) continue;
            int64_t bytes = t->shard_end - t->shard_begin;
            if (t->shard_begin != end || t->bytes != bytes)
                return ht_cpu_fail(c, "a slice of rank %d begins at byte %lld, expected %lld", g->ranks[i],
                                   (long long)t->shard_begin, (long long)end);
            if (i == g->me && !c->check_only)
                c->status = ht_comm_all_gather(c->comm, (struct ht_team){.ranks = &g->ranks[i], .n = 1}, c->op->match,
                                               c->buffers[e - s->effects_begin[op]].data, all + end, &bytes,
                                               HT_COMM_BYTE, c->err);
            counts[i] += bytes;
            end = t->shard_end;
        }
    }
    if (end != c->buffers[whole].bytes && !c->status)
        ht_cpu_fail(c, "the slices end at byte %lld, the tensor at %lld", (long long)end,
                    (long long)c->buffers[whole].bytes);
    if (c->status || c->check_only) return c->status;
    return ht_comm_all_gather(c->comm, team_of(g), c->op->match, all + begin, all, counts, HT_COMM_BYTE, c->err);
}

/* Returns the type of the group's sum: fresh gradients, or sums of each rank's own. */
static enum ht_dtype type_of_sum(struct ht_cpu_call *c, int32_t op)
{
    int64_t e = effect_of(c->s, op, HT_GRAD, false, HT_CPU_READ);
    int32_t micro_batch = c->s->tensors[c->s->effects[e].tensor].label.micro_batch;
    enum ht_dtype type = ht_cpu_dtype(c, HT_GRAD, micro_batch);
    if (micro_batch >= 0 && c->options->numerics.reduce != type)
        ht_cpu_fail(c, "the cpu backend cannot add up gradients of %s over ranks in %s", ht_dtype_name(type),
                    ht_dtype_name(c->options->numerics.reduce));
    return type;
}

/* Produces the shard. An existing one would have to be added to, which no graph needs yet. */
static enum ht_status scatter(struct ht_cpu_call *c, struct group *g, int64_t *counts)
{
    if (count_shards(c, g, HT_GRAD, HT_PRODUCE, counts)) return c->status;
    int32_t first = find_without(c, g, HT_GRAD, HT_CPU_READ);
    if (first < 0) return c->status;
    enum ht_dtype type = type_of_sum(c, g->first + first);
    int64_t e = effect_of(c->s, c->id, HT_GRAD, true, HT_PRODUCE), each = ht_dtype_bytes(type);
    enum ht_dtype kept = ht_cpu_dtype(c, HT_GRAD, c->s->tensors[c->s->effects[e].tensor].label.micro_batch);
    int64_t mine = counts[g->me] * ht_dtype_bytes(kept);
    const struct ht_buffer *shard = buffer_of(c, HT_GRAD, true, HT_PRODUCE, mine), *whole = NULL;
    if (!g->without[g->me]) whole = buffer_of(c, HT_GRAD, false, HT_CPU_READ, sum_of(counts, g->n) * each);
    if (kept != type && kept != HT_F32)
        ht_cpu_fail(c, "keeps sums of %s in %s", ht_dtype_name(type), ht_dtype_name(kept));
    if (c->status || c->check_only) return c->status;
    char *sum = (char *)shard->data + (mine - counts[g->me] * each);
    enum ht_status status = ht_comm_reduce_scatter(c->comm, team_of(g), c->op->match, whole ? whole->data : NULL, sum,
                                                   counts, type_of(type), c->err);
    if (!status && kept != type) c->kernels->widen(c->device, shard->data, counts[g->me], type);
    if (!status && shard->bytes > mine) c->kernels->zero(c->device, (char *)shard->data + mine, shard->bytes - mine);
    return status;
}

static enum ht_status with_shards(struct ht_cpu_call *c,
                                  enum ht_status (*fn)(struct ht_cpu_call *, struct group *, int64_t *))
{
    struct group g = {0};
    int64_t *counts = NULL;
    enum ht_status status = find_group(c, &g);
    if (!status) {
        counts = HT_NEW_ARRAY(int64_t, g.n);
        status = fn(c, &g, counts);
    }
    free(counts);
    free_group(&g);
    return status;
}

enum ht_status ht_cpu_all_gather(struct ht_cpu_call *c)
{
    return with_shards(c, ht_joins_boundary(c->op) ? join : gather);
}

enum ht_status ht_cpu_reduce_scatter(struct ht_cpu_call *c)
{
    return with_shards(c, scatter);
}

/* ---- whole tensors ---------------------------------------------------------------------------------------------- */

/* Returns the k-th effect of an op with one of the flags; -1: it has fewer. */
static int64_t kth_effect(const struct ht_schedule *s, int32_t op, int32_t k, unsigned flags)
{
    for (int64_t e = s->effects_begin[op]; e < s->effects_begin[op + 1]; e++)
        if ((s->effects[e].flags & flags) && k-- == 0) return e;
    return -1;
}

/* Checks that both ops update as many tensors, of the same sizes. */
static enum ht_status check_equal(struct ht_cpu_call *c, int32_t other)
{
    const struct ht_schedule *s = c->s;
    int32_t k = 0;
    for (;; k++) {
        int64_t a = kth_effect(s, c->id, k, HT_UPDATE), b = kth_effect(s, other, k, HT_UPDATE);
        if (a < 0 && b < 0) break;
        if (a < 0 || b < 0 || s->tensors[s->effects[a].tensor].bytes != s->tensors[s->effects[b].tensor].bytes)
            return ht_cpu_fail(c, "tensor %d is not what the member of rank %d has there", k, ht_op_rank(s, other));
    }
    return k ? HT_OK : ht_cpu_fail(c, "has no tensor to talk about");
}

static enum ht_dtype dtype_of(struct ht_cpu_call *c, const struct ht_tensor *t)
{
    if (t->class == HT_GRAD || t->class == HT_PARAM) return ht_cpu_dtype(c, t->class, t->label.micro_batch);
    return t->class == HT_MASTER || t->class == HT_MOMENTUM || t->class == HT_VARIANCE ? HT_F32 : c->args.dtype;
}

/* Runs an ALL_REDUCE about no unit and no tensor: all ranks exchange the results of their validate ops
   (cpu_control.h). */
static enum ht_status agree(struct ht_cpu_call *c, const struct group *g)
{
    if (g->n != c->s->n_ranks)
        return ht_cpu_fail(c, "is an agreement of %d ranks; expected all %d", g->n, c->s->n_ranks);
    if (c->check_only) return HT_OK;
    int64_t *counts = HT_NEW_ARRAY(int64_t, g->n), total = 0, mine = 0;
    for (int32_t i = 0; i < g->n; i++) {
        if (i == g->me) mine = total;
        total += counts[i] = ht_cpu_agreement_size(c->control, i);
    }
    double *all = HT_NEW_ARRAY(double, total), *from = all;
    ht_cpu_agreement_pack(c->control, c->iteration, all + mine);
    enum ht_status status =
        ht_comm_all_gather(c->options->comm, team_of(g), c->op->match, all + mine, all, counts, HT_COMM_F64, c->err);
    for (int32_t i = 0; i < g->n && !status; from += counts[i++])
        ht_cpu_agreement_unpack(c->control, c->iteration, i, from);
    free(all);
    free(counts);
    return status;
}

enum ht_status ht_cpu_all_reduce(struct ht_cpu_call *c)
{
    struct group g = {0};
    enum ht_status status = find_group(c, &g);
    if (!status && c->op->label.unit < 0 && c->n_buffers == 0) {
        status = agree(c, &g);
        free_group(&g);
        return status;
    }
    for (int32_t i = 0; i < g.n && !status; i++)
        if (i != g.me) status = check_equal(c, g.first + i);
    int64_t e;
    for (int32_t k = 0; !status && !c->check_only && (e = kth_effect(c->s, c->id, k, HT_UPDATE)) >= 0; k++) {
        const struct ht_buffer *b = &c->buffers[e - c->s->effects_begin[c->id]];
        enum ht_dtype type = dtype_of(c, &c->s->tensors[b->tensor]);
        status = ht_comm_all_reduce(c->comm, team_of(&g), c->op->match, b->data, b->bytes / ht_dtype_bytes(type),
                                    type_of(type), c->err);
    }
    free_group(&g);
    return status;
}

/* Returns the bytes of a SEND's tensor that go to a RECEIVE's: all, or those of the slice that the latter is. */
static struct ht_range sent_bytes(const struct ht_schedule *s, int64_t sent, int64_t received)
{
    const struct ht_tensor *from = &s->tensors[s->effects[sent].tensor], *to = &s->tensors[s->effects[received].tensor];
    if (ht_is_boundary_shard(to) && !from->sharded) return (struct ht_range){to->shard_begin, to->shard_end};
    return (struct ht_range){0, from->bytes};
}

/* Checks that a SEND has as many tensors as its RECEIVE, of the same sizes, or larger ones of slices. */
static enum ht_status check_message(struct ht_cpu_call *c, int32_t send, int32_t receive)
{
    const struct ht_schedule *s = c->s;
    for (int32_t k = 0;; k++) {
        int64_t a = kth_effect(s, send, k, HT_NEED), b = kth_effect(s, receive, k, HT_CPU_WRITE);
        if (a < 0 && b < 0) return k ? HT_OK : ht_cpu_fail(c, "has no tensor to talk about");
        struct ht_range r = a < 0 || b < 0 ? (struct ht_range){0, -1} : sent_bytes(s, a, b);
        if (r.end < r.begin || r.end > s->tensors[s->effects[a].tensor].bytes ||
            r.end - r.begin != s->tensors[s->effects[b].tensor].bytes)
            return ht_cpu_fail(c, "tensor %d is not what the member of rank %d has there", k,
                               ht_op_rank(s, c->id == send ? receive : send));
    }
}

/* Sends the tensors that a SEND NEEDs, or receives the same tensors' bytes in the same order. */
enum ht_status ht_cpu_send_receive(struct ht_cpu_call *c)
{
    struct group g = {0};
    enum ht_status status = find_group(c, &g);
    bool sends = c->op->kind == HT_OP_SEND;
    unsigned flags = sends ? HT_NEED : HT_CPU_WRITE;
    int32_t other = g.first + !g.me;
    if (!status && (g.n != 2 || c->s->ops[other].kind != (sends ? HT_OP_RECEIVE : HT_OP_SEND)))
        status = ht_cpu_fail(c, "is in a group of %d; expected one send and one receive", g.n);
    if (!status) status = check_message(c, sends ? c->id : other, sends ? other : c->id);
    int64_t e;
    for (int32_t k = 0; !status && !c->check_only && (e = kth_effect(c->s, c->id, k, flags)) >= 0; k++) {
        const struct ht_buffer *b = &c->buffers[e - c->s->effects_begin[c->id]];
        struct ht_message m;
        struct ht_range r = {0, b->bytes};
        if (sends) r = sent_bytes(c->s, e, kth_effect(c->s, other, k, HT_CPU_WRITE));
        if (sends)
            ht_comm_send(c->comm, g.ranks[!g.me], c->op->match, (char *)b->data + r.begin, r.end - r.begin, &m);
        else
            ht_comm_receive(c->comm, g.ranks[!g.me], c->op->match, b->data, b->bytes, &m);
        status = ht_comm_wait(c->comm, &m, c->err);
    }
    free_group(&g);
    return status;
}

/* ---- inside a pass ---------------------------------------------------------------------------------------------- */

void ht_cpu_sum_parts(void *ctx, void *data, enum ht_dtype type, int64_t n)
{
    struct ht_cpu_call *c = ctx;
    struct group g = {0};
    if (c->status) return;
    if (!find_group(c, &g))
        c->status = ht_comm_all_reduce(c->comm, team_of(&g), c->op->match, data, n, type_of(type), c->err);
    free_group(&g);
}

/* Gathers n elements of each part, or adds up (parts, n) and leaves each part its n. */
static void move_parts(struct ht_cpu_call *c, bool gathers, const void *from, void *to, enum ht_dtype type, int64_t n)
{
    struct group g = {0};
    if (c->status) return;
    if (!find_group(c, &g)) {
        int64_t *counts = HT_NEW_ARRAY(int64_t, g.n);
        for (int32_t i = 0; i < g.n; i++) counts[i] = n;
        c->status = (gathers ? ht_comm_all_gather : ht_comm_reduce_scatter)(c->comm, team_of(&g), c->op->match, from,
                                                                            to, counts, type_of(type), c->err);
        free(counts);
    }
    free_group(&g);
}

void ht_cpu_gather_parts(void *ctx, const void *mine, void *all, enum ht_dtype type, int64_t n)
{
    move_parts(ctx, true, mine, all, type, n);
}

void ht_cpu_scatter_parts(void *ctx, const void *all, void *mine, enum ht_dtype type, int64_t n)
{
    move_parts(ctx, false, all, mine, type, n);
}
