/*
 * Common parts of the tests of hand-made graphs: building blocks, loading and running a graph, and comparing times.
 *
 * Times are written in the units of the papers' figures; one is FIXTURE_UNIT_NS nanoseconds, so that halves and
 * hundredths compare exactly.
 */
#ifndef HT_TESTS_EXEC_FIXTURES_H
#define HT_TESTS_EXEC_FIXTURES_H

#include "common/base/array.h"
#include "common/base/config.h"
#include "common/exec/sim.h"
#include "common/schedule/file.h"
#include "common/schedule/verify.h"
#include "tests/support/lookup.h"

#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FIXTURE_UNIT_NS INT64_C(1000000)
#define FIXTURE_DIR     HT_SOURCE_DIR "/tests/fixtures/"

static inline int64_t units(double x)
{
    return llround(x * (double)FIXTURE_UNIT_NS);
}

/* ---- building -------------------------------------------------------------------------------------------------- */

static inline struct ht_label about(int32_t unit, int32_t n_units, int32_t micro_batch)
{
    return (struct ht_label){unit, n_units, unit >= 0 ? HT_ALL_SUB_OPS : 0, micro_batch};
}

static inline int32_t add_tensor(struct ht_schedule *s, enum ht_tensor_class class, struct ht_label label,
                                 int64_t bytes, int32_t rank)
{
    return ht_add_tensor(s, (struct ht_tensor){.class = class, .label = label, .bytes = bytes, .rank = rank});
}

/* Adds a tensor of parameter-like state: elements [begin, end) of its unit. */
static inline int32_t add_shard(struct ht_schedule *s, enum ht_tensor_class class, int32_t unit, int64_t begin,
                                int64_t end, int64_t element_bytes, int32_t rank)
{
    return ht_add_tensor(s, (struct ht_tensor){.class = class,
                                               .label = about(unit, 1, -1),
                                               .bytes = (end - begin) * element_bytes,
                                               .shard_begin = begin,
                                               .shard_end = end,
                                               .rank = rank});
}

/* Adds an op with a cost name of its own. */
static inline int32_t add_op(struct ht_schedule *s, enum ht_op_kind kind, int32_t lane, struct ht_label label,
                             const char *cost)
{
    struct ht_work work = {0};
    if (strlen(cost) >= sizeof work.custom) abort();
    strcpy(work.custom, cost);
    return ht_add_op(s, kind, lane, label, ht_add_work(s, &work));
}

/* ---- running --------------------------------------------------------------------------------------------------- */

struct price {
    const char *work;
    double units;
};

/* A verified graph, and the trace of its run. */
struct fixture {
    struct ht_schedule *s; /* owned */
    struct ht_proof proof;
    int64_t *cost_ns;
    struct ht_trace *trace; /* NULL until run */
};

/* Makes a fixture of the schedule, and takes it over. It must pass the verifier. */
static inline struct fixture fixture_of(struct ht_schedule *s)
{
    struct fixture f = {.s = s};
    struct ht_error err = {0};
    ck_assert_msg(ht_schedule_verify(s, &err, &f.proof) == HT_OK, "%s", err.text);
    for (int rule = 0; rule < HT_N_RULES; rule++) ck_assert_msg(f.proof.proved[rule], "%s", ht_rule_name(rule));
    f.cost_ns = HT_NEW_ARRAY(int64_t, s->n_ops);
    return f;
}

static inline struct fixture fixture_load(const char *name)
{
    char path[512];
    struct ht_schedule *s = NULL;
    struct ht_error err = {0};
    snprintf(path, sizeof path, FIXTURE_DIR "%s.yaml", name);
    ck_assert_msg(ht_schedule_load(path, &err, &s) == HT_OK, "%s", err.text);
    return fixture_of(s);
}

static inline void fixture_free(struct fixture *f)
{
    ht_trace_destroy(f->trace);
    free(f->cost_ns);
    ht_proof_free(&f->proof);
    ht_schedule_destroy(f->s);
}

static inline void set_price(struct fixture *f, const char *work, int64_t ns)
{
    for (int32_t op = 0; op < f->s->n_ops; op++)
        if (strcmp(f->s->works[f->s->ops[op].work].custom, work) == 0) f->cost_ns[op] = ns;
}

/* Works that are not listed cost nothing. */
static inline void set_prices(struct fixture *f, const struct price *prices, size_t n)
{
    memset(f->cost_ns, 0, sizeof *f->cost_ns * (size_t)f->s->n_ops);
    for (size_t i = 0; i < n; i++) set_price(f, prices[i].work, units(prices[i].units));
}

/* Loads prices from tests/fixtures/<name>.costs.yaml (the format of common/profile), which must have each work of the
   graph. */
static inline void load_prices(struct fixture *f, const char *name)
{
    char path[512];
    struct ht_doc *doc;
    struct ht_error err = {0};
    const struct ht_node *profile, *costs;
    snprintf(path, sizeof path, FIXTURE_DIR "%s.costs.yaml", name);
    ck_assert_msg(ht_doc_open(path, &err, &doc) == HT_OK, "%s", err.text);
    ck_assert(ht_node_get(ht_doc_root(doc), "profile", &err, &profile) == HT_OK);
    ck_assert(ht_node_get(profile, "costs", &err, &costs) == HT_OK);
    for (int32_t op = 0; op < f->s->n_ops; op++) f->cost_ns[op] = -1;
    HT_EACH_CHILD(costs, c)
    {
        int64_t ns;
        ck_assert(ht_node_whole(ht_node_find(c, "time"), HT_TIME, 0, INT64_MAX, &err, &ns) == HT_OK);
        set_price(f, ht_node_find(c, "work")->text, ns);
    }
    for (int32_t op = 0; op < f->s->n_ops; op++)
        ck_assert_msg(f->cost_ns[op] >= 0, "%s has no cost of '%s'", path, f->s->works[f->s->ops[op].work].custom);
    ht_doc_destroy(doc);
}

