/* hetbench verify: the proof of a schedule, rule by rule. */
#include "harness/cli/commands.h"

#include "harness/cli/job_report.h"

static void add_rules(const struct ht_job *job, json_t *root)
{
    json_t *rules = json_object();
    for (int r = 0; r < HT_N_RULES; r++)
        json_object_set_new(rules, ht_rule_name((enum ht_rule)r), json_boolean(job->proof.proved[r]));
    json_object_set_new(root, "proved", rules);
}

static void print_rules(const struct ht_job *job)
{
    const struct ht_schedule *s = job->schedule;
    if (!s) return;
    printf("\n%d ops, %lld edges, hash %016llx\nproved:", s->n_ops,
           (long long)(s->deps_begin[s->n_ops] + s->prev_begin[s->n_ops]), (unsigned long long)ht_schedule_hash(s));
    for (int r = 0; r < HT_N_RULES; r++)
        if (job->proof.proved[r]) printf(" %s", ht_rule_name((enum ht_rule)r));
    putchar('\n');
}

static enum ht_status run(const struct ht_options *options, struct ht_error *err)
{
    return ht_job_report(options, print_rules, add_rules, err);
}

const struct ht_command ht_cmd_verify = {
    .name = "verify",
    .args = "SYSTEM",
    .help = "prove a schedule: edges, groups, coverage, updates, memory"
            "\vWith --load FILE the graph in FILE is proved instead. The rules are described in "
            "common/schedule/verify.h and the file format in docs/graph-format.md.",
    .example = "hetbench verify cephalo --model llama-7b --gpus a10:2,v100-32gb:4",
    .groups = HT_OPT_MODEL | HT_OPT_SCENARIO | HT_OPT_LOAD | HT_OPT_DUMP,
    .min_words = 1,
    .max_words = 1,
    .run = run,
};
