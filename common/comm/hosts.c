#include "common/comm/hosts.h"

#include "common/base/array.h"
#include "common/comm/tags.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

/* A rank's host, as ranks send it to each other. */
struct identity {
    char boot[40];          /* random number of the kernel's boot, in text */
    uint64_t device, inode; /* of the PID namespace */
    char name[HT_HOST_NAME];
};

/* Reads this process's host. HT_FAILED if /proc does not tell it. */
static enum ht_status find_own(struct ht_error *err, struct identity *out)
{
    const char *boot = "/proc/sys/kernel/random/boot_id", *pids = "/proc/self/ns/pid";
    struct utsname names;
    struct stat ns;
    FILE *f = fopen(boot, "re");
    bool read = f && fgets(out->boot, sizeof(out->boot), f);
    if (f) fclose(f);
    if (!read) return ht_fail(err, HT_FAILED, "%s: cannot be read, so hosts cannot be told apart", boot);
    if (stat(pids, &ns)) return ht_fail(err, HT_FAILED, "%s: %s, so hosts cannot be told apart", pids, strerror(errno));
    out->device = (uint64_t)ns.st_dev;
    out->inode = (uint64_t)ns.st_ino;
    if (uname(&names) == 0) snprintf(out->name, sizeof(out->name), "%.63s", names.nodename);
    return HT_OK;
}

static bool is_same(const struct identity *a, const struct identity *b)
{
    return !strcmp(a->boot, b->boot) && a->device == b->device && a->inode == b->inode;
}

enum ht_status ht_hosts_find(struct ht_comm *comm, struct ht_error *err, struct ht_hosts *out)
{
    struct identity mine = {0}, *all = HT_NEW_ARRAY(struct identity, comm->size);
    int32_t *ranks = HT_NEW_ARRAY(int32_t, comm->size), *first = HT_NEW_ARRAY(int32_t, comm->size);
    int64_t *counts = HT_NEW_ARRAY(int64_t, comm->size);
    struct ht_error own = {0};
    if (find_own(&own, &mine)) mine.boot[0] = '\0'; /* the others learn it so */
    for (int32_t r = 0; r < comm->size; r++) ranks[r] = r, counts[r] = sizeof(mine);
    struct ht_team team = {.ranks = ranks, .n = comm->size, .me = comm->rank};
    enum ht_status status = ht_comm_all_gather(comm, team, HT_TAG_NODE, &mine, all, counts, HT_COMM_BYTE, err);
    *out =
        (struct ht_hosts){.hosts = HT_NEW_ARRAY(struct ht_host, comm->size), .of = HT_NEW_ARRAY(int32_t, comm->size)};
    for (int32_t r = 0; r < comm->size && !status; r++) {
        int32_t h = 0;
        while (h < out->n && !is_same(&all[first[h]], &all[r])) h++;
        if (h == out->n) {
            first[out->n++] = r;
            memcpy(out->hosts[h].name, all[r].name, HT_HOST_NAME);
        }
        out->hosts[h].n_ranks++;
        out->of[r] = h;
        if (!all[r].boot[0])
            status =
                ht_fail(err, HT_FAILED, "%s", own.text[0] ? own.text : "another rank cannot tell which host it is on");
    }
    free(ranks);
    free(first);
    free(counts);
    if (!atomic_load(&comm->cancelled)) free(all); /* else a message may still arrive there */
    if (status) ht_hosts_free(out);
    return status;
}

void ht_hosts_free(struct ht_hosts *hosts)
{
    free(hosts->hosts);
    free(hosts->of);
    *hosts = (struct ht_hosts){0};
}

int32_t ht_hosts_local_rank(const struct ht_hosts *hosts, int32_t rank)
{
    int32_t index = 0;
    for (int32_t r = 0; r < rank; r++) index += hosts->of[r] == hosts->of[rank];
    return index;
}
