/* hetbench advise: the fastest way to train a model on one's own GPUs, and what would make it faster. */
#include "harness/cli/commands.h"

#include "common/base/array.h"
#include "common/base/units.h"
#include "harness/advise/advise.h"
#include "harness/cli/drawing.h"
#include "harness/result/evaluate.h"
#include "harness/result/provenance.h"
#include "harness/result/table.h"
#include "harness/run/registry.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { BEST = 3, MAX_CHANGES = 16, COMMAND_TEXT = 4096, WIDTH = 78 };

struct advice {
    const struct ht_options *options;
    struct ht_cluster *cluster;
    struct ht_search search;
    size_t best[BEST], n_best;
    struct ht_change changes[MAX_CHANGES];
    size_t n_changes;
    bool complete;
};

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

static const char *cards_text(const struct ht_search *s, const struct ht_way *way)
{
    return *s->cards[way->cards].only ? s->cards[way->cards].only : "all cards";
}

static const char *lane_words(enum ht_lane_kind kind)
{
    static const char *const words[HT_N_LANE_KINDS] = {
        [HT_LANE_COMPUTE] = "the cards compute",
        [HT_LANE_H2D] = "copies to the cards",
        [HT_LANE_D2H] = "copies from the cards",
        [HT_LANE_HOST] = "the processor's optimizer steps",
        [HT_LANE_DISK] = "the disks",
        [HT_LANE_COLLECTIVE] = "collectives between the cards",
        [HT_LANE_P2P] = "messages between the cards",
    };
    return words[kind];
}

/* ---- the best way in detail ------------------------------------------------------------------------------------ */

/* A rank's part of an iteration. */
struct part {
    const char *gpu;
    int64_t sequences, blocks; /* of the forward passes that it runs */
    double busy;               /* share of the time in which it computes */
    int64_t peak_bytes, capacity_bytes;
};

static struct part part_of(const struct ht_result *r, int32_t rank)
{
    const struct ht_schedule *g = r->job->schedule;
    const struct ht_scenario *s = &r->job->scenario;
    struct part p = {.gpu = ht_cluster_gpu_of(s->cluster, rank)->name};
    bool *units = HT_NEW_ARRAY(bool, g->n_units), *batches = HT_NEW_ARRAY(bool, g->n_micro_batches);
    for (int32_t i = 0; i < g->n_ops; i++) {
        const struct ht_op *op = &g->ops[i];
        if (op->kind != HT_OP_FORWARD || g->lanes[op->lane].rank != rank || op->label.unit < 0) continue;
        for (int32_t u = op->label.unit; u < op->label.unit + op->label.n_units; u++) units[u] = true;
        if (op->label.micro_batch >= 0) batches[op->label.micro_batch] = true;
    }
    for (int32_t u = 1; u + 1 < g->n_units; u++) p.blocks += units[u];
    for (int32_t j = 0; j < g->n_micro_batches; j++)
        p.sequences += batches[j] ? g->slices ? g->slices[j].count : s->batch / g->n_micro_batches : 0;
    for (int32_t l = 0; l < g->n_lanes; l++)
        if (g->lanes[l].rank == rank && g->lanes[l].kind == HT_LANE_COMPUTE)
            p.busy += (double)r->metrics.lane_busy_ns[l] / (double)r->metrics.iteration_ns;
    for (int32_t i = 0; i < r->n_memory; i++)
        if (r->memory[i].space == rank) {
            p.peak_bytes = r->memory[i].peak_bytes;
            p.capacity_bytes = r->memory[i].capacity_bytes;
        }
    free(units);
    free(batches);
    return p;
}

static bool is_alike(const struct part *a, const struct part *b)
{
    return !strcmp(a->gpu, b->gpu) && a->sequences == b->sequences && a->blocks == b->blocks &&
           fabs(a->busy - b->busy) < 0.02 && llabs(a->peak_bytes - b->peak_bytes) < a->peak_bytes / 50 + 1;
}

static json_t *part_json(const struct part *p, int32_t first, int32_t last)
{
    return json_pack("{s:s,s:i,s:i,s:I,s:I,s:f,s:I,s:I}", "gpu", p->gpu, "first_rank", first, "last_rank", last,
                     "sequences", (json_int_t)p->sequences, "blocks", (json_int_t)p->blocks, "busy_share", p->busy,
                     "peak_bytes", (json_int_t)p->peak_bytes, "capacity_bytes", (json_int_t)p->capacity_bytes);
}

