/* What the files of this folder share. */
#ifndef HT_PROFILE_INTERNAL_H
#define HT_PROFILE_INTERNAL_H

#include "common/profile/profile.h"

struct ht_cost {
    char *key;
    int64_t ns;
};

struct ht_profile {
    char name[HT_NAME_BYTES];
    char source[HT_SOURCE_BYTES];
    const struct ht_cluster *cluster; /* modelled; else NULL and the list below */
    struct ht_cost *costs;            /* sorted by key */
    size_t n_costs, costs_cap;
};

/* Modelled: the cost on a rank of the cluster; crosses: the work's group leaves the node. */
enum ht_status ht_modelled_cost(const struct ht_cluster *cluster, int64_t rank, bool crosses,
                                const struct ht_work *work, struct ht_error *err, int64_t *ns);

/* From a list. */
enum ht_status ht_listed_cost(const struct ht_profile *profile, const struct ht_work *work, struct ht_error *err,
                              int64_t *ns);

#endif
