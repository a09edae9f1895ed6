/* Stands in for CUDA in a whole hetbench. */
#include "tests/support/fake_cuda.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int32_t my_rank(void)
{
    const char *rank = getenv("OMPI_COMM_WORLD_RANK");
    return rank ? atoi(rank) : -1;
}

/* HT_FAKE_GPU_FATE=RANK:COPIES:HOW in the environment, behind so many copies of a rank's that are not a kernel's, such as
   those of an exchange through pinned memory: `full` lets all further ones find no memory, `killed` kills the rank. */
static const char *fated_copy(void *to, const void *from, int64_t bytes, void *stream)
{
    static _Atomic int copies;
    const char *told = getenv("HT_FAKE_GPU_FATE");
    char how[16];
    int rank, after;
    bool meets = told && sscanf(told, "%d:%d:%15s", &rank, &after, how) == 3 && rank == my_rank() && ++copies > after;
    if (meets && !strcmp(how, "killed")) raise(SIGKILL);
    if (meets && !strcmp(how, "full")) return "cudaErrorMemoryAllocation: out of memory";
    return fake_cuda_api()->copy(to, from, bytes, stream);
}

/* HT_FAKE_GPU_FAILS=RANK:CALL in the environment: this call of a kernel or copy fails on the rank's GPU. */
static void fail_as_told(void)
{
    static bool told;
    const char *when = getenv("HT_FAKE_GPU_FAILS");
    int rank, call;
    if (told || !when || sscanf(when, "%d:%d", &rank, &call) != 2 || rank != my_rank()) return;
    told = true;
    fake_cuda_fail_at(call);
}

/* HT_FAKE_GPU_FULL=RANK in the environment: the GPU of this rank gives no more than a megabyte at once. */
const struct ht_cuda_api *ht_cuda_api_real(void)
{
    static struct ht_cuda_api api;
    const char *full = getenv("HT_FAKE_GPU_FULL");
    if (full && my_rank() == atoi(full)) fake_cuda_largest(1 << 20);
    fail_as_told();
    if (!getenv("HT_FAKE_GPU_FATE")) return fake_cuda_api();
    api = *fake_cuda_api();
    api.copy = fated_copy;
    return &api;
}
