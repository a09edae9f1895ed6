#include "common/schedule/merge.h"

#include "common/base/array.h"
#include "common/schedule/build.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

struct taken {
    int32_t draft, op, group; /* group: across drafts, or -1 */
};

/* A row of a draft that is the row of another one in the graph: a message brings it from there. */
struct shared {
    int32_t draft, row, of, of_row;
};

struct row_of_draft {
    int32_t draft, row; /* draft -1: none */
};

struct merge {
    struct ht_schedule *const *drafts;
    const struct ht_image *images; /* [n], or NULL */
    int32_t n, parts;
    const struct ht_merge_stage *stages; /* [ranks], or NULL */
    struct taken *order;                 /* [n_ops] of the graph */
    int32_t n_ops, n_groups;             /* n_groups: numbers taken by groups across drafts */
    size_t order_cap;
    int32_t **new_op;      /* [n][ops of the draft] */
    int32_t **new_row;     /* [n][tensors of the draft] */
    struct shared *shared; /* rows that drafts share */
    int32_t n_shared;
    size_t shared_cap;
    struct row_of_draft **owner; /* [n][tensors of the draft] the row that it is; NULL: drafts share none */
    int32_t **new_work;          /* [n][works of the draft], -1: no op has come to it */
    int32_t *first_lane;         /* [n] */
    int32_t *first_group;        /* [n] number of a draft's group 0 in the graph */
    struct ht_schedule *out;
};

/* ---- images --------------------------------------------------------------------------------------------------- */

/* Returns how a draft differs from the one that is written; NULL: it is that. */
static const struct ht_image *image_of(const struct ht_image *images, int32_t draft)
{
    return images && images[draft].rank_of ? &images[draft] : NULL;
}

static int32_t rank_of(const struct ht_image *image, int32_t rank)
{
    return image ? image->rank_of[rank] : rank;
}

static void turn_label(const struct ht_image *image, struct ht_label *l)
{
    if (image && l->micro_batch >= 0) l->micro_batch += image->micro_batch_offset;
}

/* ---- order ----------------------------------------------------------------------------------------------------- */

/* The drafts that share an op: first, first + step, ..; n 1: the op belongs to one draft. */
struct team {
    int32_t first, step, n;
};

static struct team team_of(const struct merge *m, int32_t draft, int32_t op)
{
    const struct ht_schedule *s = m->drafts[draft];
    const struct ht_op *o = &s->ops[op];
    int32_t replica = draft - draft % m->parts;
    const struct ht_merge_stage *stage = m->stages ? &m->stages[ht_op_rank(s, op)] : NULL;
    int32_t first = stage ? stage->first : replica; /* draft with part 0 of the op's stage */
    if (ht_joins_boundary(o))
        return s->works[o->work].ranks > 1 && m->parts > 1 ? (struct team){first, 1, s->works[o->work].ranks}
                                                           : (struct team){draft, 1, 1};
    if (s->lanes[o->lane].kind == HT_LANE_COLLECTIVE && (m->parts == 1 || o->label.unit < 0))
        return (struct team){0, 1, m->n};
    if (s->lanes[o->lane].kind == HT_LANE_COLLECTIVE && stage)
        return (struct team){draft - first, stage->width, stage->replicas};
    if (s->lanes[o->lane].kind == HT_LANE_COLLECTIVE) return (struct team){draft % m->parts, m->parts, m->n / m->parts};
    if (s->works[o->work].tp > 1 && m->parts > 1) return (struct team){first, 1, s->works[o->work].tp};
    if (!o->across) return (struct team){draft, 1, 1};
    int32_t other = replica + o->across - 1;
    return (struct team){draft < other ? draft : other, abs(draft - other), 2};
}

/* Takes an op with all of its group. Returns the draft's next op. */
static int32_t take(struct merge *m, int32_t draft, int32_t op, int32_t group)
{
    const struct ht_schedule *s = m->drafts[draft];
    int32_t match = s->ops[op].match;
    do {
        HT_PUSH(m->order, m->n_ops, m->order_cap, ((struct taken){draft, op++, group}));
    } while (match >= 0 && op < s->n_ops && s->ops[op].match == match);
    return op;
}

