#include "harness/result/rows.h"

#include "harness/run/output.h"

#include <errno.h>
#include <string.h>

void ht_csv_text(const char *text, FILE *out)
{
    putc('"', out);
    for (; *text; text++) {
        if (*text == '"') putc('"', out);
        putc(*text, out);
    }
    putc('"', out);
}

static void csv_value(const json_t *value, FILE *out)
{
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

void ht_rows_csv(const json_t *rows, const char *const *columns, size_t n_columns,
                 const json_t *(*value_of)(const json_t *row, const char *column), FILE *out)
{
    for (size_t c = 0; c < n_columns; c++) fprintf(out, "%s%s", c ? "," : "", columns[c]);
    putc('\n', out);
    size_t i;
    json_t *row;
    json_array_foreach(rows, i, row)
    {
        for (size_t c = 0; c < n_columns; c++) {
            if (c) putc(',', out);
            csv_value(value_of(row, columns[c]), out);
        }
        putc('\n', out);
    }
}

enum ht_status ht_rows_write(const json_t *root, const char *dir, const char *name,
                             void (*write_csv)(const json_t *rows, FILE *out), struct ht_error *err)
{
    enum ht_status made = ht_make_directory(dir, err);
    if (made != HT_OK) return made;
    for (int csv = 0; csv < 2; csv++) {
        char path[4096];
        struct ht_output file;
        snprintf(path, sizeof(path), "%s/%s.%s", dir, name, csv ? "csv" : "json");
        enum ht_status status = ht_output_open(path, err, &file);
        if (status != HT_OK) return status;
        if (csv)
            write_csv(json_object_get(root, "rows"), file.file);
        else if (json_dumpf(root, file.file, JSON_INDENT(1) | JSON_REAL_PRECISION(17)) != 0)
            status = ht_fail(err, HT_FAILED, "cannot be written: %s", strerror(errno));
        status = ht_output_end(&file, status, err);
        if (status != HT_OK) return status;
    }
    return HT_OK;
}
