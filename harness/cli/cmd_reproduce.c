/* hetbench reproduce: checks the papers' claims against our systems. A claim that fails is a row like any other. */
#include "harness/cli/commands.h"

#include "harness/claims/builtin.h"
#include "common/base/array.h"
#include "common/base/clock.h"
#include "common/model/software.h"
#include "harness/claims/check.h"
#include "harness/run/output.h"
#include "harness/result/provenance.h"
#include "harness/result/rows.h"
#include "harness/result/result.h"
#include "harness/result/table.h"

#include <fnmatch.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct reproduction {
    struct ht_ledger *ledgers;
    size_t n_ledgers, ledgers_cap;
    struct ht_outcome *rows;
    size_t n_rows, rows_cap;
    struct ht_observations seen;
    double seconds;
};

static void reproduction_free(struct reproduction *r)
{
    for (size_t i = 0; i < r->n_rows; i++) ht_outcome_free(&r->rows[i]);
    for (size_t i = 0; i < r->n_ledgers; i++) ht_ledger_free(&r->ledgers[i]);
    free(r->rows);
    free(r->ledgers);
    ht_observations_free(&r->seen);
}

/* Adds a ledger. software: takes the place of its setups' choice; NULL: it does not. */
static enum ht_status add_ledger(struct reproduction *r, struct ht_doc *doc, const char *software, struct ht_error *err)
{
    struct ht_ledger ledger;
    enum ht_status status = ht_ledger_load(doc, err, &ledger);
    if (status != HT_OK) return status;
    for (int64_t i = 0; i < ledger.n_setups && software; i++)
        snprintf(ledger.setups[i].software.name, sizeof(ledger.setups[i].software.name), "%s", software);
    HT_PUSH(r->ledgers, r->n_ledgers, r->ledgers_cap, ledger);
    return HT_OK;
}

static enum ht_status load_ledgers(const struct ht_options *o, struct reproduction *r, struct ht_error *err)
{
    struct ht_doc *doc;
    struct ht_software software;
    enum ht_status status = o->request.software ? ht_software_load(o->request.software, err, &software) : HT_OK;
    if (status != HT_OK) return status;
    if (o->request.software && strlen(o->request.software) >= sizeof(((struct ht_claim_software *)0)->name))
        return ht_fail(err, HT_BAD_INPUT, "--software: the file's name is too long; expected at most %zu characters",
                       sizeof(((struct ht_claim_software *)0)->name) - 1);
    if (o->compare.ledger) {
        status = ht_doc_open(o->compare.ledger, err, &doc);
        return status == HT_OK ? add_ledger(r, doc, o->request.software, err) : status;
    }
    for (size_t i = 0; ht_claims_ledger(i) && status == HT_OK; i++) {
        status = ht_builtin_open(ht_claims_ledger(i), err, &doc);
        if (status == HT_OK) status = add_ledger(r, doc, o->request.software, err);
    }
    return status;
}

static enum ht_status check_all(const char *pattern, struct reproduction *r, struct ht_error *err)
{
    const struct ht_claim **picked = NULL;
    size_t n = 0, cap = 0;
    double began = ht_now_s();
    for (size_t l = 0; l < r->n_ledgers; l++)
        for (int64_t i = 0; i < r->ledgers[l].n_claims; i++) {
            const struct ht_claim *claim = &r->ledgers[l].claims[i];
            if (!pattern || fnmatch(pattern, claim->id, 0) == 0) HT_PUSH(picked, n, cap, claim);
        }
    enum ht_status status = n ? ht_claims_gather(picked, n, &r->seen, err)
                              : ht_fail(err, HT_BAD_INPUT,
                                        "reproduce: unknown claim '%s'; expected an id or a pattern such as "
                                        "'autohete.fig3a.*'",
                                        pattern ? pattern : "");
    for (size_t i = 0; i < n && status == HT_OK; i++) {
        struct ht_outcome outcome;
        status = ht_claim_check(picked[i], &r->seen, err, &outcome);
        if (status == HT_OK) HT_PUSH(r->rows, r->n_rows, r->rows_cap, outcome);
    }
    free(picked);
    r->seconds = ht_now_s() - began;
    return status;
}

/* ---- the summary ----------------------------------------------------------------------------------------------- */

