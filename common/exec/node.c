#include "common/exec/node.h"

#include "common/base/array.h"
#include "common/base/granule.h"
#include "common/comm/tags.h"
#include "common/exec/core.h"
#include "common/exec/node_mailbox.h"
#include "common/mem/arena.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* ---- agreement -------------------------------------------------------------------------------------------------- */

static int32_t *iota(int32_t n)
{
    int32_t *v = HT_NEW_ARRAY(int32_t, n);
    for (int32_t i = 0; i < n; i++) v[i] = i;
    return v;
}

enum ht_status ht_agree(struct ht_comm *comm, enum ht_status status, struct ht_error *err)
{
    int32_t *all = iota(comm->size), *statuses = HT_NEW_ARRAY(int32_t, comm->size), mine = (int32_t)status, first = 0;
    int64_t *counts = HT_NEW_ARRAY(int64_t, comm->size);
    struct ht_team team = {.ranks = all, .n = comm->size, .me = comm->rank};
    struct ht_error theirs = {0};
    for (int32_t i = 0; i < comm->size; i++) counts[i] = 1;
    enum ht_status agreed = ht_comm_all_gather(comm, team, HT_TAG_AGREE, &mine, statuses, counts, HT_COMM_F32, &theirs);
    while (!agreed && first < comm->size && !statuses[first]) first++;
    if (!agreed && first < comm->size) {
        if (first == comm->rank && err) theirs = *err;
        agreed = ht_comm_broadcast(comm, team, HT_TAG_AGREE, first, theirs.text, sizeof(theirs.text), &theirs);
        if (!agreed) agreed = (enum ht_status)statuses[first];
    }
    if (agreed && err) *err = theirs, err->status = agreed;
    free(all);
    free(counts);
    if (!atomic_load(&comm->cancelled)) free(statuses);
    return agreed;
}

/* ---- shared memory ---------------------------------------------------------------------------------------------- */

static enum ht_status check_ranks(const struct ht_schedule *s, struct ht_comm *comm, struct ht_error *err)
{
    if (comm->size != s->n_ranks)
        return ht_fail(err, HT_BAD_INPUT, "%d ranks were started; schedule '%s' expects %d", comm->size, s->name,
                       s->n_ranks);
    int32_t *all = iota(comm->size);
    uint64_t mine = ht_schedule_hash(s), theirs = mine;
    struct ht_team team = {.ranks = all, .n = comm->size, .me = comm->rank};
    enum ht_status status = ht_comm_broadcast(comm, team, HT_TAG_AGREE, 0, &theirs, sizeof(theirs), err);
    free(all);
    if (!status && mine != theirs)
        status = ht_fail(err, HT_FAILED, "ranks 0 and %d have built different graphs of '%s' (%016llx, %016llx)",
                         comm->rank, s->name, (unsigned long long)theirs, (unsigned long long)mine);
    return ht_agree(comm, status, err);
}

static void find_node(struct ht_node *n)
{
    const struct ht_schedule *s = n->s;
    n->node = s->rank_node[n->rank];
    n->n_nodes = s->n_nodes;
    n->ranks = HT_NEW_ARRAY(int32_t, s->n_ranks);
    n->leaders = HT_NEW_ARRAY(int32_t, s->n_nodes);
    for (int32_t i = 0; i < s->n_nodes; i++) n->leaders[i] = -1;
    for (int32_t r = s->n_ranks - 1; r >= 0; r--) n->leaders[s->rank_node[r]] = r;
    for (int32_t r = 0; r < s->n_ranks; r++)
        if (s->rank_node[r] == n->node) n->ranks[n->n_ranks++] = r;
    n->leader = n->ranks[0];
}

static int64_t mailboxes_bytes(struct ht_node *n)
{
    const struct ht_schedule *s = n->s;
    int64_t most = 1;
    for (int32_t op = 0; op < s->n_ops; op++) {
        int64_t deps = s->deps_begin[op + 1] - s->deps_begin[op] + s->prev_begin[op + 1] - s->prev_begin[op];
        int64_t words = s->effects_begin[op + 1] - s->effects_begin[op] + deps;
        if (words > most) most = words;
    }
    _Static_assert(sizeof(struct ht_inst) == 8, "a dependency takes a word");
    n->mailbox_bytes = ((int64_t)sizeof(struct ht_mailbox) + most * 8 + 63) / 64 * 64;
    n->mailboxes_bytes = (2 * (int64_t)s->n_lanes + s->n_ranks) * n->mailbox_bytes;
    return 64 + n->mailboxes_bytes + s->n_residents * (int64_t)sizeof(int64_t);
}

