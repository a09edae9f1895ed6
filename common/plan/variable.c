#include "common/plan/variable.h"

#include "common/base/array.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

const char *const ht_variable_kind_names[] = {"number", "by rank", "list", "blocks", "ranks"};
_Static_assert(HT_COUNT(ht_variable_kind_names) == HT_N_VARIABLE_KINDS, "a name for each kind");

/* ---- numbers --------------------------------------------------------------------------------------------------- */

enum { DECIMALS = 9 }; /* digits after the point in parts per billion */
/* Part of the text that is parsed. */
struct span {
    const char *at;
    size_t n;
};

enum reading { READ, NOT_A_NUMBER, TOO_FINE, TOO_LARGE };

/* Appends a digit to the value, which stays below 2^63. */
static bool append_digit(int64_t *value, int digit)
{
    if (*value > (INT64_MAX - digit) / 10) return false;
    *value = *value * 10 + digit;
    return true;
}

/* Removes the leading digits from the span and appends them to the value. Returns their number. */
static size_t take_digits(struct span *s, int64_t *value, bool *fits)
{
    size_t n = 0;
    for (; n < s->n && s->at[n] >= '0' && s->at[n] <= '9'; n++) *fits = append_digit(value, s->at[n] - '0') && *fits;
    *s = (struct span){s->at + n, s->n - n};
    return n;
}

static bool take(struct span *s, char c)
{
    if (s->n == 0 || *s->at != c) return false;
    *s = (struct span){s->at + 1, s->n - 1};
    return true;
}

/* Parses the whole span: ["-"] digits ["." digits]. Only decimals have a point; they become parts per billion. */
static enum reading read_number(struct span s, bool decimal, int64_t *out)
{
    bool negative = take(&s, '-'), fits = true;
    int64_t value = 0;
    size_t places = 0;
    if (take_digits(&s, &value, &fits) == 0) return NOT_A_NUMBER;
    if (decimal && take(&s, '.')) {
        places = take_digits(&s, &value, &fits);
        if (places == 0) return NOT_A_NUMBER;
    }
    if (s.n) return NOT_A_NUMBER;
    if (places > DECIMALS) return TOO_FINE;
    for (; decimal && places < DECIMALS; places++) fits = append_digit(&value, 0) && fits;
    if (!fits) return TOO_LARGE;
    *out = negative ? -value : value;
    return READ;
}

static void print_number(int64_t value, bool decimal, FILE *out)
{
    if (!decimal) {
        fprintf(out, "%" PRId64, value);
        return;
    }
    uint64_t size = value < 0 ? 0 - (uint64_t)value : (uint64_t)value, part = size % (uint64_t)HT_PPB;
    int places = DECIMALS;
    fprintf(out, "%s%" PRIu64, value < 0 ? "-" : "", size / (uint64_t)HT_PPB);
    for (; part && part % 10 == 0; part /= 10) places--;
    if (part) fprintf(out, ".%0*" PRIu64, places, part);
}

/* ---- reading --------------------------------------------------------------------------------------------------- */

struct reader {
    const struct ht_knob *knob;
    const char *text;
    int64_t min, max; /* in the variable's unit */
    struct ht_error *err;
};

