#include "harness/validate/csv.h"

#include "common/base/array.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_BYTES = 64 << 20 };

/* Reads a whole file as a string. */
static enum ht_status slurp(const char *path, struct ht_error *err, char **out, size_t *bytes)
{
    FILE *f = fopen(path, "r");
    size_t cap = 0;
    char chunk[4096];
    *bytes = 0;
    if (!f) return ht_fail(err, HT_BAD_INPUT, "%s: %s", path, strerror(errno));
    for (size_t n; (n = fread(chunk, 1, sizeof chunk, f)) > 0 && *bytes < MOST_BYTES;)
        for (size_t i = 0; i < n; i++) HT_PUSH(*out, *bytes, cap, chunk[i]);
    bool failed = ferror(f) != 0;
    fclose(f);
    if (failed || *bytes >= MOST_BYTES)
        return ht_fail(err, HT_BAD_INPUT, "%s: %s", path, failed ? "cannot be read" : "is larger than 64 MiB");
    size_t n = *bytes;
    HT_PUSH(*out, n, cap, '\0');
    return memchr(*out, '\0', *bytes) ? ht_fail(err, HT_BAD_INPUT, "%s: has a NUL; expected text", path) : HT_OK;
}

/* Takes the cell at *at, which it ends with a NUL and takes the quotes off, and moves behind it. Returns the character that ended
   it: ',', '\n' or '\0'; -1: a quote is open, or text stands behind one. */
static int take_cell(char **at, char **cell)
{
    char *in = *at, *out = in;
    *cell = in;
    if (*in == '"') {
        for (in++; *in && (*in != '"' || in[1] == '"'); in++) {
            if (*in == '"') in++;
            *out++ = *in;
        }
        if (*in++ != '"') return -1;
    } else {
        while (*in && *in != ',' && *in != '\n' && *in != '\r') *out++ = *in++;
    }
    if (*in == '\r' && in[1] == '\n') in++;
    int ended = *in;
    if (ended && ended != ',' && ended != '\n') return -1;
    *at = in + (ended != 0);
    *out = '\0';
    return ended;
}

/* Adds the cells of a line. */
static enum ht_status take_line(struct ht_csv *csv, char **at, size_t line, size_t *n, size_t *cap,
                                struct ht_error *err)
{
    size_t before = *n;
    for (int ended = ','; ended == ',';) {
        char *cell;
        ended = take_cell(at, &cell);
        if (ended < 0) return ht_fail(err, HT_BAD_INPUT, "%s:%zu: a quote does not end its cell", csv->path, line);
        HT_PUSH(csv->cells, *n, *cap, cell);
    }
    if (line == 1) csv->n_columns = *n;
    if (*n - before == csv->n_columns) return HT_OK;
    return ht_fail(err, HT_BAD_INPUT, "%s:%zu: has %zu cells; expected %zu, as the header", csv->path, line,
                   *n - before, csv->n_columns);
}

static enum ht_status check_header(const struct ht_csv *csv, struct ht_error *err)
{
    for (size_t i = 0; i < csv->n_columns; i++)
        for (size_t k = 0; k < i; k++)
            if (!strcmp(csv->cells[i], csv->cells[k]))
                return ht_fail(err, HT_BAD_INPUT, "%s:1: column '%.60s' is there twice", csv->path, csv->cells[i]);
    return HT_OK;
}

enum ht_status ht_csv_open(const char *path, struct ht_error *err, struct ht_csv *out)
{
    size_t bytes, n = 0, cap = 0, line = 0;
    *out = (struct ht_csv){.path = ht_strdup(path)};
    enum ht_status status = slurp(path, err, &out->text, &bytes);
    if (!status && !bytes) status = ht_fail(err, HT_BAD_INPUT, "%s: is empty; expected a header", path);
    for (char *at = out->text; !status && *at;) status = take_line(out, &at, ++line, &n, &cap, err);
    if (!status) status = check_header(out, err);
    if (!status)
        out->n_rows = n / out->n_columns - 1;
    else
        ht_csv_free(out);
    return status;
}

void ht_csv_free(struct ht_csv *csv)
{
    free(csv->path);
    free(csv->text);
    free(csv->cells);
    *csv = (struct ht_csv){0};
}

size_t ht_csv_find(const struct ht_csv *csv, const char *name)
{
    size_t i = 0;
    while (i < csv->n_columns && strcmp(csv->cells[i], name) != 0) i++;
    return i;
}

enum ht_status ht_csv_column(const struct ht_csv *csv, const char *name, struct ht_error *err, size_t *column)
{
    char known[400] = "";
    *column = ht_csv_find(csv, name);
    if (*column < csv->n_columns) return HT_OK;
    for (size_t i = 0, at = 0; i < csv->n_columns && at < sizeof known; i++)
        at += (size_t)snprintf(known + at, sizeof known - at, "%s%s", i ? ", " : "", csv->cells[i]);
    return ht_fail(err, HT_BAD_INPUT, "%s:1: lacks column '%s'; it has: %s", csv->path, name, known);
}

const char *ht_csv_cell(const struct ht_csv *csv, size_t row, size_t column)
{
    return csv->cells[(1 + row) * csv->n_columns + column];
}