/* Checks that all drafts of the team are at the same shared op. */
static enum ht_status check_joint(const struct merge *m, struct team t, const int32_t *next, struct ht_error *err)
{
    char words[2][96];
    for (int32_t d = t.first + t.step; d < t.first + t.n * t.step; d += t.step) {
        const struct ht_op *a = &m->drafts[t.first]->ops[next[t.first]], *b = &m->drafts[d]->ops[next[d]];
        bool same_kind =
            a->kind == b->kind || (a->across && b->across && a->kind + b->kind == HT_OP_SEND + HT_OP_RECEIVE);
        if (same_kind && a->label.unit == b->label.unit && a->label.n_units == b->label.n_units) continue;
        return ht_fail(err, HT_FAILED, "drafts %d and %d of '%s' differ: the first has %s next, the other %s", t.first,
                       d, m->drafts[0]->name,
                       ht_op_description(m->drafts[t.first], next[t.first], words[0], sizeof words[0]),
                       ht_op_description(m->drafts[d], next[d], words[1], sizeof words[1]));
    }
    return HT_OK;
}

static bool same_team(struct team a, struct team b)
{
    return a.first == b.first && a.step == b.step && a.n == b.n;
}

/* Returns true if all drafts of the team wait at a shared op of this team; else *odd is one that does not. */
static bool all_wait(const struct merge *m, struct team t, const int32_t *next, const bool *waits, int32_t *odd)
{
    for (int32_t d = t.first; d < t.first + t.n * t.step; d += t.step) {
        *odd = d;
        if (!waits[d] || !same_team(team_of(m, d, next[d]), t)) return false;
    }
    return true;
}

/* Fails: no draft can go on, and the first that has not ended waits for an op that never comes. */
static enum ht_status say_stuck(const struct merge *m, const int32_t *next, const bool *waits, struct ht_error *err)
{
    int32_t d = 0, odd = 0;
    char words[2][96];
    while (!waits[d]) d++;
    all_wait(m, team_of(m, d, next[d]), next, waits, &odd);
    ht_op_description(m->drafts[d], next[d], words[0], sizeof words[0]);
    if (!waits[odd])
        return ht_fail(err, HT_FAILED, "drafts %d and %d of '%s' differ: one has ended, the other has %s next", odd, d,
                       m->drafts[0]->name, words[0]);
    return ht_fail(err, HT_FAILED, "drafts %d and %d of '%s' differ: the first has %s next, the other %s", d, odd,
                   m->drafts[0]->name, words[0],
                   ht_op_description(m->drafts[odd], next[odd], words[1], sizeof words[1]));
}

static int by_rank(const void *x, const void *y, void *arg)
{
    const struct taken *a = x, *b = y;
    const struct merge *m = arg;
    int32_t i = rank_of(image_of(m->images, a->draft), ht_op_rank(m->drafts[a->draft], a->op));
    int32_t k = rank_of(image_of(m->images, b->draft), ht_op_rank(m->drafts[b->draft], b->op));
    return (i > k) - (i < k);
}

/* Notes that two members of a message across drafts have one row, the sender's. What receives a slice has a row of its own. */
static void share(struct merge *m, const struct taken *x)
{
    bool sends = m->drafts[x[0].draft]->ops[x[0].op].kind == HT_OP_SEND;
    const struct taken *from = sends ? x : x + 1, *to = sends ? x + 1 : x;
    const struct ht_schedule *a = m->drafts[from->draft], *b = m->drafts[to->draft];
    struct shared s = {to->draft, b->effects[b->effects_begin[to->op]].tensor, from->draft,
                       a->effects[a->effects_begin[from->op]].tensor};
    if (!ht_is_boundary_shard(&b->tensors[s.row])) HT_PUSH(m->shared, m->n_shared, m->shared_cap, s);
}

/* Takes the shared ops that all drafts of a team have reached; members in the order that merge.h says. */
static enum ht_status take_joint(struct merge *m, int32_t *next, bool *waits, int32_t round, struct ht_error *err)
{
    for (int32_t k = 0; k < m->n; k++) {
        if (!waits[k]) continue;
        struct team t = team_of(m, k, next[k]);
        int32_t begin = m->n_ops, group = m->parts == 1 ? round : m->n_groups, odd;
        bool about_unit = m->drafts[k]->ops[next[k]].label.unit >= 0, across = m->drafts[k]->ops[next[k]].across;
        if (t.first != k || !all_wait(m, t, next, waits, &odd)) continue;
        enum ht_status status = check_joint(m, t, next, err);
        if (status) return status;
        for (int32_t d = t.first; d < t.first + t.n * t.step; d += t.step) {
            next[d] = take(m, d, next[d], group);
            waits[d] = false;
        }
        if (across) share(m, m->order + begin);
        if (!about_unit) qsort_r(m->order + begin, (size_t)(m->n_ops - begin), sizeof *m->order, by_rank, m);
        m->n_groups = group + 1;
    }
    return HT_OK;
}

