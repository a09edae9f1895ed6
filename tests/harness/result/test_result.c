/* Reports against hand arithmetic: rates, FLOPs, memory by class, tables, and files that are whole or not there. */
#include "harness/run/output.h"
#include "harness/cli/train_report.h"
#include "harness/result/result.h"
#include "harness/result/table.h"
#include "harness/run/simulate.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static struct ht_options options_for(int64_t batch, int64_t micro_batch)
{
    struct ht_options o = {.sim = {.iterations = 6, .warmup = 2, .issue_ahead = -1, .seed = 1}};
    o.request = (struct ht_scenario_request){
        .model = "autohete-2b", .cluster = "autohete-1gpu", .batch = batch, .micro_batch = micro_batch};
    return o;
}

static void simulate(const char *system, const struct ht_options *o, struct ht_job *job, struct ht_result *r)
{
    struct ht_error err;
    struct ht_trace *trace = NULL;
    ck_assert_int_eq(ht_job_create(o, system, NULL, HT_JOB_COSTS, &err, job), HT_OK);
    ck_assert_int_eq(job->answer, HT_OK);
    ck_assert_int_eq(ht_simulate(o, job, &err, &trace), HT_OK);
    ck_assert_int_eq(ht_result_create(job, trace, job->cost_ns, 2, &err, r), HT_OK);
}

START_TEST(flops_and_rates)
{
    /* autohete-2b: L 42, C 2048, F 4 C, V 50257, T 1024, B 8, one GPU of 312 TFLOP/s dense FP16.
       block   8 B T C^2 + 4 B T^2 C + 4 B T C F
             = 2.748779e11 + 6.871948e10 + 5.497558e11 = 8.933532e11
       head    2 B T C V = 2 * 8192 * 2048 * 50257 = 1.686344e12
       useful  3 (42 * 8.933532e11 + 1.686344e12) = 1.176216e14 */
    double block = 8.0 * 8192 * 2048 * 2048 + 4.0 * 8192 * 1024 * 2048 + 4.0 * 8192 * 2048 * 8192;
    double useful = 3 * (42 * block + 2.0 * 8192 * 2048 * 50257);
    struct ht_options o = options_for(8, 8);
    struct ht_job job;
    struct ht_result r;
    simulate("zero_offload", &o, &job, &r);
    ck_assert_double_eq_tol(r.useful_flops, useful, useful * 1e-12);
    ck_assert_double_eq_tol(r.hardware_flops, useful, useful * 1e-12); /* nothing is recomputed */
    ck_assert_double_eq_tol(r.samples_per_s * r.iteration_s, 8, 1e-9);
    ck_assert_double_eq_tol(r.tokens_per_s, r.samples_per_s * 1024, 1e-6);
    ck_assert_double_eq_tol(ht_result_tflops(&r, r.useful_flops), useful / r.iteration_s / 1e12, 1e-9);
    ck_assert_double_eq_tol(ht_result_mfu(&r), useful / r.iteration_s / 312e12, 1e-12);
    ck_assert_int_ge(r.metrics.iteration_ns, r.metrics.lower_bound_ns);
    ht_result_free(&r);
    ht_job_free(&job);

    /* Full checkpointing recomputes each block's forward once, in every micro-batch; FC2's output is not needed again.
     */
    struct ht_options split = options_for(8, 2);
    simulate("zero_offload_ckpt", &split, &job, &r);
    ck_assert_double_eq_tol(r.useful_flops, useful, useful * 1e-12);
    ck_assert_double_gt(r.hardware_flops, useful + 42 * (block - 2.0 * 8192 * 2048 * 8192) * (1 - 1e-12));
    ck_assert_double_lt(r.hardware_flops, useful + 42 * block * (1 + 1e-12));
    ht_result_free(&r);

    /* Recomputing qkv alone: 6 B T C^2 a block, whatever else the op's label names. */
    struct ht_error err;
    for (int32_t i = 0; i < job.schedule->n_works; i++)
        if (job.schedule->works[i].kind == HT_OP_RECOMPUTE) job.schedule->works[i].sub_ops = 1u << HT_SUB_QKV;
    ck_assert_int_eq(ht_result_create(&job, NULL, NULL, 0, &err, &r), HT_OK);
    ck_assert_double_eq_tol(r.hardware_flops, useful + 42 * 6.0 * 8192 * 2048 * 2048, useful * 1e-12);
    ht_result_free(&r);
    ht_job_free(&job);
}
END_TEST