/* Lists what each rank does; neighbours that do the same are one row. */
static json_t *split_json(const struct ht_result *r)
{
    json_t *list = json_array();
    int32_t n = r->job->schedule->n_ranks, first = 0;
    struct part p = part_of(r, 0);
    for (int32_t rank = 1; rank <= n; rank++) {
        struct part next = rank < n ? part_of(r, rank) : (struct part){.gpu = ""};
        if (rank < n && is_alike(&p, &next)) continue;
        json_array_append_new(list, part_json(&p, first, rank - 1));
        first = rank;
        p = next;
    }
    return list;
}

/* Lists where the critical path spends the iteration, by what the reader would call it; the largest first. */
static json_t *time_json(const struct ht_result *r)
{
    const struct ht_schedule *g = r->job->schedule;
    double share[HT_N_LANE_KINDS + 1] = {0}, all = (double)r->metrics.iteration_ns;
    json_t *list = json_array();
    for (int32_t l = 0; l < g->n_lanes; l++) share[g->lanes[l].kind] += (double)r->metrics.critical_ns[l] / all;
    share[HT_N_LANE_KINDS] = (double)r->metrics.critical_wait_ns / all;
    for (;;) {
        int most = 0;
        for (int k = 1; k <= HT_N_LANE_KINDS; k++) most = share[k] > share[most] ? k : most;
        if (share[most] < 0.005) return list;
        json_array_append_new(list, json_pack("{s:s,s:f}", "what",
                                              most < HT_N_LANE_KINDS ? lane_words((enum ht_lane_kind)most) : "waiting",
                                              "share", share[most]));
        share[most] = 0;
    }
}

static json_t *hosts_json(const struct ht_result *r)
{
    json_t *list = json_array();
    for (int32_t i = 0; i < r->n_memory; i++)
        if (r->memory[i].tier == HT_HOST || r->memory[i].tier == HT_DISK)
            json_array_append_new(list, json_pack("{s:s,s:I,s:I}", "place", r->memory[i].name, "peak_bytes",
                                                  (json_int_t)r->memory[i].peak_bytes, "capacity_bytes",
                                                  (json_int_t)r->memory[i].capacity_bytes));
    return list;
}

/* ---- JSON: made once, and printed as text from there ----------------------------------------------------------- */

static json_t *way_json(const struct advice *a, const struct ht_way *way)
{
    char command[COMMAND_TEXT];
    ht_way_command(&a->search, way, command, sizeof(command));
    return json_pack("{s:s,s:s,s:I,s:I,s:o,s:f,s:s}", "system", way->system, "cards", cards_text(&a->search, way),
                     "gpus", (json_int_t)a->search.cards[way->cards].n_gpus, "batch", (json_int_t)way->batch,
                     "micro_batch", way->micro_batch ? json_integer(way->micro_batch) : json_null(), "tokens_per_s",
                     way->tokens_per_s, "command", command);
}

/* Adds for each kind of card what it brings: the best rate with it over the best without. */
static json_t *kinds_json(const struct advice *a)
{
    struct ht_device_kind *kinds = HT_NEW_ARRAY(struct ht_device_kind, a->cluster->n_gpus);
    int64_t n = ht_cluster_kinds(a->cluster, kinds);
    uint64_t all = (UINT64_C(1) << n) - 1;
    json_t *list = json_array();
    double with = 0;
    for (size_t i = 0; i < a->search.n_systems; i++) /* on all cards */
        with = fmax(with, a->search.ways[i].tokens_per_s);
    for (int64_t k = 0; k < n && n > 1; k++) {
        double without = ht_search_best_of(&a->search, all & ~(UINT64_C(1) << k));
        json_array_append_new(list, json_pack("{s:s,s:I,s:f,s:f}", "gpu", kinds[k].gpu->name, "count",
                                              (json_int_t)kinds[k].count, "tokens_per_s_with_all", with,
                                              "tokens_per_s_without", without));
    }
    free(kinds);
    return list;
}

static json_t *refused_json(const struct advice *a)
{
    json_t *list = json_array();
    for (size_t i = 0; i < a->search.n_systems; i++) {
        const struct ht_way *way = &a->search.ways[i];
        const struct ht_system *system;
        struct ht_error ignored;
        if (way->fits || !*way->reason || ht_system_find(way->system, &ignored, &system) != HT_OK) continue;
        const char *lacks = way->lacks ? ht_tier_name((enum ht_tier)(way->lacks - 1))
                            : system->disk && !a->cluster->nodes[0].has_ssds ? "disk"
                                                                             : NULL;
        json_array_append_new(list, json_pack("{s:s,s:o,s:s?}", "system", way->system, "reason",
                                              ht_json_text(way->reason), "lacks", lacks));
    }
    return list;
}

