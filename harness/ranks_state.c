#include "harness/ranks_state.h"

#include "common/base/array.h"
#include "common/comm/tags.h"

#include <stdlib.h>

/* ---- from rank 0 to all ----------------------------------------------------------------------------------------- */

struct facts {
    int32_t first_step;
    bool loaded, resumed, scaler_anew;
    int64_t good;
    double loss_scale;
};

/* The rank that gives and takes a resident (common/exec/node.h): its device's, or the first one of its node. */
static int32_t holder(const struct ht_schedule *s, const struct ht_resident *r)
{
    int32_t first = 0;
    if (r->tier == HT_DEVICE) return r->rank;
    while (s->rank_node[first] != s->rank_node[r->rank]) first++;
    return first;
}

/* Those who have to know a unit: rank 0, which keeps the files, and who has a resident of it. [n_ranks], the caller's. */
static bool *knowing(const struct ht_schedule *s, int64_t unit)
{
    bool *in = HT_NEW_ARRAY(bool, s->n_ranks);
    in[0] = true;
    for (int32_t i = 0; i < s->n_residents; i++) {
        const struct ht_tensor *t = &s->tensors[s->residents[i].tensor];
        if (ht_state_holds(t) && t->bytes && t->label.unit == unit) in[holder(s, &s->residents[i])] = true;
    }
    return in;
}

int64_t ht_ranks_state_bytes(const struct ht_schedule *s, const struct ht_model *model)
{
    int64_t elements = 0;
    for (int64_t u = 0; u < ht_model_units(model); u++) {
        bool *in = knowing(s, u);
        for (int32_t r = 0; r < s->n_ranks; r++) elements += in[r] ? ht_unit_params(model, u) : 0;
        free(in);
    }
    return elements * HT_STATE_BYTES;
}

/* They, ascending. */
static struct ht_team team_of(const struct ht_schedule *s, const struct ht_comm *c, int64_t unit, int32_t *ranks)
{
    struct ht_team team = {.ranks = ranks, .me = -1};
    bool *in = knowing(s, unit);
    for (int32_t r = 0; r < c->size; r++) {
        if (!in[r]) continue;
        if (r == c->rank) team.me = team.n;
        ranks[team.n++] = r;
    }
    free(in);
    return team;
}

static enum ht_status from_first(struct ht_comm *c, struct ht_team team, void *data, int64_t bytes,
                                 struct ht_error *err)
{
    return bytes ? ht_comm_broadcast(c, team, HT_TAG_STATE, 0, data, bytes, err) : HT_OK;
}

enum ht_status ht_ranks_share_state(const struct ht_ranks *ranks, struct ht_persist *p, struct ht_error *err)
{
    struct ht_comm *c = ranks->comm;
    struct ht_state *state = p->state;
    if (!c || !state) return HT_OK;
    int32_t *all = HT_NEW_ARRAY(int32_t, c->size), *some = HT_NEW_ARRAY(int32_t, c->size);
    for (int32_t i = 0; i < c->size; i++) all[i] = i;
    struct ht_team team = {.ranks = all, .n = c->size, .me = c->rank};
    struct facts f = {p->first_step, p->loaded, p->resumed, p->scaler_anew, state->good, state->loss_scale};
    enum ht_status status = from_first(c, team, &f, sizeof(f), err);
    for (int64_t u = 0; u < state->n_units && !status; u++) {
        struct ht_unit_state *unit = &state->units[u];
        status = from_first(c, team, &unit->steps, sizeof(unit->steps), err);
        struct ht_team those = team_of(p->job->schedule, c, u, some);
        for (int part = 0; part < HT_N_STATE_PARTS && !status && those.me >= 0; part++)
            status = from_first(c, those, unit->values[part], unit->n * (int64_t)sizeof(float), err);
    }
    free(all);
    free(some);
    if (status) return status;
    p->first_step = f.first_step;
    p->loaded = f.loaded;
    p->resumed = f.resumed;
    p->scaler_anew = f.scaler_anew;
    state->good = f.good;
    state->loss_scale = f.loss_scale;
    return HT_OK;
}

/* ---- from all to rank 0 ----------------------------------------------------------------------------------------- */

static enum ht_status send(struct ht_comm *c, const void *data, int64_t bytes, struct ht_error *err)
{
    struct ht_message m;
    ht_comm_send(c, 0, HT_TAG_STATE, data, bytes, &m);
    return ht_comm_wait(c, &m, err);
}

static enum ht_status receive(struct ht_comm *c, int32_t from, void *data, int64_t bytes, struct ht_error *err)
{
    struct ht_message m;
    ht_comm_receive(c, from, HT_TAG_STATE, data, bytes, &m);
    return ht_comm_wait(c, &m, err);
}

/* Which parts it has anything of, then the marks and those parts. */
static enum ht_status send_unit(struct ht_comm *c, const struct ht_unit_state *unit, struct ht_error *err)
{
    unsigned char parts = 0;
    for (int part = 0; part < HT_N_STATE_PARTS; part++) parts |= (unsigned char)((unit->taken[part] > 0) << part);
    enum ht_status status = send(c, &parts, 1, err);
    if (parts && !status) status = send(c, unit->seen, unit->n, err);
    for (int part = 0; part < HT_N_STATE_PARTS && !status; part++)
        if (parts >> part & 1) status = send(c, unit->values[part], unit->n * (int64_t)sizeof(float), err);
    return status;
}

