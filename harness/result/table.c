#include "harness/result/table.h"

#include "common/base/array.h"
#include "common/base/terminal.h"
#include "common/base/text.h"
#include "common/base/units.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_COLUMNS = 24, GAP = 2, LEAST_WIDTH = 4, MOST_UNBROKEN = 24 };

struct ht_table {
    int n_columns;
    bool right[MAX_COLUMNS], optional[MAX_COLUMNS];
    char **cells; /* the header is row 0 */
    size_t n_cells, cells_cap;
    enum ht_mark *marks; /* [n_marks] of the rows from 0; those behind have none */
    size_t n_marks, marks_cap;
    bool shown[MAX_COLUMNS]; /* these are set while printing */
    int width[MAX_COLUMNS];
};

static void add(struct ht_table *t, const char *text)
{
    HT_PUSH(t->cells, t->n_cells, t->cells_cap, ht_strdup(text));
}

struct ht_table *ht_table_create(const char *header)
{
    struct ht_table *t = HT_NEW(struct ht_table);
    char *text = ht_strdup(header), *save = NULL;
    for (char *p = strtok_r(text, "|", &save); p && t->n_columns < MAX_COLUMNS; p = strtok_r(NULL, "|", &save)) {
        bool optional = p[0] && p[1] == '?';
        t->right[t->n_columns] = *p == '>';
        t->optional[t->n_columns++] = optional;
        add(t, p + 1 + optional);
    }
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

static size_t n_rows(const struct ht_table *t)
{
    return (t->n_cells + (size_t)t->n_columns - 1) / (size_t)t->n_columns;
}

void ht_table_mark(struct ht_table *t, enum ht_mark mark)
{
    while (t->n_marks < n_rows(t)) HT_PUSH(t->marks, t->n_marks, t->marks_cap, HT_MARK_NONE);
    t->marks[t->n_marks - 1] = mark;
}

void ht_table_destroy(struct ht_table *t)
{
    if (!t) return;
    for (size_t i = 0; i < t->n_cells; i++) free(t->cells[i]);
    free(t->cells);
    free(t->marks);
    free(t);
}

/* ---- widths ---------------------------------------------------------------------------------------------------- */

static const char *cell(const struct ht_table *t, size_t row, int column)
{
    size_t i = row * (size_t)t->n_columns + (size_t)column;
    return i < t->n_cells ? t->cells[i] : "";
}

/* Returns the columns of a text's longest word. */
static int word_columns(const char *text)
{
    int most = 0;
    while (*text) {
        size_t n = strcspn(text, " ");
        char word[512];
        snprintf(word, sizeof(word), "%.*s", (int)n, text);
        int columns = ht_text_columns(word);
        most = columns > most ? columns : most;
        text += n + (text[n] == ' ');
    }
    return most;
}

/* Returns the widest cell of a column from a row on, or its longest word. */
static int widest(const struct ht_table *t, int column, size_t row, int (*columns_of)(const char *text))
{
    int most = 0;
    for (; row < n_rows(t); row++) {
        int columns = columns_of(cell(t, row, column));
        most = columns > most ? columns : most;
    }
    return most;
}

/* Returns the sum over the columns that are shown, with the gaps between them. */
static int total(const struct ht_table *t, const int *width)
{
    int sum = -GAP;
    for (int c = 0; c < t->n_columns; c++) sum += t->shown[c] ? width[c] + GAP : 0;
    return sum;
}

/* Returns the widest shown column that is wider than `least`, the last one of several; -1: none is. */
static int widest_above(const struct ht_table *t, const int *least)
{
    int most = -1;
    for (int c = 0; c < t->n_columns; c++)
        if (t->shown[c] && t->width[c] > least[c] && (most < 0 || t->width[c] >= t->width[most])) most = c;
    return most;
}

/* Decides which columns are shown, and how wide. columns: 0 for no limit. Optional ones have to leave room for whole
   cells of the others, where these are not long texts. */
static void fit(struct ht_table *t, int columns)
{
    int words[MAX_COLUMNS], want[MAX_COLUMNS], least[MAX_COLUMNS], narrow;
    for (int c = 0; c < t->n_columns; c++) {
        t->shown[c] = true;
        t->width[c] = widest(t, c, 0, ht_text_columns);
        words[c] = widest(t, c, 0, word_columns);
        int whole = widest(t, c, 1, ht_text_columns);
        want[c] = whole > words[c] && whole <= MOST_UNBROKEN ? whole : words[c];
        least[c] = words[c] < LEAST_WIDTH ? words[c] : LEAST_WIDTH;
    }
    if (!columns) return;
    for (int c = t->n_columns - 1; c >= 0 && total(t, want) > columns; c--)
        if (t->optional[c]) t->shown[c] = false;
    while (total(t, t->width) > columns &&
           ((narrow = widest_above(t, want)) >= 0 || (narrow = widest_above(t, words)) >= 0 ||
            (narrow = widest_above(t, least)) >= 0))
        t->width[narrow]--;
}

/* ---- lines ----------------------------------------------------------------------------------------------------- */

/* Returns the bytes of text's first line in so many columns: up to a blank, else behind the last of .,-_/ that fits, else as
   many as fit. */
static size_t line_bytes(const char *text, int columns)
{
    size_t n = 0, blank = 0, mark = 0;
    for (int used = 0; text[n] && used < columns; used++) {
        if (text[n] == ' ') blank = n;
        if (strchr(".,-_/", text[n])) mark = n + 1;
        do n++;
        while (((unsigned char)text[n] & 0xc0) == 0x80);
    }
    if (!text[n] || text[n] == ' ') return n;
    return blank ? blank : mark ? mark : n;
}

/* Takes a line of text and moves *text behind it. Writes it with blanks around, but none at the end of the row. */
static void print_part(const struct ht_table *t, int column, bool last, const char **text, FILE *out)
{
    size_t n = line_bytes(*text, t->width[column]);
    char part[512];
    snprintf(part, sizeof(part), "%.*s", (int)n, *text);
    int pad = t->width[column] - ht_text_columns(part);
    if (t->right[column]) fprintf(out, "%*s", pad, "");
    fputs(part, out);
    if (!t->right[column] && !last) fprintf(out, "%*s", pad, "");
    *text += n;
    while (**text == ' ') (*text)++;
}

/* Prints a row in as many lines as its cells need. */
static void print_row(const struct ht_table *t, size_t row, const char *indent, FILE *out)
{
    static const char *const colours[] = {[HT_MARK_NONE] = "", [HT_MARK_BEST] = "\33[32m", [HT_MARK_FAULT] = "\33[31m"};
    const char *rest[MAX_COLUMNS], *colour = row ? colours[row < t->n_marks ? t->marks[row] : HT_MARK_NONE] : "\33[1m";
    int last = t->n_columns - 1;
    bool more = true, coloured = *colour && out == stdout && ht_terminal_colours();
    while (last > 0 && !t->shown[last]) last--;
    for (int c = 0; c < t->n_columns; c++) rest[c] = cell(t, row, c);
    while (more) {
        more = false;
        fprintf(out, "%s%s", indent, coloured ? colour : "");
        for (int c = 0; c <= last; c++) {
            if (!t->shown[c]) continue;
            print_part(t, c, c == last, &rest[c], out);
            if (c < last) fprintf(out, "%*s", GAP, "");
            more |= *rest[c] != '\0';
        }
        fputs(coloured ? "\33[0m\n" : "\n", out);
    }
}

static void print_left_out(const struct ht_table *t, const char *indent, FILE *out)
{
    int n = 0;
    for (int c = 0; c < t->n_columns; c++) {
        if (t->shown[c]) continue;
        fputs(n++ ? ", " : indent, out);
        fputs(n == 1 ? "not shown for want of width: " : "", out);
        fputs(t->cells[c], out);
    }
    if (n) putc('\n', out);
}

void ht_table_print_fitted(struct ht_table *t, const char *indent, int columns, FILE *out)
{
    fit(t, columns ? columns - (int)strlen(indent) : 0);
    for (size_t row = 0; row < n_rows(t); row++) {
        print_row(t, row, indent, out);
        if (row) continue;
        fputs(indent, out);
        for (int dashes = total(t, t->width); dashes > 0; dashes--) putc('-', out);
        putc('\n', out);
    }
    print_left_out(t, indent, out);
    ht_table_destroy(t);
}

void ht_table_print(struct ht_table *t, const char *indent, FILE *out)
{
    ht_table_print_fitted(t, indent, out == stdout ? ht_terminal_columns() : 0, out);
}
