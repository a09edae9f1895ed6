/* hetbench advise: the fastest way to train a model on one's own GPUs, and what would make it faster. */
#include "harness/cli/advice.h"
#include "harness/cli/commands.h"
#include "harness/cli/drawing.h"
#include "harness/result/provenance.h"

/* ---- the command ----------------------------------------------------------------------------------------------- */

/* Searches, and tries the changes. HT_INTERRUPTED leaves what was found. */
static enum ht_status search(struct ht_advice *a, struct ht_error *err)
{
    enum ht_status status = ht_search_run(&a->search, false, err);
    a->n_best = ht_search_best(&a->search, a->best, HT_ADVISE_BEST);
    if (status == HT_OK) status = ht_changes_try(&a->search, err, a->changes, HT_MAX_CHANGES, &a->n_changes);
    a->complete = status == HT_OK;
    return status;
}

static enum ht_status print(const struct ht_advice *a, const struct ht_scenario *scenario, struct ht_error *err)
{
    json_t *report = ht_advice_json(a, scenario, err);
    if (!report) return HT_FAILED;
    enum ht_status drawn = a->complete && a->n_best ? ht_plot(report, NULL, a->options->plot, err) : HT_OK;
    if (a->options->json) {
        struct ht_error ignored;
        enum ht_status printed = ht_json_print(report, "advice", drawn == HT_OK ? err : &ignored);
        return drawn == HT_OK ? printed : drawn;
    }
    ht_advice_print(report);
    json_decref(report);
    return drawn;
}

static enum ht_status advise(struct ht_advice *a, const struct ht_scenario *scenario, struct ht_error *err)
{
    struct ht_error why;
    enum ht_status status = ht_search_create(a->options, a->cluster, a->options->compare.systems, err, &a->search);
    if (status != HT_OK) return status;
    status = search(a, err);
    if (status == HT_OK || status == HT_INTERRUPTED) {
        enum ht_status printed = print(a, scenario, &why);
        if (status == HT_OK && printed != HT_OK) *err = why, status = printed;
        if (status == HT_OK && !a->n_best)
            status = ht_fail(err, HT_INFEASIBLE, "no system trains %s here", scenario->model.name);
    }
    ht_search_free(&a->search);
    return status;
}

static enum ht_status run(const struct ht_options *options, struct ht_error *err)
{
    struct ht_advice a = {.options = options};
    struct ht_scenario scenario;
    struct ht_scenario_request request = options->request;
    if (!request.model)
        return ht_fail(err, HT_BAD_INPUT, "--model is missing; hetbench list models shows those there are");
    if (!request.cluster) return ht_fail(err, HT_BAD_INPUT, HT_NO_CLUSTER);
    request.batch = request.micro_batch = 0;
    enum ht_status status = ht_scenario_create(&request, err, &scenario);
    if (status != HT_OK) return status;
    status = ht_search_cluster(options, err, &a.cluster);
    if (status == HT_OK) status = advise(&a, &scenario, err);
    ht_cluster_destroy(a.cluster);
    ht_scenario_free(&scenario);
    return status;
}

const struct ht_command ht_cmd_advise = {
    .name = "advise",
    .args = NULL,
    .help =
        "find the fastest way to train a model on one's own GPUs"
        "\vSearches the system, the micro-batch and which of the cards to use; says what the plan does with each card, "
        "what a further card, disk, or more memory would bring, and which cards are better left out. The batch is 64 "
        "sequences if --batch does not say otherwise, or a little more where cards take equal parts. For example:\n\n"
        "  hetbench advise --model llama-13b --gpus rtx4090:2 --ram 128GB --ssd 990-pro-2tb:2",
    .example = "hetbench advise --model llama-7b --gpus rtx4090:2 --ram 128GB",
    .groups = HT_OPT_ADVISE | HT_OPT_MODEL | HT_OPT_SCENARIO | HT_OPT_SIM | HT_OPT_PLOT,
    .min_words = 0,
    .max_words = 0,
    .run = run,
};