/* Simulates the graph. bad: [iterations], or NULL. */
static inline void run_ahead(struct fixture *f, int32_t iterations, int32_t issue_ahead, const bool *bad)
{
    struct ht_sim_options options = {.iterations = iterations, .issue_ahead = issue_ahead, .bad = bad};
    struct ht_error err = {0};
    ht_trace_destroy(f->trace);
    ck_assert_msg(ht_sim_run(f->s, f->cost_ns, &options, &err, &f->trace) == HT_OK, "%s", err.text);
    for (int32_t i = 0; i < ht_n_spaces(f->s); i++) ck_assert_int_le(f->trace->peak_bytes[i], ht_space_bytes(f->s, i));
}

static inline void run(struct fixture *f, int32_t iterations)
{
    run_ahead(f, iterations, 0, NULL);
}

/* ---- comparing ------------------------------------------------------------------------------------------------- */

static inline const struct ht_trace_event *event_of(const struct fixture *f, int32_t iteration, const char *name)
{
    return event_named(f->trace, iteration, name);
}

struct span {
    const char *op;
    double start, end;
};

static inline void check_spans(const struct fixture *f, int32_t iteration, const struct span *spans, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const struct ht_trace_event *e = event_of(f, iteration, spans[i].op);
        ck_assert_msg(e->start_ns == units(spans[i].start) && e->end_ns == units(spans[i].end),
                      "%s of iteration %d: [%g, %g], expected [%g, %g]", spans[i].op, iteration,
                      (double)e->start_ns / FIXTURE_UNIT_NS, (double)e->end_ns / FIXTURE_UNIT_NS, spans[i].start,
                      spans[i].end);
    }
}
#define CHECK_SPANS(f, iteration, ...)                                                                                 \
    check_spans(f, iteration, (const struct span[]){__VA_ARGS__}, HT_COUNT(((const struct span[]){__VA_ARGS__})))

static inline void check_ends(const struct fixture *f, int32_t iteration, double end)
{
    ck_assert_msg(f->trace->iteration_end_ns[iteration] == units(end), "iteration %d ends at %g, expected %g",
                  iteration, (double)f->trace->iteration_end_ns[iteration] / FIXTURE_UNIT_NS, end);
}

/* Checks that from iteration `from` on every op starts and ends exactly one period later than in the iteration
   before. */
static inline void check_period(const struct fixture *f, int32_t from, double period)
{
    int64_t n = f->s->n_ops;
    ck_assert_int_lt(from, f->trace->iterations);
    for (int64_t i = from * n; i < f->trace->n_events; i++) {
        const struct ht_trace_event *now = &f->trace->events[i], *before = now - n;
        if (now->grant_seq < 0 && before->grant_seq < 0) continue; /* skipped in both */
        ck_assert_msg(
            now->start_ns - before->start_ns == units(period) && now->end_ns - before->end_ns == units(period),
            "op %d of iteration %d comes %g after the iteration before, expected %g", ht_trace_op(f->trace, i),
            ht_trace_iteration(f->trace, i), (double)(now->start_ns - before->start_ns) / FIXTURE_UNIT_NS, period);
    }
}

/* Checks that with memory for all, issuing two ops ahead (as on CUDA streams) changes no time. */
static inline void check_ahead(struct fixture *f)
{
    int32_t iterations = f->trace->iterations;
    for (int32_t i = 0; i < ht_n_spaces(f->s); i++) f->s->capacity_bytes[i] = INT64_MAX;
    run(f, iterations);
    struct ht_trace *trace = f->trace;
    f->trace = NULL;
    run_ahead(f, iterations, 2, NULL);
    for (int64_t i = 0; i < trace->n_events; i++) {
        ck_assert_int_eq(f->trace->events[i].start_ns, trace->events[i].start_ns);
        ck_assert_int_eq(f->trace->events[i].end_ns, trace->events[i].end_ns);
    }
    ht_trace_destroy(trace);
}

/* Checks the safe sequence's need, in KiB. */
static inline void check_footprint(const struct fixture *f, enum ht_tier tier, int32_t rank, int64_t kib)
{
    ck_assert_int_eq(f->proof.spaces[ht_space(f->s, tier, rank)].peak_bytes, kib * 1024);
}

/* Checks that the file in tests/fixtures is the builder's graph; FIXTURES_UPDATE=1 in the environment writes it
   again. */
static inline void check_file(const struct ht_schedule *s, const char *name)
{
    char path[512];
    struct ht_error err = {0};
    struct ht_schedule *loaded = NULL;
    snprintf(path, sizeof path, FIXTURE_DIR "%s.yaml", name);
    if (getenv("FIXTURES_UPDATE")) {
        FILE *out = fopen(path, "w");
        ck_assert_ptr_nonnull(out);
        ck_assert_msg(ht_schedule_dump(s, out, &err) == HT_OK, "%s", err.text);
        ck_assert_int_eq(fclose(out), 0);
    }
    ck_assert_msg(ht_schedule_load(path, &err, &loaded) == HT_OK, "%s", err.text);
    ck_assert_uint_eq(ht_schedule_hash(loaded), ht_schedule_hash(s));
    ht_schedule_destroy(loaded);
}

static inline int run_suite(const char *name, TCase *tc)
{
    Suite *suite = suite_create(name);
    suite_add_tcase(suite, tc);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}

#endif