static bool is_device(const struct ht_node *n, int32_t space)
{
    return space < n->s->n_ranks;
}

/* Returns true for spaces whose memory the node's ranks share. */
static bool is_shared(const struct ht_node *n, int32_t space)
{
    return !is_device(n, space) && !n->of_files[space];
}

/* Returns true when the space is this node's and holds something. The remote store belongs to one node. */
static bool is_here(const struct ht_node *n, int32_t space)
{
    const struct ht_schedule *s = n->s;
    if (!n->bytes[space]) return false;
    if (is_device(n, space)) return s->rank_node[space] == n->node;
    return space == s->n_ranks + 2 * s->n_nodes || (space - s->n_ranks) % s->n_nodes == n->node;
}

/* Maps the windows of the mailboxes and of all shared spaces. The leader creates them and tells the others where to
   find them. */
static enum ht_status share_windows(struct ht_node *n, struct ht_error *err)
{
    int32_t n_spaces = ht_n_spaces(n->s), me = 0;
    int64_t n_shared = 1 + n_spaces;
    int32_t *where = HT_NEW_ARRAY(int32_t, 1 + n_shared); /* the leader's pid; each window's file descriptor, or -1 */
    enum ht_status status = HT_OK;
    int64_t mailboxes = mailboxes_bytes(n);
    bool leads = ht_node_leads(n);
    while (n->ranks[me] != n->rank) me++;
    struct ht_team team = {.ranks = n->ranks, .n = n->n_ranks, .me = me};
    if (leads) {
        status = ht_window_create(mailboxes, err, &n->mailboxes);
        for (int32_t i = 0; i < n_spaces && !status; i++)
            if (is_shared(n, i) && is_here(n, i)) status = ht_window_create(n->bytes[i], err, &n->windows[i]);
        where[0] = (int32_t)getpid();
        where[1] = n->mailboxes.fd;
        for (int32_t i = 0; i < n_spaces; i++) where[2 + i] = n->windows[i].fd;
    }
    status = ht_agree(n->comm, status, err);
    if (!status) status = ht_comm_broadcast(n->comm, team, HT_TAG_NODE, 0, where, (1 + n_shared) * 4, err);
    if (!status && !leads) {
        status = ht_window_attach(where[0], where[1], mailboxes, err, &n->mailboxes);
        for (int32_t i = 0; i < n_spaces && !status; i++)
            if (is_shared(n, i) && is_here(n, i))
                status = ht_window_attach(where[0], where[2 + i], n->bytes[i], err, &n->windows[i]);
    }
    free(where);
    status = ht_agree(n->comm, status, err);
    if (status) return status;
    ht_window_seal(&n->mailboxes);
    for (int32_t i = 0; i < n_spaces; i++) ht_window_seal(&n->windows[i]);
    n->failed = n->mailboxes.base;
    n->resident_offsets = (int64_t *)((char *)n->mailboxes.base + 64 + n->mailboxes_bytes);
    return HT_OK;
}

/* Maps memory for this rank's device. Of another rank's device, and of files, it reserves addresses only. */
static enum ht_status reserve(struct ht_node *n, int32_t space, struct ht_error *err)
{
    bool mine = space == n->rank;
    void *p = mmap(NULL, (size_t)n->bytes[space], mine ? PROT_READ | PROT_WRITE : PROT_NONE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED)
        return ht_fail(err, HT_INFEASIBLE, "cannot map %lld bytes for space %d: %s", (long long)n->bytes[space], space,
                       strerror(errno));
    n->reserved[space] = p;
    n->bases[space] = p;
    return HT_OK;
}

static enum ht_status make_space(struct ht_node *n, int32_t space, struct ht_space_size size, struct ht_error *err)
{
    bool leads = ht_node_leads(n);
    if (!is_here(n, space)) return HT_OK;
    if (size.memory) {
        n->bases[space] = size.memory;
        return leads ? ht_arena_create_over(size.memory, size.capacity_bytes, size.slack_bytes, err, &n->arenas[space])
                     : HT_OK;
    }
    if (leads && space == n->rank) { /* an arena with memory of its own has guards and poison */
        enum ht_status status = ht_arena_create(size.capacity_bytes, size.slack_bytes, false, err, &n->arenas[space]);
        if (!status) n->bases[space] = ht_arena_base(n->arenas[space], NULL);
        return status;
    }
    enum ht_status status = HT_OK;
    if (is_shared(n, space))
        n->bases[space] = n->windows[space].base;
    else if (n->of_files[space] || leads || space == n->rank)
        status = reserve(n, space, err);
    if (status || !leads) return status;
    if (n->of_files[space])
        return ht_arena_create_disk(n->bases[space], size.capacity_bytes, size.slack_bytes, err, &n->arenas[space]);
    return ht_arena_create_over(n->bases[space], size.capacity_bytes, size.slack_bytes, err, &n->arenas[space]);
}