static enum ht_status take_all(struct merge *m, int32_t *next, struct ht_error *err)
{
    int64_t left = 0;
    bool *waits = HT_NEW_ARRAY(bool, m->n);
    enum ht_status status = HT_OK;
    int32_t round = 0;
    for (int32_t d = 0; d < m->n; d++) left += m->drafts[d]->n_ops;
    HT_RESERVE(m->order, m->order_cap, left);
    for (; left > 0 && !status; round++) {
        int32_t before = m->n_ops;
        for (int32_t d = 0; d < m->n; d++) {
            waits[d] = next[d] < m->drafts[d]->n_ops && team_of(m, d, next[d]).n > 1;
            if (!waits[d] && next[d] < m->drafts[d]->n_ops) next[d] = take(m, d, next[d], -1);
        }
        status = take_joint(m, next, waits, round, err);
        if (!status && m->n_ops == before) status = say_stuck(m, next, waits, err);
        left -= m->n_ops - before;
    }
    if (m->parts == 1 && m->n > 1) m->n_groups = round;
    for (int32_t i = 0; i < m->n_ops; i++) m->new_op[m->order[i].draft][m->order[i].op] = i;
    free(waits);
    return status;
}

/* ---- tables ---------------------------------------------------------------------------------------------------- */

/* Numbers the groups. A single draft keeps its numbers; with several, they follow the rounds, draft after draft. */
static void number_groups(struct merge *m)
{
    int32_t next = m->n_groups;
    for (int32_t d = 0; d < m->n; d++) {
        int32_t first = m->first_group[d] = next;
        for (int32_t i = 0; i < m->drafts[d]->n_ops; i++)
            if (first + m->drafts[d]->ops[i].match >= next) next = first + m->drafts[d]->ops[i].match + 1;
    }
}

static void create(struct merge *m)
{
    const struct ht_schedule *first = m->drafts[0];
    m->out = ht_schedule_create(first->name, first->n_ranks, first->n_nodes, first->rank_node);
    ht_schedule_copy_spaces(m->out, first);
    m->out->n_units = first->n_units;
    ht_schedule_set_micro_batches(m->out, first->n_micro_batches, first->slices);
    for (int32_t i = 0; i < first->n_resources; i++) {
        const struct ht_resource *r = &first->resources[i];
        ht_add_resource(m->out, r->name, r->kind, r->node, r->capacity_per_s);
    }
    for (int32_t d = 0; d < m->n; d++) {
        m->first_lane[d] = m->out->n_lanes;
        assert(m->drafts[d]->n_resources == first->n_resources);
        for (int32_t i = 0; i < m->drafts[d]->n_lanes; i++) {
            const struct ht_lane *l = &m->drafts[d]->lanes[i];
            ht_add_lane(m->out, l->name, l->kind, rank_of(image_of(m->images, d), l->rank), l->order);
        }
    }
}

/* Returns the row that a draft's row is in the graph. */
static struct row_of_draft owner_of(const struct merge *m, int32_t draft, int32_t row)
{
    struct row_of_draft at = {draft, row};
    while (m->owner && m->owner[at.draft][at.row].draft >= 0) at = m->owner[at.draft][at.row];
    return at;
}

static bool is_own(const struct merge *m, int32_t draft, int32_t row)
{
    return !m->owner || m->owner[draft][row].draft < 0;
}

/* Makes one row of those that messages bring from one draft to another. A row may be sent on, even to the draft that it comes from: the
   gradient between the halves of a block is in the row of the block's input's. */
static void join_shared(struct merge *m)
{
    if (!m->n_shared) return;
    m->owner = HT_NEW_ARRAY(struct row_of_draft *, m->n);
    for (int32_t d = 0; d < m->n; d++) {
        m->owner[d] = HT_NEW_ARRAY(struct row_of_draft, m->drafts[d]->n_tensors);
        for (int32_t i = 0; i < m->drafts[d]->n_tensors; i++) m->owner[d][i].draft = -1;
    }
    for (int32_t k = 0; k < m->n_shared; k++) {
        struct row_of_draft to = owner_of(m, m->shared[k].draft, m->shared[k].row),
                            from = owner_of(m, m->shared[k].of, m->shared[k].of_row);
        if (to.draft != from.draft || to.row != from.row) m->owner[to.draft][to.row] = from;
    }
}

