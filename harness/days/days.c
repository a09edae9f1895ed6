#include "harness/days/days.h"

#include "common/base/array.h"
#include "common/base/builtin.h"
#include "harness/result/provenance.h"
#include "harness/result/rows.h"

#include <stdlib.h>
#include <string.h>

HT_EMBED(ht_days_yaml, "harness/days/days.yaml");
static const struct ht_builtin builtin = {"builtin:harness/days/days.yaml", ht_days_yaml, ht_days_yaml_end};

enum { MAX_STUDIES = 16 };

/* Keys of the file, and of each of its studies. */
struct entry {
    char name[64], title[256], source[256];
    char label[64], trace[512], model[128], numerics[16], software[64], policies[128], cluster[128];
    int64_t batch, micro_batch, seq, iterations, warmup;
    double remote, detect_s, plan_s, relaunch_s, quiet_s, save_every_s;
    const struct ht_node *speeds, *intervals, *studies;
};

#define NUMBER(k, m)                                                                                                   \
    {                                                                                                                  \
        .key = k, .type = HT_FIELD_INT, HT_FIELD_AT(struct entry, m)                                                   \
    }
#define SECONDS(k, m)                                                                                                  \
    {                                                                                                                  \
        .key = k, HT_FIELD_REAL(struct entry, m), .min = 0, .max = 1e6                                                 \
    }
static const struct ht_field fields[] = {
    {.key = "name", HT_FIELD_TEXT(struct entry, name)},
    {.key = "title", HT_FIELD_TEXT(struct entry, title)},
    {.key = "source", HT_FIELD_TEXT(struct entry, source)},
    {.key = "label", HT_FIELD_TEXT(struct entry, label)},
    {.key = "trace", HT_FIELD_TEXT(struct entry, trace)},
    {.key = "model", HT_FIELD_TEXT(struct entry, model)},
    {.key = "numerics", HT_FIELD_TEXT(struct entry, numerics)},
    {.key = "software", HT_FIELD_TEXT(struct entry, software)},
    {.key = "policies", HT_FIELD_TEXT(struct entry, policies)},
    {.key = "cluster", HT_FIELD_TEXT(struct entry, cluster)},
    NUMBER("batch", batch),
    NUMBER("micro_batch", micro_batch),
    NUMBER("seq", seq),
    NUMBER("iterations", iterations),
    NUMBER("warmup", warmup),
    {.key = "remote", .type = HT_FIELD_BYTES_PER_S, HT_FIELD_AT(struct entry, remote)},
    SECONDS("detect", detect_s),
    SECONDS("plan", plan_s),
    SECONDS("relaunch", relaunch_s),
    SECONDS("quiet", quiet_s),
    SECONDS("save_every", save_every_s),
    {.key = "speeds", .type = HT_FIELD_LIST_NODE, HT_FIELD_AT(struct entry, speeds)},
    {.key = "intervals", .type = HT_FIELD_LIST_NODE, HT_FIELD_AT(struct entry, intervals)},
    {.key = "studies", .type = HT_FIELD_LIST_NODE, HT_FIELD_AT(struct entry, studies)},
    {0},
};

static const char *or_null(const char *text)
{
    return *text ? text : NULL;
}

static enum ht_status read_points(const struct ht_node *list, struct ht_error *err, double *out, size_t *n)
{
    *n = 0;
    if (!list) return HT_OK;
    HT_EACH_CHILD(list, c)
    {
        if (*n == HT_STUDY_POINTS)
            return ht_node_error(c, err, "is one too many; expected at most %d", HT_STUDY_POINTS);
        enum ht_status status = ht_node_double(c, 1e-6, 1e6, err, &out[*n]);
        if (status) return status;
        if (*n && out[*n] <= out[*n - 1])
            return ht_node_error(c, err, "is not above the one before; expected rising values");
        (*n)++;
    }
    return HT_OK;
}

/* Makes a study of a file's entry, in which its node's keys count before the file's. The study points into *e. */
static enum ht_status read_study(const struct ht_node *node, struct entry *e, const char *plans, struct ht_error *err,
                                 struct ht_study *s)
{
    const struct ht_node *speeds = e->speeds, *intervals = e->intervals;
    enum ht_status status = ht_config_load(node, fields, err, e);
    if (status) return status;
    if (!e->speeds) e->speeds = speeds;
    if (!e->intervals) e->intervals = intervals;
    if (!*e->trace) return ht_node_error(node, err, "lacks the key 'trace'; expected 'trace: INSTANCE=NAME'");
    *s = (struct ht_study){.label = or_null(e->label),
                           .options = ht_options_default(),
                           .day = e->trace,
                           .plans = plans,
                           .cluster = or_null(e->cluster),
                           .times = {e->detect_s, e->plan_s, e->relaunch_s, e->quiet_s, e->save_every_s, e->remote}};
    struct ht_scenario_request *r = &s->options.request;
    *r = (struct ht_scenario_request){.model = or_null(e->model),
                                      .numerics = or_null(e->numerics),
                                      .software = or_null(e->software),
                                      .batch = e->batch,
                                      .micro_batch = e->micro_batch,
                                      .seq = e->seq};
    if (e->iterations) s->options.sim.iterations = e->iterations, s->options.sim.warmup = e->warmup;
    status = ht_study_read_policies("policies", or_null(e->policies), err, s);
    if (!status) status = read_points(e->speeds, err, s->speeds, &s->n_speeds);
    if (!status) status = read_points(e->intervals, err, s->intervals, &s->n_intervals);
    return status;
}

