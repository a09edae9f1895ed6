/*
 * Fuzzes the loaders of a user's files other than graphs: model, cluster, profile and config.json, from memory. The
 * first byte picks the loader (its lowest two bits) and JSON (the third); the rest is the document. Any error is one
 * line with a position, and nothing leaks.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/hw/hw.h"
#include "common/model/hf_config.h"
#include "common/model/zoo.h"
#include "common/profile/profile.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(enum ht_status st, const struct ht_error *err)
{
    if (st == HT_OK) return;
    if (st != HT_BAD_INPUT || strncmp(err->text, "fuzz.", 5) != 0 || strchr(err->text, '\n')) {
        fprintf(stderr, "status %d: %s\n", st, err->text);
        abort();
    }
}

/* Binds lists to a cluster and to none: a profile, or one line. */
static void ask(struct ht_profile *p)
{
    struct ht_error err = {0};
    struct ht_cluster *cluster = NULL;
    struct ht_work w = {.kind = HT_OP_COPY, .where = HT_LANE_HOST, .tp = 1, .ranks = 1, .bytes = 64};
    if (ht_cluster_local(2, 1, 1 << 20, &err, &cluster)) abort();
    for (int bound = 0; bound < 2; bound++) {
        int64_t ns = -1;
        enum ht_status st = ht_profile_bind(p, bound ? cluster : NULL, &err);
        if (!st) st = ht_profile_slowest_cost(p, &w, &err, &ns);
        if (st ? st != HT_BAD_INPUT || strchr(err.text, '\n') : ns < 0 || ns > HT_PROFILE_MAX_NS) abort();
    }
    ht_cluster_destroy(cluster);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0) return 0;
    struct ht_error err = {0};
    struct ht_doc *doc = NULL;
    struct ht_model model;
    struct ht_cluster *cluster = NULL;
    struct ht_profile *profile = NULL;
    const char *name = data[0] & 4 ? "fuzz.json" : "fuzz.yaml";
    enum ht_status st = ht_doc_parse((const char *)data + 1, size - 1, name, &err, &doc);
    check(st, &err);
    if (st) return 0;
    switch (data[0] & 3) {
    case 0:
        st = ht_model_parse(doc, &err, &model);
        if (!st && (ht_model_params(&model) <= 0 || ht_model_check_seq(&model, model.max_seq, &err))) abort();
        break;
    case 1:
        st = ht_cluster_parse(doc, &err, &cluster);
        for (int64_t r = 0; !st && r < cluster->n_gpus && r < 4; r++) {
            struct ht_profile *p = ht_profile_modelled(cluster);
            struct ht_work w = {.kind = HT_OP_OPTIMIZER_STEP,
                                .where = HT_LANE_HOST,
                                .n_units = 1,
                                .params = 1 << 20,
                                .tp = 1,
                                .ranks = 1};
            int64_t ns = 0;
            if (ht_profile_cost(p, r, &w, &err, &ns) == HT_OK && (ns < 1 || ns > HT_PROFILE_MAX_NS)) abort();
            ht_profile_destroy(p);
        }
        break;
    case 2:
        st = ht_profile_parse(doc, &err, &profile);
        if (!st) ask(profile);
        break;
    default:
        st = ht_hf_config_parse(doc, &err, &model);
        if (!st && (ht_model_params(&model) <= 0 || ht_model_check_seq(&model, model.max_seq, &err))) abort();
        break;
    }
    check(st, &err);
    ht_cluster_destroy(cluster);
    ht_profile_destroy(profile);
    ht_doc_destroy(doc);
    return 0;
}