/* Adds a draft's row to the graph, whose table has room for it. */
static int32_t add_row(struct merge *m, int32_t draft, int32_t row)
{
    const struct ht_image *image = image_of(m->images, draft);
    struct ht_tensor *t = &m->out->tensors[m->out->n_tensors];
    *t = m->drafts[draft]->tensors[row];
    turn_label(image, &t->label);
    t->rank = rank_of(image, t->rank);
    if (image && t->parts > 1) t->part = image->part;
    if (image && ht_is_boundary_shard(t)) {
        t->shard_begin += image->part_offset * t->bytes;
        t->shard_end += image->part_offset * t->bytes;
    }
    return m->out->n_tensors++;
}

static void add_rows(struct merge *m)
{
    int32_t most = 0, most_residents = 0;
    join_shared(m);
    for (int32_t d = 0; d < m->n; d++) {
        const struct ht_schedule *s = m->drafts[d];
        if (s->n_tensors > most) most = s->n_tensors;
        if (s->n_residents > most_residents) most_residents = s->n_residents;
    }
    for (int32_t i = 0; i < most; i++)
        for (int32_t d = 0; d < m->n; d++)
            if (i < m->drafts[d]->n_tensors && is_own(m, d, i)) m->new_row[d][i] = add_row(m, d, i);
    for (int32_t d = 0; d < m->n && m->n_shared; d++)
        for (int32_t i = 0; i < m->drafts[d]->n_tensors; i++) {
            struct row_of_draft own = owner_of(m, d, i);
            m->new_row[d][i] = m->new_row[own.draft][own.row];
        }
    for (int32_t i = 0; i < most_residents; i++)
        for (int32_t d = 0; d < m->n; d++) {
            if (i >= m->drafts[d]->n_residents) continue;
            const struct ht_resident *r = &m->drafts[d]->residents[i];
            ht_add_resident(m->out, m->new_row[d][r->tensor], r->tier, rank_of(image_of(m->images, d), r->rank));
        }
}

/* Appends an op's list of edges with the graph's ids. */
static void add_edges(struct merge *m, int32_t draft, const int32_t *edges, int64_t n, int32_t *list, int64_t *begin)
{
    int64_t end = begin[m->out->n_ops];
    for (int64_t k = 0; k < n; k++) list[end++] = m->new_op[draft][edges[k]];
    begin[m->out->n_ops + 1] = end;
}

static void add_effects(struct merge *m, int32_t draft, int32_t i)
{
    const struct ht_schedule *s = m->drafts[draft];
    struct ht_schedule *out = m->out;
    int64_t end = out->effects_begin[out->n_ops];
    for (int64_t k = s->effects_begin[i]; k < s->effects_begin[i + 1]; k++) {
        out->effects[end] = s->effects[k];
        out->effects[end++].tensor = m->new_row[draft][s->effects[k].tensor];
    }
    out->effects_begin[out->n_ops + 1] = end;
}

static void add_uses(struct merge *m, int32_t draft, int32_t i)
{
    const struct ht_schedule *s = m->drafts[draft];
    const struct ht_image *image = image_of(m->images, draft);
    struct ht_schedule *out = m->out;
    int64_t end = out->uses_begin[out->n_ops];
    for (int64_t k = s->uses_begin[i]; k < s->uses_begin[i + 1]; k++) {
        out->uses[end] = s->uses[k];
        if (image) out->uses[end].resource = image->resource_of(image, ht_op_rank(s, i), s->uses[k].resource);
        end++;
    }
    out->uses_begin[out->n_ops + 1] = end;
}

/* Appends an op with its lists. The draft's builder saw to it that no list has anything twice. */
static void add_op(struct merge *m, int32_t at)
{
    int32_t d = m->order[at].draft, i = m->order[at].op;
    const struct ht_schedule *s = m->drafts[d];
    struct ht_schedule *out = m->out;
    struct ht_op *op = &out->ops[out->n_ops];
    int32_t *work = &m->new_work[d][s->ops[i].work];
    if (*work < 0) *work = ht_add_work(out, &s->works[s->ops[i].work]);
    *op = s->ops[i];
    turn_label(image_of(m->images, d), &op->label);
    op->lane += m->first_lane[d];
    op->work = *work;
    if (op->match >= 0) op->match += m->first_group[d];
    if (m->order[at].group >= 0) op->match = m->order[at].group;
    op->across = 0;
    add_edges(m, d, s->deps + s->deps_begin[i], s->deps_begin[i + 1] - s->deps_begin[i], out->deps, out->deps_begin);
    add_edges(m, d, s->prev + s->prev_begin[i], s->prev_begin[i + 1] - s->prev_begin[i], out->prev, out->prev_begin);
    add_effects(m, d, i);
    add_uses(m, d, i);
    out->n_ops++;
}

