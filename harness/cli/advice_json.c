/* Makes the report of advise, as JSON; the text for readers is printed from it. */
#include "harness/cli/advice.h"

#include "common/base/array.h"
#include "common/base/interrupt.h"
#include "harness/result/evaluate.h"
#include "harness/result/heading.h"
#include "harness/result/provenance.h"
#include "harness/run/registry.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { COMMAND_TEXT = 4096 };

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

/* ---- all of it ------------------------------------------------------------------------------------------------- */

/* Writes what a way recomputes: "whole blocks", "8 blocks"; NULL if that is the system's own choice. */
static const char *recomputed_text(const struct ht_way *way, char buf[32])
{
    const char *value = strchr(way->set, '=');
    if (!value) return NULL;
    if (!strncmp(way->set, "c=", 2))
        snprintf(buf, 32, "%.16s blocks", value + 1);
    else
        snprintf(buf, 32, "%s", value[1] == '0' ? "nothing" : value[1] == '1' ? "blocks" : "attention");
    return buf;
}

static json_t *way_json(const struct ht_advice *a, const struct ht_way *way)
{
    char command[COMMAND_TEXT], text[32];
    const struct ht_cards *cards = &a->search.cards[way->cards];
    ht_way_command(&a->search, way, command, sizeof(command));
    return json_pack("{s:s,s:s,s:I,s:I,s:o,s:s,s:b,s:s?,s:f,s:s}", "system", way->system, "cards",
                     cards_text(&a->search, way), "gpus", (json_int_t)cards->n_gpus, "batch", (json_int_t)way->batch,
                     "micro_batch", way->micro_batch ? json_integer(way->micro_batch) : json_null(), "numerics",
                     way->numerics, "bf16_alike", (int)(cards->alike && a->search.n_numerics > 1), "recomputes",
                     recomputed_text(way, text), "tokens_per_s", way->tokens_per_s, "command", command);
}

/* Lists the best rates with all cards and with those of other kinds, for each type of numbers. */
static json_t *gains_json(const struct ht_search *s, uint64_t all, uint64_t others)
{
    json_t *list = json_array();
    for (size_t i = 0; i < s->n_numerics; i++)
        json_array_append_new(list, json_pack("{s:s,s:f,s:f}", "numerics", s->numerics[i], "tokens_per_s_with_all",
                                              ht_search_best_with(s, all, s->numerics[i]), "tokens_per_s_without",
                                              ht_search_best_within(s, others, s->numerics[i])));
    return list;
}

/* Adds for each kind of card what it brings: the best rate with it over the best without. */
static json_t *kinds_json(const struct ht_advice *a)
{
    const struct ht_search *s = &a->search;
    struct ht_device_kind *kinds = HT_NEW_ARRAY(struct ht_device_kind, a->cluster->n_gpus);
    int64_t n = ht_cluster_kinds(a->cluster, kinds);
    uint64_t all = (UINT64_C(1) << n) - 1;
    json_t *list = json_array();
    for (int64_t k = 0; k < n && n > 1; k++) {
        uint64_t others = all & ~(UINT64_C(1) << k);
        json_array_append_new(
            list, json_pack("{s:s,s:I,s:f,s:f,s:o}", "gpu", kinds[k].gpu->name, "count", (json_int_t)kinds[k].count,
                            "tokens_per_s_with_all", ht_search_best_with(s, all, NULL), "tokens_per_s_without",
                            ht_search_best_within(s, others, NULL), "by_numerics", gains_json(s, all, others)));
    }
    free(kinds);
    return list;
}

static json_t *refused_json(const struct ht_advice *a)
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
        json_array_append_new(list, json_pack("{s:s,s:o,s:s?,s:o}", "system", way->system, "reason",
                                              ht_json_text(way->reason), "lacks", lacks, "short_bytes",
                                              way->short_bytes ? json_integer(way->short_bytes) : json_null()));
    }
    return list;
}

/* Adds what the training state takes, and what there is to hold it. */
static void add_memory(const struct ht_advice *a, const struct ht_scenario *s, json_t *root)
{
    enum {
        STATE_BYTES = 16
    }; /* a parameter's: master, momentum, variance, and the copy and gradient in 16 or 32 bit */
    double devices = 0, hosts = 0;
    int64_t disks = 0;
    for (int64_t r = 0; r < a->cluster->n_gpus; r++) devices += (double)ht_cluster_gpu_of(a->cluster, r)->memory_bytes;
    for (int64_t i = 0; i < a->cluster->n_nodes; i++) {
        hosts += (double)a->cluster->nodes[i].ram_bytes;
        disks += a->cluster->nodes[i].has_ssds ? a->cluster->nodes[i].n_ssds : 0;
    }
    json_object_set_new(root, "state_bytes", json_real(STATE_BYTES * (double)ht_model_params(&s->model)));
    json_object_set_new(root, "device_bytes", json_real(devices));
    json_object_set_new(root, "host_bytes", json_real(hosts));
    json_object_set_new(root, "disks", json_integer(disks));
}

static json_t *changes_json(const struct ht_advice *a)
{
    json_t *list = json_array();
    for (size_t i = 0; i < a->n_changes; i++)
        json_array_append_new(list, json_pack("{s:s,s:f,s:s?}", "change", a->changes[i].what, "tokens_per_s",
                                              a->changes[i].tokens_per_s, "system", a->changes[i].system));
    return list;
}

/* Simulates the best way once more, for its detail; also after Ctrl-C, which another one ends. */
static enum ht_status add_detail(const struct ht_advice *a, json_t *root, struct ht_error *err)
{
    struct ht_options o;
    struct ht_evaluation e;
    const struct ht_way *way = &a->search.ways[a->best[0]];
    bool interrupted = ht_interrupted();
    ht_way_apply(&a->search, way, &o);
    ht_interrupt_set(false);
    enum ht_status status = ht_evaluate(&o, way->system, NULL, err, &e);
    ht_interrupt_set(interrupted);
    if (status != HT_OK) return status;
    json_object_set_new(root, "split", split_json(&e.result));
    json_object_set_new(root, "hosts", hosts_json(&e.result));
    json_object_set_new(root, "time", time_json(&e.result));
    json_object_set_new(root, "iteration_time_s", json_real(e.result.iteration_s));
    ht_evaluation_free(&e);
    return HT_OK;
}

json_t *ht_advice_json(const struct ht_advice *a, const struct ht_scenario *s, struct ht_error *err)
{
    char devices[256];
    json_t *root =
        json_pack("{s:s,s:s,s:f,s:s,s:s,s:I,s:b,s:I}", "obtained", "simulated", "model", s->model.name, "params",
                  (double)ht_model_params(&s->model), "devices",
                  ht_cluster_devices(a->cluster, devices, sizeof(devices)), "cluster_source", a->cluster->source, "seq",
                  (json_int_t)s->seq, "complete", (int)a->complete, "compared", (json_int_t)a->search.n_compared);
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
    add_memory(a, s, root);
    ht_host_path_json(s, root);
    if (!a->n_best || add_detail(a, root, err) == HT_OK) return root;
    json_decref(root);
    return NULL;
}
