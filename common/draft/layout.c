#include "common/draft/layout.h"

#include "common/base/array.h"
#include "common/base/minmax.h"

#include <stdlib.h>

enum { MOST_PASSES = 1 << 21 }; /* forward passes of an iteration; more would be a graph of millions of ops */

int64_t ht_equal_rounds(const struct ht_scenario *sc)
{
    return sc->batch / (sc->micro_batch * ht_scenario_ranks(sc));
}

int64_t ht_equal_shard(const struct ht_scenario *sc, int64_t unit)
{
    int64_t ranks = ht_scenario_ranks(sc);
    return (ht_unit_params(&sc->model, unit) + ranks - 1) / ranks;
}

int64_t ht_equal_params(const struct ht_scenario *sc)
{
    int64_t sum = 0;
    for (int64_t u = 0; u < ht_model_units(&sc->model); u++) sum += ht_equal_shard(sc, u);
    return sum;
}

/* Cuts a unit into shards of one size; the last ones may be shorter. */
static void cut_evenly(const struct ht_scenario *sc, int32_t unit, struct ht_layout *l)
{
    int64_t params = ht_unit_params(&sc->model, unit), each = ht_equal_shard(sc, unit);
    for (int32_t r = 0; r < l->n_ranks; r++)
        l->shards[unit * l->n_ranks + r] =
            (struct ht_shard){ht_min(r * each, params), ht_min((r + 1) * each, params), each};
}

/* Cuts a unit in proportion to the shares: each shard ends where the sum of shares so far does, rounded down. */
static void cut_by_shares(const struct ht_scenario *sc, int32_t unit, const struct ht_portion *portions,
                          struct ht_layout *l)
{
    __int128 params = ht_unit_params(&sc->model, unit), all = 0, some = 0;
    for (int32_t r = 0; r < l->n_ranks; r++) all += portions[r].share;
    for (int32_t r = 0; r < l->n_ranks; r++) {
        int64_t begin = (int64_t)(params * some / all);
        some += portions[r].share;
        int64_t end = (int64_t)(params * some / all);
        l->shards[unit * l->n_ranks + r] = (struct ht_shard){begin, end, end - begin};
    }
}

void ht_layout_cut(struct ht_layout *l, int32_t unit, const int64_t *elements, bool even)
{
    struct ht_shard *shards = &l->shards[unit * l->n_ranks];
    for (int32_t r = 0; r < l->n_ranks; r++) {
        int64_t begin = r ? shards[r - 1].end : 0;
        shards[r] = (struct ht_shard){begin, begin + elements[r], even ? elements[0] : elements[r]};
    }
}

void ht_layout_cut_over(struct ht_layout *l, int32_t unit, struct ht_range elements, const int32_t *ranks, int32_t n)
{
    int64_t begin = elements.begin, end = elements.end, each = (end - begin + n - 1) / n;
    for (int64_t i = 0; i < n; i++)
        l->shards[unit * l->n_ranks + ranks[i]] =
            (struct ht_shard){ht_min(begin + i * each, end), ht_min(begin + (i + 1) * each, end), each};
}

struct ht_range ht_layout_params(const struct ht_layout *l, const struct ht_model *part, int32_t unit)
{
    return ht_sub_ops_params(part, l->units[unit].unit, l->units[unit].sub_ops);
}

/* Returns the stage of the nth rank of a replica. */
static int32_t stage_at(const struct ht_layout *l, int32_t n)
{
    int32_t stage = 0;
    if (!l->stage_begin) return n / l->tp;
    while (l->stage_begin[stage + 1] <= n) stage++;
    return stage;
}

/* Returns the part at a place. The stages' widths are the same in all replicas. */
static int32_t part_at(const struct ht_layout *l, int32_t place)
{
    if (!l->stage_begin) return place % l->tp; /* tp divides every replica's ranks */
    int32_t n = place % l->stage_begin[l->n_stages], stage = stage_at(l, n);
    return (n - l->stage_begin[stage]) % l->stage_width[stage];
}

/* Gives every rank the whole unit, or the whole of its tensor-parallel part. */
static void copy(const struct ht_scenario *sc, int32_t unit, struct ht_layout *l)
{
    for (int32_t r = 0; r < l->n_ranks; r++) {
        struct ht_model part = ht_model_part(&sc->model, ht_layout_part(l, r), ht_layout_width_at(l, r));
        struct ht_range all = ht_layout_params(l, &part, unit);
        l->shards[unit * l->n_ranks + r] = (struct ht_shard){all.begin, all.end, all.end - all.begin};
    }
}

