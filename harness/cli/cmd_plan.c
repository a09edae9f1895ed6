/* hetbench plan: a system's decisions, and whether its schedule fits. */
#include "harness/cli/commands.h"

#include "common/base/units.h"
#include "harness/cli/job_report.h"
#include "harness/result/result.h"
#include "harness/result/table.h"

#include <string.h>

/* Prints the inputs that the decision rests on. */
static void print_inputs(const struct ht_plan *plan)
{
    if (!plan->n_inputs) return;
    struct ht_table *t = ht_table_create("<input of the planner|>value");
    for (int i = 0; i < plan->n_inputs; i++) {
        const struct ht_plan_input *input = &plan->inputs[i];
        char text[HT_QUANTITY_TEXT];
        ht_table_cell(t, "%s", input->name);
        if (!strcmp(input->unit, "s"))
            ht_table_cell(t, "%s", ht_format_quantity(HT_TIME, input->value * 1e9, text));
        else if (!strcmp(input->unit, "bytes"))
            ht_table_cell(t, "%s", ht_format_quantity(HT_BYTES, input->value, text));
        else
            ht_table_cell(t, "%.10g%s%s", input->value, *input->unit ? " " : "", input->unit);
    }
    putchar('\n');
    ht_table_print(t, "  ", stdout);
}

/* Prints the candidates that were built, and how many were not. */
static void print_considered(const struct ht_plan *plan)
{
    size_t built = 0;
    for (size_t i = 0; i < plan->n_considered; i++)
        built += plan->considered[i].iteration_s > 0 || plan->considered[i].gave_up_s > 0;
    if (!built) return;
    struct ht_table *t = ht_table_create("<candidate|>iteration|>at least|<");
    for (size_t i = 0; i < plan->n_considered; i++) {
        const struct ht_considered *c = &plan->considered[i];
        char text[HT_QUANTITY_TEXT];
        double least_s = c->gave_up_s > 0 ? c->gave_up_s : c->bound_s;
        if (c->iteration_s <= 0 && c->gave_up_s <= 0) continue;
        ht_table_cell(t, "%s", c->name);
        ht_table_cell(t, "%s", c->iteration_s <= 0 ? "-" : ht_format_quantity(HT_TIME, c->iteration_s * 1e9, text));
        ht_table_cell(t, "%s", least_s > 0 ? ht_format_quantity(HT_TIME, least_s * 1e9, text) : "-");
        ht_table_cell(t, "%s", c->why);
    }
    putchar('\n');
    ht_table_print(t, "  ", stdout);
    printf("  %zu of %zu candidates were not simulated; --json says why\n", plan->n_considered - built,
           plan->n_considered);
}

static void print(const struct ht_job *job)
{
    char text[HT_QUANTITY_TEXT];
    if (job->plan.planned_s > 0)
        printf("iteration time by the paper's own model: %s\n",
               ht_format_quantity(HT_TIME, job->plan.planned_s * 1e9, text));
    print_inputs(&job->plan);
    print_considered(&job->plan);
}

static enum ht_status run(const struct ht_options *options, struct ht_error *err)
{
    return ht_job_report(options, print, NULL, err);
}

const struct ht_command ht_cmd_plan = {
    .name = "plan",
    .args = "SYSTEM",
    .help = "what a system decides for a scenario, and whether that fits",
    .example = "hetbench plan autohete --model autohete-4b --cluster autohete-1gpu",
    .groups = HT_OPT_MODEL | HT_OPT_SCENARIO | HT_OPT_DUMP | HT_OPT_DRAW | HT_OPT_PLOT,
    .min_words = 1,
    .max_words = 1,
    .run = run,
};
