/* Prints the report of advise for a reader. */
#include "harness/cli/advice.h"

#include "common/base/array.h"
#include "common/base/units.h"
#include "harness/result/table.h"

#include <math.h>
#include <string.h>

enum { WIDTH = 78 };

/* ---- words ----------------------------------------------------------------------------------------------------- */

/* Writes a rate with three digits: "1,230", "45.6". */
static const char *rate_text(double rate, char buf[HT_QUANTITY_TEXT])
{
    if (rate < 100) {
        snprintf(buf, HT_QUANTITY_TEXT, "%.3g", rate);
        return buf;
    }
    double step = pow(10, floor(log10(rate)) - 2);
    long long whole = llround(rate / step) * (long long)llround(step);
    if (whole >= 1000000)
        snprintf(buf, HT_QUANTITY_TEXT, "%lld,%03lld,%03lld", whole / 1000000, whole / 1000 % 1000, whole % 1000);
    else if (whole >= 1000)
        snprintf(buf, HT_QUANTITY_TEXT, "%lld,%03lld", whole / 1000, whole % 1000);
    else
        snprintf(buf, HT_QUANTITY_TEXT, "%lld", whole);
    return buf;
}

/* Prints text in lines of at most WIDTH columns, each after `indent`; breaks at blanks, and ends broken lines with `mark`. */
static void print_wrapped(const char *text, const char *indent, const char *mark)
{
    size_t room = WIDTH - strlen(indent) - strlen(mark);
    while (strlen(text) > room) {
        size_t cut = room;
        while (cut > 0 && text[cut] != ' ') cut--;
        if (!cut) cut = strcspn(text, " ");
        if (!text[cut]) break;
        printf("%s%.*s%s\n", indent, (int)cut, text, mark);
        text += cut + 1;
    }
    printf("%s%s\n", indent, text);
}

/* ---- text ------------------------------------------------------------------------------------------------------ */

static const char *said(const json_t *o, const char *key)
{
    return json_string_value(json_object_get(o, key));
}

static double number(const json_t *o, const char *key)
{
    return json_number_value(json_object_get(o, key));
}

/* Prints what a plan brings for its price, which the catalogue or --price states. */
static void print_price(const json_t *root, const json_t *way)
{
    char text[HT_QUANTITY_TEXT];
    double price = number(root, "price");
    if (price > 0)
        printf("   %s tokens/s per 1000 %s of the machine's price\n",
               rate_text(1000 * number(way, "tokens_per_s") / price, text), said(root, "price_unit"));
}

static void print_best(const json_t *root)
{
    size_t i;
    const json_t *way;
    char text[HT_QUANTITY_TEXT];
    json_array_foreach(json_object_get(root, "best"), i, way)
    {
        printf("\n%zu. %s tokens/s: %s on %s", i + 1, rate_text(number(way, "tokens_per_s"), text), said(way, "system"),
               said(way, "cards"));
        if (json_is_integer(json_object_get(way, "micro_batch")))
            printf(", micro-batches of %.0f", number(way, "micro_batch"));
        printf(", %s%s\n", said(way, "numerics"), json_is_true(json_object_get(way, "bf16_alike")) ? " or bf16" : "");
        if (said(way, "recomputes")) printf("   activations of %s are recomputed\n", said(way, "recomputes"));
        print_wrapped(said(way, "command"), "   ", " \\");
        print_price(root, way);
    }
}

static void print_split(const json_t *root)
{
    size_t i;
    const json_t *row;
    struct ht_table *t = ht_table_create("<ranks|<GPU|>sequences|>blocks|>computes|>memory used|>of");
    json_array_foreach(json_object_get(root, "split"), i, row)
    {
        double first = number(row, "first_rank"), last = number(row, "last_rank");
        ht_table_cell(t, first < last ? "%.0f to %.0f" : "%.0f", first, last);
        ht_table_cell(t, "%s", said(row, "gpu"));
        ht_table_cell(t, "%.0f", number(row, "sequences"));
        ht_table_cell(t, "%.0f", number(row, "blocks"));
        ht_table_cell(t, "%.0f%%", 100 * number(row, "busy_share"));
        ht_table_bytes(t, (int64_t)number(row, "peak_bytes"));
        ht_table_bytes(t, (int64_t)number(row, "capacity_bytes"));
    }
    json_array_foreach(json_object_get(root, "hosts"), i, row)
    {
        ht_table_cell(t, "%s", said(row, "place"));
        for (int k = 0; k < 4; k++) ht_table_cell(t, "%s", "");
        ht_table_bytes(t, (int64_t)number(row, "peak_bytes"));
        ht_table_bytes(t, json_integer_value(json_object_get(row, "capacity_bytes")));
    }
    printf("\nThe first plan\n");
    ht_table_print(t, "  ", stdout);
}

