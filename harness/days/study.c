#include "harness/days/study.h"

#include "common/base/array.h"
#include "common/base/units.h"
#include "harness/result/provenance.h"
#include "harness/result/result.h"
#include "harness/result/rows.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum ht_status ht_study_trace(const struct ht_study *s, struct ht_error *err, struct ht_spot_trace *out)
{
    if (s->day) return ht_spot_day_load(s->day, err, out);
    ht_spot_trace_generate(&s->drawn, out);
    return HT_OK;
}

/* ---- lists ------------------------------------------------------------------------------------------------------ */

/* Copies the next word of a list to buf and moves *at behind it. Returns false at the end. */
static bool next_word(const char **at, char *buf, size_t bytes)
{
    size_t n = strcspn(*at, ",");
    if (!**at) return false;
    snprintf(buf, bytes, "%.*s", (int)n, *at);
    *at += n + ((*at)[n] == ',');
    return true;
}

enum ht_status ht_study_read_policies(const char *flag, const char *list, struct ht_error *err, struct ht_study *s)
{
    char word[64];
    s->n_policies = 0;
    while (list && next_word(&list, word, sizeof(word))) {
        if (s->n_policies == HT_STUDY_POLICIES)
            return ht_fail(err, HT_BAD_INPUT, "%s: more than %d policies", flag, HT_STUDY_POLICIES);
        enum ht_status status = ht_policy_find(word, err, &s->policies[s->n_policies++]);
        if (status) return status;
    }
    for (size_t i = 0; !list && ht_policy_at(i); i++) s->policies[s->n_policies++] = ht_policy_at(i);
    return s->n_policies ? HT_OK : ht_fail(err, HT_BAD_INPUT, "%s: the list is empty; expected A,B", flag);
}

/* Reads a positive number. */
static enum ht_status read_number(const char *flag, const char *word, double most, struct ht_error *err, double *out)
{
    struct ht_error why;
    if (ht_parse_real(HT_REAL, word, strlen(word), &why, out) != HT_OK)
        return ht_fail(err, HT_BAD_INPUT, "%s: %.900s", flag, why.text);
    if (!(*out > 0 && *out <= most))
        return ht_fail(err, HT_BAD_INPUT, "%s: %s is out of range; expected more than 0, at most %g", flag, word, most);
    return HT_OK;
}

enum ht_status ht_study_read_prices(const char *flag, const char *list, struct ht_error *err, struct ht_study *s)
{
    char word[192];
    while (list && next_word(&list, word, sizeof(word))) {
        char *equals = strchr(word, '=');
        if (!equals || equals == word || equals - word >= HT_SPOT_NAME)
            return ht_fail(err, HT_BAD_INPUT, "%s: '%s' has no price; expected INSTANCE=USD, by the hour", flag, word);
        if (s->n_prices == HT_STUDY_PRICES)
            return ht_fail(err, HT_BAD_INPUT, "%s: more than %d prices", flag, HT_STUDY_PRICES);
        struct ht_price *p = &s->prices[s->n_prices++];
        *equals = 0;
        char *colon = strchr(equals + 1, ':');
        if (colon) *colon = 0;
        snprintf(p->instance, sizeof(p->instance), "%.47s", word);
        snprintf(p->source, sizeof(p->source), "%.95s", colon && colon[1] ? colon + 1 : "as given");
        enum ht_status status = read_number(flag, equals + 1, 1e6, err, &p->usd_per_hour);
        if (status) return status;
    }
    return HT_OK;
}

enum ht_status ht_study_read_points(const char *flag, const char *list, struct ht_error *err, double *out, size_t *n)
{
    char word[64];
    enum ht_status status = HT_OK;
    for (*n = 0; list && !status && next_word(&list, word, sizeof(word)); (*n)++) {
        if (*n == HT_STUDY_POINTS) return ht_fail(err, HT_BAD_INPUT, "%s: more than %d values", flag, HT_STUDY_POINTS);
        status = read_number(flag, word, 1e6, err, &out[*n]);
        if (!status && *n && out[*n] <= out[*n - 1])
            status =
                ht_fail(err, HT_BAD_INPUT, "%s: %s is not above the value before; expected rising values", flag, word);
    }
    return status;
}

