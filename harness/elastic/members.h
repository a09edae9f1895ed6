/*
 * The nodes that a training may have: who is there, who was lost, who has had notice.
 *
 * Nodes are those of the cluster file, by their numbers. Without a source all are local and always there. A source is a file, or
 * '!command' whose output is one, with a line for each host that there is:
 *
 *     NAME [slots=N] [kind=K] [node=I]      # a comment
 *
 * kind is the entry of the cluster file's `nodes` that the host is like [0]; node its number there [the first free one of its kind,
 * kept as long as the source names the host]. Hosts called "localhost" are processes of this machine.
 */
#ifndef HT_HARNESS_ELASTIC_MEMBERS_H
#define HT_HARNESS_ELASTIC_MEMBERS_H

#include "common/base/status.h"
#include "common/hw/hw.h"

enum { HT_MEMBER_HOST = 64, HT_MEMBER_LIST = 4096 };

struct ht_member {
    char host[HT_MEMBER_HOST]; /* "": no host has this number */
    int32_t kind, slots;
    bool listed;   /* the source names it */
    bool noticed;  /* it will be gone soon: not used until the source stops naming it */
    double lost_s; /* when it was lost, on the clock of ht_now_s; 0: it was not */
};

struct ht_members {
    const char *source;      /* NULL: local nodes */
    double answer_s;         /* for which a command may take */
    double rejoin_s;         /* after which a lost node that is still named may join again */
    struct ht_member *nodes; /* [n], by number */
    int32_t n;
};

void ht_members_init(struct ht_members *m, const struct ht_cluster *cluster, const char *source, double rejoin_s);
void ht_members_free(struct ht_members *m);

/* Asks the source. HT_BAD_INPUT, with the line, for what it may not say; HT_FAILED if it cannot be asked, or a command gives no answer in
   time, of which all processes are then killed. The nodes are then those
   that it named before. */
enum ht_status ht_members_ask(struct ht_members *m, struct ht_error *err);

bool ht_member_is_usable(const struct ht_members *m, int32_t node, double now_s);
/* Writes "0,2,3": the nodes that can be used. Returns their number. */
int32_t ht_members_list(const struct ht_members *m, double now_s, char list[HT_MEMBER_LIST]);
/* Takes lost nodes back that the source still names. Returns their number. */
int32_t ht_members_readmit(struct ht_members *m);
/* Returns the node of a host; -1: none. */
int32_t ht_members_node_of(const struct ht_members *m, const char *host);

/* Lists work on "0,2,3". */
bool ht_list_has(const char *list, int32_t node);
int32_t ht_list_count(const char *list);
int32_t ht_list_at(const char *list, int32_t i); /* -1: shorter */
void ht_list_add(char list[HT_MEMBER_LIST], int32_t node);

#endif
