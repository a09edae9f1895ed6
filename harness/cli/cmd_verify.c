/* hetbench verify: the proof of a schedule, rule by rule. */
#include "harness/cli/commands.h"

#include "harness/result/result.h"

static json_t *rules_json(const struct ht_job *job)
{
    json_t *rules = json_object();
    for (int r = 0; r < HT_N_RULES; r++)
        json_object_set_new(rules, ht_rule_name((enum ht_rule)r), json_boolean(job->proof.proved[r]));
    return rules;
}

static void print_rules(const struct ht_job *job)
{
    printf(
        "\n%d ops, %lld edges, hash %016llx\nproved:", job->schedule->n_ops,
        (long long)(job->schedule->deps_begin[job->schedule->n_ops] + job->schedule->prev_begin[job->schedule->n_ops]),
        (unsigned long long)ht_schedule_hash(job->schedule));
    for (int r = 0; r < HT_N_RULES; r++)
        if (job->proof.proved[r]) printf(" %s", ht_rule_name((enum ht_rule)r));
    putchar('\n');
}

static enum ht_status run(const struct ht_options *options, struct ht_error *err)
{
    struct ht_job job;
    struct ht_result result = {0};
    enum ht_status status = ht_job_create(options, NULL, NULL, HT_JOB_BOUNDED, err, &job);
    if (status != HT_OK) return status;
    status = ht_result_create(&job, NULL, NULL, 0, err, &result);
    if (status == HT_OK) status = ht_job_dump(&job, options->plan.dump, err);
    if (status == HT_OK && options->json) {
        json_t *root = ht_result_json(&result);
        json_object_set_new(root, "proved", rules_json(&job));
        status = ht_json_print(root, err);
    } else if (status == HT_OK) {
        ht_job_print(&job, stdout);
        if (job.schedule) print_rules(&job);
        ht_memory_print(&result, stdout);
    }
    if (status == HT_OK && job.answer != HT_OK) status = ht_fail(err, job.answer, "%s", job.reason);
    ht_result_free(&result);
    ht_job_free(&job);
    return status;
}

const struct ht_command ht_cmd_verify = {
    .name = "verify",
    .args = "SYSTEM",
    .help = "prove a schedule: edges, groups, coverage, updates, memory"
            "\vWith --load FILE the graph in FILE is proved instead. The rules are described in "
            "common/schedule/verify.h and the file format in docs/graph-format.md.",
    .groups = HT_OPT_MODEL | HT_OPT_SCENARIO | HT_OPT_LOAD | HT_OPT_DUMP,
    .min_words = 1,
    .max_words = 1,
    .run = run,
};