START_TEST(memory_adds_up)
{
    struct ht_options o = options_for(8, 8);
    struct ht_job job;
    struct ht_result r;
    simulate("zero_offload", &o, &job, &r);
    ck_assert_int_eq(r.n_memory, 2); /* device 0 and host 0 */
    for (int32_t i = 0; i < r.n_memory; i++) {
        const struct ht_memory_row *m = &r.memory[i];
        int64_t sum = 0;
        for (int c = 0; c < HT_N_TENSOR_CLASSES; c++) sum += m->by_class[c];
        ck_assert_int_eq(sum, m->peak_bytes); /* who holds it is all of it */
        ck_assert_int_ge(m->peak_bytes, m->safe_bytes);
        ck_assert_int_le(m->peak_bytes, m->bound_bytes);
        ck_assert_int_le(m->bound_bytes, m->capacity_bytes);
        ck_assert_int_le(m->planned_bytes, m->safe_bytes);
    }
    ck_assert_str_eq(r.memory[0].name, "device 0");
    ck_assert_str_eq(r.memory[1].name, "host 0");
    ht_result_free(&r);
    ht_job_free(&job);
}
END_TEST

START_TEST(oom_is_an_answer)
{
    struct ht_options o = options_for(8, 8);
    struct ht_error err;
    struct ht_job job;
    struct ht_result r;
    ck_assert_int_eq(ht_job_create(&o, "in_memory", NULL, HT_JOB_COSTS, &err, &job), HT_OK);
    ck_assert_int_eq(job.answer, HT_INFEASIBLE);
    ck_assert_str_eq(job.status, "oom");
    ck_assert_ptr_null(job.cost_ns);
    ck_assert_ptr_nonnull(strstr(job.reason, "OOM at"));
    ck_assert_int_eq(ht_result_create(&job, NULL, NULL, 0, &err, &r), HT_OK);
    ck_assert_int_eq(r.n_memory, 1);
    ck_assert_int_gt(r.memory[0].safe_bytes, r.memory[0].capacity_bytes);
    json_t *root = ht_result_json(&r);
    ck_assert_str_eq(json_string_value(json_object_get(root, "status")), "oom");
    json_decref(root);
    ht_result_free(&r);
    ht_job_free(&job);
}
END_TEST

/* A plan's vectors as arrays, and on one line for people; by rank, in parts per billion, and a set of blocks. */
START_TEST(vectors_of_a_plan)
{
    int64_t m[64], share[] = {0, 300000000, 700000000}, blocks[] = {1, 2, 3, 9};
    struct ht_options o = options_for(8, 8);
    struct ht_job job;
    struct ht_error err;
    char *text = NULL;
    size_t n = 0;
    for (int i = 0; i < 64; i++) m[i] = i < 16 ? 4 : 2;
    ck_assert_int_eq(ht_job_create(&o, "in_memory", NULL, HT_JOB_PLAN, &err, &job), HT_OK);
    ht_plan_set_vector(&job.plan, &(struct ht_variable){"m", .kind = HT_VARIABLE_BY_RANK, .n = 64, .values = m});
    ht_plan_set_vector(&job.plan, &(struct ht_variable){"share", .kind = HT_VARIABLE_BY_RANK, .decimal = true, .n = 3,
                                                        .values = share});
    ht_plan_set_vector(&job.plan, &(struct ht_variable){"C", .kind = HT_VARIABLE_BLOCKS, .n = 4, .values = blocks});
    json_t *root = ht_job_json(&job), *variables = json_object_get(json_object_get(root, "plan"), "variables");
    const json_t *as_json = json_object_get(variables, "m");
    ck_assert_uint_eq(json_array_size(as_json), 64);
    for (size_t i = 0; i < 64; i++) ck_assert_int_eq(json_integer_value(json_array_get(as_json, i)), m[i]);
    as_json = json_object_get(variables, "share");
    ck_assert(json_real_value(json_array_get(as_json, 1)) == 0.3 && json_real_value(json_array_get(as_json, 2)) == 0.7);
    ck_assert_int_eq(json_integer_value(json_array_get(json_object_get(variables, "C"), 3)), 9);
    ck_assert_int_eq(json_integer_value(json_object_get(variables, "c")), 0);
    json_decref(root);
    FILE *out = open_memstream(&text, &n);
    ht_job_print(&job, out);
    fclose(out);
    const char *line = "plan: c=0 m='4 x 16, 2 x 48' share=0,0.3,0.7 C=1-3,9  (nothing is offloaded)\n";
    ck_assert_msg(strstr(text, line) != NULL, "%s", text);
    free(text);
    ht_job_free(&job);
}
END_TEST

START_TEST(tables)
{
    char *text = NULL;
    size_t n = 0;
    FILE *out = open_memstream(&text, &n);
    struct ht_table *t = ht_table_create("<name|>bytes");
    ht_table_cell(t, "%s", "device 0");
    ht_table_bytes(t, 1500);
    ht_table_cell(t, "d");
    ht_table_bytes(t, -1);
    ht_table_cell(t, "e");
    ht_table_bytes(t, INT64_MAX);
    ht_table_print(t, "  ", out);
    fclose(out);
    ck_assert_str_eq(text, "  name         bytes\n"
                           "  ------------------\n"
                           "  device 0    1.5 kB\n"
                           "  d                -\n"
                           "  e         no limit\n");
    free(text);
}
END_TEST