struct summary {
    int rows[HT_N_CLAIM_VERDICTS], claims[HT_N_CLAIM_VERDICTS], readings[HT_N_CLAIM_VERDICTS];
    int n_rows, n_claims, n_figures, n_readings;
    double mean_deviation; /* absolute, of the rows with a figure; NaN if no row has a figure */
};

/* Returns true for ids "claim/part" of one claim. Its rows follow each other. */
static bool same_claim(const char *a, const char *b)
{
    size_t n = strcspn(a, "/");
    return n == strcspn(b, "/") && !strncmp(a, b, n);
}

static struct summary summarise(const struct reproduction *r)
{
    /* A claim with parts is as good as its worst part. */
    static const enum ht_claim_verdict badness[] = {HT_CLAIM_WITHIN, HT_CLAIM_UNCHECKED, HT_CLAIM_NOT_THERE,
                                                    HT_CLAIM_OUTSIDE, HT_CLAIM_BROKEN};
    struct summary s = {0};
    double sum = 0;
    int rank = 0, first_readings = 0;
    for (size_t i = 0; i < r->n_rows; i++) {
        const struct ht_outcome *o = &r->rows[i];
        bool second = o->claim->reading[0];
        (second ? s.readings : s.rows)[o->verdict]++;
        *(second ? &s.n_readings : &s.n_rows) += 1;
        if (ht_outcome_has_figure(o)) {
            sum += fabs(o->deviation);
            s.n_figures++;
        }
        for (int k = rank; k < HT_N_CLAIM_VERDICTS && !second; k++)
            if (badness[k] == o->verdict) rank = k;
        first_readings += !second;
        if (i + 1 < r->n_rows && same_claim(o->claim->id, r->rows[i + 1].claim->id)) continue;
        s.claims[badness[rank]] += first_readings > 0;
        s.n_claims += first_readings > 0;
        rank = first_readings = 0;
    }
    s.mean_deviation = s.n_figures ? sum / s.n_figures : NAN;
    return s;
}

static void print_summary(const struct reproduction *r, FILE *out)
{
    struct summary s = summarise(r);
    for (int claims = 1; claims >= 0; claims--) {
        const int *n = claims ? s.claims : s.rows;
        fprintf(out, "%s: %d of %d within tolerance, %d outside, %d not checkable, %d not there yet",
                claims ? "\nclaims" : "rows", n[HT_CLAIM_WITHIN], claims ? s.n_claims : s.n_rows, n[HT_CLAIM_OUTSIDE],
                n[HT_CLAIM_UNCHECKED], n[HT_CLAIM_NOT_THERE]);
        if (n[HT_CLAIM_BROKEN]) fprintf(out, ", %d broken", n[HT_CLAIM_BROKEN]);
        fputs(claims ? " (a claim is as good as its worst row)\n" : "\n", out);
    }
    if (s.n_readings)
        fprintf(out, "second readings: %d of %d within tolerance, %d outside; counted nowhere else\n",
                s.readings[HT_CLAIM_WITHIN], s.n_readings, s.readings[HT_CLAIM_OUTSIDE]);
    if (s.n_figures)
        fprintf(out, "mean absolute deviation over the %d rows with a figure of rate, time or plan: %.1f%%\n",
                s.n_figures, 100 * s.mean_deviation);
    fprintf(out, "%zu scenarios in %.1f s; costs modelled from the hardware catalogue unless a row says otherwise\n",
            r->seen.n, r->seconds);
}

/* ---- table, CSV, JSON ------------------------------------------------------------------------------------------ */

static void tolerance_text(const struct ht_claim *c, char *buf, size_t n)
{
    buf[0] = '\0';
    if (!c->tolerance) return;
    if (c->tolerance->relative >= 0)
        snprintf(buf, n, "%.3g%%", 100 * c->tolerance->relative);
    else
        snprintf(buf, n, "%.3g", c->tolerance->absolute);
}

