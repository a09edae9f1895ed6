/* Turns against plain loops, and the way of parameters over the tiers: where its copies are in the order of ids against
   a formula, for which op each fetch waits, and the verifier over all of it. */
#include "common/draft/hops.h"

#include "common/base/array.h"
#include "common/schedule/verify.h"

#include "tests/support/draw.h"
#include "tests/support/scenario.h"
#include "tests/support/suite.h"

#include <check.h>
#include <stdlib.h>

enum { MOST_TURNS = 64 };

/* A system that keeps parameters on disk or in host memory. */
struct way {
    int32_t ahead[2], read_ahead, rounds;
    bool on_disk, stays[8];
};

static void on_read(void *system, int32_t turn, int32_t unit)
{
    struct ht_hops *h = system;
    ck_assert_int_lt(turn, h->n_turns);
    ht_op_name(h->g->schedule, "R%d", unit);
}

static void step(struct ht_draft *g, int32_t u, bool on_disk, bool stays)
{
    if (on_disk) ht_draft_copy_states(g, u, 1, false, HT_DISK, HT_HOST, HT_PRODUCE, false);
    ht_draft_step(g, g->lanes->host, u, 1, true);
    if (stays) ht_draft_copy(g, g->param[u], HT_HOST, HT_DEVICE, HT_UPDATE, on_disk);
    if (on_disk) ht_draft_copy_states(g, u, 1, !stays, HT_HOST, HT_DISK, HT_UPDATE, true);
}

static void emit(struct ht_draft *g, const void *context)
{
    const struct way *way = context;
    struct ht_hops h;
    ht_hops_init(&h, g, way->rounds);
    h.ahead[0] = way->ahead[0];
    h.ahead[1] = way->ahead[1];
    h.read_ahead = way->read_ahead;
    h.on_read = way->on_disk ? on_read : NULL;
    h.system = &h;
    for (int32_t u = 0; u < g->n_units; u++) {
        h.stays[u] = way->stays[u];
        g->realloc_on_step[u] = way->on_disk;
        if (way->stays[u]) ht_draft_place(g, g->param[u], HT_DEVICE);
        if (!way->on_disk || !way->stays[u]) ht_draft_place(g, g->param[u], way->on_disk ? HT_DISK : HT_HOST);
        ht_draft_place_states(g, u, way->on_disk ? HT_DISK : HT_HOST);
    }
    for (int32_t t = 0; t < h.n_turns; t++) {
        struct ht_turn x = ht_turn(g->n_units, t);
        ht_hops_read(&h, t);
        ht_hops_fetch(&h, t);
        if (x.forward) h.computed[t] = ht_draft_forward(g, x.unit, x.round, HT_ALL_SUB_OPS);
        if (x.backward) h.computed[t] = ht_draft_backward(g, x.unit, x.round);
        ht_hops_drop(&h, t);
        if (x.backward) ht_draft_gradient_to_host(g, x.unit, x.round, HT_PRODUCE);
    }
    ht_hops_free(&h);
    for (int32_t u = 0; u < g->n_units; u++) step(g, u, way->on_disk, way->stays[u]);
}

/* ---- turns ----------------------------------------------------------------------------------------------------- */

/* Lists the units of all turns by plain loops over the passes. Returns their number. */
static int32_t units_by_loops(int32_t n_units, int32_t rounds, int32_t *units)
{
    int32_t n = 0;
    for (int32_t j = 0; j < rounds; j++) {
        for (int32_t u = 0; u < n_units; u++) units[n++] = u;
        for (int32_t u = n_units - 2; u >= 0; u--) units[n++] = u;
    }
    return n;
}

START_TEST(turns_go_over_the_passes)
{
    for (int32_t n_units = 3; n_units < 8; n_units++) {
        int32_t units[MOST_TURNS], n = units_by_loops(n_units, 3, units);
        ck_assert_int_eq(n, 3 * ht_turns(n_units));
        for (int32_t t = 0; t < n; t++) {
            struct ht_turn x = ht_turn(n_units, t);
            bool head = units[t] == n_units - 1,
                 rises = t == 0 || units[t] > units[t - 1] || x.round > (t - 1) / (n / 3);
            ck_assert_int_eq(x.unit, units[t]);
            ck_assert_int_eq(x.round, t / (n / 3));
            ck_assert(x.forward == rises && x.backward == (head || !rises));
        }
    }
}
END_TEST

/* ---- hops ------------------------------------------------------------------------------------------------------ */

/* Where a graph has a copy of parameters: of which unit, to which tier, and before the passes of which turn. */
struct seen {
    int32_t unit, op, now;
};

/* Lists the copies of parameters to a tier during the passes; computed[t] becomes turn t's last compute op. */
static int32_t find_copies(const struct ht_schedule *s, enum ht_tier to, int32_t n_turns, struct seen *out,
                           int32_t *computed)
{
    int32_t n = 0, now = 0;
    for (int32_t op = 0; op < s->n_ops && now < n_turns; op++) {
        if (s->lanes[s->ops[op].lane].kind == HT_LANE_COMPUTE) {
            bool heads_forward = s->ops[op].kind == HT_OP_FORWARD && s->ops[op].label.unit == s->n_units - 1;
            computed[now] = op;
            if (!heads_forward) now++;
        }
        for (int64_t k = s->effects_begin[op]; k < s->effects_begin[op + 1] && s->ops[op].kind == HT_OP_COPY; k++) {
            const struct ht_effect *e = &s->effects[k];
            const struct ht_tensor *t = &s->tensors[e->tensor];
            if (t->class == HT_PARAM && e->tier == to && e->flags & HT_PRODUCE)
                out[n++] = (struct seen){t->label.unit, op, now};
        }
    }
    return n;
}

