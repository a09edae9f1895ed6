#include "harness/run/transport.h"

#include "common/backend/cuda.h"
#include "common/base/array.h"
#include "common/comm/nccl.h"
#include "common/comm/tags.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum ht_status ht_transport_check(const struct ht_platform_options *o, const struct ht_platform *platform,
                                  int32_t n_ranks, struct ht_error *err)
{
    const char *t = o->transport;
    if (t && strcmp(t, "nccl") != 0 && strcmp(t, "host") != 0)
        return ht_fail(err, HT_BAD_INPUT, "--transport '%s' is not known; expected nccl or host", t);
    if ((t || o->deterministic) && platform->kind != HT_PLATFORM_GPU)
        return ht_fail(err, HT_BAD_INPUT, "--%s needs --backend cuda", t ? "transport" : "deterministic");
    if (t && n_ranks == 1)
        return ht_fail(err, HT_BAD_INPUT, "--transport: the job has one rank; expected several (--ranks N)");
    return HT_OK;
}

/* A rank's card: its host and its place on the PCI bus. */
struct card {
    int32_t host, device;
    char pci[32];
};

/* Returns true on all ranks if no two have the same card; else the first two that have. */
static enum ht_status compare_cards(const struct ht_platform *platform, const struct ht_ranks *ranks, int device,
                                    struct ht_error *err, int32_t shared[2])
{
    struct ht_comm *c = ranks->comm;
    struct ht_cuda_properties properties = {0};
    struct card mine = {.host = ranks->hosts.of[c->rank], .device = device}, *all = HT_NEW_ARRAY(struct card, c->size);
    enum ht_status status = ht_cuda_find(platform->cuda_api, device, err, &properties);
    memcpy(mine.pci, properties.pci, sizeof(mine.pci));
    if (*mine.pci) mine.device = 0; /* CUDA_VISIBLE_DEVICES may show each rank another one as its first */
    status = ht_ranks_agree(ranks, status, err);
    if (status == HT_OK) status = ht_ranks_gather(ranks, HT_TAG_NODE, &mine, sizeof(mine), all, err);
    shared[0] = -1;
    for (int32_t b = 0; b < c->size && status == HT_OK; b++)
        for (int32_t a = 0; a < b && shared[0] < 0; a++)
            if (!memcmp(&all[a], &all[b], sizeof(*all))) shared[0] = a, shared[1] = b;
    free(all);
    return status;
}

static enum ht_status connect_gpus(struct ht_comm *over, int device, struct ht_error *err, struct ht_comm **out)
{
    const struct ht_nccl_api *api = NULL;
    struct ht_error why = {0};
    enum ht_status found = ht_nccl_api_real(&api, &why);
    enum ht_status status = ht_comm_nccl(over, found ? NULL : api, device, HT_NCCL_DEADLINE_S, err, out);
    if (status == HT_INFEASIBLE && found) *err = why; /* this rank's own reason */
    return status;
}

enum ht_status ht_transport_open(const struct ht_platform_options *o, const struct ht_platform *platform,
                                 const struct ht_ranks *ranks, struct ht_error *err, struct ht_comm **out)
{
    int32_t shared[2], n, local = ht_ranks_local(ranks, &n);
    bool asked = o->transport && !strcmp(o->transport, "nccl");
    *out = NULL;
    if (!ranks->comm || platform->kind != HT_PLATFORM_GPU || (o->transport && !asked)) return HT_OK;
    int device = ht_platform_device(platform, local);
    enum ht_status status = compare_cards(platform, ranks, device, err, shared);
    if (status != HT_OK || (shared[0] >= 0 && !asked)) return status;
    if (shared[0] >= 0)
        return ht_fail(err, HT_INFEASIBLE,
                       "--transport nccl: ranks %d and %d have the same GPU; NCCL takes a card of its own for each",
                       shared[0], shared[1]);
    status = connect_gpus(ranks->comm, device, err, out);
    if (status != HT_INFEASIBLE || asked) return status;
    if (ht_ranks_speaks(ranks))
        fprintf(stderr, "hetbench: warning: messages between GPUs go through host memory: %s\n", err->text);
    return HT_OK;
}

void ht_transport_close(const struct ht_ranks *ranks, struct ht_comm *c)
{
    if (c && !atomic_load(&ranks->comm->cancelled) && !atomic_load(&c->cancelled)) ht_comm_close(c);
}
