#include "harness/elastic/fault.h"

#include "common/base/array.h"
#include "common/base/rng.h"
#include "common/base/text.h"
#include "common/base/units.h"

#include <stdio.h>
#include <string.h>

const char *const ht_fault_names[HT_N_FAULT_KINDS] = {
    [HT_FAULT_RANK] = "rank",       [HT_FAULT_LEADER] = "leader",
    [HT_FAULT_NODE] = "node",       [HT_FAULT_SAVE] = "save",
    [HT_FAULT_FULL] = "full",       [HT_FAULT_LOAD] = "load",
    [HT_FAULT_HANG] = "hang",       [HT_FAULT_SUPERVISOR] = "supervisor",
    [HT_FAULT_NOTICE] = "notice",   [HT_FAULT_JOIN] = "join",
    [HT_FAULT_CORRUPT] = "corrupt",
};

enum { MOST_NUMBER = 1 << 20 };

enum ht_status ht_fault_read(const char *text, int64_t steps, struct ht_error *err, struct ht_fault *out)
{
    char kind[24], step[24], number[24];
    size_t k = HT_N_FAULT_KINDS;
    if (sscanf(text, "%23[a-z]:%23[0-9]:%23[0-9]", kind, step, number) == 3)
        k = ht_index_of(kind, ht_fault_names, HT_N_FAULT_KINDS);
    if (k == HT_N_FAULT_KINDS)
        return ht_fail(err, HT_BAD_INPUT,
                       "--inject '%.60s': expected KIND:STEP:NUMBER, of the kind rank, leader, node, save, full, load, "
                       "hang, supervisor, notice, join or corrupt",
                       text);
    out->kind = (enum ht_fault_kind)k;
    enum ht_status status = ht_flag_count("--inject", step, 0, INT32_MAX, err, &out->step);
    if (status == HT_OK) status = ht_flag_count("--inject", number, 0, INT32_MAX, err, &out->number);
    if (status != HT_OK || out->step <= steps) return status;
    return ht_fail(err, HT_BAD_INPUT, "--inject %.60s: step %lld never comes; expected at most --steps, %lld", text,
                   (long long)out->step, (long long)steps);
}

void ht_fault_print(const struct ht_fault *f, char text[HT_FAULT_TEXT])
{
    snprintf(text, HT_FAULT_TEXT, "%s:%lld:%lld", ht_fault_names[f->kind], (long long)f->step, (long long)f->number);
}

bool ht_fault_is_of_process(const struct ht_fault *f)
{
    return f->kind <= HT_FAULT_HANG;
}

/* Returns the rank that the number picks; of some kinds the first of its node. */
static int32_t rank_of(const struct ht_fault *f, const int32_t *rank_node, int32_t n_ranks)
{
    int32_t rank = (int32_t)(f->number % n_ranks);
    bool leads = f->kind == HT_FAULT_LEADER || f->kind == HT_FAULT_NODE;
    while (leads && rank > 0 && rank_node[rank - 1] == rank_node[rank]) rank--;
    return rank;
}

void ht_fault_for_train(const struct ht_fault *f, const int32_t *rank_node, int32_t n_ranks, int64_t every,
                        int64_t last, char text[HT_FAULT_TEXT])
{
    const char *kind = f->kind == HT_FAULT_HANG ? "hang" : f->kind == HT_FAULT_FULL ? "full" : "kill";
    int64_t save = (f->step + every - 1) / every * every; /* the first save from the step on */
    char where[24];
    snprintf(where, sizeof(where), "%lld", (long long)(f->number / n_ranks));
    bool saves = f->kind == HT_FAULT_SAVE || f->kind == HT_FAULT_FULL, loads = f->kind == HT_FAULT_LOAD;
    snprintf(text, HT_FAULT_TEXT, "%s:%d:%lld:%s", kind, rank_of(f, rank_node, n_ranks),
             (long long)(loads   ? 0
                         : saves ? (save < last ? save : last)
                                 : f->step),
             loads   ? "load"
             : saves ? "save"
                     : where);
}

/* ---- drawing ---- */

struct draw {
    uint64_t seed, index;
    struct ht_fault *out;
    int32_t n, most;
};

static int64_t below(struct draw *d, int64_t n)
{
    return (int64_t)ht_random_below(d->seed, d->index++, (uint64_t)n);
}

static void add(struct draw *d, enum ht_fault_kind kind, int64_t step)
{
    if (d->n < d->most) d->out[d->n++] = (struct ht_fault){kind, step, below(d, MOST_NUMBER)};
}

/* Adds a fault, after the loss that some need before them. */
static void add_with_loss(struct draw *d, enum ht_fault_kind kind, int64_t step)
{
    bool stands = kind == HT_FAULT_LOAD || kind == HT_FAULT_CORRUPT; /* happens while the training stands still */
    if (stands || kind == HT_FAULT_JOIN) add(d, HT_FAULT_RANK, step);
    add(d, kind, stands ? 0 : kind == HT_FAULT_JOIN ? step + 1 : step);
}

int32_t ht_faults_draw(uint64_t seed, int64_t steps, int64_t every, struct ht_fault *out, int32_t most)
{
    struct draw d = {.seed = seed, .out = out, .most = most};
    int64_t step = 1 + below(&d, every + 1), n = 1 + below(&d, 3);
    for (int64_t i = 0; i < n && step < steps && d.n + 2 <= most; i++) {
        add_with_loss(&d, (enum ht_fault_kind)below(&d, HT_N_FAULT_KINDS), step);
        if (below(&d, 3)) step += 1 + below(&d, steps / n); /* else twice in a row */
    }
    return d.n;
}
