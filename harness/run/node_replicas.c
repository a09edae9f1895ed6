#include "harness/run/node_replicas.h"

#include "common/base/array.h"
#include "common/ckpt/durable.h"
#include "common/comm/tags.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CHUNK_BYTES = 1 << 20 };

/* Announces a file; bytes -1: no more. Its bytes follow in chunks, then whether reading them went well. */
struct header {
    char name[HT_STORE_NAME];
    int64_t bytes;
    uint64_t hash;
};

static enum ht_status send(const struct ht_node_stores *s, int32_t to, const void *data, int64_t bytes,
                           struct ht_error *err)
{
    struct ht_message m;
    ht_comm_send(s->ranks->comm, to, HT_TAG_REPLICAS, data, bytes, &m);
    return ht_comm_wait(s->ranks->comm, &m, err);
}

static enum ht_status receive(const struct ht_node_stores *s, int32_t from, void *data, int64_t bytes,
                              struct ht_error *err)
{
    struct ht_message m;
    ht_comm_receive(s->ranks->comm, from, HT_TAG_REPLICAS, data, bytes, &m);
    return ht_comm_wait(s->ranks->comm, &m, err);
}

/* ---- sending ---- */

/* Sends a file. What cannot be read goes as zeros, and the receiver finds another hash. */
static enum ht_status send_file(const struct ht_node_stores *s, int32_t to, const struct header *h, char *chunk,
                                struct ht_error *err)
{
    char path[HT_STORE_PATH];
    ht_store_path(s->dirs[DISK], s->part.version, h->name, path);
    FILE *in = fopen(path, "rb");
    enum ht_status status = send(s, to, h, sizeof(*h), err);
    for (int64_t at = 0, n; at < h->bytes && status == HT_OK; at += n) {
        n = h->bytes - at < CHUNK_BYTES ? h->bytes - at : CHUNK_BYTES;
        size_t got = in ? fread(chunk, 1, (size_t)n, in) : 0;
        memset(chunk + got, 0, (size_t)n - got);
        status = send(s, to, chunk, n, err);
    }
    if (in) fclose(in);
    return status;
}

static struct header header_of(const char *name, const struct ht_manifest_file *sum)
{
    struct header h = {.bytes = sum->bytes, .hash = sum->hash};
    snprintf(h.name, sizeof(h.name), "%s", name);
    return h;
}

/* Finds size and hash of this rank's manifest. */
static enum ht_status sum_manifest(const struct ht_node_stores *s, char name[HT_STORE_NAME],
                                   struct ht_manifest_file *sum, struct ht_error *err)
{
    char path[HT_STORE_PATH];
    ht_store_manifest_name(s->rank, name);
    ht_store_path(s->dirs[DISK], s->part.version, name, path);
    return ht_hash_file(path, err, &sum->hash, &sum->bytes);
}

/* Sends this rank's files, the manifest last; none if its save has failed. */
static enum ht_status send_all(const struct ht_node_stores *s, int32_t to, bool saved, char *chunk,
                               struct ht_error *err)
{
    const struct header end = {.bytes = -1};
    struct ht_manifest_file manifest;
    char name[HT_STORE_NAME], losses[HT_STORE_NAME];
    enum ht_status status = HT_OK;
    saved = saved && sum_manifest(s, name, &manifest, NULL) == HT_OK;
    for (int64_t i = 0; saved && i < s->part.n_files && status == HT_OK; i++) {
        struct header h = header_of(s->part.files[i].name, &s->part.files[i].sum);
        status = send_file(s, to, &h, chunk, err);
    }
    ht_store_losses_name(s->rank, losses);
    if (saved && status == HT_OK && s->part.losses.bytes >= 0) {
        struct header h = header_of(losses, &s->part.losses);
        status = send_file(s, to, &h, chunk, err);
    }
    if (saved && status == HT_OK) {
        struct header h = header_of(name, &manifest);
        status = send_file(s, to, &h, chunk, err);
    }
    return status == HT_OK ? send(s, to, &end, sizeof(end), err) : status;
}

/* ---- receiving ---- */

/* Receives a file. Its bytes are taken whatever happens to them; *written: how that went. */
static enum ht_status receive_file(const struct ht_node_stores *s, int32_t from, const struct header *h, char *chunk,
                                   enum ht_status *written, struct ht_error *err)
{
    char path[HT_STORE_PATH];
    struct ht_durable out = {0};
    struct ht_hash *hash = ht_hash_begin();
    ht_store_path(s->dirs[DISK], s->part.version, h->name, path);
    enum ht_status status = HT_OK;
    if (*written == HT_OK) *written = ht_durable_open(path, err, &out);
    for (int64_t at = 0, n; at < h->bytes && status == HT_OK; at += n) {
        n = h->bytes - at < CHUNK_BYTES ? h->bytes - at : CHUNK_BYTES;
        status = receive(s, from, chunk, n, err);
        if (status != HT_OK || *written != HT_OK) continue;
        ht_hash_add(hash, chunk, (size_t)n);
        *written = ht_durable_write(&out, chunk, (size_t)n, err);
    }
    uint64_t found = ht_hash_end(hash);
    if (status == HT_OK && *written == HT_OK && found != h->hash)
        *written = ht_fail(err, HT_FAILED, "%s: rank %d could not read it whole", path, from);
    if (status == HT_OK && *written == HT_OK)
        *written = ht_durable_commit(&out, err, NULL);
    else
        ht_durable_discard(&out);
    return status;
}

/* Receives a rank's files until it says that there are no more. */
static enum ht_status receive_all(const struct ht_node_stores *s, int32_t from, enum ht_status *written, char *chunk,
                                  struct ht_error *err)
{
    struct header h;
    enum ht_status status = receive(s, from, &h, sizeof(h), err);
    while (status == HT_OK && h.bytes >= 0) {
        status = receive_file(s, from, &h, chunk, written, err);
        if (status == HT_OK) status = receive(s, from, &h, sizeof(h), err);
    }
    return status;
}

/* ---- both ---- */

/* Returns the first rank of the k-th node behind a rank's. */
static int32_t receiver_of(const struct ht_schedule *g, int32_t sender, int64_t k)
{
    int32_t nodes = g->rank_node[g->n_ranks - 1] + 1, node = (int32_t)((g->rank_node[sender] + k) % nodes), rank = 0;
    while (g->rank_node[rank] != node) rank++;
    return rank;
}

enum ht_status ht_node_replicas_exchange(const struct ht_node_stores *s, enum ht_status status, struct ht_error *err)
{
    const struct ht_schedule *g = s->job->schedule;
    enum ht_status written = status, sent = HT_OK;
    char path[HT_STORE_PATH], *chunk = ht_alloc(CHUNK_BYTES);
    for (int64_t k = 1; k <= s->options->state.replicas; k++)
        for (int32_t sender = 0; sender < g->n_ranks && sent == HT_OK; sender++) {
            int32_t receiver = receiver_of(g, sender, k);
            if (sender == s->rank) sent = send_all(s, receiver, status == HT_OK, chunk, err);
            if (receiver == s->rank) sent = receive_all(s, sender, &written, chunk, err);
        }
    free(chunk);
    ht_store_path(s->dirs[DISK], s->part.version, NULL, path);
    if (sent == HT_OK && written == HT_OK && s->leads) written = ht_sync_directory(path, err);
    return sent != HT_OK ? sent : written;
}