static json_t *changes_json(const struct advice *a)
{
    json_t *list = json_array();
    for (size_t i = 0; i < a->n_changes; i++)
        json_array_append_new(list, json_pack("{s:s,s:f,s:s?}", "change", a->changes[i].what, "tokens_per_s",
                                              a->changes[i].tokens_per_s, "system", a->changes[i].system));
    return list;
}

/* Simulates the best way once more, for its detail. */
static enum ht_status add_detail(const struct advice *a, json_t *root, struct ht_error *err)
{
    struct ht_options o;
    struct ht_evaluation e;
    const struct ht_way *way = &a->search.ways[a->best[0]];
    ht_way_apply(&a->search, way, &o);
    enum ht_status status = ht_evaluate(&o, way->system, NULL, err, &e);
    if (status != HT_OK) return status;
    json_object_set_new(root, "split", split_json(&e.result));
    json_object_set_new(root, "hosts", hosts_json(&e.result));
    json_object_set_new(root, "time", time_json(&e.result));
    json_object_set_new(root, "iteration_time_s", json_real(e.result.iteration_s));
    ht_evaluation_free(&e);
    return HT_OK;
}

static json_t *advice_json(const struct advice *a, const struct ht_scenario *s)
{
    char devices[256];
    json_t *root =
        json_pack("{s:s,s:s,s:f,s:s,s:s,s:I,s:s,s:b,s:I,s:I}", "obtained", "simulated", "model", s->model.name,
                  "params", (double)ht_model_params(&s->model), "devices",
                  ht_cluster_devices(a->cluster, devices, sizeof(devices)), "cluster_source", a->cluster->source, "seq",
                  (json_int_t)s->seq, "numerics", ht_dtype_name(s->numerics.param), "complete", (int)a->complete,
                  "simulated", (json_int_t)a->search.n_simulated, "skipped", (json_int_t)a->search.n_skipped);
    json_t *from = ht_provenance_json(), *best = json_array();
    json_object_update(root, from);
    json_decref(from);
    for (size_t i = 0; i < a->n_best; i++) json_array_append_new(best, way_json(a, &a->search.ways[a->best[i]]));
    json_object_set_new(root, "best", best);
    double given = a->options->price, price = given > 0 ? given : ht_cluster_price_usd(a->cluster);
    json_object_set_new(root, "price", price > 0 ? json_real(price) : json_null());
    json_object_set_new(root, "price_unit", json_string(given > 0 ? "units" : "USD"));
    json_object_set_new(root, "kinds", kinds_json(a));
    json_object_set_new(root, "changes", changes_json(a));
    json_object_set_new(root, "refused", refused_json(a));
    return root;
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
        printf("\n");
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
        ht_table_cell(t, "%s", rate_text(number(row, "tokens_per_s"), rate));
        ht_table_cell(t, "%s", said(row, "system") ? said(row, "system") : "-");
    }
    printf("\nWhat a change would bring (each simulated)\n");
    ht_table_print(t, "  ", stdout);
}

static void print_kinds(const json_t *root)
{
    size_t i;
    const json_t *row;
    char gain[HT_QUANTITY_TEXT];
    if (!json_array_size(json_object_get(root, "kinds"))) return;
    printf("\nWhat each kind of card brings, beside the others\n");
    json_array_foreach(json_object_get(root, "kinds"), i, row)
    {
        double with = number(row, "tokens_per_s_with_all"), without = number(row, "tokens_per_s_without");
        printf("  %.0f x %s: %s%s\n", number(row, "count"), said(row, "gpu"), gain_text(with, without, gain),
               without > with ? "; leave them out" : "");
    }
}

static void print_refused(const json_t *root)
{
    static const struct {
        const char *lacks, *words;
    } groups[] = {{"device", "for want of GPU memory"},
                  {"host", "for want of main memory"},
                  {"disk", "for want of disks"},
                  {"", "for other reasons"}};
    size_t i;
    const json_t *row, *all = json_object_get(root, "refused");
    if (json_array_size(all)) printf("\nThese do not run on all cards (--json has each reason)\n");
    for (size_t k = 0; k < HT_COUNT(groups); k++) {
        char line[2048] = "";
        size_t used = 0;
        json_array_foreach(all, i, row)
        {
            const char *lacks = said(row, "lacks") ? said(row, "lacks") : "";
            if (strcmp(lacks, groups[k].lacks) != 0 || used >= sizeof(line)) continue;
            used += (size_t)snprintf(line + used, sizeof(line) - used, "%s%s%s", used ? ", " : groups[k].words,
                                     used ? "" : ": ", said(row, "system"));
        }
        if (used) print_wrapped(line, "  ", "");
    }
}