enum ht_status ht_study_read_drawn(const char *flag, char *text, struct ht_error *err, struct ht_spot_rates *out)
{
    double nodes = 32, hours = 12, rate = 0.1, burst = 1, absent = 600, notice = 0, noticed = 1, seed = 1;
    const struct {
        const char *name;
        double *value, min, max;
    } names[] = {{"nodes", &nodes, 1, 4096},  {"hours", &hours, 0.01, 1e4}, {"rate", &rate, 0, 100},
                 {"burst", &burst, 1, 4096},  {"absent", &absent, 1, 1e7},  {"notice", &notice, 0, 1e5},
                 {"noticed", &noticed, 0, 1}, {"seed", &seed, 0, 1e15}};
    const char *instance = "";
    char *save = NULL;
    unsigned given = 0;
    for (char *w = strtok_r(text, ",", &save); w; w = strtok_r(NULL, ",", &save)) {
        char *equals = strchr(w, '=');
        size_t i = 0;
        struct ht_error why;
        if (!equals) return ht_fail(err, HT_BAD_INPUT, "%s: '%.60s' has no value; expected NAME=VALUE", flag, w);
        *equals = 0;
        while (i < HT_COUNT(names) && strcmp(names[i].name, w) != 0) i++;
        bool names_instance = !strcmp(w, "instance");
        if (i == HT_COUNT(names) && !names_instance)
            return ht_fail(
                err, HT_BAD_INPUT,
                "%s: unknown name '%.60s'; expected nodes, hours, rate, burst, absent, notice, noticed, seed "
                "or instance",
                flag, w);
        if (given & 1U << i) return ht_fail(err, HT_BAD_INPUT, "%s: %s is given twice; expected it once", flag, w);
        given |= 1U << i;
        if (names_instance) {
            instance = equals + 1;
            continue;
        }
        if (ht_parse_real(HT_REAL, equals + 1, strlen(equals + 1), &why, names[i].value) != HT_OK)
            return ht_fail(err, HT_BAD_INPUT, "%s: %s: %.900s", flag, w, why.text);
        if (!(*names[i].value >= names[i].min && *names[i].value <= names[i].max))
            return ht_fail(err, HT_BAD_INPUT, "%s: %s is %s; expected %g to %g", flag, w, equals + 1, names[i].min,
                           names[i].max);
        bool whole = names[i].value == &nodes || names[i].value == &seed;
        if (whole && *names[i].value != floor(*names[i].value))
            return ht_fail(err, HT_BAD_INPUT, "%s: %s is %s; expected a whole number", flag, w, equals + 1);
    }
    if (strlen(instance) >= HT_SPOT_NAME)
        return ht_fail(err, HT_BAD_INPUT, "%s: the instance's name is too long", flag);
    *out = (struct ht_spot_rates){.instance = instance,
                                  .nodes = (int64_t)nodes,
                                  .length_s = hours * 3600,
                                  .lost_per_hour = rate,
                                  .burst = burst,
                                  .absent_s = absent,
                                  .notice_s = notice,
                                  .share_noticed = noticed,
                                  .seed = (uint64_t)seed};
    return HT_OK;
}

/* ---- running ---------------------------------------------------------------------------------------------------- */

struct study {
    const struct ht_study *in;
    struct ht_cluster *kinds;
    struct ht_spot_trace trace;
    int32_t *kind_of;
    struct ht_planbook *book;
    struct ht_day_setting setting;
    struct ht_error *err;
};

static enum ht_status set_prices(struct study *x)
{
    for (size_t i = 0; i < x->in->n_prices; i++) {
        const struct ht_price *p = &x->in->prices[i];
        bool found = false;
        for (int64_t k = 0; k < x->kinds->n_nodes; k++) {
            if (strcmp(x->kinds->nodes[k].instance, p->instance) != 0) continue;
            x->kinds->nodes[k].usd_per_hour = p->usd_per_hour;
            snprintf(x->kinds->nodes[k].price_source, HT_SOURCE_BYTES, "%s", p->source);
            found = true;
        }
        if (!found)
            return ht_fail(x->err, HT_BAD_INPUT, "--price: cluster '%s' has no node with 'instance: %s'",
                           x->kinds->name, p->instance);
    }
    return HT_OK;
}

