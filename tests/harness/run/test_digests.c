/*
 * The graphs of all systems over a sweep of scenarios, held against a table that is checked in: a digest of each part
 * of the graph, the simulated time of three iterations, and the largest peaks. A change to a builder shows here which
 * parts of which graphs it changes. One that is meant to writes the table anew, and its commit says why:
 *
 *     HT_UPDATE_DIGESTS=1 build/test_harness_digests
 */
#include "common/base/array.h"
#include "common/exec/sim.h"
#include "harness/run/job.h"
#include "harness/run/registry.h"

#include <check.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TABLE HT_SOURCE_DIR "/tests/data/digests.txt"
#define NODES HT_SOURCE_DIR "/tests/data/nodes-2x2.yaml"
#define SSDS  HT_SOURCE_DIR "/tests/data/ssd-1gpu.yaml"

/* One device and several, with and without control, in all numerics. Plans differ with the room there is; graphs that
   do not fit are rows like any other. */
static const struct sweep {
    const char *name;
    struct ht_scenario_request request;
} sweeps[] = {
    {"1 a100, fp16", {.cluster = "autohete-1gpu", .model = "autohete-4b", .numerics = "fp16"}},
    {"1 a100, large", {.cluster = "autohete-1gpu", .model = "autohete-8b", .numerics = "fp16", .micro_batch = 4}},
    {"1 a100, little memory", {.cluster = "autohete-1gpu", .model = "gpt-tiny", .device_memory_bytes = 40000000}},
    {"1 a100, fp32", {.cluster = "autohete-1gpu", .model = "gpt-tiny", .numerics = "fp32", .micro_batch = 2}},
    {"1 a100, bf16, 16-bit sums",
     {.cluster = "autohete-1gpu", .model = "llama-tiny", .numerics = "bf16", .micro_batch = 2, .accumulate = "16"}},
    {"1 a100, gate", {.cluster = "autohete-1gpu", .model = "gpt-tiny", .control = "gate", .clip = 1, .micro_batch = 4}},
    {"1 a100, rollback",
     {.cluster = "autohete-1gpu", .model = "llama-tiny", .control = "rollback", .clip = 1, .micro_batch = 4}},
    {"4 a100, fp16", {.cluster = "autohete-4gpu", .model = "autohete-8b", .batch = 32, .micro_batch = 4}},
    {"4 a100, fp32",
     {.cluster = "autohete-4gpu",
      .model = "llama-tiny",
      .blocks = 16,
      .batch = 16,
      .numerics = "fp32",
      .micro_batch = 1}},
    {"4 a100, gate",
     {.cluster = "autohete-4gpu", .model = "llama-tiny", .blocks = 16, .control = "gate", .clip = 1, .micro_batch = 1}},
    {"4 a100, rollback",
     {.cluster = "autohete-4gpu", .model = "llama-tiny", .blocks = 16, .control = "rollback", .micro_batch = 1}},
    {"4 v100", {.cluster = "sysx-1node", .model = "sysx-10b", .micro_batch = 1}},
    {"8 v100", {.cluster = "sysx-2node", .model = "llama-tiny", .blocks = 32, .batch = 16, .micro_batch = 1}},
    {"8 v100, rollback",
     {.cluster = "sysx-2node", .model = "llama-tiny", .blocks = 32, .control = "rollback", .micro_batch = 1}},
    {"8 rtx3090", {.cluster = "sysx-3090-2node", .model = "llama-tiny", .blocks = 32, .micro_batch = 1}},
    {"2 x 2 emulated", {.cluster = NODES, .model = "llama-tiny", .micro_batch = 1, .seq = 16}},
    {"2 x 2 emulated, gate",
     {.cluster = NODES, .model = "llama-tiny", .micro_batch = 2, .seq = 16, .numerics = "bf16", .control = "gate"}},
    {"1 gpu, ssds", {.cluster = SSDS, .model = "autohete-8b", .batch = 24}},
    {"1 gpu, ssds, fp32", {.cluster = SSDS, .model = "llama-tiny", .numerics = "fp32", .micro_batch = 2}},
    {"1 gpu, ssds, gate", {.cluster = SSDS, .model = "gpt-tiny", .control = "gate", .clip = 1}},
    {"4 gpus, ssds",
     {.cluster = "lohan-4x4090",
      .model = "llama-tiny",
      .blocks = 16,
      .batch = 16,
      .micro_batch = 2,
      .control = "gate"}},
};

enum { TIME = HT_N_SCHEDULE_PARTS, DEVICE, HOST, N_COLUMNS };
enum { MOST_OPS = 2000 }; /* of graphs that are simulated for many iterations, too */