/* Lists the units that a turn reads and that do not stay. */
static int32_t read_by(const struct way *way, bool tied, int32_t head, int32_t unit, int32_t out[2])
{
    int32_t n = 0;
    if (!way->stays[unit]) out[n++] = unit;
    if (unit == head && tied && !way->stays[0]) out[n++] = 0;
    return n;
}

static int32_t most(int32_t a, int32_t b)
{
    return a > b ? a : b;
}

static bool waits_for(const struct ht_schedule *s, int32_t op, int32_t before)
{
    for (int64_t k = s->deps_begin[op]; k < s->deps_begin[op + 1]; k++)
        if (s->deps[k] == before) return true;
    return false;
}

/* Checks the copies of a graph. With a = the turns ahead of turn t, r more for reads, and t' the last turn before t that
   reads a unit of t, or -1, turn t's copies stand before the passes of turn
 *
 *     read    max(0, t - a - r, read of turn t - 1, 1 + fetch of t')        the unit leaves host memory with its fetch
 *     fetch   max(0, t - a, fetch of turn t - 1, read of t, t' + 1)         and the device with its turn
 */
static void check_copies(const struct ht_schedule *s, const struct way *way, bool tied)
{
    int32_t units[MOST_TURNS], turns = units_by_loops(s->n_units, way->rounds, units), head = s->n_units - 1;
    int32_t computed[MOST_TURNS], read[MOST_TURNS] = {0}, fetch[MOST_TURNS] = {0}, nth = 0;
    struct seen reads[2 * MOST_TURNS], fetches[2 * MOST_TURNS];
    int32_t n_reads = find_copies(s, HT_HOST, turns, reads, computed);
    int32_t n_fetches = find_copies(s, HT_DEVICE, turns, fetches, computed);
    for (int32_t t = 0; t < turns; t++) {
        int32_t now[2], before[2], n = read_by(way, tied, head, units[t], now), last = -1;
        for (int32_t u = 0; u < t; u++)
            for (int32_t i = 0, m = read_by(way, tied, head, units[u], before); i < m; i++)
                for (int32_t k = 0; k < n; k++)
                    if (before[i] == now[k]) last = u;
        int32_t first = t - way->ahead[t % (2 * head + 1) > head];
        read[t] = most(most(0, first - way->read_ahead), most(t ? read[t - 1] : 0, last < 0 ? 0 : fetch[last] + 1));
        fetch[t] = most(most(0, first), most(t ? fetch[t - 1] : 0, last + 1));
        if (way->on_disk) fetch[t] = most(fetch[t], read[t]);
        for (int32_t i = 0; i < n; i++, nth++) {
            ck_assert_int_lt(nth, n_fetches);
            ck_assert_int_eq(fetches[nth].unit, now[i]);
            ck_assert_int_eq(fetches[nth].now, fetch[t]);
            if (first >= 1) ck_assert(waits_for(s, fetches[nth].op, computed[first - 1]));
            if (!way->on_disk) continue;
            ck_assert_int_lt(nth, n_reads);
            ck_assert_int_eq(reads[nth].unit, now[i]);
            ck_assert_int_eq(reads[nth].now, read[t]);
        }
    }
    ck_assert_int_eq(nth, n_fetches);
    ck_assert_int_eq(n_reads, way->on_disk ? nth : 0);
}

START_TEST(parameters_come_turn_by_turn)
{
    struct draw d = {.seed = (uint64_t)_i + 1};
    struct ht_scenario_request r = {.model = "gpt-mini", .cluster = "lohan-4090", .numerics = "fp16"};
    struct way way = {.rounds = 1 + below(&d, 2), .on_disk = below(&d, 3) > 0, .read_ahead = 1 + below(&d, 3)};
    way.ahead[0] = below(&d, 4);
    way.ahead[1] = below(&d, 4);
    r.batch = way.rounds;
    r.micro_batch = 1;
    struct ht_scenario sc = scenario_from(&r);
    sc.model.tied = below(&d, 2);
    for (int32_t u = 0; u < (int32_t)ht_model_units(&sc.model); u++) way.stays[u] = below(&d, 5) == 0;
    struct ht_program program = {.name = "way", .disk = true, .emit = emit, .context = &way};
    struct ht_error err = {0};
    struct ht_schedule *s = NULL;
    ck_assert_msg(ht_build_graph(&sc, &program, &err, &s) == HT_OK, "%s", err.text);
    ck_assert_msg(ht_schedule_verify(s, &err, NULL) == HT_OK, "%s", err.text);
    check_copies(s, &way, sc.model.tied);
    ht_schedule_destroy(s);
    ht_scenario_free(&sc);
}
END_TEST

static void add(TCase *t)
{
    tcase_add_test(t, turns_go_over_the_passes);
    tcase_add_loop_test(t, parameters_come_turn_by_turn, 0, 200);
}

int main(void)
{
    return run_suite("hops", add);
}
