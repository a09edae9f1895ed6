/* hetbench validate: the committed predictions held against published measurements. Nothing is simulated. */
#include "harness/cli/commands.h"

#include "common/base/array.h"
#include "harness/cli/data_root.h"
#include "harness/result/provenance.h"
#include "harness/result/result.h"
#include "harness/result/table.h"
#include "harness/validate/validate.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { LARGEST = 12 }; /* residuals that are shown */

/* A group of residuals: those of a set, of a machine, or that one kind of lane binds; NULL or -1: any. */
struct group {
    int64_t set;
    const char *machine, *binds;
    enum ht_residual_part part;
    bool memory;
};

static bool in_group(const struct ht_residual *r, const void *ctx)
{
    const struct group *g = ctx;
    return (g->set < 0 || r->set == (size_t)g->set) && (!g->machine || !strcmp(r->machine, g->machine)) &&
           (!g->binds || !strcmp(r->binds, g->binds)) && r->part == g->part && r->memory == g->memory;
}

static struct ht_errors errors(const struct ht_validation *v, struct group g)
{
    return ht_errors_of(v, in_group, &g);
}

static void error_cells(struct ht_table *t, struct ht_errors e)
{
    if (!e.n) {
        for (int i = 0; i < 3; i++) ht_table_cell(t, "-");
        return;
    }
    ht_table_cell(t, "%zu", e.n);
    ht_table_cell(t, "%.1f%%", 100 * e.mean);
    ht_table_cell(t, "%.1f%%", 100 * e.worst);
}

static void three(struct ht_table *t, const struct ht_validation *v, struct group g)
{
    g.part = HT_PART_FITTED;
    error_cells(t, errors(v, g));
    g.part = HT_PART_LEFT_OUT;
    error_cells(t, errors(v, g));
    g.memory = true;
    error_cells(t, errors(v, g));
}

#define ERRORS ">fitted|>mean|>worst|>left out|>mean|>worst|>memory|>mean|>worst"

static void print_rows(const struct ht_validation *v)
{
    struct ht_table *t = ht_table_create("<set|>rows|>ok|>OOM|>other|>verdicts|>right");
    for (size_t i = 0; i < v->n_sets; i++) {
        const struct ht_validation_set *s = &v->sets[i];
        ht_table_cell(t, "%s", s->name);
        ht_table_cell(t, "%zu", s->n_predicted);
        ht_table_cell(t, "%zu", s->n_ok);
        ht_table_cell(t, "%zu", s->n_oom);
        ht_table_cell(t, "%zu", s->n_other);
        ht_table_cell(t, "%zu", s->n_ran);
        ht_table_cell(t, "%zu", s->n_right);
    }
    ht_table_print(t, "  ", stdout);
}

static void print_sets(const struct ht_validation *v)
{
    struct ht_table *t = ht_table_create("<set|" ERRORS);
    for (size_t i = 0; i < v->n_sets; i++) {
        ht_table_cell(t, "%s", v->sets[i].name);
        three(t, v, (struct group){.set = (int64_t)i});
    }
    ht_table_print(t, "  ", stdout);
}

/* Returns a residual's machine, or what binds it. */
static const char *name_of(const struct ht_residual *r, bool machine)
{
    return machine ? r->machine : r->binds;
}

/* Returns true if no residual before the i-th has its name, and it has one. */
static bool first_of(const struct ht_validation *v, size_t i, bool machine)
{
    const char *name = name_of(&v->residuals[i], machine);
    for (size_t k = 0; k < i; k++)
        if (!strcmp(name_of(&v->residuals[k], machine), name)) return false;
    return *name != '\0';
}

static struct group group_of(const struct ht_residual *r, bool machine)
{
    return (struct group){.set = -1, .machine = machine ? r->machine : NULL, .binds = machine ? NULL : r->binds};
}

static void print_groups(const struct ht_validation *v, bool machine)
{
    struct ht_table *t = ht_table_create(machine ? "<machine|" ERRORS : "<binds|" ERRORS);
    for (size_t i = 0; i < v->n_residuals; i++) {
        if (!first_of(v, i, machine)) continue;
        ht_table_cell(t, "%s", name_of(&v->residuals[i], machine));
        three(t, v, group_of(&v->residuals[i], machine));
    }
    ht_table_print(t, "  ", stdout);
}

static int by_error(const void *a, const void *b)
{
    const struct ht_residual *const *x = a, *const *y = b;
    double left = fabs(ht_residual_error(*x)), right = fabs(ht_residual_error(*y));
    if (left < right || left > right) return left > right ? -1 : 1;
    return *x < *y ? -1 : *x > *y; /* in the order of the files */
}

/* Returns the residuals, the largest error first. The caller frees them. */
static const struct ht_residual **sorted(const struct ht_validation *v)
{
    const struct ht_residual **all = HT_NEW_ARRAY(const struct ht_residual *, v->n_residuals);
    for (size_t i = 0; i < v->n_residuals; i++) all[i] = &v->residuals[i];
    if (v->n_residuals) qsort(all, v->n_residuals, sizeof *all, by_error);
    return all;
}