/* A system under a scenario. */
struct row {
    char key[96], status[16];
    uint64_t columns[N_COLUMNS]; /* digests, cut to 32 bits; nanoseconds; bytes */
};

static const char *column_name(int c)
{
    static const char *const others[] = {"time", "device peak", "host peak"};
    return c < HT_N_SCHEDULE_PARTS ? ht_schedule_part_names[c] : others[c - HT_N_SCHEDULE_PARTS];
}

static uint64_t largest_peak(const struct ht_trace *t, enum ht_tier tier)
{
    int64_t most = 0;
    for (int32_t r = 0; r < t->schedule->n_ranks; r++) {
        int64_t bytes = t->peak_bytes[ht_space(t->schedule, tier, r)];
        if (bytes > most) most = bytes;
    }
    return (uint64_t)most;
}

static void simulate(const struct ht_job *job, struct row *row)
{
    struct ht_error err = {0};
    struct ht_trace *trace = NULL;
    struct ht_sim_options options = {.iterations = 3, .issue_ahead = job->issue_ahead};
    ck_assert_msg(ht_sim_run(job->schedule, job->cost_ns, &options, &err, &trace) == HT_OK, "%s: %s", row->key,
                  err.text);
    row->columns[TIME] = (uint64_t)trace->end_ns;
    row->columns[DEVICE] = largest_peak(trace, HT_DEVICE);
    row->columns[HOST] = largest_peak(trace, HT_HOST);
    ht_trace_destroy(trace);
}

/* A trace of which repeated iterations were not simulated is that of the whole run. */
static void check_repetition(const struct ht_job *job, const char *key)
{
    struct ht_error err = {0};
    struct ht_trace *t[2];
    for (int every = 0; every < 2; every++) {
        struct ht_sim_options o = {.iterations = 8, .issue_ahead = job->issue_ahead, .every = every};
        ck_assert_msg(!ht_sim_run(job->schedule, job->cost_ns, &o, &err, &t[every]), "%s: %s", key, err.text);
    }
    size_t bytes = (size_t)t[0]->n_events * sizeof *t[0]->events;
    ck_assert_msg(t[0]->end_ns == t[1]->end_ns && !memcmp(t[0]->events, t[1]->events, bytes), "%s: traces differ", key);
    for (int every = 0; every < 2; every++) ht_trace_destroy(t[every]);
}

static struct row row_of(const struct sweep *sweep, const struct ht_system *system)
{
    struct row row = {.status = "refused"};
    struct ht_options o = {.request = sweep->request, .sim = {.issue_ahead = -1}};
    struct ht_job job;
    struct ht_error err = {0};
    snprintf(row.key, sizeof(row.key), "%s, %s", sweep->name, system->name);
    if (ht_job_create(&o, system->name, NULL, HT_JOB_COSTS, &err, &job)) return row;
    memset(row.status, 0, sizeof(row.status));
    snprintf(row.status, sizeof(row.status), "%s", job.status);
    if (job.schedule) ht_schedule_digests(job.schedule, row.columns);
    for (int p = 0; p < HT_N_SCHEDULE_PARTS; p++) row.columns[p] &= UINT32_MAX;
    if (job.answer == HT_OK) simulate(&job, &row);
    if (job.answer == HT_OK && job.schedule->n_ops < MOST_OPS) check_repetition(&job, row.key);
    ht_job_free(&job);
    return row;
}

/* ---- the table ---- */

static void write_table(const struct row *rows, size_t n)
{
    FILE *f = fopen(TABLE, "w");
    ck_assert_msg(f, "%s cannot be written", TABLE);
    fputs("# scenario, system: status", f);
    for (int c = 0; c < N_COLUMNS; c++) fprintf(f, ", %s", column_name(c));
    for (size_t i = 0; i < n; i++) {
        fprintf(f, "\n%s: %s", rows[i].key, rows[i].status);
        for (int c = 0; c < N_COLUMNS; c++)
            fprintf(f, c < HT_N_SCHEDULE_PARTS ? " %08" PRIx64 : " %" PRIu64, rows[i].columns[c]);
    }
    putc('\n', f);
    ck_assert_int_eq(fclose(f), 0);
}

static size_t read_table(struct row **rows)
{
    FILE *f = fopen(TABLE, "r");
    char line[512];
    size_t n = 0, cap = 0;
    ck_assert_msg(f, "%s cannot be opened", TABLE);
    while (fgets(line, sizeof(line), f)) {
        struct row row = {.status = ""};
        int end = 0;
        if (line[0] == '#') continue;
        ck_assert_msg(sscanf(line, "%95[^:]: %15s%n", row.key, row.status, &end) == 2, "%s: %s", TABLE, line);
        char *at = line + end;
        for (int c = 0; c < N_COLUMNS; c++) row.columns[c] = strtoull(at, &at, c < HT_N_SCHEDULE_PARTS ? 16 : 10);
        ck_assert_msg(*at == '\n', "%s: %s", TABLE, line);
        HT_PUSH(*rows, n, cap, row);
    }
    fclose(f);
    return n;
}