/* ---- create and destroy ----------------------------------------------------------------------------------------- */

static struct ht_space_size rounded(struct ht_space_size size)
{
    int64_t to = size.of_files ? HT_DISK_GRANULE : HT_MEMORY_GRANULE;
    size.capacity_bytes = ht_round_up(size.capacity_bytes, to);
    size.slack_bytes = ht_round_up(size.slack_bytes, to);
    return size;
}

static enum ht_status make_spaces(struct ht_node *n, const struct ht_space_size *sizes, struct ht_error *err)
{
    enum ht_status status = HT_OK;
    int32_t n_spaces = ht_n_spaces(n->s);
    if (sizes[n_spaces - 1].capacity_bytes && n->n_nodes > 1)
        status = ht_fail(err, HT_INFEASIBLE,
                         "schedule '%s' keeps tensors in the remote store, which several nodes "
                         "cannot share yet",
                         n->s->name);
    for (int32_t i = 0; i < n_spaces && !status; i++) {
        status = make_space(n, i, rounded(sizes[i]), err);
    }
    return ht_agree(n->comm, status, err);
}

enum ht_status ht_node_create(const struct ht_schedule *s, struct ht_comm *comm, const struct ht_space_size *sizes,
                              struct ht_error *err, struct ht_node **out)
{
    int32_t n_spaces = ht_n_spaces(s);
    *out = NULL;
    enum ht_status status = check_ranks(s, comm, err);
    if (status) return status;
    struct ht_node *n = HT_NEW(struct ht_node);
    n->s = s;
    n->comm = comm;
    n->rank = comm->rank;
    n->arenas = HT_NEW_ARRAY(struct ht_arena *, n_spaces);
    n->bases = HT_NEW_ARRAY(char *, n_spaces);
    n->windows = HT_NEW_ARRAY(struct ht_window, n_spaces);
    n->reserved = HT_NEW_ARRAY(void *, n_spaces);
    n->bytes = HT_NEW_ARRAY(int64_t, n_spaces);
    n->of_files = HT_NEW_ARRAY(bool, n_spaces);
    n->pids = HT_NEW_ARRAY(int32_t, s->n_ranks);
    n->mailboxes.fd = -1;
    for (int32_t i = 0; i < n_spaces; i++) {
        n->windows[i].fd = -1;
        struct ht_space_size size = rounded(sizes[i]);
        if (size.capacity_bytes) n->bytes[i] = size.capacity_bytes + size.slack_bytes;
        n->of_files[i] = size.of_files;
    }
    find_node(n);
    int32_t *all = iota(s->n_ranks), pid = (int32_t)getpid();
    int64_t *ones = HT_NEW_ARRAY(int64_t, s->n_ranks);
    for (int32_t r = 0; r < s->n_ranks; r++) ones[r] = 1;
    struct ht_team team = {.ranks = all, .n = s->n_ranks, .me = n->rank};
    status = ht_comm_all_gather(comm, team, HT_TAG_NODE, &pid, n->pids, ones, HT_COMM_F32, err);
    if (!status) status = share_windows(n, err);
    if (!status) status = make_spaces(n, sizes, err);
    free(all);
    free(ones);
    if (status)
        ht_node_destroy(n);
    else
        *out = n;
    return status;
}

void ht_node_destroy(struct ht_node *n)
{
    if (!n) return;
    for (int32_t i = 0; i < ht_n_spaces(n->s); i++) {
        ht_arena_destroy(n->arenas[i]);
        ht_window_free(&n->windows[i]);
        if (n->reserved[i]) munmap(n->reserved[i], (size_t)n->bytes[i]);
    }
    ht_window_free(&n->mailboxes);
    free(n->arenas);
    free(n->bases);
    free(n->windows);
    free(n->reserved);
    free(n->bytes);
    free(n->of_files);
    free(n->pids);
    free(n->ranks);
    free(n->leaders);
    free(n);
}

void *ht_node_base(const struct ht_node *n, int32_t space, int64_t *bytes)
{
    *bytes = n->bytes[space];
    return n->bases[space];
}

bool ht_node_leads(const struct ht_node *n)
{
    return n->leader == n->rank;
}

struct ht_arena **ht_node_arenas(const struct ht_node *n)
{
    return n->arenas;
}