/* *merged: the first that goes wrong with what has come; receiving goes on, for the sender does. */
static enum ht_status receive_unit(struct ht_comm *c, int32_t from, struct ht_state *state, int64_t u,
                                   enum ht_status *merged, struct ht_error *err)
{
    int64_t n = state->units[u].n;
    unsigned char parts = 0, *seen = HT_NEW_ARRAY(unsigned char, n);
    float *values[HT_N_STATE_PARTS] = {NULL};
    enum ht_status status = receive(c, from, &parts, 1, err);
    if (parts && !status) status = receive(c, from, seen, n, err);
    for (int part = 0; part < HT_N_STATE_PARTS && !status; part++) {
        if (!(parts >> part & 1)) continue;
        values[part] = HT_NEW_ARRAY(float, n);
        status = receive(c, from, values[part], n * (int64_t)sizeof(float), err);
    }
    if (!status && parts && !*merged) *merged = ht_state_take_from(state, u, seen, values, err);
    if (atomic_load(&c->cancelled)) return status; /* messages may be under way */
    for (int part = 0; part < HT_N_STATE_PARTS; part++) free(values[part]);
    free(seen);
    return status;
}

static enum ht_status gather(struct ht_comm *c, struct ht_state *state, struct ht_error *err)
{
    enum ht_status status = HT_OK, merged = HT_OK;
    for (int32_t r = 1; r < c->size && !status; r++)
        for (int64_t u = 0; u < state->n_units && !status; u++) {
            if (c->rank == 0) status = receive_unit(c, r, state, u, &merged, err);
            if (c->rank == r) status = send_unit(c, &state->units[u], err);
        }
    return status ? status : merged;
}

/* Whose optimizer steps a tensor; -1: nobody's. */
static int32_t stepped_by(const struct ht_schedule *s, int32_t tensor)
{
    for (int32_t op = 0; op < s->n_ops; op++) {
        if (s->ops[op].kind != HT_OP_OPTIMIZER_STEP) continue;
        for (int64_t e = s->effects_begin[op]; e < s->effects_begin[op + 1]; e++)
            if (s->effects[e].tensor == tensor && s->effects[e].flags & HT_UPDATE) return ht_op_rank(s, op);
    }
    return -1;
}

/* A row of momentum that has elements; an empty shard of a small unit has none, and so no count of steps. */
static bool is_stepped(const struct ht_tensor *t)
{
    bool empty = t->sharded && t->shard_begin == t->shard_end;
    return t->class == HT_MOMENTUM && t->bytes > 0 && !empty;
}

/* Rank 0 learns how often each row of momentum was stepped, from the rank that steps it; 0 stands for "not mine". */
static enum ht_status gather_steps(const struct ht_ranks *ranks, const struct ht_schedule *s, const struct ht_cpu *cpu,
                                   struct ht_state *state, struct ht_error *err)
{
    double *more = HT_NEW_ARRAY(double, s->n_tensors); /* steps + 1 */
    for (int32_t i = 0; i < s->n_tensors; i++) {
        const struct ht_tensor *t = &s->tensors[i];
        if (!is_stepped(t) || stepped_by(s, i) != ranks->comm->rank) continue;
        int64_t end = t->sharded ? t->shard_end : state->units[t->label.unit].n;
        more[i] = (double)(ht_cpu_row_steps(cpu, t->label.unit, t->shard_begin, end) + 1);
    }
    enum ht_status status = ht_ranks_sum(ranks, more, s->n_tensors, err);
    for (int64_t u = 0; u < state->n_units; u++) state->units[u].steps = -1;
    for (int32_t i = 0; i < s->n_tensors && !status && ranks->comm->rank == 0; i++) {
        if (!is_stepped(&s->tensors[i])) continue;
        int64_t *steps = &state->units[s->tensors[i].label.unit].steps, this = (int64_t)more[i] - 1;
        if (this < 0 || (*steps >= 0 && *steps != this))
            status =
                ht_fail(err, HT_FAILED, "unit %d: its parts were not stepped equally often", s->tensors[i].label.unit);
        *steps = this;
    }
    free(more);
    return status;
}

enum ht_status ht_ranks_take_state(const struct ht_ranks *ranks, const struct ht_schedule *s, const struct ht_cpu *cpu,
                                   struct ht_persist *p, struct ht_error *err)
{
    enum ht_status status = gather(ranks->comm, p->state, err);
    if (!status && ranks->comm->rank == 0) status = ht_state_take_end(p->state, err);
    status = ht_ranks_agree(ranks, status, err);
    if (!status) status = ht_ranks_agree(ranks, gather_steps(ranks, s, cpu, p->state, err), err);
    struct ht_scaler scaler = ht_cpu_control_get(cpu);
    p->state->loss_scale = scaler.scale;
    p->state->good = scaler.good;
    p->loaded = true;
    return status ? status : ht_ranks_share_state(ranks, p, err);
}