static void print_time(const json_t *root)
{
    char line[512] = "Its time: ";
    size_t i, used = strlen(line);
    const json_t *row;
    json_array_foreach(json_object_get(root, "time"), i, row) if (used < sizeof(line)) used += (size_t)snprintf(
        line + used, sizeof(line) - used, "%s%s %.0f%%", i ? ", " : "", said(row, "what"), 100 * number(row, "share"));
    print_wrapped(line, "  ", "");
}

/* Writes "+12%" or "nothing" for what a rate gains over another. */
static const char *gain_text(double after, double before, char buf[HT_QUANTITY_TEXT])
{
    double percent = before > 0 ? 100 * (after / before - 1) : 0;
    if (before <= 0)
        snprintf(buf, HT_QUANTITY_TEXT, after > 0 ? "it runs" : "nothing");
    else if (fabs(percent) < 0.5)
        snprintf(buf, HT_QUANTITY_TEXT, "nothing");
    else
        snprintf(buf, HT_QUANTITY_TEXT, fabs(percent) < 10 ? "%+.1f%%" : "%+.0f%%", percent);
    return buf;
}

static void print_changes(const json_t *root, double best)
{
    size_t i;
    const json_t *row;
    char gain[HT_QUANTITY_TEXT], rate[HT_QUANTITY_TEXT];
    if (!json_array_size(json_object_get(root, "changes"))) return;
    struct ht_table *t = ht_table_create("<change|>brings|>tokens/s with it|<then fastest");
    json_array_foreach(json_object_get(root, "changes"), i, row)
    {
        ht_table_cell(t, "%s", said(row, "change"));
        /* Nobody has to use what was added. */
        ht_table_cell(t, "%s", gain_text(fmax(best, number(row, "tokens_per_s")), best, gain));
        ht_table_cell(t, "%s", said(row, "system") ? rate_text(number(row, "tokens_per_s"), rate) : "-");
        ht_table_cell(t, "%s", said(row, "system") ? said(row, "system") : "-");
    }
    printf("\nWhat a change would bring (each simulated)\n");
    ht_table_print(t, "  ", stdout);
}

/* Returns whether a kind of card brings the same in each type of numbers. */
static bool is_same_in_all(const json_t *kinds)
{
    size_t i, k;
    const json_t *kind, *gain;
    json_array_foreach(kinds, i, kind) json_array_foreach(json_object_get(kind, "by_numerics"), k, gain)
    {
        const json_t *first = json_array_get(json_object_get(kind, "by_numerics"), 0);
        if (number(gain, "tokens_per_s_with_all") != number(first, "tokens_per_s_with_all") ||
            number(gain, "tokens_per_s_without") != number(first, "tokens_per_s_without"))
            return false;
    }
    return true;
}

static void print_kinds(const json_t *root)
{
    size_t i, k;
    const json_t *kinds = json_object_get(root, "kinds"), *kind, *gain;
    char text[HT_QUANTITY_TEXT], header[64] = "<cards", rate[HT_QUANTITY_TEXT];
    bool same = is_same_in_all(kinds);
    if (!json_array_size(kinds)) return;
    size_t n = same ? 1 : json_array_size(json_object_get(json_array_get(kinds, 0), "by_numerics"));
    for (k = 0; k < n; k++) {
        const json_t *one = json_array_get(json_object_get(json_array_get(kinds, 0), "by_numerics"), k);
        size_t used = strlen(header);
        snprintf(header + used, sizeof(header) - used, "|>%s", same ? "bring" : said(one, "numerics"));
    }
    strncat(header, "|<", sizeof(header) - strlen(header) - 1);
    struct ht_table *t = ht_table_create(header);
    json_array_foreach(kinds, i, kind)
    {
        double with = number(kind, "tokens_per_s_with_all"), without = number(kind, "tokens_per_s_without");
        ht_table_cell(t, "%.0f x %s", number(kind, "count"), said(kind, "gpu"));
        for (k = 0; k < n; k++) {
            gain = json_array_get(json_object_get(kind, "by_numerics"), k);
            ht_table_cell(t, "%s",
                          gain_text(number(gain, "tokens_per_s_with_all"), number(gain, "tokens_per_s_without"), text));
        }
        ht_table_cell(t, "%s", without > with ? "leave them out" : "");
    }
    const json_t *first = json_array_get(kinds, 0);
    ht_table_cell(t, "all, tokens/s");
    for (k = 0; k < n; k++) {
        gain = json_array_get(json_object_get(first, "by_numerics"), k);
        ht_table_cell(t, "%s", rate_text(number(gain, "tokens_per_s_with_all"), rate));
    }
    ht_table_cell(t, "%s", "");
    printf("\nWhat each kind of card brings, beside the others%s\n", same ? "" : ", by the type of numbers");
    ht_table_print(t, "  ", stdout);
}