static bool same(const struct row *a, const struct row *b, int column)
{
    return column < 0 ? !strcmp(a->status, b->status) : a->columns[column] == b->columns[column];
}

/* Prints a line for each column that differs; returns how many do. */
static int compare(const struct row *was, const struct row *is, size_t n)
{
    int columns = 0;
    for (int c = -1; c < N_COLUMNS; c++) {
        size_t differ = 0, first = 0;
        for (size_t i = n; i-- > 0;)
            if (!same(&was[i], &is[i], c)) differ++, first = i;
        if (!differ) continue;
        columns++;
        fprintf(stderr, "  %s: %zu of %zu rows differ, the first is '%s'\n", c < 0 ? "status" : column_name(c), differ,
                n, is[first].key);
    }
    return columns;
}

START_TEST(graphs_are_those_of_the_table)
{
    size_t n = 0, cap = 0;
    struct row *rows = NULL, *was = NULL;
    const struct ht_system *system;
    for (size_t s = 0; s < HT_COUNT(sweeps); s++)
        for (size_t i = 0; (system = ht_system_at(i)); i++) HT_PUSH(rows, n, cap, row_of(&sweeps[s], system));
    if (getenv("HT_UPDATE_DIGESTS")) write_table(rows, n);
    size_t n_was = read_table(&was);
    ck_assert_msg(n == n_was, "%s has %zu rows for %zu graphs", TABLE, n_was, n);
    for (size_t i = 0; i < n; i++) ck_assert_str_eq(rows[i].key, was[i].key);
    ck_assert_msg(compare(was, rows, n) == 0,
                  "graphs differ from %s; if they are meant to, HT_UPDATE_DIGESTS=1 writes it anew", TABLE);
    free(rows);
    free(was);
}
END_TEST

/* A change to one part of a graph changes the digest of that part alone. */
START_TEST(each_part_has_its_digest)
{
    struct ht_options o = {.request = sweeps[7].request, .sim = {.issue_ahead = -1}};
    struct ht_job job;
    struct ht_error err = {0};
    uint64_t before[HT_N_SCHEDULE_PARTS], after[HT_N_SCHEDULE_PARTS];
    ck_assert_int_eq(ht_job_create(&o, "zero_offload", NULL, HT_JOB_BOUNDED, &err, &job), HT_OK);
    struct ht_schedule *s = job.schedule;
    int64_t last_edge = s->deps_begin[s->n_ops] - 1, last_use = s->uses_begin[s->n_ops] - 1;
    int32_t grouped = 0;
    while (s->ops[grouped].match < 0) grouped++;
#define CHANGES(part, field)                                                                                           \
    do {                                                                                                               \
        ht_schedule_digests(s, before);                                                                                \
        (field)++;                                                                                                     \
        ht_schedule_digests(s, after);                                                                                 \
        (field)--;                                                                                                     \
        for (int p = 0; p < HT_N_SCHEDULE_PARTS; p++) ck_assert((before[p] != after[p]) == (p == (part)));             \
    } while (0)
    CHANGES(HT_PART_HEADER, s->capacity_bytes[0]);
    s->limit_bytes[1] = 1 << 20;
    CHANGES(HT_PART_HEADER, s->limit_bytes[1]);
    CHANGES(HT_PART_LANES, s->lanes[1].index);
    CHANGES(HT_PART_RESOURCES, s->resources[0].capacity_per_s);
    CHANGES(HT_PART_TENSORS, s->tensors[s->n_tensors - 1].bytes);
    CHANGES(HT_PART_RESIDENTS, s->residents[0].tensor);
    CHANGES(HT_PART_WORKS, s->works[0].batch);
    CHANGES(HT_PART_OPS, s->ops[s->n_ops - 1].priority);
    CHANGES(HT_PART_GROUPS, s->ops[grouped].match);
    CHANGES(HT_PART_EDGES, s->deps[last_edge]);
    CHANGES(HT_PART_EFFECTS, s->effects[0].tensor);
    CHANGES(HT_PART_USES, s->uses[last_use].amount);
    CHANGES(HT_PART_NAMES, s->resources[0].name[0]);
#undef CHANGES
    ht_job_free(&job);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("digests");
    TCase *tc = tcase_create("digests");
    tcase_set_timeout(tc, 600);
    tcase_add_test(tc, graphs_are_those_of_the_table);
    tcase_add_test(tc, each_part_has_its_digest);
    suite_add_tcase(suite, tc);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? 1 : 0;
}