static enum ht_status merge_all(struct ht_schedule *const *drafts, const struct ht_image *images, int32_t n,
                                int32_t parts, const struct ht_merge_stage *stages, struct ht_error *err,
                                struct ht_schedule **out)
{
    struct merge m = {.drafts = drafts, .images = images, .n = n, .parts = parts, .stages = stages};
    assert(parts >= 1 && n % parts == 0 && (!stages || n == parts));
    int32_t *next = HT_NEW_ARRAY(int32_t, n);
    m.first_lane = HT_NEW_ARRAY(int32_t, n);
    m.first_group = HT_NEW_ARRAY(int32_t, n);
    m.new_op = HT_NEW_ARRAY(int32_t *, n);
    m.new_row = HT_NEW_ARRAY(int32_t *, n);
    m.new_work = HT_NEW_ARRAY(int32_t *, n);
    for (int32_t d = 0; d < n; d++) {
        ht_marks_resolve(drafts[d]);
        ht_builder_end(drafts[d]);
        m.new_op[d] = HT_NEW_ARRAY(int32_t, drafts[d]->n_ops);
        m.new_row[d] = HT_NEW_ARRAY(int32_t, drafts[d]->n_tensors);
        m.new_work[d] = ht_alloc_ids(drafts[d]->n_works);
    }
    enum ht_status status = take_all(&m, next, err);
    if (!status) {
        number_groups(&m);
        create(&m);
        ht_builder_reserve(m.out, drafts, n); /* all ops are taken */
        add_rows(&m);
        for (int32_t i = 0; i < m.n_ops; i++) add_op(&m, i);
        *out = m.out;
    }
    for (int32_t d = 0; d < n; d++) {
        free(m.new_op[d]);
        free(m.new_row[d]);
        free(m.new_work[d]);
        if (m.owner) free(m.owner[d]);
    }
    free(m.owner);
    free(m.new_op);
    free(m.new_row);
    free(m.new_work);
    free(m.first_lane);
    free(m.first_group);
    free(m.order);
    free(m.shared);
    free(next);
    return status;
}

enum ht_status ht_schedule_merge_stages(struct ht_schedule *const *drafts, int32_t n, int32_t parts,
                                        const struct ht_merge_stage *stages, struct ht_error *err,
                                        struct ht_schedule **out)
{
    return merge_all(drafts, NULL, n, parts, stages, err, out);
}

enum ht_status ht_schedule_merge(struct ht_schedule *const *drafts, int32_t n, int32_t parts, struct ht_error *err,
                                 struct ht_schedule **out)
{
    return merge_all(drafts, NULL, n, parts, NULL, err, out);
}

enum ht_status ht_schedule_join(struct ht_schedule **drafts, int32_t n, int32_t parts, enum ht_status status,
                                struct ht_error *err, struct ht_schedule **out)
{
    return ht_schedule_join_drafts(drafts, NULL, n, parts, NULL, status, err, out);
}

/* Returns true if a draft has a member of a message to another one, whose row it may have. */
static bool has_messages_across(const struct ht_schedule *s)
{
    for (int32_t i = 0; i < s->n_ops; i++)
        if (s->ops[i].across) return true;
    return false;
}

/* Links the drafts, each of which has all accesses to its rows. Returns false, with none linked, if that is not so. */
static bool link_apart(struct ht_schedule *const *drafts, const struct ht_image *images, int32_t n)
{
    for (int32_t d = 0; d < n; d++)
        if (!image_of(images, d) && has_messages_across(drafts[d])) return false;
    for (int32_t d = 0; d < n; d++)
        if (!image_of(images, d)) ht_schedule_link(drafts[d]);
    return true;
}

enum ht_status ht_schedule_join_drafts(struct ht_schedule **drafts, const struct ht_image *images, int32_t n,
                                       int32_t parts, const struct ht_merge_stage *stages, enum ht_status status,
                                       struct ht_error *err, struct ht_schedule **out)
{
    struct ht_schedule *graph = NULL;
    bool linked = !status && link_apart(drafts, images, n);
    if (!status && n > 1) status = merge_all(drafts, images, n, parts, stages, err, &graph);
    if (!status && n == 1) {
        graph = drafts[0];
        drafts[0] = NULL;
    }
    for (int32_t i = 0; i < n; i++)
        if (!image_of(images, i)) ht_schedule_destroy(drafts[i]);
    free(drafts);
    if (status) return status;
    if (!linked) ht_schedule_link(graph);
    *out = graph;
    return HT_OK;
}
