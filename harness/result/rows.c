#include "harness/result/rows.h"

#include "harness/result/schema.h"
#include "harness/run/output.h"

#include <errno.h>
#include <string.h>

enum { SHORT_VECTOR = 8 }; /* longer ones are written by runs */

void ht_csv_text(const char *text, FILE *out)
{
    putc('"', out);
    for (; *text; text++) {
        if (*text == '"') putc('"', out);
        putc(*text, out);
    }
    putc('"', out);
}

static void csv_number(const json_t *value, FILE *out)
{
    if (json_is_integer(value)) fprintf(out, "%lld", (long long)json_integer_value(value));
    if (json_is_real(value)) fprintf(out, "%.15g", json_real_value(value));
}

/* Writes a vector as --set takes it: "4,2,1"; equal neighbours of a long one as "4 x 16, 2 x 48". */
static void csv_vector(const json_t *list, FILE *out)
{
    size_t n = json_array_size(list), step = 1;
    putc('"', out);
    for (size_t i = 0; i < n; i += step) {
        step = 1;
        while (n > SHORT_VECTOR && i + step < n && json_equal(json_array_get(list, i), json_array_get(list, i + step)))
            step++;
        if (i) fputs(n > SHORT_VECTOR ? ", " : ",", out);
        csv_number(json_array_get(list, i), out);
        if (step > 1) fprintf(out, " x %zu", step);
    }
    putc('"', out);
}

static void csv_value(const json_t *value, FILE *out)
{
    if (json_is_array(value)) csv_vector(value, out);
    if (json_is_string(value)) ht_csv_text(json_string_value(value), out);
    if (json_is_integer(value)) fprintf(out, "%lld", (long long)json_integer_value(value));
    if (json_is_real(value)) fprintf(out, "%.17g", json_real_value(value));
    if (json_is_boolean(value)) fputs(json_is_true(value) ? "yes" : "no", out);
}

const json_t *ht_row_value(const json_t *row, const char *column)
{
    const json_t *scenario = json_object_get(row, "scenario"), *model = json_object_get(scenario, "model");
    if (!strcmp(column, "model")) return json_object_get(model, "name");
    if (!strcmp(column, "params")) return json_object_get(model, "params");
    if (!strcmp(column, "plan_why")) return json_object_get(json_object_get(row, "plan"), "why");
    const json_t *value = json_object_get(row, column);
    return value ? value : json_object_get(scenario, column);
}

static const json_t *variables_of(const json_t *row)
{
    return json_object_get(json_object_get(row, "plan"), "variables");
}

/* Returns {NAME: null} of all plan variables in the rows, in the order in which they come. */
static json_t *variable_names(const json_t *rows)
{
    json_t *names = json_object(), *row, *value;
    const char *name;
    size_t i;
    json_array_foreach(rows, i, row) json_object_foreach((json_t *)variables_of(row), name, value)
        json_object_set_new(names, name, json_null());
    return names;
}

void ht_rows_csv(const json_t *rows, const char *const *columns, size_t n_columns,
                 const json_t *(*value_of)(const json_t *row, const char *column), FILE *out)
{
    json_t *names = variable_names(rows), *row, *ignored;
    const char *name;
    size_t i;
    for (size_t c = 0; c < n_columns; c++) fprintf(out, "%s%s", c ? "," : "", columns[c]);
    json_object_foreach(names, name, ignored) fprintf(out, ",plan_%s", name);
    putc('\n', out);
    json_array_foreach(rows, i, row)
    {
        for (size_t c = 0; c < n_columns; c++) {
            if (c) putc(',', out);
            csv_value(value_of(row, columns[c]), out);
        }
        json_object_foreach(names, name, ignored)
        {
            putc(',', out);
            csv_value(json_object_get(variables_of(row), name), out);
        }
        putc('\n', out);
    }
    json_decref(names);
}

enum ht_status ht_rows_write(json_t *root, const char *schema, const char *dir, const char *name,
                             void (*write_csv)(const json_t *rows, FILE *out), struct ht_error *err)
{
    enum ht_status made = ht_make_directory(dir, err);
    if (made != HT_OK) return made;
    json_t *document = ht_schema_put(json_incref(root), schema);
    enum ht_status status = HT_OK;
    for (int csv = 0; csv < 2 && status == HT_OK; csv++) {
        char path[4096];
        struct ht_output file;
        snprintf(path, sizeof(path), "%s/%s.%s", dir, name, csv ? "csv" : "json");
        status = ht_output_open(path, err, &file);
        if (status != HT_OK) break;
        if (csv)
            write_csv(json_object_get(root, "rows"), file.file);
        else if (json_dumpf(document, file.file, JSON_INDENT(1) | JSON_REAL_PRECISION(17)) != 0)
            status = ht_fail(err, HT_FAILED, "cannot be written: %s", strerror(errno));
        status = ht_output_end(&file, status, err);
    }
    json_decref(document);
    return status;
}
