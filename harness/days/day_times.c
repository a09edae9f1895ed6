#include "harness/days/day_times.h"

#include "common/base/array.h"
#include "common/base/text.h"
#include "harness/result/provenance.h"

#include <errno.h>
#include <string.h>

/* AutoHet's planner takes 1.23 s at least (arXiv 2512.20953, abstract), and its remote store gives 1.2 GB/s (Sec. V-C). The others are
   assumed: a lost node is noticed by missing heartbeats; processes, CUDA and NCCL start anew; AWS' instances come in bursts. */
struct ht_day_times ht_day_times_default(void)
{
    return (struct ht_day_times){
        .detect_s = 5, .plan_s = 1.23, .relaunch_s = 30, .quiet_s = 60, .remote_bytes_per_s = 1.2e9};
}

/* ---- reading ---------------------------------------------------------------------------------------------------- */

enum { DETECT, PLAN, RELAUNCH, N_PARTS };
static const char *const parts[N_PARTS] = {"detection_s", "planning_s", "relaunch_s"};

struct means {
    double sum[N_PARTS];
    int64_t n[N_PARTS], recoveries;
};

/* Adds recoveries after the loss of a rank or host. A hang is noticed by patience, a change by being asked. */
static void add(struct means *m, const json_t *list)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *row = json_array_get(list, i);
        const char *cause = json_string_value(json_object_get(row, "cause"));
        if (!cause || !strstr(cause, " lost")) continue;
        m->recoveries++;
        for (int k = 0; k < N_PARTS; k++) {
            const json_t *value = json_object_get(row, parts[k]);
            if (!json_is_number(value)) continue;
            m->sum[k] += json_number_value(value);
            m->n[k]++;
        }
    }
}

/* Reads all JSON values of a file. */
static enum ht_status read_values(FILE *f, const char *shown, struct ht_error *err, struct means *m)
{
    json_error_t why;
    long line = 1;
    for (;;) {
        int c = fgetc(f);
        line += c == '\n';
        if (c == EOF) return HT_OK;
        if (strchr(" \t\r\n", c)) continue;
        ungetc(c, f);
        json_t *value = json_loadf(f, JSON_DISABLE_EOF_CHECK, &why);
        if (!value)
            return ht_fail(err, HT_BAD_INPUT, "--times: %s:%ld: is not JSON: %.160s", shown, line + why.line - 1,
                           why.text);
        add(m, json_object_get(value, "recoveries"));
        json_decref(value);
    }
}

enum ht_status ht_day_times_read(const char *path, struct ht_error *err, struct ht_day_times *times,
                                 struct ht_day_sources *sources)
{
    struct means m = {{0}, {0}, 0};
    char shown[200];
    ht_shown(path, shown, sizeof(shown));
    FILE *f = fopen(path, "re");
    if (!f) return ht_fail(err, HT_BAD_INPUT, "--times: %s: cannot be opened: %s", shown, strerror(errno));
    enum ht_status status = read_values(f, shown, err, &m);
    fclose(f);
    if (status) return status;
    double *const values[N_PARTS] = {&times->detect_s, &times->plan_s, &times->relaunch_s};
    char *const texts[N_PARTS] = {sources->detect, sources->plan, sources->relaunch};
    for (int k = 0; k < N_PARTS; k++)
        if (!m.n[k])
            return ht_fail(err, HT_BAD_INPUT,
                           "--times: %s: no recovery after a loss has '%s'; expected the output of hetbench elastic "
                           "--drills N --json",
                           shown, parts[k]);
    for (int k = 0; k < N_PARTS; k++) {
        *values[k] = m.sum[k] / (double)m.n[k];
        snprintf(texts[k], HT_DAY_SOURCE, "measured: mean of %lld recoveries, %.150s", (long long)m.n[k], shown);
    }
    return HT_OK;
}

/* ---- writing ---------------------------------------------------------------------------------------------------- */

static json_t *source(const char *text, double value, double otherwise, const char *from)
{
    return ht_json_text(*text ? text : value == otherwise ? from : "as given");
}

json_t *ht_day_times_json(const struct ht_day_times *t, const struct ht_day_sources *s)
{
    const struct ht_day_times d = ht_day_times_default();
    json_t *o = json_pack("{s:f,s:f,s:f,s:f,s:f}", "detect_s", t->detect_s, "plan_s", t->plan_s, "relaunch_s",
                          t->relaunch_s, "quiet_s", t->quiet_s, "remote_bytes_per_s", t->remote_bytes_per_s);
    json_t *from = json_object();
    json_object_set_new(from, "detect_s", source(s->detect, t->detect_s, d.detect_s, "assumed"));
    json_object_set_new(from, "plan_s", source(s->plan, t->plan_s, d.plan_s, "AutoHet's abstract"));
    json_object_set_new(from, "relaunch_s", source(s->relaunch, t->relaunch_s, d.relaunch_s, "assumed"));
    json_object_set_new(from, "quiet_s", source("", t->quiet_s, d.quiet_s, "assumed"));
    json_object_set_new(from, "remote_bytes_per_s",
                        source("", t->remote_bytes_per_s, d.remote_bytes_per_s, "AutoHet, Sec. V-C"));
    json_object_set_new(o, "sources", from);
    return o;
}