/* Appends a replica that takes the next ranks and micro-batches. */
static void add_replica(struct ht_layout *l, int32_t n_ranks, int64_t n, int64_t micro_batch)
{
    struct ht_replica x = {0, n_ranks, l->n_micro_batches, (int32_t)n, 0, micro_batch};
    if (l->n_replicas) {
        const struct ht_replica *last = &l->replicas[l->n_replicas - 1];
        x.first_place = last->first_place + last->n_ranks;
        x.first_sequence = last->first_sequence + last->n_micro_batches * last->micro_batch;
    }
    l->replicas[l->n_replicas++] = x;
    l->alike = l->n_replicas == 1 ||
               (l->alike && n == l->replicas[0].n_micro_batches && micro_batch == l->replicas[0].micro_batch);
    l->n_micro_batches += x.n_micro_batches;
    if (n > l->rounds) l->rounds = x.n_micro_batches;
}

static struct ht_layout *create(const struct ht_scenario *sc, enum ht_sharding sharding, int32_t n_replicas)
{
    struct ht_layout *l = HT_NEW(struct ht_layout);
    *l = (struct ht_layout){.sharding = sharding,
                            .tp = 1,
                            .members = 1,
                            .per_pass = 1,
                            .n_ranks = (int32_t)ht_scenario_ranks(sc),
                            .n_units = (int32_t)ht_model_units(&sc->model)};
    l->replicas = HT_NEW_ARRAY(struct ht_replica, n_replicas);
    l->rank_at = HT_NEW_ARRAY(int32_t, l->n_ranks);
    l->place_of = HT_NEW_ARRAY(int32_t, l->n_ranks);
    l->units = HT_NEW_ARRAY(struct ht_layout_unit, l->n_units);
    for (int32_t u = 0; u < l->n_units; u++) l->units[u] = (struct ht_layout_unit){u, HT_ALL_SUB_OPS};
    for (int32_t r = 0; r < l->n_ranks; r++) l->rank_at[r] = l->place_of[r] = r;
    return l;
}

enum ht_status ht_layout_check_size(const struct ht_scenario *sc, int64_t micro_batches, struct ht_error *err)
{
    int64_t most = MOST_PASSES / ht_model_units(&sc->model);
    if (micro_batches <= most) return HT_OK;
    return ht_fail(err, HT_BAD_INPUT, "%lld micro-batches make too large a graph of '%s'; expected at most %lld",
                   (long long)micro_batches, sc->model.name, (long long)most);
}

enum ht_status ht_layout_uneven(const struct ht_scenario *sc, enum ht_sharding sharding,
                                const struct ht_portion *portions, struct ht_error *err, struct ht_layout **out)
{
    int32_t ranks = (int32_t)ht_scenario_ranks(sc);
    int64_t sequences = 0, shares = 0, rounds = 0;
    bool even = true;
    for (int32_t r = 0; r < ranks; r++) {
        if (portions[r].count > rounds) rounds = portions[r].count;
        sequences += portions[r].micro_batch * portions[r].count;
        shares += portions[r].share;
        even &= portions[r].share == portions[0].share;
        if (sharding == HT_SHARD_NONE && !portions[r].count)
            return ht_fail(err, HT_BAD_INPUT,
                           "rank %d has no micro-batch: expected at least one where nothing is sharded", r);
    }
    if (sequences != sc->batch)
        return ht_fail(err, HT_BAD_INPUT, "the ranks' micro-batches have %lld sequences: expected the batch's %lld",
                       (long long)sequences, (long long)sc->batch);
    enum ht_status status = ht_layout_check_size(sc, rounds * ranks, err);
    if (status) return status;
    if (shares == 0 && sharding == HT_SHARD_ALL)
        return ht_fail(err, HT_BAD_INPUT, "every rank's share of the parameters is 0: expected at least one above 0");
    struct ht_layout *l = create(sc, sharding, ranks);
    for (int32_t r = 0; r < ranks; r++) add_replica(l, 1, portions[r].count, portions[r].micro_batch);
    l->shards = HT_NEW_ARRAY(struct ht_shard, l->n_units * ranks);
    for (int32_t u = 0; u < l->n_units; u++) {
        if (sharding == HT_SHARD_NONE)
            copy(sc, u, l);
        else if (even)
            cut_evenly(sc, u, l);
        else
            cut_by_shares(sc, u, portions, l);
    }
    *out = l;
    return HT_OK;
}

