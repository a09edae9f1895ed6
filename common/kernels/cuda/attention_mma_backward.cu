/* The tensor cores' backward pass for each type and head size (a file of its own for the compiler's sake). */
#include "common/kernels/cuda/attention_mma.cuh"

template <class T> static bool backward_as(struct ht_cuda *cuda, const struct ht_cuda_attention *a)
{
    switch (a->head_size) {
    case 64:
        ht_mma_run_backward<T, 64>(cuda, a);
        return true;
    case 80:
        ht_mma_run_backward<T, 80>(cuda, a);
        return true;
    case 96:
        ht_mma_run_backward<T, 96>(cuda, a);
        return true;
    case 128:
        ht_mma_run_backward<T, 128>(cuda, a);
        return true;
    default:
        return false;
    }
}

bool ht_attention_mma_backward(struct ht_cuda *cuda, const struct ht_cuda_attention *a)
{
    if (a->dtype == HT_F16) return backward_as<ht_f16>(cuda, a);
    if (a->dtype == HT_BF16) return backward_as<ht_bf16>(cuda, a);
    return false;
}