/* Leaves the kinds that the trace has, so that plans are remembered whatever else a catalogue lists. */
static void drop_kinds(struct study *x)
{
    bool *has = HT_NEW_ARRAY(bool, x->kinds->n_nodes);
    int32_t *to = HT_NEW_ARRAY(int32_t, x->kinds->n_nodes), n = 0;
    for (size_t i = 0; i < x->trace.n_nodes; i++) has[x->kind_of[i]] = true;
    x->kinds->n_gpus = 0;
    for (int64_t k = 0; k < x->kinds->n_nodes; k++) {
        if (!has[k]) {
            free(x->kinds->nodes[k].groups);
            continue;
        }
        to[k] = n;
        x->kinds->n_gpus += x->kinds->nodes[k].n_gpus;
        x->kinds->nodes[n++] = x->kinds->nodes[k];
    }
    x->kinds->n_nodes = n;
    for (size_t i = 0; i < x->trace.n_nodes; i++) x->kind_of[i] = to[x->kind_of[i]];
    free(has);
    free(to);
}

static double per_hour(const struct ht_day *d)
{
    return d->wall_s > 0 ? d->samples / d->wall_s * 3600 : 0;
}

static json_t *moments_json(const struct ht_day *d, int64_t n_kinds)
{
    json_t *list = json_array();
    for (size_t i = 0; i < d->n_moments; i++) {
        const struct ht_day_moment *m = &d->moments[i];
        json_t *row = json_array();
        json_array_append_new(row, json_real((double)m->time_ns * 1e-9));
        for (int64_t k = 0; k < n_kinds; k++) json_array_append_new(row, json_integer(m->live.count[k]));
        json_array_append_new(row, json_integer((json_int_t)m->used_gpus));
        json_array_append_new(row, json_real(m->samples_per_s));
        json_array_append_new(list, row);
    }
    return list;
}

static json_t *recoveries_json(const struct ht_day *d)
{
    json_t *list = json_array();
    for (size_t i = 0; i < d->n_recoveries; i++) {
        const struct ht_day_recovery *r = &d->recoveries[i];
        json_array_append_new(list, json_pack("[f,f,f,I,b]", (double)r->time_ns * 1e-9, (double)r->all_ns * 1e-9,
                                              (double)r->load_ns * 1e-9, (json_int_t)r->lost_steps, r->planned));
    }
    return list;
}

static json_t *bytes_json(const struct ht_day *d)
{
    json_t *o = json_object();
    for (int p = 0; p < HT_N_PATHS; p++) {
        int64_t all = 0;
        for (size_t i = 0; i < d->n_recoveries; i++) all += d->recoveries[i].bytes[p];
        json_object_set_new(o, ht_path_names[p], json_integer((json_int_t)all));
    }
    return o;
}

static json_t *day_json(const struct ht_day *d, int64_t n_kinds)
{
    json_t *seconds = json_object();
    for (int p = 0; p < HT_N_DAY_PHASES; p++)
        json_object_set_new(seconds, ht_day_phase_names[p], json_real(d->phase_s[p]));
    json_t *o = json_pack("{s:s,s:s,s:s,s:f,s:f,s:I,s:I,s:f,s:I,s:I,s:I,s:f}", "policy", d->policy->name, "title",
                          d->policy->title, "system", d->policy->system, "samples", d->samples, "samples_per_hour",
                          per_hour(d), "steps", (json_int_t)d->steps, "lost_steps", (json_int_t)d->lost_steps, "ettr",
                          ht_day_ettr(d), "losses", (json_int_t)d->losses, "changes", (json_int_t)d->changes, "saves",
                          (json_int_t)d->saves, "save_every_s", d->save_every_s);
    json_object_set_new(o, "gpu_hours", json_real(d->gpu_hours));
    json_object_set_new(o, "idle_gpu_hours", json_real(d->gpu_hours - d->busy_gpu_hours));
    json_object_set_new(o, "usd", ht_json_number(d->usd));
    json_object_set_new(o, "usd_per_1000_samples", ht_json_number(d->samples > 0 ? d->usd / d->samples * 1000 : NAN));
    json_object_set_new(o, "load_s", json_pack("{s:f,s:f}", "losses", d->load_s[0], "changes", d->load_s[1]));
    json_object_set_new(o, "read_bytes", bytes_json(d));
    json_object_set_new(o, "seconds", seconds);
    json_object_set_new(o, "moments", moments_json(d, n_kinds));
    json_object_set_new(o, "recoveries", recoveries_json(d));
    return o;
}