static void print_table(const struct reproduction *r, FILE *out)
{
    struct ht_table *t = ht_table_create("<claim|>paper|>ours|<?unit|>deviation|>?tolerance|<verdict");
    for (size_t i = 0; i < r->n_rows; i++) {
        const struct ht_outcome *o = &r->rows[i];
        char tolerance[32], unit[HT_CLAIM_UNIT_TEXT];
        tolerance_text(o->claim, tolerance, sizeof(tolerance));
        ht_table_cell(t, "%s", o->claim->id);
        ht_table_cell(t, "%s", o->paper_text);
        ht_table_cell(t, "%s", o->ours_text);
        ht_table_cell(t, "%s", ht_claim_unit_of(o->claim, o->claim->n_steps, unit));
        if (isfinite(o->deviation) && (o->claim->compare == HT_CLAIM_ABOUT || o->claim->metric == HT_CLAIM_FITS))
            ht_table_cell(t, "%+.1f%%", 100 * o->deviation);
        else
            ht_table_cell(t, "-");
        ht_table_cell(t, "%s", tolerance[0] ? tolerance : "-");
        ht_table_cell(t, "%s%s", ht_claim_verdict_names[o->verdict], *o->claim->reading ? ", 2nd reading" : "");
        if (o->verdict == HT_CLAIM_OUTSIDE || o->verdict == HT_CLAIM_BROKEN) ht_table_mark(t, HT_MARK_FAULT);
    }
    ht_table_print(t, "", out);
}

/* Prints how each row was made, and what is behind its figure. */
static void print_reasons(const struct reproduction *r, FILE *out)
{
    putc('\n', out);
    for (size_t i = 0; i < r->n_rows; i++) {
        const struct ht_outcome *o = &r->rows[i];
        const char *reading = o->claim->reading;
        fprintf(out, "%s: %s%s%s%s%s\n", o->claim->id, o->how, *o->how && (*reading || o->why[0]) ? "; " : "", reading,
                *reading && o->why[0] ? "; " : "", o->why);
    }
}

/* Returns null for 0, the default. */
static json_t *count(int64_t value)
{
    return value ? json_integer(value) : json_null();
}

static json_t *value_json(const struct ht_claim *c, const struct ht_claim_value *v)
{
    const struct ht_claim_setup *s = c->setup;
    struct ht_claim_point p = v->point;
    char model[64], unit[HT_CLAIM_UNIT_TEXT];
    json_t *value = json_pack("{s:s,s:s,s:s,s:s,s:s,s:o}", "where", v->where, "by", v->by, "system", v->system->name,
                              "model", ht_claim_entry(s, HT_CLAIM_MODELS, p.at[HT_CLAIM_MODELS], model, sizeof(model)),
                              "cluster", s->clusters[p.at[HT_CLAIM_MODELS]], "value", ht_json_number(v->value));
    json_object_set_new(value, "unit", json_string(ht_claim_unit_of(c, 0, unit)));
    const char *software = ht_claim_software(s);
    json_object_set_new(value, "software", json_string(software ? software : "fused"));
    json_object_set_new(value, "batch", count(ht_claim_batch(s, p)));
    json_object_set_new(value, "micro_batch", count(ht_claim_value_of(s, HT_CLAIM_MICRO_BATCHES, p)));
    json_object_set_new(value, "seq", count(ht_claim_value_of(s, HT_CLAIM_SEQS, p)));
    json_object_set_new(value, "device_memory_bytes", count(ht_claim_value_of(s, HT_CLAIM_MEMORY, p)));
    json_object_set_new(value, "host_memory_bytes", count(ht_claim_value_of(s, HT_CLAIM_HOST_MEMORY, p)));
    json_object_set_new(value, "ssds", count(ht_claim_value_of(s, HT_CLAIM_SSDS, p)));
    if (s->search) {
        json_object_set_new(value, "params", count(v->params));
        json_object_set_new(value, "batch", count(v->batch));
        json_object_set_new(value, "seq", count(v->seq));
    }
    if (v->why[0]) json_object_set_new(value, "why", json_string(v->why));
    return value;
}