static enum ht_status find(const char *name, struct ht_error *err, struct ht_doc **doc, const struct ht_node **entry)
{
    if (!ht_is_path(name)) return ht_builtin_find(&builtin, 1, "experiment", name, err, doc, entry);
    enum ht_status status = ht_doc_open(name, err, doc);
    if (!status) *entry = ht_doc_root(*doc);
    return status;
}

bool ht_days_are(const char *name)
{
    struct ht_doc *doc = NULL;
    const struct ht_node *entry = NULL;
    struct ht_error ignored;
    bool are = find(name, &ignored, &doc, &entry) == HT_OK && ht_node_find(entry, "studies");
    ht_doc_destroy(doc);
    return are;
}

bool ht_days_name(int64_t index, char *buf, size_t bytes)
{
    return ht_builtin_name(&builtin, 1, index, buf, bytes);
}

void ht_days_heading(const char *name, struct ht_days_heading *out)
{
    struct ht_doc *doc = NULL;
    const struct ht_node *entry = NULL;
    struct ht_error ignored;
    struct entry *e = HT_NEW(struct entry);
    *out = (struct ht_days_heading){.studies = 0};
    if (find(name, &ignored, &doc, &entry) == HT_OK && ht_config_load(entry, fields, &ignored, e) == HT_OK) {
        snprintf(out->name, sizeof(out->name), "%s", ht_is_path(name) ? e->name : name);
        memcpy(out->title, e->title, sizeof(out->title));
        memcpy(out->source, e->source, sizeof(out->source));
        out->studies = e->studies ? e->studies->n_children : 0;
    }
    free(e);
    ht_doc_destroy(doc);
}

static void write_csv(const json_t *rows, FILE *out)
{
    const json_t *study;
    size_t i;
    json_array_foreach(rows, i, study) ht_study_csv(study, i == 0, out);
}

/* Runs the studies one after the other; the document is written after each. */
static enum ht_status run_studies(const struct entry *file, const char *dir, const char *plans, struct ht_error *err,
                                  json_t *root)
{
    enum ht_status status = HT_OK;
    json_t *rows = json_object_get(root, "rows"), *study = NULL;
    int n = 0;
    HT_EACH_CHILD(file->studies, node)
    {
        struct entry *e = HT_NEW(struct entry);
        struct ht_study *s = HT_NEW(struct ht_study);
        *e = *file;
        if (n++ == MAX_STUDIES)
            status = ht_node_error(node, err, "is one study too many; expected at most %d", MAX_STUDIES);
        if (!status) status = read_study(node, e, plans, err, s);
        if (!status) status = ht_study_run(s, err, &study);
        free(s);
        free(e);
        if (status) return status;
        json_array_append_new(rows, study);
        json_object_set_new(root, "complete", json_boolean(!node->next));
        status = ht_rows_write(root, "days", dir, "results", write_csv, err);
        if (status) return status;
    }
    return HT_OK;
}

enum ht_status ht_days_run(const char *name, const char *dir, const char *plans, struct ht_error *err, json_t **out)
{
    struct ht_doc *doc = NULL;
    const struct ht_node *entry = NULL;
    struct ht_day_times t = ht_day_times_default();
    struct entry *file = HT_NEW(struct entry);
    *out = NULL;
    *file = (struct entry){.remote = t.remote_bytes_per_s,
                           .detect_s = t.detect_s,
                           .plan_s = t.plan_s,
                           .relaunch_s = t.relaunch_s,
                           .quiet_s = t.quiet_s};
    enum ht_status status = find(name, err, &doc, &entry);
    if (!status) status = ht_config_load(entry, fields, err, file);
    if (!status && !file->studies) status = ht_node_error(entry, err, "lacks the key 'studies'; expected a list");
    if (!status && ht_is_path(name) && !*file->name)
        status = ht_node_error(entry, err, "lacks the key 'name'; expected 'name: ...'");
    if (!status) {
        const char *called = ht_is_path(name) ? file->name : name;
        *out = json_pack("{s:s,s:s,s:s,s:s,s:s,s:b,s:[]}", "experiment", called, "title",
                         *file->title ? file->title : called, "source", file->source, "obtained", "simulated", "figure",
                         "days", "complete", 0, "rows");
        ht_provenance_add(*out);
        status = run_studies(file, dir, plans, err, *out);
    }
    free(file);
    ht_doc_destroy(doc);
    return status;
}