enum ht_status ht_layout_planned(const struct ht_scenario *sc, enum ht_sharding sharding, const struct ht_plan *plan,
                                 struct ht_error *err, struct ht_layout **out)
{
    const struct ht_variable *m = ht_plan_variable(plan, "m"), *l = ht_plan_variable(plan, "l");
    const struct ht_variable *share = ht_plan_variable(plan, "share");
    struct ht_portion *portions = HT_NEW_ARRAY(struct ht_portion, m->n);
    for (int32_t r = 0; r < m->n; r++)
        portions[r] = (struct ht_portion){m->values[r], l->values[r], share ? share->values[r] : 0};
    enum ht_status status = ht_layout_uneven(sc, sharding, portions, err, out);
    free(portions);
    return status;
}

enum ht_status ht_layout_check_equal(const struct ht_scenario *sc, struct ht_error *err)
{
    int64_t ranks = ht_scenario_ranks(sc);
    if (sc->batch % ranks)
        return ht_fail(err, HT_BAD_INPUT, "the %lld devices of cluster '%s' do not divide the batch of %lld sequences",
                       (long long)ranks, sc->cluster->name, (long long)sc->batch);
    if (sc->batch / ranks % sc->micro_batch)
        return ht_fail(err, HT_BAD_INPUT,
                       "micro-batch %lld does not divide the %lld sequences of each of %lld devices (batch %lld)",
                       (long long)sc->micro_batch, (long long)(sc->batch / ranks), (long long)ranks,
                       (long long)sc->batch);
    return HT_OK;
}

enum ht_status ht_layout_equal(const struct ht_scenario *sc, struct ht_error *err, struct ht_layout **out)
{
    int64_t ranks = ht_scenario_ranks(sc);
    enum ht_status status = ht_layout_check_equal(sc, err);
    if (status) return status;
    struct ht_portion *portions = HT_NEW_ARRAY(struct ht_portion, ranks);
    for (int64_t r = 0; r < ranks; r++) portions[r] = (struct ht_portion){sc->micro_batch, ht_equal_rounds(sc), 1};
    status = ht_layout_uneven(sc, HT_SHARD_ALL, portions, err, out);
    free(portions);
    return status;
}

enum ht_status ht_layout_shared(const struct ht_scenario *sc, struct ht_error *err, struct ht_layout **out)
{
    int64_t micro_batches = ht_scenario_micro_batches(sc);
    enum ht_status status = ht_layout_check_equal(sc, err);
    if (!status) status = ht_layout_check_size(sc, micro_batches, err);
    if (status) return status;
    struct ht_layout *l = create(sc, HT_SHARD_NONE, 1);
    add_replica(l, l->n_ranks, micro_batches, sc->micro_batch);
    l->shards = HT_NEW_ARRAY(struct ht_shard, l->n_units * l->n_ranks);
    for (int32_t u = 0; u < l->n_units; u++) copy(sc, u, l);
    *out = l;
    return HT_OK;
}

enum ht_status ht_layout_pipelines(const struct ht_scenario *sc, int32_t n, const int64_t *ranks,
                                   const int64_t *micro_batches, int32_t tp, struct ht_error *err,
                                   struct ht_layout **out)
{
    int64_t all_ranks = 0, all = 0;
    char dimension[64];
    for (int32_t k = 0; k < n; k++) {
        all_ranks += ranks[k];
        all += micro_batches[k];
        if (ranks[k] % tp)
            return ht_fail(err, HT_BAD_INPUT, "tp %d does not divide the %lld devices of a pipeline", tp,
                           (long long)ranks[k]);
    }
    if (ht_model_cannot_part(&sc->model, tp, dimension, sizeof(dimension)))
        return ht_fail(err, HT_BAD_INPUT, "tp %d does not divide the %s of %s", tp, dimension, sc->model.name);
    if (all_ranks != ht_scenario_ranks(sc))
        return ht_fail(err, HT_BAD_INPUT, "the pipelines have %lld devices: expected all %lld of cluster '%s'",
                       (long long)all_ranks, (long long)ht_scenario_ranks(sc), sc->cluster->name);
    if (all != ht_scenario_micro_batches(sc))
        return ht_fail(err, HT_BAD_INPUT, "the pipelines have %lld micro-batches: expected the batch's %lld",
                       (long long)all, (long long)ht_scenario_micro_batches(sc));
    struct ht_layout *l = create(sc, HT_SHARD_NONE, n);
    l->tp = l->members = tp;
    for (int32_t k = 0; k < n; k++) add_replica(l, (int32_t)ranks[k], micro_batches[k], sc->micro_batch);
    l->shards = HT_NEW_ARRAY(struct ht_shard, l->n_units * l->n_ranks);
    for (int32_t u = 0; u < l->n_units; u++) copy(sc, u, l);
    *out = l;
    return HT_OK;
}

