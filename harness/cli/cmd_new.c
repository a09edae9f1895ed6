/* hetbench new: a commented file to begin with. */
#include "harness/cli/commands.h"

#include "common/base/array.h"
#include "common/base/builtin.h"
#include "common/hw/hw.h"
#include "harness/result/result.h"

#include <stdio.h>
#include <string.h>

HT_EMBED(ht_new_cluster_yaml, "harness/cli/new_cluster.yaml");
HT_EMBED(ht_new_model_yaml, "harness/cli/new_model.yaml");
HT_EMBED(ht_new_experiment_yaml, "harness/cli/new_experiment.yaml");

static const struct {
    const char *kind, *begin, *end;
} templates[] = {
    {"cluster", ht_new_cluster_yaml, ht_new_cluster_yaml_end},
    {"model", ht_new_model_yaml, ht_new_model_yaml_end},
    {"experiment", ht_new_experiment_yaml, ht_new_experiment_yaml_end},
};

static enum ht_status print_text(const struct ht_options *o, const char *text, size_t bytes, struct ht_error *err)
{
    if (o->json) return ht_json_print(json_pack("{s:s%}", "text", text, bytes), "file", err);
    fwrite(text, 1, bytes, stdout);
    return HT_OK;
}

static enum ht_status run(const struct ht_options *o, struct ht_error *err)
{
    const char *kind = o->words[0];
    if (!strcmp(kind, "cluster") && o->parts.gpus) {
        char text[8192];
        enum ht_status status = ht_cluster_parts_text(o->parts.list, err, text, sizeof(text));
        return status == HT_OK ? print_text(o, text, strlen(text), err) : status;
    }
    for (size_t i = 0; i < HT_COUNT(templates); i++)
        if (!strcmp(kind, templates[i].kind))
            return print_text(o, templates[i].begin, (size_t)(templates[i].end - templates[i].begin), err);
    return ht_fail(err, HT_BAD_INPUT, "new: unknown kind '%s'; expected cluster, model or experiment", kind);
}

const struct ht_command ht_cmd_new = {
    .name = "new",
    .args = "KIND",
    .help = "print a commented file to begin with: a cluster, a model or an experiment"
            "\vcluster with --gpus prints the file of these parts. For example:\n\n"
            "  hetbench new cluster --gpus rtx4090:2 --ram 128GB > mine.yaml",
    .example = "hetbench new cluster > mine.yaml",
    .whole_lines = true,
    .groups = HT_OPT_PARTS,
    .min_words = 1,
    .max_words = 1,
    .run = run,
};
