/* What the files of this folder share. */
#ifndef HT_PROFILE_INTERNAL_H
#define HT_PROFILE_INTERNAL_H

#include "common/profile/profile.h"

enum { HT_MAX_PARTS = 64 }; /* of a file */

struct ht_cost {
    char *key;
    int64_t ns;
};

/* A list of costs, and whose they are: of ranks with this device, of nodes with this CPU; "": of any. */
struct ht_part {
    char name[HT_NAME_BYTES], source[HT_SOURCE_BYTES];
    char device[HT_NAME_BYTES], host[HT_NAME_BYTES];
    char *device_at, *host_at; /* "p.yaml:3:11", where the file says it; NULL: no file does */
    struct ht_cost *costs;     /* [n_costs], sorted by key */
    size_t n_costs, costs_cap;
};

struct ht_profile {
    char *name, *source;              /* of all parts */
    const struct ht_cluster *cluster; /* that the ranks are of; NULL: it was not said */
    bool modelled;          /* all costs are, on the cluster; else they are those of the parts, and modelled */
    bool messages_modelled; /* are collectives and messages alone, of which no part has any */
    struct ht_part *parts;
    int32_t n_parts;
    size_t parts_cap;
};

/* The kind of a rank, by name; NULL, NULL: not known. */
struct ht_rank_kind {
    const char *device, *host;
};

/* profile.c: appends to an allocated text, behind a separator where there is some already. */
void ht_append(char **text, const char *separator, const char *more);
/* profile.c: names the profile after its parts. */
void ht_profile_rename(struct ht_profile *p);
void ht_part_free(struct ht_part *part);
/* list.c: sorts the costs of a list that was filled. Returns the first key that is there twice; NULL: none is. */
const char *ht_part_sort(struct ht_part *part);
/* list.c: is the key that of work on a host's cores or disks? */
bool ht_key_is_of_host(const char *key);
/* list.c: does the part have the say about such work of a rank? */
bool ht_part_answers(const struct ht_part *part, struct ht_rank_kind kind, bool of_host);
/* list.c: "device 'a100-40gb' in host 'epyc-7713'", into buf; "" for no names. */
enum { HT_KIND_TEXT = 2 * HT_NAME_BYTES + 32 };
const char *ht_kind_description(const char *device, const char *host, char buf[HT_KIND_TEXT]);

/* Modelled: the cost on a rank of the cluster; crosses: the work's group leaves the node. */
enum ht_status ht_modelled_cost(const struct ht_cluster *cluster, int64_t rank, bool crosses,
                                const struct ht_work *work, struct ht_error *err, int64_t *ns);

/* From the lists, for a rank of that kind. */
enum ht_status ht_listed_cost(const struct ht_profile *profile, struct ht_rank_kind kind, const struct ht_work *work,
                              struct ht_error *err, int64_t *ns);

#endif
