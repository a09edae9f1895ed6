/*
 * FlashNeuron: Bae et al., "FlashNeuron: SSD-Enabled Large-Batch Training of Very Deep Neural Networks", FAST 2021.
 *
 * Its offloading scheduler selects linearly (phase 1): tensors are offloaded to the SSDs from the first layer on, until
 * what is left fits the GPU. Nothing is recomputed.
 *
 * Departures. Phase 2, which exchanges tensors for ones that compress, is left out: it halves FP32 activations and
 * packs the zeros of ReLU, neither of which 16-bit transformers have. Bytes pass through main memory, as in LoHan's
 * port of FlashNeuron (Sec. V-A).
 */
#include "policies/policy.h"

enum ht_status ht_policy_flashneuron(const struct ht_policy_case *c, struct ht_error *err, enum ht_fate *fates)
{
    enum ht_status status = ht_policy_check(c, err);
    if (status) return status;
    double waiting = 0;
    for (int32_t i = 0; i < c->n; i++) waiting += c->a[i].bytes;
    if (waiting > c->device_bytes && (c->ssd_write_bytes_per_s == 0 || c->ssd_read_bytes_per_s == 0))
        return ht_fail(err, HT_INFEASIBLE, "FlashNeuron has no SSDs to offload activations to");
    for (int32_t i = 0; i < c->n; i++) {
        fates[i] = waiting > c->device_bytes ? HT_FATE_SSD : HT_FATE_KEPT;
        if (fates[i] == HT_FATE_SSD) waiting -= c->a[i].bytes;
    }
    return HT_OK;
}
