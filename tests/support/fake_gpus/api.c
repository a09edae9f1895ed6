/* Stands in for CUDA in a whole hetbench. */
#include "tests/support/fake_cuda.h"

const struct ht_cuda_api *ht_cuda_api_real(void)
{
    return fake_cuda_api();
}
