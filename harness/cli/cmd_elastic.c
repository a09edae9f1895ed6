/* hetbench elastic: a training that outlives its nodes. */
#include "harness/cli/commands.h"

#include "harness/elastic/drills.h"
#include "harness/elastic/elastic.h"

#include <string.h>

enum { NODES = 4 };

/* Fills in what an elastic training has by default. */
static enum ht_status complete(struct ht_options *o, struct ht_error *err)
{
    if (!o->state.store)
        return ht_fail(err, HT_BAD_INPUT,
                       "elastic: --store DIR is missing: the state goes on from one node to the next there");
    if (!o->training.data)
        return ht_fail(err, HT_BAD_INPUT, "elastic: --data is missing; expected a text or token ids");
    if (o->request.only_nodes)
        return ht_fail(err, HT_BAD_INPUT,
                       "elastic: --only-nodes is the supervisor's own; expected --hosts or --notice");
    if (!strcmp(o->request.cluster, "local") && !o->request.nodes) o->request.nodes = NODES;
    bool given = false;
    for (int64_t i = 0; i < o->n_given; i++) given |= !strcmp(o->given[i].name, "replicas");
    if (!given) o->state.replicas = 1;
    return HT_OK;
}

static enum ht_status run(const struct ht_options *options, struct ht_error *err)
{
    struct ht_options o = *options;
    enum ht_status status = complete(&o, err);
    if (status != HT_OK) return status;
    return o.elastic.drills ? ht_drills_run(&o, HT_OPT_ELASTIC, err) : ht_elastic_run(&o, HT_OPT_ELASTIC, err);
}

const struct ht_command ht_cmd_elastic = {
    .name = "elastic",
    .args = "SYSTEM",
    .help = "train to the last step, whatever nodes are lost on the way"
            "\vA supervisor of ordinary trainings: after each loss, notice or join it plans for the nodes that there "
            "are and goes on "
            "from what their stores have, with the same batch and the same order of the data. Nodes are local "
            "(--nodes, four by "
            "default, or those of --cluster), or hosts. Each file of a save has a replica on another node unless "
            "--replicas says "
            "otherwise. docs/elastic.md says more.",
    .example = "hetbench elastic fsdp --model gpt-tiny --data text.txt --store /data/run",
    .groups = HT_OPT_MODEL | HT_OPT_SCENARIO | HT_OPT_TRAIN | HT_OPT_TRACE | HT_OPT_ELASTIC,
    .min_words = 1,
    .max_words = 1,
    .run = run,
};
