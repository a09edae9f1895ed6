/* Observations, by hand: steps on the device, states on disk, the largest size that fits. */
#include "harness/claims/check.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

/* Loads a ledger, and checks that all of its rows are within their tolerances. */
static void all_within(const char *text)
{
    struct ht_doc *doc;
    struct ht_ledger l;
    struct ht_error err = {0};
    struct ht_observations seen = {0};
    const struct ht_claim *claims[32];
    ck_assert(ht_doc_parse(text, strlen(text), "l.yaml", &err, &doc) == HT_OK);
    ck_assert_msg(ht_ledger_load(doc, &err, &l) == HT_OK, "%s", err.text);
    for (int64_t i = 0; i < l.n_claims; i++) claims[i] = &l.claims[i];
    ck_assert_msg(ht_claims_gather(claims, (size_t)l.n_claims, &seen, &err) == HT_OK, "%s", err.text);
    for (int64_t i = 0; i < l.n_claims; i++) {
        struct ht_outcome o;
        ck_assert(ht_claim_check(claims[i], &seen, &err, &o) == HT_OK);
        ck_assert_msg(o.verdict == HT_CLAIM_WITHIN, "%s: %s %s (%s)", claims[i]->id, ht_claim_verdict_names[o.verdict],
                      o.ours_text, o.why);
        ht_outcome_free(&o);
    }
    ht_observations_free(&seen);
    ht_ledger_free(&l);
}

#define ROW(ID, SETUP, SYSTEMS, REST)                                                                                  \
    "  " ID ": {where: w, statement: t, setup: " SETUP ", systems: [" SYSTEMS "], kind: value, " REST "}\n"

/* States that pass the device. G10 brings master, momentum and variance (12 bytes a parameter) and a 16-bit gradient (2)
   to it, and takes the states and 16-bit parameters (2) back. Adam streams 28 bytes of each of 124.4e6 parameters at
   0.88 of 1008 GB/s: 3.93 ms. A disk reads 12 bytes at 0.959 * 6.5 GB/s and writes 14 at 0.959 * 3.4 GB/s after the
   backward pass: 124.4e6 (12 / 6.2335e9 + 14 / 3.2606e9) = 0.774 s. Where steps follow their units, some of that is
   earlier. */
START_TEST(device_steps)
{
    all_within(
        "paper: P\n"
        "tolerances: {one: {relative: 0.01, why: x}, five: {relative: 0.05, why: x}}\n"
        "systems: {A: [g10], early: [g10 after=0], host: [zero_offload]}\n"
        "setups:\n"
        "  s: {cluster: lohan-4090, models: [gpt2-124m], batches: [4], ssds: [1], iterations: 4}\n"
        "claims:\n" /* clang-format off */
               ROW("in", "s", "A", "metric: step_bytes_in, per: params, value: 14, tolerance: one")
               ROW("out", "s", "A, early", "metric: step_bytes_out, per: params, value: 14, tolerance: one")
               ROW("none", "s", "host", "metric: device_steps, value: 0, tolerance: one")
               ROW("steps", "s", "A, early", "metric: device_steps, value: 0.00393, tolerance: five")
               ROW("disk", "s", "A", "metric: optimizer_disk, value: 0.774, tolerance: five")
               ROW("earlier", "s", "early", "versus: A, metric: optimizer_disk, value: 0.9, compare: below, tolerance: one")
               ROW("whole", "s", "A, early", "metric: forward_compute_share, value: 1, compare: at-most, tolerance: one")
               ROW("rest", "s", "early", "versus: A, metric: rest_compute_share, value: 1, compare: above, tolerance: one")
               ROW("swap", "s", "A, early", "metric: swap_time, value: 0, compare: at-least, tolerance: one"));
    /* clang-format on */
}
END_TEST

/* The largest size that fits. Of 24 GiB in_memory takes 16 bytes a parameter: at most 1.611e9 of them, and most of that.
   Its largest batch takes nearly all of the device. Checkpointing makes room for more. */
START_TEST(searches)
{
    all_within("paper: P\n"
               "tolerances: {one: {relative: 0.01, why: x}, ten: {relative: 0.1, why: x}}\n"
               "systems: {A: [in_memory_ckpt], B: [in_memory]}\n"
               "setups:\n"
               "  m: {cluster: lohan-4090, models: [gpt2-124m], batches: [1], search: model, iterations: 1}\n"
               "  b: {cluster: lohan-4090, models: [gpt2-124m], search: batch, iterations: 1}\n"
               "  s: {cluster: lohan-4090, models: [gpt2-124m], batches: [1], search: seq, iterations: 1}\n"
               "claims:\n" /* clang-format off */
               ROW("params", "m", "A", "metric: parameters, value: 1.55e+9, tolerance: ten")
               ROW("bound", "m", "A", "metric: parameters, value: 1.611e+9, compare: below, tolerance: one")
               ROW("one", "m", "A", "metric: batch, value: 1, tolerance: one")
               ROW("batch", "b", "A", "versus: B, metric: batch, value: 1, compare: above, tolerance: one")
               ROW("full", "b", "A, B", "metric: device_peak_share, value: 1, tolerance: ten")
               ROW("tokens", "s", "A", "versus: B, metric: seq, value: 1, compare: above, tolerance: one"));
    /* clang-format on */
}
END_TEST