static json_t *row_json(const struct ht_outcome *o)
{
    const struct ht_claim *c = o->claim;
    json_t *row = json_pack("{s:s,s:s,s:s,s:s,s:s,s:s,s:s,s:s}", "id", c->id, "where", c->where, "statement",
                            c->statement, "paper", o->paper_text, "ours", o->ours_text, "verdict",
                            ht_claim_verdict_names[o->verdict], "how", o->how, "why", o->why);
    char unit[HT_CLAIM_UNIT_TEXT];
    json_t *values = json_array();
    for (size_t i = 0; i < o->n_values; i++) json_array_append_new(values, value_json(c, &o->values[i]));
    bool boundary = !c->unchecked[0] && ht_claim_is_boundary(c);
    json_object_set_new(row, "paper_value", c->unchecked[0] || boundary ? json_null() : ht_json_number(c->value));
    json_object_set_new(row, "our_value", boundary ? json_null() : ht_json_number(o->ours));
    if (!c->unchecked[0]) json_object_set_new(row, "unit", json_string(ht_claim_unit_of(c, c->n_steps, unit)));
    json_object_set_new(row, "deviation", ht_json_number(o->deviation));
    json_object_set_new(row, "counts_in_mean", json_boolean(ht_outcome_has_figure(o)));
    if (!c->unchecked[0]) {
        json_object_set_new(row, "metric", json_string(ht_claim_metric_names[c->metric]));
        json_object_set_new(row, "kind", json_string(ht_claim_kind_names[c->steps[0].kind]));
        if (c->n_steps > 1) json_object_set_new(row, "then", json_string(ht_claim_kind_names[c->steps[1].kind]));
        json_object_set_new(row, "compare", json_string(ht_claim_compare_names[c->compare]));
        json_object_set_new(row, "setup", json_string(c->setup->name));
        json_object_set_new(row, "tolerance",
                            json_pack("{s:s,s:o,s:o,s:s}", "name", c->tolerance->name, "relative",
                                      ht_json_number(c->tolerance->relative >= 0 ? c->tolerance->relative : NAN),
                                      "absolute",
                                      ht_json_number(c->tolerance->absolute >= 0 ? c->tolerance->absolute : NAN), "why",
                                      c->tolerance->why));
    }
    if (c->note[0]) json_object_set_new(row, "note", json_string(c->note));
    if (c->reading[0]) json_object_set_new(row, "reading", json_string(c->reading));
    json_object_set_new(row, "values", values);
    return row;
}

static json_t *counts_json(const int *n)
{
    static const char *const names[] = {"within", "outside", "not_checkable", "not_there_yet", "broken"};
    _Static_assert(HT_COUNT(names) == HT_N_CLAIM_VERDICTS, "a name for each verdict");
    json_t *counts = json_object();
    for (int v = 0; v < HT_N_CLAIM_VERDICTS; v++) json_object_set_new(counts, names[v], json_integer(n[v]));
    return counts;
}

static json_t *reproduction_json(const struct reproduction *r)
{
    struct summary s = summarise(r);
    json_t *root = ht_provenance_json(), *papers = json_array(), *rows = json_array();
    for (size_t i = 0; i < r->n_ledgers; i++) json_array_append_new(papers, json_string(r->ledgers[i].paper));
    for (size_t i = 0; i < r->n_rows; i++) json_array_append_new(rows, row_json(&r->rows[i]));
    json_object_set_new(root, "papers", papers);
    json_object_set_new(root, "costs", json_string("modelled from the hardware catalogue"));
    json_object_set_new(root, "claims", counts_json(s.claims));
    json_object_set_new(root, "row_counts", counts_json(s.rows));
    json_object_set_new(root, "second_readings", counts_json(s.readings));
    json_object_set_new(root, "mean_absolute_deviation", ht_json_number(s.mean_deviation));
    json_object_set_new(root, "rows_in_mean", json_integer(s.n_figures));
    json_object_set_new(root, "scenarios", json_integer((json_int_t)r->seen.n));
    json_object_set_new(root, "seconds", ht_json_number(r->seconds));
    json_object_set_new(root, "rows", rows);
    return root;
}

/* Writes the entries of a list that the row takes, with blanks between: "1024 2048". */
static void entries_text(const struct ht_claim *c, enum ht_claim_axis axis, char *buf, size_t n)
{
    size_t at = 0;
    const char *before = "";
    buf[0] = '\0';
    const int *entries = c->entries.at[axis];
    int n_entries = c->entries.n[axis];
    for (int i = 0; i < n_entries && at < n; i++) {
        char entry[64];
        const char *text = axis == HT_CLAIM_MODELS ? c->setup->clusters[entries[i]]
                                                   : ht_claim_entry(c->setup, axis, entries[i], entry, sizeof(entry));
        if (!strcmp(text, "0") || !strcmp(text, before) || (n_entries == 1 && !strcmp(text, "its own")))
            continue; /* the default; models of one cluster follow each other */
        at += (size_t)snprintf(buf + at, n - at, "%s%s", at ? " " : "", text);
        before = axis == HT_CLAIM_MODELS ? text : "";
    }
}

