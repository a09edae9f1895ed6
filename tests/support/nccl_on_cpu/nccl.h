/*
 * The part of NCCL that common/comm/nccl_real.c uses, on the CPU (nccl.c): ranks are processes of one machine.
 *
 * As NCCL's nonblocking communicators (its user guide, "Creating a communication with options", "Group Calls"): create,
 * finalize and the end of a group return ncclInProgress and go on in a thread of their own. Until the state is
 * ncclSuccess only ncclCommGetAsyncError and ncclCommAbort may be called; another call aborts the process. A group is
 * one entry of its stream, which lies there only when the group's end is no longer in progress; it occupies the stream
 * until every peer's part has come. Groups of one communicator run in the order of their issue, on whatever streams; those
 * of several communicators in any order, but a GPU has room for one kernel at a time, which keeps it until its peers have
 * come: the worst case of what NCCL's user guide warns of ("Using multiple NCCL communicators concurrently"). So ranks
 * whose orders differ wait for ever. Between two ranks the first send meets the first receive. ncclCommAbort ends the
 * kernels under way. A communicator that has been freed aborts the process when it is used.
 *
 * HT_NCCL_ON_CPU_FATE=RANK:GROUPS:HOW in the environment, behind so many groups of a rank's process: `broken` breaks its
 * link, `full` lets the next group's end find no memory, `killed` kills it with the next group half moved; `stuck` breaks its
 * link, its kernels never end, and ncclCommAbort does not return.
 */
#ifndef HT_NCCL_ON_CPU_H
#define HT_NCCL_ON_CPU_H

#include <limits.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "cuda_runtime_api.h"

#define NCCL_UNIQUE_ID_BYTES  128
#define NCCL_CONFIG_UNDEF_INT INT_MIN
#define NCCL_CONFIG_INITIALIZER                                                                                        \
    {                                                                                                                  \
        NCCL_CONFIG_UNDEF_INT                                                                                          \
    }

typedef struct ncclComm *ncclComm_t;
typedef struct {
    char internal[NCCL_UNIQUE_ID_BYTES];
} ncclUniqueId;
typedef enum {
    ncclSuccess,
    ncclUnhandledCudaError = 1,
    ncclSystemError = 2,
    ncclInternalError = 3,
    ncclInvalidUsage = 5,
    ncclRemoteError = 6,
    ncclInProgress = 7
} ncclResult_t;
typedef enum { ncclChar, ncclFloat16 = 6, ncclFloat32 = 7, ncclFloat64 = 8, ncclBfloat16 = 9 } ncclDataType_t;
typedef enum { ncclSum } ncclRedOp_t;
typedef struct {
    int blocking;
} ncclConfig_t;

ncclResult_t ncclGetUniqueId(ncclUniqueId *id);
ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int ranks, ncclUniqueId id, int rank, ncclConfig_t *config);
ncclResult_t ncclCommFinalize(ncclComm_t comm);
ncclResult_t ncclCommDestroy(ncclComm_t comm);
ncclResult_t ncclCommAbort(ncclComm_t comm);
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *error);
const char *ncclGetErrorString(ncclResult_t result);
const char *ncclGetLastError(ncclComm_t comm);
ncclResult_t ncclGroupStart(void);
ncclResult_t ncclGroupEnd(void);
ncclResult_t ncclSend(const void *data, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream);
ncclResult_t ncclRecv(void *data, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream);
/* In a group, as common/comm/nccl_groups.c calls them. Sums are those of a ring: in the order of ranks from another one
   on for each piece, and rounded after each addition. Ranks whose collectives differ wait for ever. */
ncclResult_t ncclAllGather(const void *from, void *to, size_t count, ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream);
ncclResult_t ncclReduceScatter(const void *from, void *to, size_t count, ncclDataType_t type, ncclRedOp_t op,
                               ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclAllReduce(const void *from, void *to, size_t count, ncclDataType_t type, ncclRedOp_t op,
                           ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclBroadcast(const void *from, void *to, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
                           cudaStream_t stream);
ncclResult_t ncclReduce(const void *from, void *to, size_t count, ncclDataType_t type, ncclRedOp_t op, int root,
                        ncclComm_t comm, cudaStream_t stream);

/* What a test tells the stand-in, and what it sees there. */
enum { HT_ON_CPU_DEVICES = 4, HT_ON_CPU_DEVICE_BYTES = 1 << 22 };
struct ht_nccl_on_cpu {
    atomic_bool fail_sends;              /* ncclSend fails */
    atomic_bool stall;                   /* kernels do not go on, until they are aborted */
    atomic_bool break_link;              /* the communicator has an asynchronous error */
    atomic_bool abort_hangs;             /* ncclCommAbort never returns */
    atomic_int kernels;                  /* on a stream and not ended */
    atomic_int groups, objects;          /* groups so far; streams, events, communicators that have not been freed */
    atomic_uint contexts;                /* bit d: something was made or asked for on device d */
    char memory[HT_ON_CPU_DEVICE_BYTES]; /* of the GPU */
};
extern struct ht_nccl_on_cpu ht_nccl_on_cpu;

#endif