/* Runs the days of all policies. */
static enum ht_status run_policies(struct study *x, json_t *root)
{
    json_t *list = json_array();
    enum ht_status status = HT_OK;
    json_object_set_new(root, "policies", list);
    for (size_t i = 0; i < x->in->n_policies && !status; i++) {
        struct ht_day d;
        status = ht_day_run(&x->setting, x->in->policies[i], x->err, &d);
        if (!status) json_array_append_new(list, day_json(&d, x->kinds->n_nodes));
        ht_day_free(&d);
    }
    return status;
}

static struct ht_spot_trace hastened(const struct ht_spot_trace *t, double speed)
{
    struct ht_spot_trace copy = *t;
    copy.events = HT_NEW_ARRAY(struct ht_spot_event, t->n_events);
    memcpy(copy.events, t->events, sizeof(*t->events) * t->n_events);
    ht_spot_trace_hasten(&copy, speed);
    return copy;
}

/* Returns the times an hour at which nodes are lost. */
static double losses_per_hour(const struct ht_spot_trace *t)
{
    return 3600 / ht_day_between_losses_s(t);
}

/* Runs all policies on the day at another speed, or with another interval of saves; adds a value of each to `row`. */
static enum ht_status run_point(struct study *x, const struct ht_day_setting *setting, const char *what, json_t *row)
{
    json_t *values = json_object();
    enum ht_status status = HT_OK;
    for (size_t i = 0; i < x->in->n_policies && !status; i++) {
        struct ht_day d;
        status = ht_day_run(setting, x->in->policies[i], x->err, &d);
        double value = status ? 0 : !strcmp(what, "ettr") ? ht_day_ettr(&d) : per_hour(&d);
        json_object_set_new(values, x->in->policies[i]->name, json_real(value));
        ht_day_free(&d);
    }
    json_object_set_new(row, what, values);
    return status;
}

static enum ht_status run_speeds(struct study *x, json_t *root)
{
    json_t *list = json_array();
    enum ht_status status = HT_OK;
    json_object_set_new(root, "speeds", list);
    for (size_t i = 0; i < x->in->n_speeds && !status; i++) {
        struct ht_spot_trace t = hastened(&x->trace, x->in->speeds[i]);
        struct ht_day_setting setting = x->setting;
        setting.trace = &t;
        json_t *row = json_pack("{s:f,s:f}", "speed", x->in->speeds[i], "losses_per_hour", losses_per_hour(&t));
        json_array_append_new(list, row);
        status = run_point(x, &setting, "samples_per_hour", row);
        free(t.events);
    }
    return status;
}

static double value_of(const json_t *row, const char *what, const char *policy)
{
    return json_number_value(json_object_get(json_object_get(row, what), policy));
}

/* Finds where the order of two policies changes from one speed to the next: linear in the logarithm of the rate. */
static void add_break_evens(const struct study *x, json_t *root)
{
    const json_t *speeds = json_object_get(root, "speeds");
    json_t *list = json_array();
    json_object_set_new(root, "break_even", list);
    for (size_t a = 0; a < x->in->n_policies; a++)
        for (size_t b = a + 1; b < x->in->n_policies; b++)
            for (size_t i = 1; i < json_array_size(speeds); i++) {
                const json_t *rows[] = {json_array_get(speeds, i - 1), json_array_get(speeds, i)};
                const char *names[] = {x->in->policies[a]->name, x->in->policies[b]->name};
                double by[2], rate[2];
                for (int k = 0; k < 2; k++) {
                    by[k] = value_of(rows[k], "samples_per_hour", names[0]) -
                            value_of(rows[k], "samples_per_hour", names[1]);
                    rate[k] = json_number_value(json_object_get(rows[k], "losses_per_hour"));
                }
                if (by[0] * by[1] >= 0) continue;
                double at = exp(log(rate[0]) + by[0] / (by[0] - by[1]) * (log(rate[1]) - log(rate[0])));
                json_array_append_new(list, json_pack("{s:[s,s],s:f}", "policies", names[by[0] < 0], names[by[0] > 0],
                                                      "losses_per_hour", at));
            }
}

