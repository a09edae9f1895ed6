#include "harness/result/table.h"

#include "common/base/array.h"
#include "common/base/text.h"
#include "common/base/units.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_COLUMNS = 24 };

struct ht_table {
    int n_columns;
    bool right[MAX_COLUMNS];
    int width[MAX_COLUMNS];
    char **cells; /* the header is row 0 */
    size_t n_cells, cells_cap;
};

static void add(struct ht_table *t, const char *text)
{
    int column = (int)(t->n_cells % (size_t)t->n_columns), width = (int)strlen(text);
    if (width > t->width[column]) t->width[column] = width;
    HT_PUSH(t->cells, t->n_cells, t->cells_cap, ht_strdup(text));
}

struct ht_table *ht_table_create(const char *header)
{
    struct ht_table *t = HT_NEW(struct ht_table);
    for (const char *p = header; p && t->n_columns < MAX_COLUMNS; p = strchr(p, '|')) {
        if (*p == '|') p++;
        t->right[t->n_columns++] = *p == '>';
    }
    char *text = ht_strdup(header), *save = NULL;
    for (char *p = strtok_r(text, "|", &save); p; p = strtok_r(NULL, "|", &save)) add(t, p + 1);
    free(text);
    return t;
}

void ht_table_cell(struct ht_table *t, const char *fmt, ...)
{
    char text[512], shown[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    add(t, ht_shown(text, shown, sizeof(shown)));
}

void ht_table_bytes(struct ht_table *t, int64_t bytes)
{
    char text[HT_QUANTITY_TEXT];
    if (bytes < 0)
        add(t, "-");
    else if (bytes == INT64_MAX)
        add(t, "no limit");
    else
        add(t, ht_format_quantity(HT_BYTES, (double)bytes, text));
}

void ht_table_destroy(struct ht_table *t)
{
    if (!t) return;
    for (size_t i = 0; i < t->n_cells; i++) free(t->cells[i]);
    free(t->cells);
    free(t);
}

void ht_table_print(struct ht_table *t, const char *indent, FILE *out)
{
    for (size_t i = 0; i < t->n_cells; i++) {
        int column = (int)(i % (size_t)t->n_columns);
        bool last = column == t->n_columns - 1;
        if (column == 0) fputs(indent, out);
        if (t->right[column])
            fprintf(out, "%*s", t->width[column], t->cells[i]);
        else
            fprintf(out, "%-*s", last ? 0 : t->width[column], t->cells[i]);
        fputs(last ? "\n" : "  ", out);
        if (last && i + 1 == (size_t)t->n_columns) {
            int total = 2 * (t->n_columns - 1);
            for (int c = 0; c < t->n_columns; c++) total += t->width[c];
            fputs(indent, out);
            while (total-- > 0) putc('-', out);
            putc('\n', out);
        }
    }
    ht_table_destroy(t);
}