static enum ht_status refuse(const struct reader *r, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

static enum ht_status refuse(const struct reader *r, const char *fmt, ...)
{
    char why[256];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(why, sizeof(why), fmt, ap);
    va_end(ap);
    return ht_fail(r->err, HT_BAD_INPUT, "--set '%s=%.80s%s': %s", r->knob->name, r->text,
                   strlen(r->text) > 80 ? ".." : "", why);
}

/* Parses one number and checks its range. element: number of the element, from 1; 0 if the variable is not a vector. */
static enum ht_status read_value(const struct reader *r, int element, struct span s, int64_t *out)
{
    char what[32] = "";
    int shown = s.n < 40 ? (int)s.n : 40;
    if (element) snprintf(what, sizeof(what), "element %d ", element);
    if (element && s.n == 0) return refuse(r, "%sis empty", what);
    enum reading reading = read_number(s, r->knob->decimal, out);
    if (reading == NOT_A_NUMBER && r->knob->decimal)
        return refuse(r, "%s'%.*s' is not a decimal number such as 0.25", what, shown, s.at);
    if (reading == NOT_A_NUMBER) return refuse(r, "%s'%.*s' is not an integer", what, shown, s.at);
    if (reading == TOO_FINE)
        return refuse(r, "%s'%.*s' has more than %d digits after the point", what, shown, s.at, DECIMALS);
    if (reading == READ && *out >= r->min && *out <= r->max) return HT_OK;
    int64_t one = r->knob->decimal ? HT_PPB : 1;
    return refuse(r, "%s%s%s is out of range; expected %" PRId64 " to %" PRId64, what, element ? "of " : "",
                  r->knob->name, r->min / one, r->max / one);
}

/* Cuts the next element off *rest and strips the spaces around it. Returns false after the last element. */
static bool next_element(const char **rest, struct span *out)
{
    if (!*rest) return false;
    size_t n = strcspn(*rest, ",");
    *out = (struct span){*rest, n};
    *rest = (*rest)[n] ? *rest + n + 1 : NULL;
    while (take(out, ' ')) continue;
    while (out->n && out->at[out->n - 1] == ' ') out->n--;
    return true;
}

/* Parses the elements of a list: "4", or "4 x 16". */
static enum ht_status read_list(const struct reader *r, struct ht_variable *v)
{
    static const char times[] = " x ";
    const char *rest = r->text;
    struct span s;
    size_t cap = 0;
    enum ht_status status = HT_OK;
    for (int element = 1; status == HT_OK && next_element(&rest, &s); element++) {
        int64_t value = 0, count = 1;
        const char *x = memmem(s.at, s.n, times, strlen(times));
        if (x) {
            const char *end = s.at + s.n, *behind = x + strlen(times);
            if (read_number((struct span){behind, (size_t)(end - behind)}, false, &count) != READ || count < 1)
                return refuse(r, "element %d '%.*s' is not VALUE x COUNT", element, s.n < 40 ? (int)s.n : 40, s.at);
            s.n = (size_t)(x - s.at);
        }
        status = read_value(r, element, s, &value);
        if (status == HT_OK && count > HT_MAX_ELEMENTS - v->n)
            return refuse(r, "%s has more than %d elements", r->knob->name, HT_MAX_ELEMENTS);
        for (; status == HT_OK && count; count--) HT_PUSH(v->values, v->n, cap, value);
    }
    return status;
}

/* Repeats a single element for every rank. Any other number of elements must be the number of ranks. */
static enum ht_status spread_over_ranks(const struct reader *r, int64_t ranks, struct ht_variable *v)
{
    if (v->n == ranks) return HT_OK;
    if (v->n != 1) return refuse(r, "%s has %d elements; expected %" PRId64 ", one a rank", r->knob->name, v->n, ranks);
    v->values = ht_realloc(v->values, (size_t)ranks * sizeof(*v->values));
    for (; v->n < ranks; v->n++) v->values[v->n] = v->values[0];
    return HT_OK;
}

/* Parses "5" or "1-5". */
static enum ht_status read_range(const struct reader *r, int element, struct span s, int64_t *from, int64_t *to)
{
    const char *of = r->knob->kind == HT_VARIABLE_BLOCKS ? "block" : "device";
    const char *dash = s.n ? memchr(s.at + 1, '-', s.n - 1) : NULL;
    struct span first = {s.at, dash ? (size_t)(dash - s.at) : s.n}, last = first;
    if (dash) last = (struct span){dash + 1, s.n - first.n - 1};
    if ((dash && last.n == 0) || (s.n && *s.at == '-'))
        return refuse(r, "element %d '%.*s' is not a %s or a range such as 1-5", element, s.n < 40 ? (int)s.n : 40,
                      s.at, of);
    enum ht_status status = read_value(r, element, first, from);
    if (status == HT_OK) status = read_value(r, element, last, to);
    if (status == HT_OK && *from > *to)
        return refuse(r, "element %d '%.*s' runs backwards; expected %" PRId64 "-%" PRId64, element, (int)s.n, s.at,
                      *to, *from);
    return status;
}

/* Marks the blocks of an element in has[1 .. r->max]. */
static enum ht_status mark_blocks(const struct reader *r, int element, struct span s, bool *has)
{
    int64_t from = 0, to = 0;
    enum ht_status status = read_range(r, element, s, &from, &to);
    for (int64_t block = from; block <= to && status == HT_OK; block++) {
        if (has[block]) return refuse(r, "block %" PRId64 " is named twice", block);
        has[block] = true;
    }
    return status;
}

static enum ht_status read_blocks(const struct reader *r, struct ht_variable *v)
{
    const char *rest = strcmp(r->text, "none") != 0 ? r->text : NULL;
    bool *has = HT_NEW_ARRAY(bool, r->max + 1);
    struct span s;
    size_t cap = 0;
    enum ht_status status = HT_OK;
    for (int element = 1; status == HT_OK && next_element(&rest, &s); element++)
        status = mark_blocks(r, element, s, has);
    for (int64_t block = 1; status == HT_OK && block <= r->max; block++)
        if (has[block]) HT_PUSH(v->values, v->n, cap, block);
    free(has);
    return status;
}

static enum ht_status read_ranks(const struct reader *r, struct ht_variable *v)
{
    const char *rest = r->text;
    struct span s;
    size_t cap = 0;
    enum ht_status status = HT_OK;
    for (int element = 1; status == HT_OK && next_element(&rest, &s); element++) {
        int64_t from = 0, to = -1;
        status = read_range(r, element, s, &from, &to);
        for (; from <= to && status == HT_OK; from++) {
            if (v->n == HT_MAX_ELEMENTS)
                return refuse(r, "%s has more than %d elements", r->knob->name, HT_MAX_ELEMENTS);
            HT_PUSH(v->values, v->n, cap, from);
        }
    }
    return status;
}

enum ht_status ht_variable_parse(const struct ht_knob *knob, struct ht_knob_range range, const char *text,
                                 struct ht_error *err, struct ht_variable *out)
{
    bool blocks = knob->kind == HT_VARIABLE_BLOCKS, ranks = knob->kind == HT_VARIABLE_RANKS;
    int64_t one = knob->decimal ? HT_PPB : 1, max = blocks || knob->max < 0 ? range.blocks : knob->max;
    if (ranks) max = range.ranks - 1;
    struct reader r = {.knob = knob, .text = text, .min = blocks ? 1 : knob->min * one, .max = max * one, .err = err};
    struct ht_variable v = {.kind = knob->kind, .decimal = knob->decimal};
    enum ht_status status;
    assert(max <= INT64_MAX / one && !((blocks || ranks) && knob->decimal) && strlen(knob->name) < sizeof(v.name));
    snprintf(v.name, sizeof(v.name), "%s", knob->name);
    if (knob->kind == HT_VARIABLE_NUMBER)
        status = read_value(&r, 0, (struct span){text, strlen(text)}, &v.value);
    else
        status = blocks ? read_blocks(&r, &v) : ranks ? read_ranks(&r, &v) : read_list(&r, &v);
    if (status == HT_OK && knob->kind == HT_VARIABLE_BY_RANK) status = spread_over_ranks(&r, range.ranks, &v);
    if (status == HT_OK)
        *out = v;
    else
        ht_variable_free(&v);
    return status;
}

/* ---- writing --------------------------------------------------------------------------------------------------- */

/* Returns true if consecutive elements are written as a range. */
static bool has_ranges(const struct ht_variable *v)
{
    return v->kind == HT_VARIABLE_BLOCKS || v->kind == HT_VARIABLE_RANKS;
}

/* Returns how many elements from i on are equal, or consecutive where ranges are written. */
static int32_t run_at(const struct ht_variable *v, int32_t i)
{
    int64_t step = has_ranges(v);
    int32_t n = 1;
    while (i + n < v->n && v->values[i + n] == v->values[i] + n * step) n++;
    return n;
}

void ht_variable_print(const struct ht_variable *v, FILE *out)
{
    bool ranges = has_ranges(v), runs = !ranges && v->n > HT_SHORT_VECTOR;
    if (v->kind == HT_VARIABLE_NUMBER) print_number(v->value, v->decimal, out);
    if (v->kind == HT_VARIABLE_BLOCKS && v->n == 0) fputs("none", out);
    for (int32_t i = 0, n; i < v->n; i += n) {
        n = ranges || runs ? run_at(v, i) : 1;
        if (i) fputs(runs ? ", " : ",", out);
        print_number(v->values[i], v->decimal, out);
        if (n > 1 && ranges) fprintf(out, "-%" PRId64, v->values[i + n - 1]);
        if (n > 1 && runs) fprintf(out, " x %d", n);
    }
}

struct ht_variable ht_variable_copy(const struct ht_variable *v)
{
    struct ht_variable copy = *v;
    if (v->values) {
        copy.values = HT_NEW_ARRAY(int64_t, v->n);
        memcpy(copy.values, v->values, (size_t)v->n * sizeof(*v->values));
    }
    return copy;
}

void ht_variable_free(struct ht_variable *v)
{
    free(v->values);
    *v = (struct ht_variable){0};
}