static enum ht_status run_intervals(struct study *x, json_t *root)
{
    json_t *list = json_array();
    enum ht_status status = HT_OK;
    json_object_set_new(root, "intervals", list);
    for (size_t i = 0; i < x->in->n_intervals && !status; i++) {
        struct ht_day_setting setting = x->setting;
        setting.times.save_every_s = x->in->intervals[i];
        json_t *row = json_pack("{s:f}", "save_every_s", x->in->intervals[i]);
        json_array_append_new(list, row);
        status = run_point(x, &setting, "ettr", row);
    }
    return status;
}

/* Adds the interval with the highest ratio, beside Young's and Daly's. A save costs its stall on the nodes there at most; where saves
   end in the remote store, an interval below the time that one takes there only adds waiting. */
static enum ht_status add_best_intervals(struct study *x, json_t *root)
{
    const json_t *points = json_object_get(root, "intervals");
    json_t *best = json_object();
    double between = ht_day_between_losses_s(&x->trace);
    json_object_set_new(root, "best_interval", best);
    for (size_t i = 0; i < x->in->n_policies && json_array_size(points); i++) {
        const char *name = x->in->policies[i]->name;
        size_t at = 0;
        double stall, upload;
        for (size_t k = 1; k < json_array_size(points); k++)
            if (value_of(json_array_get(points, k), "ettr", name) > value_of(json_array_get(points, at), "ettr", name))
                at = k;
        enum ht_status status = ht_day_save_costs(&x->setting, x->in->policies[i], x->err, &stall, &upload);
        if (status) return status;
        json_object_set_new(best, name,
                            json_pack("{s:f,s:f,s:f,s:f,s:f}", "save_every_s",
                                      json_number_value(json_object_get(json_array_get(points, at), "save_every_s")),
                                      "young_s", ht_young_s(stall, between), "daly_s", ht_daly_s(stall, between),
                                      "stall_s", stall, "upload_s", upload));
    }
    return HT_OK;
}

static json_t *instances_json(const struct study *x)
{
    json_t *list = json_array();
    for (int64_t k = 0; k < x->kinds->n_nodes; k++) {
        const struct ht_machine *m = &x->kinds->nodes[k];
        json_array_append_new(list, json_pack("{s:s,s:s,s:I,s:f,s:s}", "name", m->instance, "gpu",
                                              m->groups[0].gpu.name, "gpus", (json_int_t)m->n_gpus, "usd_per_hour",
                                              m->usd_per_hour, "price_source", m->price_source));
    }
    return list;
}

static int64_t length_ns(const struct ht_spot_trace *t)
{
    return t->events[t->n_events - 1].time_ns - t->events[0].time_ns;
}

static json_t *root_json(const struct study *x)
{
    const struct ht_study *s = x->in;
    const struct ht_scenario_request *r = &s->options.request;
    double between = ht_day_between_losses_s(&x->trace);
    json_t *root = json_pack("{s:s,s:s,s:s,s:I,s:f}", "label",
                             s->label ? s->label
                             : s->day ? s->day
                                      : "drawn",
                             "day", s->day ? s->day : "a drawn trace", "model", r->model, "batch",
                             (json_int_t)x->setting.batch, "hours", (double)length_ns(&x->trace) / 3.6e12);
    json_object_set_new(root, "obtained", json_string("simulated"));
    json_object_set_new(root, "instances", instances_json(x));
    json_object_set_new(root, "times", ht_day_times_json(&s->times, &s->sources));
    json_object_set_new(root, "events", json_integer((json_int_t)x->trace.n_events));
    json_object_set_new(root, "losses_per_hour", ht_json_number(3600 / between));
    return root;
}

static enum ht_status prepare(struct study *x)
{
    const struct ht_study *s = x->in;
    enum ht_status status = ht_cluster_load(s->cluster ? s->cluster : "spot-instances", x->err, &x->kinds);
    if (!status) status = ht_study_trace(s, x->err, &x->trace);
    if (!status && !length_ns(&x->trace))
        status = ht_fail(x->err, HT_BAD_INPUT,
                         "the day ends as it begins, since all events of %s are at one time; expected later ones",
                         s->day ? s->day : "the drawn trace");
    if (!status) status = set_prices(x);
    if (!status) status = ht_day_kinds(x->kinds, &x->trace, x->err, &x->kind_of);
    if (status) return status;
    drop_kinds(x);
    status = ht_planbook_create(&s->options, x->kinds, s->plans, x->err, &x->book);
    x->setting = (struct ht_day_setting){.book = x->book,
                                         .kinds = x->kinds,
                                         .trace = &x->trace,
                                         .kind_of = x->kind_of,
                                         .times = s->times,
                                         .batch = s->options.request.batch ? s->options.request.batch : 8};
    return status;
}