static void print_advice(const json_t *root)
{
    const json_t *first = json_array_get(json_object_get(root, "best"), 0);
    char line[1024];
    snprintf(line, sizeof(line), "%s (%.3g parameters) on %s; %.0f tokens a sequence, %s", said(root, "model"),
             number(root, "params"), said(root, "devices"), number(root, "seq"), said(root, "numerics"));
    print_wrapped(line, "", "");
    print_wrapped("Training of all parameters with Adam, not LoRA. All numbers are simulated.", "", "");
    if (strstr(said(root, "cluster_source"), "assumed")) print_wrapped(said(root, "cluster_source"), "", "");
    if (!first) {
        printf(json_is_true(json_object_get(root, "complete")) ? "\nNothing here trains this model.\n"
                                                               : "\nNothing was found yet.\n");
    } else {
        print_best(root);
        print_split(root);
        print_time(root);
        print_kinds(root);
    }
    print_changes(root, first ? number(first, "tokens_per_s") : 0);
    print_refused(root);
    printf("\n%.0f plans simulated, %.0f skipped that could not have been among these%s\n", number(root, "simulated"),
           number(root, "skipped"), json_is_true(json_object_get(root, "complete")) ? "" : "; partial: interrupted");
}

/* ---- the command ----------------------------------------------------------------------------------------------- */

static enum ht_status run(const struct ht_options *options, struct ht_error *err)
{
    struct advice a = {.options = options};
    struct ht_scenario scenario;
    struct ht_scenario_request request = options->request;
    if (!request.model)
        return ht_fail(err, HT_BAD_INPUT, "--model is missing; hetbench list models shows those there are");
    if (!request.cluster)
        return ht_fail(err, HT_BAD_INPUT,
                       "--gpus or --cluster is missing; expected for example --gpus rtx4090:2 --ram 128GB");
    request.batch = request.micro_batch = 0;
    enum ht_status status = ht_scenario_create(&request, err, &scenario);
    if (status != HT_OK) return status;
    a.cluster = ht_cluster_copy(scenario.cluster);
    struct ht_options own = *options; /* the scenario has applied these to the cluster */
    own.request.only = NULL;
    status = ht_search_create(&own, a.cluster, options->compare.systems, err, &a.search);
    if (status != HT_OK) goto out;
    status = ht_search_run(&a.search, false, err);
    a.n_best = ht_search_best(&a.search, a.best, BEST);
    a.complete = status == HT_OK;
    if (status == HT_OK) status = ht_changes_try(&a.search, err, a.changes, MAX_CHANGES, &a.n_changes);
    if (status == HT_OK || status == HT_INTERRUPTED) {
        enum ht_status partial = status;
        struct ht_error ignored;
        json_t *root = advice_json(&a, &scenario);
        if (a.n_best && (status = add_detail(&a, root, partial == HT_OK ? err : &ignored)) != HT_OK) {
            json_decref(root);
            goto free_search;
        }
        status = partial;
        if (status == HT_OK && a.n_best) status = ht_plot(root, NULL, options->plot, err);
        if (options->json) {
            enum ht_status shown = ht_json_print(root, "advice", status == HT_OK ? err : &ignored);
            if (status == HT_OK) status = shown;
        } else {
            print_advice(root);
            json_decref(root);
        }
        if (status == HT_OK && !a.n_best)
            status = ht_fail(err, HT_INFEASIBLE, "no system trains %s here", scenario.model.name);
    }
free_search:
    ht_search_free(&a.search);
out:
    ht_cluster_destroy(a.cluster);
    ht_scenario_free(&scenario);
    return status;
}

const struct ht_command ht_cmd_advise = {
    .name = "advise",
    .args = NULL,
    .help =
        "find the fastest way to train a model on one's own GPUs"
        "\vSearches the system, the micro-batch and which of the cards to use; says what the plan does with each card, "
        "what a further card, disk, or more memory would bring, and which cards are better left out. The batch is 64 "
        "sequences if --batch does not say otherwise. For example:\n\n"
        "  hetbench advise --model llama-13b --gpus rtx4090:2 --ram 128GB --ssd 990-pro-2tb:2",
    .example = "hetbench advise --model llama-7b --gpus rtx4090:2 --ram 128GB",
    .groups = HT_OPT_ADVISE | HT_OPT_MODEL | HT_OPT_SCENARIO | HT_OPT_SIM | HT_OPT_PLOT,
    .min_words = 0,
    .max_words = 0,
    .run = run,
};