/* Checks the widths of stages, and that they add up to each pipeline's ranks. replicas: of each stage, or NULL. */
static enum ht_status check_widths(const struct ht_layout *l, const struct ht_scenario *sc, int32_t n,
                                   const int64_t *widths, const int64_t *replicas, struct ht_error *err)
{
    char dimension[64];
    int64_t all = 0;
    for (int32_t i = 0; i < n; i++) {
        all += widths[i] * (replicas ? replicas[i] : 1);
        if (ht_model_cannot_part(&sc->model, (int32_t)widths[i], dimension, sizeof(dimension)))
            return ht_fail(err, HT_BAD_INPUT, "width %lld of stage %d does not divide the %s of %s",
                           (long long)widths[i], i, dimension, sc->model.name);
    }
    for (int32_t k = 0; k < l->n_replicas; k++)
        if (l->replicas[k].n_ranks != all)
            return ht_fail(err, HT_BAD_INPUT, "%s to %lld devices; expected the %d of pipeline %d",
                           replicas ? "replicas of stages add up" : "widths adds up", (long long)all,
                           l->replicas[k].n_ranks, k);
    if (sc->model.tied && widths[0] != widths[n - 1])
        return ht_fail(
            err, HT_INFEASIBLE,
            "%s ties its head to the token table, and the first stage has %lld part%s, the last one %lld: expected "
            "as many, or an untied model",
            sc->model.name, (long long)widths[0], widths[0] == 1 ? "" : "s", (long long)widths[n - 1]);
    return HT_OK;
}

/* Lays the stages out beside each other. */
static void widen(struct ht_layout *l, const struct ht_scenario *sc, int32_t n, const int64_t *widths,
                  const int64_t *replicas)
{
    l->n_stages = n;
    l->stage_begin = HT_NEW_ARRAY(int32_t, n + 1);
    l->stage_width = HT_NEW_ARRAY(int32_t, n);
    for (int32_t i = 0; i < n; i++) {
        int32_t members = (int32_t)(widths[i] * (replicas ? replicas[i] : 1));
        l->stage_begin[i + 1] = l->stage_begin[i] + members;
        l->stage_width[i] = (int32_t)widths[i];
        l->tp = (int32_t)ht_max(l->tp, widths[i]);
        l->members = (int32_t)ht_max(l->members, members);
    }
    for (int32_t u = 0; u < l->n_units; u++) copy(sc, u, l);
}

enum ht_status ht_layout_widen(struct ht_layout *l, const struct ht_scenario *sc, int32_t n, const int64_t *widths,
                               struct ht_error *err)
{
    enum ht_status status = check_widths(l, sc, n, widths, NULL, err);
    if (!status) widen(l, sc, n, widths, NULL);
    return status;
}

/* Checks the numbers of replicas of stages, of which `most` is the largest. */
static enum ht_status check_replicas(const struct ht_layout *l, const struct ht_scenario *sc, int32_t n,
                                     const int64_t *replicas, int64_t most, struct ht_error *err)
{
    for (int32_t i = 0; i < n; i++)
        if (most % replicas[i])
            return ht_fail(err, HT_BAD_INPUT,
                           "stage %d has %lld replicas and another stage %lld; expected numbers that divide the "
                           "largest",
                           i, (long long)replicas[i], (long long)most);
    if (sc->micro_batch % most)
        return ht_fail(err, HT_BAD_INPUT,
                       "the %lld replicas of a stage do not divide the %lld sequence%s of a micro-batch",
                       (long long)most, (long long)sc->micro_batch, sc->micro_batch == 1 ? "" : "s");
    if (sc->model.tied && replicas[0] != replicas[n - 1])
        return ht_fail(
            err, HT_INFEASIBLE,
            "%s ties its head to the token table, and the first stage has %lld replica%s, the last one %lld: expected "
            "as many, or an untied model",
            sc->model.name, (long long)replicas[0], replicas[0] == 1 ? "" : "s", (long long)replicas[n - 1]);
    return ht_layout_check_size(sc, l->n_micro_batches * most, err);
}

