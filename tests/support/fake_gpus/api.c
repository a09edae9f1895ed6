/* Stands in for CUDA in a whole hetbench. */
#include "tests/support/fake_cuda.h"

#include <stdlib.h>
#include <string.h>

/* HT_FAKE_GPU_FULL=RANK in the environment: the GPU of this rank gives no more than a megabyte at once. */
const struct ht_cuda_api *ht_cuda_api_real(void)
{
    const char *full = getenv("HT_FAKE_GPU_FULL"), *rank = getenv("OMPI_COMM_WORLD_RANK");
    if (full && rank && !strcmp(full, rank)) fake_cuda_largest(1 << 20);
    return fake_cuda_api();
}
