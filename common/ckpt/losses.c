#include "common/ckpt/losses.h"

#include "common/base/array.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char header[] = "step,loss\n";
enum { LINE_BYTES = 64 };

void ht_losses_add(struct ht_losses *l, int64_t step, double loss)
{
    struct ht_loss row = {step, loss};
    HT_PUSH(l->rows, l->n, l->cap, row);
}

void ht_losses_free(struct ht_losses *l)
{
    free(l->rows);
    *l = (struct ht_losses){0};
}

char *ht_losses_text(const struct ht_losses *l, size_t *bytes)
{
    char *text = ht_alloc(sizeof(header) + (size_t)l->n * LINE_BYTES), *at = text;
    at += sprintf(at, "%s", header);
    for (int64_t i = 0; i < l->n; i++)
        at += snprintf(at, LINE_BYTES, "%lld,%.17g\n", (long long)l->rows[i].step, l->rows[i].loss);
    *bytes = (size_t)(at - text);
    return text;
}

/* Parses a row "12,3.5\n". */
static bool read_row(const char *line, int64_t last_step, struct ht_loss *row)
{
    char *end;
    if (line[0] < '0' || line[0] > '9') return false;
    errno = 0;
    row->step = strtoll(line, &end, 10);
    if (errno || *end != ',' || row->step <= last_step) return false;
    const char *number = end + 1;
    row->loss = strtod(number, &end);
    return end > number && !strcmp(end, "\n");
}

enum ht_status ht_losses_read(const char *path, struct ht_error *err, struct ht_losses *out)
{
    char line[LINE_BYTES];
    struct ht_losses l = {0};
    FILE *f = fopen(path, "re");
    if (!f) return ht_fail(err, HT_BAD_INPUT, "%s: cannot be opened: %s", path, strerror(errno));
    int64_t n_lines = 0;
    enum ht_status status = HT_OK;
    while (status == HT_OK && fgets(line, sizeof(line), f)) {
        struct ht_loss row;
        if (n_lines++ == 0 ? strcmp(line, header) != 0 : !read_row(line, l.n ? l.rows[l.n - 1].step : 0, &row))
            status = ht_fail(err, HT_BAD_INPUT, "%s:%lld: expected a file of losses: 'step,loss', then a row a step",
                             path, (long long)n_lines);
        else if (n_lines > 1)
            ht_losses_add(&l, row.step, row.loss);
    }
    if (status == HT_OK && ferror(f))
        status = ht_fail(err, HT_BAD_INPUT, "%s: cannot be read: %s", path, strerror(errno));
    fclose(f);
    if (status == HT_OK)
        *out = l;
    else
        ht_losses_free(&l);
    return status;
}
