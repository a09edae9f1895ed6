/* Declarations shared by the files of this folder. */
#ifndef HT_PROFILE_INTERNAL_H
#define HT_PROFILE_INTERNAL_H

#include "common/profile/profile.h"

enum { HT_MAX_PARTS = 64 }; /* of a file */

struct ht_cost {
    char *key;
    int64_t ns;
};

/* A list of costs of ranks with this device and of nodes with this CPU; "": any device, any CPU. */
struct ht_part {
    char name[HT_NAME_BYTES], source[HT_SOURCE_BYTES];
    char device[HT_NAME_BYTES], host[HT_NAME_BYTES];
    char *device_at, *host_at; /* "p.yaml:3:11", position of the entry in its file; NULL: not from a file */
    struct ht_disk_rates disk; /* of a node; zero: not measured */
    struct ht_cost *costs;     /* [n_costs], sorted by key */
    size_t n_costs, costs_cap;
};

struct ht_profile {
    char *name, *source;              /* of all parts */
    const struct ht_cluster *cluster; /* of the ranks; NULL: not known */
    struct ht_software software;      /* whose kernels are modelled */
    bool modelled;                    /* all costs are modelled on the cluster; else they are those of the parts */
    bool messages_modelled;           /* only collectives and messages are modelled, since no part has any */
    struct ht_part *parts;
    int32_t n_parts;
    size_t parts_cap;
};

/* The kind of a rank, by names; both NULL: not known. */
struct ht_rank_kind {
    const char *device, *host;
};

/* Appends to an allocated text, after a separator unless the text is empty (profile.c). */
void ht_append(char **text, const char *separator, const char *more);
/* Names the profile after its parts (profile.c). */
void ht_profile_rename(struct ht_profile *p);
void ht_part_free(struct ht_part *part);
/* Sorts the costs of a filled list. Returns the first duplicate key, or NULL (list.c). */
const char *ht_part_sort(struct ht_part *part);
/* Returns true for the key of work on a host's cores or disks (list.c). */
bool ht_key_is_of_host(const char *key);
/* Returns true if the part has the costs of such work of a rank: of_host as ht_key_is_of_host (list.c). */
bool ht_part_answers(const struct ht_part *part, struct ht_rank_kind kind, bool of_host);
/* Writes "device 'a100-40gb' in host 'epyc-7713'" into buf and returns it; "" without names (list.c). */
enum { HT_KIND_TEXT = 2 * HT_NAME_BYTES + 32 };
const char *ht_kind_description(const char *device, const char *host, char buf[HT_KIND_TEXT]);

/* How far a work's group reaches. */
struct ht_reach {
    bool crosses;     /* it leaves the rank's node */
    bool shares_node; /* and has several members on a node */
    int32_t nodes;    /* on which it has members */
    int32_t between;  /* the slowest connection between two of its nodes: index in cluster->between; -1: the NICs */
};

/* Sets *ns to the modelled cost on a rank of the cluster. */
enum ht_status ht_modelled_cost(const struct ht_cluster *cluster, const struct ht_software *software, int64_t rank,
                                struct ht_reach reach, const struct ht_work *work, struct ht_error *err, int64_t *ns);

/* Sets *ns to the cost in the lists, for a rank of that kind. */
enum ht_status ht_listed_cost(const struct ht_profile *profile, struct ht_rank_kind kind, const struct ht_work *work,
                              struct ht_error *err, int64_t *ns);

#endif