/* Returns the table at a width. */
static char *table_at(int columns)
{
    char *shown = NULL;
    size_t n;
    FILE *out = open_memstream(&shown, &n);
    struct ht_table *t = ht_table_create("<name|>two words|>?gone|<text");
    ht_table_cell(t, "a-b");
    ht_table_cell(t, "1");
    ht_table_cell(t, "2");
    ht_table_cell(t, "it is a text that is longer than the others");
    ht_table_mark(t, HT_MARK_BEST); /* no colour outside of a terminal */
    ht_table_print_fitted(t, " ", columns, out);
    ck_assert_int_eq(fclose(out), 0);
    return shown;
}

START_TEST(tables_fit)
{
    char *whole = table_at(0), *fitted = table_at(36), *narrow = table_at(24);
    ck_assert_str_eq(whole, " name  two words  gone  text\n"
                            " ------------------------------------------------------------------\n"
                            " a-b           1     2  it is a text that is longer than the others\n");
    /* 35 columns behind the indent: 4 + 9 + 4 and three gaps leave 12 for the text, the widest */
    ck_assert_str_eq(fitted, " name  two words  gone  text\n"
                             " -----------------------------------\n"
                             " a-b           1     2  it is a text\n"
                             "                        that is\n"
                             "                        longer than\n"
                             "                        the others\n");
    /* 23: the longest words of all are 4 + 5 + 4 + 6 and three gaps, 25, so the third one goes; 4 + 8 + 7 and two gaps fit */
    ck_assert_str_eq(narrow, " name       two  text\n"
                             "          words  \n"
                             " -----------------------\n"
                             " a-b          1  it is a\n"
                             "                 text\n"
                             "                 that is\n"
                             "                 longer\n"
                             "                 than\n"
                             "                 the\n"
                             "                 others\n"
                             " not shown for want of width: gone\n");
    free(whole);
    free(fitted);
    free(narrow);
}
END_TEST

START_TEST(files_are_whole_or_absent)
{
    char dir[] = "/tmp/hetbench-output-XXXXXX", path[64], inner[80];
    struct ht_error err;
    struct ht_output o;
    ck_assert_ptr_nonnull(mkdtemp(dir));
    snprintf(path, sizeof(path), "%s/f", dir);
    ck_assert_int_eq(ht_output_open(path, &err, &o), HT_OK);
    fputs("half", o.file);
    ck_assert_int_ne(access(path, F_OK), 0); /* not before it is done */
    ht_output_discard(&o);
    ck_assert_int_eq(ht_output_check(path, &err), HT_OK);
    ck_assert_int_eq(ht_output_check("/no/such/f", &err), HT_BAD_INPUT);
    ck_assert_int_eq(rmdir(dir), 0); /* nothing is left */
    snprintf(inner, sizeof(inner), "%s/a/b", dir);
    ck_assert_int_eq(ht_make_directory(inner, &err), HT_OK);
    ck_assert_int_eq(ht_make_directory(inner, &err), HT_OK);
    ck_assert_int_eq(ht_output_open(inner, &err, &o), HT_BAD_INPUT); /* a directory */
    snprintf(path, sizeof(path), "%s/f", dir);
    ck_assert_int_eq(ht_output_open(path, &err, &o), HT_OK);
    fputs("all", o.file);
    ck_assert_int_eq(ht_output_commit(&o, &err), HT_OK);
    ck_assert_int_eq(access(path, R_OK), 0);
    unlink(path);
    rmdir(inner);
    snprintf(inner, sizeof(inner), "%s/a", dir);
    rmdir(inner);
    ck_assert_int_eq(rmdir(dir), 0);
}
END_TEST

START_TEST(a_step_far_above_its_prediction_is_commented)
{
    char text[HT_STEP_COMMENT];
    ck_assert_str_eq(ht_step_comment(1.5e9, 1e9, false, text), "");
    ck_assert_str_eq(ht_step_comment(0.2e9, 1e9, true, text), "");
    ck_assert_str_eq(ht_step_comment(1e9, 0, false, text), ""); /* nothing was predicted */
    ck_assert_msg(!strncmp(ht_step_comment(2.5e9, 1e9, false, text), "a step takes 2.5 times its prediction: ", 39) &&
                      strstr(text, "hetbench profile"),
                  "%s", text);
    ck_assert_msg(!strstr(ht_step_comment(2.5e9, 1e9, true, text), "hetbench profile"), "%s", text);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("result");
    TCase *tc = tcase_create("result");
    tcase_add_test(tc, flops_and_rates);
    tcase_add_test(tc, memory_adds_up);
    tcase_add_test(tc, oom_is_an_answer);
    tcase_add_test(tc, vectors_of_a_plan);
    tcase_add_test(tc, tables);
    tcase_add_test(tc, tables_fit);
    tcase_add_test(tc, a_step_far_above_its_prediction_is_commented);
    tcase_add_test(tc, files_are_whole_or_absent);
    suite_add_tcase(suite, tc);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? 1 : 0;
}