static void csv_cell(FILE *out, const char *text, const char *end)
{
    ht_csv_text(text, out);
    fputs(end, out);
}

static enum ht_status write_csv(const struct reproduction *r, const char *path, struct ht_error *err)
{
    struct ht_output file;
    enum ht_status status = ht_output_open(path, err, &file);
    if (status != HT_OK) return status;
    fputs("id,where,statement,paper,ours,unit,deviation_percent,in_mean,tolerance,verdict,how,software,clusters,seq,"
          "batches,"
          "micro_batch,memory,host_memory,ssds,reading,why\n",
          file.file);
    for (size_t i = 0; i < r->n_rows; i++) {
        const struct ht_outcome *o = &r->rows[i];
        char tolerance[32], unit[HT_CLAIM_UNIT_TEXT];
        tolerance_text(o->claim, tolerance, sizeof(tolerance));
        const char *before[] = {o->claim->id,  o->claim->where, o->claim->statement,
                                o->paper_text, o->ours_text,    ht_claim_unit_of(o->claim, o->claim->n_steps, unit)};
        for (size_t k = 0; k < HT_COUNT(before); k++) csv_cell(file.file, before[k], ",");
        if (isfinite(o->deviation)) fprintf(file.file, "%.4f", 100 * o->deviation);
        fprintf(file.file, ",%d,", ht_outcome_has_figure(o));
        csv_cell(file.file, tolerance, ",");
        csv_cell(file.file, ht_claim_verdict_names[o->verdict], ",");
        csv_cell(file.file, o->how, ",");
        const char *software = o->claim->unchecked[0] ? "" : ht_claim_software(o->claim->setup);
        csv_cell(file.file, software ? software : "fused", ",");
        static const enum ht_claim_axis lists[] = {HT_CLAIM_MODELS,        HT_CLAIM_SEQS,   HT_CLAIM_BATCHES,
                                                   HT_CLAIM_MICRO_BATCHES, HT_CLAIM_MEMORY, HT_CLAIM_HOST_MEMORY,
                                                   HT_CLAIM_SSDS};
        for (size_t k = 0; k < HT_COUNT(lists); k++) {
            char entries[512] = "";
            if (!o->claim->unchecked[0]) entries_text(o->claim, lists[k], entries, sizeof(entries));
            csv_cell(file.file, entries, ",");
        }
        csv_cell(file.file, o->claim->reading, ",");
        csv_cell(file.file, o->why, "\n");
    }
    return ht_output_commit(&file, err);
}

/* ---- the command ----------------------------------------------------------------------------------------------- */

static enum ht_status run(const struct ht_options *options, struct ht_error *err)
{
    struct reproduction r = {0};
    enum ht_status status = load_ledgers(options, &r, err);
    if (status == HT_OK) status = check_all(options->n_words ? options->words[0] : NULL, &r, err);
    if (status == HT_OK && options->out) status = write_csv(&r, options->out, err);
    if (status == HT_OK && options->json) status = ht_json_print(reproduction_json(&r), "reproduction", err);
    if (status == HT_OK && !options->json) {
        for (size_t i = 0; i < r.n_ledgers; i++) printf("%s\n", r.ledgers[i].paper);
        putchar('\n');
        print_table(&r, stdout);
        if (options->why) print_reasons(&r, stdout);
        print_summary(&r, stdout);
    }
    reproduction_free(&r);
    return status;
}

const struct ht_command ht_cmd_reproduce = {
    .name = "reproduce",
    .args = "[PATTERN]",
    .help = "check the papers' claims: their figure, ours, deviation, verdict"
            "\vPATTERN picks claims by id, with * and ?: 'autohete.fig3a.*'. A claim that fails is a row like any "
            "other: the exit status is 0. docs/claims.md describes the ledgers and explains the misses.",
    .example = "hetbench reproduce 'autohete.fig3a.*'",
    .groups = HT_OPT_REPRODUCE | HT_OPT_WHY,
    .max_words = 1,
    .run = run,
};
