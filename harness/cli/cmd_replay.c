/* hetbench replay: a spot trace that happens to real processes, beside its simulation. */
#include "harness/cli/commands.h"

#include "common/base/array.h"
#include "harness/days/replay.h"
#include "harness/result/provenance.h"
#include "harness/result/result.h"
#include "harness/run/output.h"

#include <stdlib.h>
#include <string.h>

/* Leaves the training's options: replay gives the supervisor the others itself. */
static void keep_trainings(struct ht_options *o)
{
    static const char *const own[] = {"clock", "emu-scale", "steps", "losses", "json", "store-memory"};
    int64_t n = 0;
    for (int64_t i = 0; i < o->n_given; i++) {
        bool out = o->given[i].groups & HT_OPT_SPOT;
        for (size_t k = 0; k < HT_COUNT(own); k++) out |= !strcmp(o->given[i].name, own[k]);
        if (!out) o->given[n++] = o->given[i];
    }
    o->n_given = n;
}

static enum ht_status read_replay(const struct ht_options *o, struct ht_error *err, struct ht_replay *r)
{
    struct ht_study policies = {0};
    *r = (struct ht_replay){.options = *o,
                            .trace = o->day.trace,
                            .dir = o->state.store,
                            .speed = o->replay.speed,
                            .remote_bytes_per_s = o->day.remote_bytes_per_s,
                            .changes = o->replay.changes,
                            .drill_changes = o->replay.drill_changes,
                            .seed = o->elastic.seed,
                            .keep_nodes = (int32_t)o->day.keep_nodes,
                            .check = o->replay.check};
    if (o->n_given > HT_MAX_GIVEN - 2) return ht_fail(err, HT_BAD_INPUT, "replay: too many options");
    if (!r->trace) return ht_fail(err, HT_BAD_INPUT, "replay: --trace is missing; hetbench list traces shows some");
    if (!r->dir) return ht_fail(err, HT_BAD_INPUT, "replay: --store DIR is missing: nodes' stores are made there");
    if (!o->training.data) return ht_fail(err, HT_BAD_INPUT, "replay: --data is missing; expected a text or token ids");
    if (!o->request.model)
        return ht_fail(err, HT_BAD_INPUT, "--model is missing; hetbench list models shows those there are");
    keep_trainings(&r->options);
    enum ht_status status = ht_study_read_policies("--policies", o->day.policies, err, &policies);
    memcpy(r->policies, policies.policies, sizeof(r->policies));
    r->n_policies = policies.n_policies;
    return status;
}

static enum ht_status write_csv(const json_t *root, const char *path, struct ht_error *err)
{
    struct ht_output file;
    enum ht_status status = ht_output_open(path, err, &file);
    if (status) return status;
    ht_replay_csv(root, file.file);
    return ht_output_end(&file, HT_OK, err);
}

static enum ht_status run(const struct ht_options *o, struct ht_error *err)
{
    struct ht_replay *r = HT_NEW(struct ht_replay);
    json_t *root = NULL;
    enum ht_status status = read_replay(o, err, r);
    if (!status) status = ht_replay_all(r, err, &root);
    if (!status) ht_provenance_add(root);
    if (!status && o->out) status = write_csv(root, o->out, err);
    if (!status && !o->json) ht_replay_print(root, stdout);
    if (!status && o->json) status = ht_json_print(json_incref(root), "replay", err);
    json_decref(root);
    free(r);
    return status;
}

const struct ht_command ht_cmd_replay = {
    .name = "replay",
    .help = "let a spot trace happen to real processes of a small cluster, and compare with its simulation\v"
            "Nodes of --cluster come and go as those of the trace do, --speed times as fast; ranks of lost ones are "
            "killed. The supervisor is that of elastic, with each policy. Under the emulated clock an iteration takes "
            "its modelled time divided by --speed. docs/goodput.md says what is compared.",
    .example = "hetbench replay --model gpt-mini --cluster tests/data/spot-mini.yaml --data text.txt --store /data/run "
               "--trace oobleck-p3",
    .groups = HT_OPT_MODEL | HT_OPT_SCENARIO | HT_OPT_TRAIN | HT_OPT_SPOT,
    .min_words = 0,
    .max_words = 0,
    .run = run,
};