enum ht_status ht_layout_replicate(struct ht_layout *l, const struct ht_scenario *sc, int32_t n, const int64_t *widths,
                                   const int64_t *replicas, struct ht_error *err)
{
    int64_t most = 1;
    for (int32_t i = 0; i < n; i++) most = ht_max(most, replicas[i]);
    enum ht_status status = check_widths(l, sc, n, widths, replicas, err);
    if (!status) status = check_replicas(l, sc, n, replicas, most, err);
    if (status) return status;
    widen(l, sc, n, widths, replicas);
    l->per_pass = (int32_t)most;
    l->replicas[0].n_micro_batches *= l->per_pass;
    l->replicas[0].micro_batch /= l->per_pass;
    l->n_micro_batches *= l->per_pass;
    l->rounds *= l->per_pass;
    return HT_OK;
}

enum ht_status ht_layout_place(struct ht_layout *l, const struct ht_scenario *sc, int32_t n, const int64_t *place,
                               struct ht_error *err)
{
    if (n != l->n_ranks)
        return ht_fail(err, HT_BAD_INPUT, "place has %d device%s: expected the %d of cluster '%s'", n,
                       n == 1 ? "" : "s", l->n_ranks, sc->cluster->name);
    for (int32_t r = 0; r < n; r++) l->place_of[r] = -1;
    for (int32_t i = 0; i < n; i++) {
        int64_t rank = place[i];
        if (rank < 0 || rank >= n)
            return ht_fail(err, HT_BAD_INPUT, "device %lld of place is not on the cluster: expected 0 to %d",
                           (long long)rank, n - 1);
        if (l->place_of[rank] >= 0)
            return ht_fail(err, HT_BAD_INPUT, "place names device %lld twice: expected each once", (long long)rank);
        if (part_at(l, i) && rank < place[i - 1])
            return ht_fail(
                err, HT_BAD_INPUT,
                "place has device %lld behind %lld in one stage: expected a stage's devices in ascending order",
                (long long)rank, (long long)place[i - 1]);
        l->rank_at[i] = (int32_t)rank;
        l->place_of[rank] = i;
    }
    for (int32_t u = 0; u < l->n_units; u++) copy(sc, u, l);
    return HT_OK;
}

void ht_layout_halve(struct ht_layout *l, const struct ht_scenario *sc, const unsigned *fronts)
{
    int32_t n = (int32_t)ht_model_units(&sc->model);
    free(l->units);
    free(l->shards);
    l->units = HT_NEW_ARRAY(struct ht_layout_unit, 2 * n);
    l->n_units = 0;
    for (int32_t u = 0; u < n; u++) {
        l->units[l->n_units++] = (struct ht_layout_unit){u, fronts[u] ? fronts[u] : HT_ALL_SUB_OPS};
        if (fronts[u]) l->units[l->n_units++] = (struct ht_layout_unit){u, HT_ALL_SUB_OPS & ~fronts[u]};
    }
    l->shards = HT_NEW_ARRAY(struct ht_shard, l->n_units * l->n_ranks);
    for (int32_t u = 0; u < l->n_units; u++) copy(sc, u, l);
}

enum ht_status ht_layout_cut_rows(struct ht_layout *l, const struct ht_scenario *sc, struct ht_error *err)
{
    int64_t rows = sc->micro_batch * sc->seq;
    if (rows % l->tp)
        return ht_fail(err, HT_BAD_INPUT,
                       "tp %d does not divide the %lld tokens of a micro-batch, which sequence=1 cuts", l->tp,
                       (long long)rows);
    l->sequence = true;
    return HT_OK;
}