enum ht_status ht_study_run(const struct ht_study *s, struct ht_error *err, json_t **out)
{
    struct study x = {.in = s, .err = err};
    json_t *root = NULL;
    enum ht_status status = prepare(&x);
    if (!status) status = ht_day_plan_ahead(&x.setting, s->policies, s->n_policies, err);
    if (!status) {
        root = root_json(&x);
        status = run_policies(&x, root);
    }
    if (!status) status = run_speeds(&x, root);
    if (!status) add_break_evens(&x, root);
    if (!status) status = run_intervals(&x, root);
    if (!status) status = add_best_intervals(&x, root);
    if (!status) {
        size_t remembered, made = ht_planbook_made(x.book, &remembered);
        json_object_set_new(root, "plans",
                            json_pack("{s:I,s:I}", "made", (json_int_t)made, "remembered", (json_int_t)remembered));
        *out = json_incref(root);
    }
    json_decref(root);
    ht_planbook_destroy(x.book);
    free(x.kind_of);
    ht_spot_trace_free(&x.trace);
    ht_cluster_destroy(x.kinds);
    return status;
}

/* Writes what each instance costs, and where that is from. */
static void write_prices(const json_t *study, FILE *out)
{
    char text[2048] = "";
    const json_t *instance;
    size_t i;
    json_array_foreach(json_object_get(study, "instances"), i, instance)
    {
        size_t at = strlen(text);
        double usd = json_number_value(json_object_get(instance, "usd_per_hour"));
        const char *name = json_string_value(json_object_get(instance, "name"));
        if (usd > 0)
            snprintf(text + at, sizeof(text) - at, "%s%s: %g USD an hour (%s)", at ? "; " : "", name, usd,
                     json_string_value(json_object_get(instance, "price_source")));
        else
            snprintf(text + at, sizeof(text) - at, "%s%s: not known", at ? "; " : "", name);
    }
    ht_csv_text(text, out);
}

void ht_study_csv(const json_t *study, bool header, FILE *out)
{
    static const char *const columns[] = {"samples",
                                          "samples_per_hour",
                                          "ettr",
                                          "steps",
                                          "lost_steps",
                                          "losses",
                                          "changes",
                                          "saves",
                                          "save_every_s",
                                          "gpu_hours",
                                          "idle_gpu_hours",
                                          "usd",
                                          "usd_per_1000_samples"};
    const json_t *p;
    size_t i;
    if (header) {
        fputs("day,model,policy", out);
        for (size_t c = 0; c < HT_COUNT(columns); c++) fprintf(out, ",%s", columns[c]);
        for (int k = 0; k < HT_N_DAY_PHASES; k++) fprintf(out, ",%s_s", ht_day_phase_names[k]);
        fputs(",prices,obtained,commit\n", out);
    }
    json_array_foreach(json_object_get(study, "policies"), i, p)
    {
        ht_csv_text(json_string_value(json_object_get(study, "label")), out);
        fprintf(out, ",%s,%s", json_string_value(json_object_get(study, "model")),
                json_string_value(json_object_get(p, "policy")));
        for (size_t c = 0; c < HT_COUNT(columns); c++) {
            const json_t *value = json_object_get(p, columns[c]);
            if (json_is_null(value))
                fputc(',', out);
            else
                fprintf(out, ",%.10g", json_number_value(value));
        }
        for (int k = 0; k < HT_N_DAY_PHASES; k++)
            fprintf(out, ",%.10g",
                    json_number_value(json_object_get(json_object_get(p, "seconds"), ht_day_phase_names[k])));
        fputc(',', out);
        write_prices(study, out);
        fputs(",\"simulated\",", out);
        ht_csv_text(ht_built_commit(), out);
        fputc('\n', out);
    }
}