static void print_largest(const struct ht_validation *v)
{
    const struct ht_residual **all = sorted(v);
    struct ht_table *t =
        ht_table_create("<set|<row|<quantity|>measured|>predicted|>error|<part|<lanes on the critical path");
    for (size_t i = 0; i < v->n_residuals && i < LARGEST; i++) {
        const struct ht_residual *r = all[i];
        ht_table_cell(t, "%s", v->sets[r->set].name);
        ht_table_cell(t, "%s", r->row);
        ht_table_cell(t, "%s", r->quantity);
        ht_table_cell(t, "%.4g", r->measured);
        ht_table_cell(t, "%.4g", r->predicted);
        ht_table_cell(t, "%+.1f%%", 100 * ht_residual_error(r));
        ht_table_cell(t, "%s", ht_residual_part_names[r->part]);
        ht_table_cell(t, "%s", *r->lanes ? r->lanes : "-");
    }
    ht_table_print(t, "  ", stdout);
    free(all);
}

static void print(const struct ht_validation *v)
{
    puts("Predictions (simulated) against published measurements; docs/validate.md says what the columns are.\n");
    print_rows(v);
    puts("\nerrors by set");
    print_sets(v);
    puts("\nby machine");
    print_groups(v, true);
    puts("\nby what is longest on the critical path, where the predictions say so");
    print_groups(v, false);
    puts("\nthe largest errors");
    print_largest(v);
}

/* ---- JSON ------------------------------------------------------------------------------------------------------ */

static json_t *errors_json(const struct ht_validation *v, struct group g)
{
    struct ht_errors e = errors(v, g);
    return json_pack("{s:I,s:o,s:o,s:o}", "n", (json_int_t)e.n, "mean", e.n ? json_real(e.mean) : json_null(), "worst",
                     e.n ? json_real(e.worst) : json_null(), "bias", e.n ? json_real(e.bias) : json_null());
}

/* Adds the errors of a group, those of memory apart. */
static json_t *add_errors(json_t *root, const struct ht_validation *v, struct group g)
{
    static const char *const names[2][HT_N_PARTS] = {{"fitted", "left_out"}, {"memory_fitted", "memory_left_out"}};
    for (int memory = 0; memory < 2; memory++)
        for (int part = 0; part < HT_N_PARTS; part++) {
            g.memory = memory, g.part = (enum ht_residual_part)part;
            json_object_set_new(root, names[memory][part], errors_json(v, g));
        }
    return root;
}

static json_t *sets_json(const struct ht_validation *v)
{
    json_t *list = json_array();
    for (size_t i = 0; i < v->n_sets; i++) {
        const struct ht_validation_set *s = &v->sets[i];
        json_t *set = json_pack("{s:s,s:s,s:s,s:s,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I}", "name", s->name, "title", s->title,
                                "source", s->source, "script", s->script, "rows", (json_int_t)s->n_predicted, "ok",
                                (json_int_t)s->n_ok, "oom", (json_int_t)s->n_oom, "other", (json_int_t)s->n_other,
                                "open_rows", (json_int_t)s->n_open, "open_rows_predicted", (json_int_t)s->n_met,
                                "verdicts", (json_int_t)s->n_ran, "verdicts_right", (json_int_t)s->n_right);
        json_array_append_new(list, add_errors(set, v, (struct group){.set = (int64_t)i}));
    }
    return list;
}

static json_t *groups_json(const struct ht_validation *v, bool machine)
{
    json_t *root = json_object();
    for (size_t i = 0; i < v->n_residuals; i++)
        if (first_of(v, i, machine))
            json_object_set_new(root, name_of(&v->residuals[i], machine),
                                add_errors(json_object(), v, group_of(&v->residuals[i], machine)));
    return root;
}

static json_t *residuals_json(const struct ht_validation *v)
{
    const struct ht_residual **all = sorted(v);
    json_t *list = json_array();
    for (size_t i = 0; i < v->n_residuals; i++) {
        const struct ht_residual *r = all[i];
        json_array_append_new(list, json_pack("{s:s,s:s,s:s,s:s,s:f,s:f,s:f,s:s,s:s}", "set", v->sets[r->set].name,
                                              "row", r->row, "quantity", r->quantity, "machine", r->machine, "measured",
                                              r->measured, "predicted", r->predicted, "error", ht_residual_error(r),
                                              "part", ht_residual_part_names[r->part], "lanes", r->lanes));
    }
    free(all);
    return list;
}

static json_t *to_json(const struct ht_validation *v)
{
    json_t *root = json_pack("{s:s,s:o,s:o,s:o,s:o}", "obtained", "simulated, against published measurements", "sets",
                             sets_json(v), "machines", groups_json(v, true), "binds", groups_json(v, false),
                             "residuals", residuals_json(v));
    ht_provenance_add(root);
    return root;
}

static enum ht_status run(const struct ht_options *options, struct ht_error *err)
{
    struct ht_validation v;
    char own[HT_ROOT_BYTES];
    const char *root = options->n_words ? options->words[0] : ht_data_root(own);
    enum ht_status status = ht_validate(root, NULL, err, &v);
    if (!status && options->json)
        status = ht_json_print(to_json(&v), "validation", err);
    else if (!status)
        print(&v);
    ht_validation_free(&v);
    return status;
}

const struct ht_command ht_cmd_validate = {
    .name = "validate",
    .args = "[DIR]",
    .help = "predictions against published measurements\vReads the predictions in results/ and the measurements in "
            "harness/claims/measured of the tree DIR [hetbench's own]. Nothing is simulated: the "
            "scripts that each set names make the predictions.",
    .example = "hetbench validate",
    .max_words = 1,
    .run = run,
};