static const struct {
    const char *lacks, *words;
} groups[] = {{"device", "GPU memory"}, {"host", "main memory"}, {"disk", "disks"}, {"", NULL}};

static const char *lack_of(const json_t *row)
{
    return said(row, "lacks") ? said(row, "lacks") : "";
}

/* Prints which systems want for the same, and by how much the nearest one does; of other reasons the first. */
static void print_group(const json_t *all, size_t group)
{
    char line[2048], bytes[HT_QUANTITY_TEXT];
    size_t i, used = 0;
    const json_t *row, *nearest = NULL, *first = NULL;
    json_array_foreach(all, i, row)
    {
        if (strcmp(lack_of(row), groups[group].lacks) != 0 || used >= sizeof(line)) continue;
        if (!first) first = row;
        used += (size_t)snprintf(line + used, sizeof(line) - used, "%s%s%s%s",
                                 used                  ? ", "
                                 : groups[group].words ? "for want of "
                                                       : "for other reasons",
                                 used || !groups[group].words ? "" : groups[group].words, used ? "" : ": ",
                                 said(row, "system"));
        if (number(row, "short_bytes") > 0 && (!nearest || number(row, "short_bytes") < number(nearest, "short_bytes")))
            nearest = row;
    }
    if (!used) return;
    print_wrapped(line, "  ", "");
    if (!groups[group].words) {
        snprintf(line, sizeof(line), "%s: %s", said(first, "system"), said(first, "reason"));
        print_wrapped(line, "    ", "");
    }
    if (!nearest) return;
    snprintf(line, sizeof(line), "nearest: %s, short by %s %s", said(nearest, "system"),
             ht_format_quantity(HT_BYTES, number(nearest, "short_bytes"), bytes), group ? "on a node" : "on a GPU");
    print_wrapped(line, "    ", "");
}

static void print_refused(const json_t *root)
{
    const json_t *all = json_object_get(root, "refused");
    if (json_array_size(all)) printf("\nThese do not run on all cards (--json has each reason)\n");
    for (size_t k = 0; k < HT_COUNT(groups); k++) print_group(all, k);
}

/* Prints what the states need and what there is, where nothing runs. */
static void print_memory(const json_t *root)
{
    char state[HT_QUANTITY_TEXT], device[HT_QUANTITY_TEXT], host[HT_QUANTITY_TEXT], line[512];
    snprintf(line, sizeof(line),
             "Parameters, gradients and Adam's states take 16 bytes a parameter, %s, beside activations. The GPUs have "
             "%s, main memory %s, and there %s.",
             ht_format_quantity(HT_BYTES, number(root, "state_bytes"), state),
             ht_format_quantity(HT_BYTES, number(root, "device_bytes"), device),
             ht_format_quantity(HT_BYTES, number(root, "host_bytes"), host),
             number(root, "disks") > 0 ? "are disks" : "is no disk");
    print_wrapped(line, "", "");
}

void ht_advice_print(const json_t *root)
{
    const json_t *first = json_array_get(json_object_get(root, "best"), 0);
    char line[1024];
    snprintf(line, sizeof(line), "%s (%.3g parameters) on %s; %.0f tokens a sequence", said(root, "model"),
             number(root, "params"), said(root, "devices"), number(root, "seq"));
    print_wrapped(line, "", "");
    print_wrapped("Training of all parameters with Adam, not LoRA. All numbers are simulated.", "", "");
    if (strstr(said(root, "cluster_source"), "assumed")) {
        snprintf(line, sizeof(line), "Cluster: %s", said(root, "cluster_source"));
        print_wrapped(line, "", "");
    }
    if (json_is_string(json_object_get(root, "host_path_note"))) {
        snprintf(line, sizeof(line), "%s%s", said(root, "host_path_note"),
                 json_is_true(json_object_get(root, "through_host_assumed")) ? "; --through-host takes yours" : "");
        print_wrapped(line, "", "");
    }
    if (!first) {
        printf(json_is_true(json_object_get(root, "complete")) ? "\nNothing here trains this model.\n"
                                                               : "\nNothing was found yet.\n");
        print_memory(root);
    } else {
        print_best(root);
        print_split(root);
        print_time(root);
        print_kinds(root);
    }
    print_changes(root, first ? number(first, "tokens_per_s") : 0);
    print_refused(root);
    printf("\n%.0f plans compared: cards, numerics, system, micro-batch%s\n", number(root, "compared"),
           json_is_true(json_object_get(root, "complete")) ? "" : "; partial: interrupted");
}