int32_t ht_layout_width(const struct ht_layout *l, int32_t stage)
{
    return l->stage_begin ? l->stage_width[stage] : l->tp;
}

int32_t ht_layout_stage_replicas(const struct ht_layout *l, int32_t stage)
{
    return l->stage_begin ? (l->stage_begin[stage + 1] - l->stage_begin[stage]) / l->stage_width[stage] : 1;
}

int32_t ht_layout_width_at(const struct ht_layout *l, int32_t rank)
{
    return l->stage_begin ? ht_layout_width(l, stage_at(l, l->place_of[rank] % l->stage_begin[l->n_stages])) : l->tp;
}

int32_t ht_layout_stages(const struct ht_layout *l, const struct ht_replica *x)
{
    return l->stage_begin ? l->n_stages : x->n_ranks / l->tp;
}

int32_t ht_layout_rank(const struct ht_layout *l, int32_t replica, int32_t stage, int32_t member)
{
    int32_t first = l->stage_begin ? l->stage_begin[stage] : stage * l->tp;
    int32_t members = ht_layout_width(l, stage) * ht_layout_stage_replicas(l, stage);
    return member < members ? l->rank_at[l->replicas[replica].first_place + first + member] : -1;
}

int32_t ht_layout_part(const struct ht_layout *l, int32_t rank)
{
    return part_at(l, l->place_of[rank]);
}

int32_t ht_layout_passed(const struct ht_layout *l, int32_t stage)
{
    return l->per_pass / ht_layout_stage_replicas(l, stage);
}

int32_t ht_layout_first_passed(const struct ht_layout *l, int32_t stage, int32_t member)
{
    return member / ht_layout_width(l, stage) * ht_layout_passed(l, stage);
}

bool ht_layout_passes(const struct ht_layout *l, int32_t rank, int32_t micro_batch)
{
    if (l->per_pass == 1) return true;
    int32_t at = l->place_of[rank], stage = stage_at(l, at); /* there is one pipeline */
    int32_t first = ht_layout_first_passed(l, stage, at - l->stage_begin[stage]), mb = micro_batch % l->per_pass;
    return mb >= first && mb < first + ht_layout_passed(l, stage);
}

const int32_t *ht_layout_stage_ranks(const struct ht_layout *l, int32_t rank)
{
    return &l->rank_at[l->place_of[rank] - ht_layout_part(l, rank)];
}

int32_t ht_layout_stage(const struct ht_layout *l, int32_t replica, int32_t rank)
{
    const struct ht_replica *x = &l->replicas[replica];
    int32_t at = l->place_of[rank] - x->first_place;
    return at >= 0 && at < x->n_ranks ? stage_at(l, at) : -1;
}

void ht_layout_destroy(struct ht_layout *l)
{
    if (!l) return;
    free(l->replicas);
    free(l->rank_at);
    free(l->place_of);
    free(l->stage_begin);
    free(l->stage_width);
    free(l->units);
    free(l->shards);
    free(l);
}

const struct ht_shard *ht_layout_shard(const struct ht_layout *l, int32_t unit, int32_t rank)
{
    return &l->shards[unit * l->n_ranks + rank];
}

int32_t ht_layout_micro_batch(const struct ht_layout *l, int32_t replica, int32_t round)
{
    for (int32_t r = 0; l->replicas[replica].n_micro_batches <= round; r++) replica = r;
    return l->replicas[replica].first_micro_batch + round;
}

int32_t ht_layout_round(const struct ht_layout *l, int32_t micro_batch)
{
    int32_t r = 0;
    while (micro_batch >= l->replicas[r].first_micro_batch + l->replicas[r].n_micro_batches) r++;
    return micro_batch - l->replicas[r].first_micro_batch;
}

void ht_layout_slice(const struct ht_layout *l, struct ht_schedule *s)
{
    struct ht_slice *slices = HT_NEW_ARRAY(struct ht_slice, l->n_micro_batches);
    for (int32_t r = 0; r < l->n_replicas; r++) {
        const struct ht_replica *x = &l->replicas[r];
        for (int32_t j = 0; j < x->n_micro_batches; j++)
            slices[x->first_micro_batch + j] =
                (struct ht_slice){x->first_sequence + j * x->micro_batch, x->micro_batch};
    }
    ht_schedule_set_micro_batches(s, l->n_micro_batches, l->alike ? NULL : slices);
    free(slices);
}