/* A size may fit nowhere: then nothing runs, and the row says why. */
START_TEST(search_finds_nothing)
{
    static const char text[] = "paper: P\n"
                               "tolerances: {one: {relative: 0.01, why: x}}\n"
                               "systems: {A: [in_memory]}\n"
                               "setups:\n"
                               "  b: {cluster: lohan-4090, models: [lohan-175b], search: batch}\n"
                               "claims:\n" ROW("row", "b", "A", "metric: batch, value: 1, tolerance: one");
    struct ht_doc *doc;
    struct ht_ledger l;
    struct ht_error err = {0};
    struct ht_observations seen = {0};
    struct ht_outcome o;
    ck_assert(ht_doc_parse(text, strlen(text), "l.yaml", &err, &doc) == HT_OK);
    ck_assert_msg(ht_ledger_load(doc, &err, &l) == HT_OK, "%s", err.text);
    ck_assert(ht_claim_check(&l.claims[0], &seen, &err, &o) == HT_OK);
    ck_assert_int_eq(o.verdict, HT_CLAIM_OUTSIDE);
    ck_assert_str_eq(o.ours_text, "nothing runs");
    ck_assert_uint_eq(o.n_values, 1);
    ck_assert_msg(strstr(o.values[0].why, "no size fits: OOM at ") != NULL, "%s", o.values[0].why);
    ht_outcome_free(&o);
    ht_observations_free(&seen);
    ht_ledger_free(&l);
}
END_TEST

/* Eight tensors whose states are read in 2, stepped in 1 and written in 2: one after the other they take 8 (2 + 1 + 2) =
   40, and 8 (2 + 2) = 32 where a step hides behind the next read (LoHan, Sec. IV-C). Trained for real, states lie in
   files. */
START_TEST(states_on_disk)
{
    all_within("paper: P\n"
               "tolerances: {exact: {absolute: 1.0e-9, why: x}}\n"
               "systems: {naive: [lohan_naive], optimized: [lohan], in memory: [in_memory]}\n"
               "setups:\n"
               "  u: {unit_times: {devices: 1, blocks: 8, forward: 0, backward: 0, fetch: 0, offload: 0, step: 1,\n"
               "    read: 2, write: 2}, batches: [1]}\n"
               "  t: {models: [gpt-mini], cluster: local, batches: [2], seq: 16, micro_batch: 1, train_steps: 2}\n"
               "claims:\n" /* clang-format off */
               ROW("naive", "u", "naive", "metric: iteration_time, value: 40, tolerance: exact")
               ROW("optimized", "u", "optimized", "metric: iteration_time, value: 32, tolerance: exact")
               ROW("same", "t", "optimized", "versus: in memory, metric: loss_difference, value: 0, tolerance: exact"));
    /* clang-format on */
}
END_TEST

/* A planner that refuses names the memory that lacks room, as a proof of its schedule does. AutoHete needs 10.06 GB of a
   device of 2 GB even if all blocks are offloaded, and 195.6 GB of a host of 32 GB. PatrickStar has no room for a chunk on
   a device of 2 GB, Cephalo none for a micro-batch on any of four with 4 GB. With 16 GB of main memory
   PatrickStar's chunks of 4.4e9 parameters need 46.08 GB there. in_memory is a proof's answer. */
START_TEST(refusals_name_the_memory)
{
    all_within(
        "paper: P\n"
        "tolerances: {same: {absolute: 0, why: x}}\n"
        "systems: {A: [autohete], P: [patrickstar], C: [cephalo], B: [cephalo_cb], M: [in_memory], K: [checkmate]}\n"
        "setups:\n"
        "  d: {cluster: autohete-1gpu, models: [autohete-14b], batches: [8], memory: [2 GB]}\n"
        "  h: {cluster: autohete-1gpu, models: [autohete-14b], batches: [8], host_memory: [32 GB]}\n"
        "  p: {cluster: autohete-1gpu, models: [autohete-4b], batches: [1], host_memory: [16 GB]}\n"
        "  c: {cluster: autohete-4gpu, models: [autohete-14b], batches: [8], memory: [4 GB]}\n"
        "  k: {cluster: autohete-1gpu, models: [autohete-2b], batches: [64]}\n"
        "  s: {cluster: autohete-1gpu, models: [autohete-14b], search: batch, memory: [2 GB]}\n"
        "claims:\n" /* clang-format off */
               ROW("device", "d", "A, P, M", "metric: fits, value: 0, fails_in: device, tolerance: same")
               ROW("host", "h", "A", "metric: fits, value: 0, fails_in: host, tolerance: same")
               ROW("chunks", "p", "P", "metric: fits, value: 0, fails_in: host, tolerance: same")
               ROW("devices", "c", "C, B", "metric: fits, value: 0, fails_in: device, tolerance: same")
               ROW("program", "k", "K", "metric: fits, value: 0, fails_in: device, tolerance: same")
               ROW("size", "s", "A", "metric: fits, value: 0, fails_in: device, tolerance: same"));
    /* clang-format on */
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("observations");
    TCase *cases = tcase_create("all");
    tcase_add_test(cases, device_steps);
    tcase_add_test(cases, searches);
    tcase_add_test(cases, search_finds_nothing);
    tcase_add_test(cases, states_on_disk);
    tcase_add_test(cases, refusals_name_the_memory);
    suite_add_tcase(suite, cases);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
