#include "cephalo/partition.h"

#include "common/base/array.h"
#include "common/base/units.h"
#include "common/schedule/schedule.h"

#include <stdlib.h>
#include <string.h>

typedef __int128 wide; /* products of bytes and elements */

/* Divides `whole` by the largest fraction: floor(numerators / denominator), and one more where the remainder is largest
   (of equals the first). The quotients add up to `whole`, so at most one is left for each that was rounded down. */
static void apportion(int32_t n, const wide *numerators, wide denominator, int64_t whole, int64_t *out)
{
    wide *rest = ht_alloc_array((size_t)n, sizeof(*rest));
    for (int32_t i = 0; i < n; i++) {
        out[i] = (int64_t)(numerators[i] / denominator);
        rest[i] = numerators[i] % denominator;
        whole -= out[i];
    }
    for (; whole > 0; whole--) {
        int32_t most = 0;
        for (int32_t i = 1; i < n; i++)
            if (rest[i] > rest[most]) most = i;
        out[most]++;
        rest[most] = 0;
    }
    free(rest);
}

/*
 * The level u is (S + sum compute) / (sum capacity) over the GPUs below it. Begins with all GPUs and drops those that
 * are fuller than u without any state, which lowers u, until none is left to drop: at most N rounds of N.
 */
enum ht_status cephalo_partition_state(int32_t n, const int64_t *compute_bytes, const int64_t *capacity_bytes,
                                       int64_t state_bytes, struct ht_error *err, int64_t *held)
{
    wide full = state_bytes, room = 0; /* u = full / room */
    bool *dropped = HT_NEW_ARRAY(bool, n);
    wide *numerators = ht_alloc_array((size_t)n, sizeof(*numerators));
    for (int32_t i = 0; i < n; i++) {
        full += compute_bytes[i];
        room += capacity_bytes[i];
    }
    enum ht_status status = HT_OK;
    if (full > room) {
        char need[HT_QUANTITY_TEXT], have[HT_QUANTITY_TEXT];
        status = ht_fail_memory(err, HT_DEVICE, "training state and compute memory of %s exceed all GPUs' %s",
                                ht_format_quantity(HT_BYTES, (double)full, need),
                                ht_format_quantity(HT_BYTES, (double)room, have));
        goto out;
    }
    for (bool again = true; again;) {
        again = false;
        for (int32_t i = 0; i < n; i++) {
            if (dropped[i] || full * capacity_bytes[i] >= compute_bytes[i] * room) continue;
            dropped[i] = again = true;
            full -= compute_bytes[i];
            room -= capacity_bytes[i];
        }
    }
    for (int32_t i = 0; i < n; i++) numerators[i] = dropped[i] ? 0 : full * capacity_bytes[i] - compute_bytes[i] * room;
    if (room > 0)
        apportion(n, numerators, room, state_bytes, held);
    else
        memset(held, 0, (size_t)n * sizeof(*held));
out:
    free(dropped);
    free(numerators);
    return status;
}

/* Marks units as even, the largest first, while N times the least weight has room for them. Returns their elements. */
static wide choose_even(int32_t n_gpus, const int64_t *weights, wide all_weights, int32_t n_units,
                        const int64_t *elements, wide all_elements, bool *even)
{
    wide least = weights[0], chosen = 0;
    bool *seen = HT_NEW_ARRAY(bool, n_units);
    for (int32_t i = 1; i < n_gpus; i++) least = weights[i] < least ? weights[i] : least;
    for (int32_t round = 0; round < n_units; round++) {
        int32_t u = -1;
        for (int32_t v = 0; v < n_units; v++)
            if (!seen[v] && (u < 0 || elements[v] > elements[u])) u = v;
        seen[u] = true;
        even[u] = (chosen + elements[u]) * all_weights <= (wide)n_gpus * least * all_elements;
        if (even[u]) chosen += elements[u];
    }
    free(seen);
    return chosen;
}

/* Gives a unit's elements to the GPU that lacks most, then to the next, and so on. */
static void fill(int32_t n_gpus, int64_t *lacking, int64_t elements, int64_t *shards)
{
    while (elements > 0) {
        int32_t most = 0;
        for (int32_t i = 1; i < n_gpus; i++)
            if (lacking[i] > lacking[most]) most = i;
        int64_t take = lacking[most] < elements ? lacking[most] : elements;
        shards[most] += take;
        lacking[most] -= take;
        elements -= take;
    }
}

void cephalo_partition_units(int32_t n_gpus, const int64_t *weights, int32_t n_units, const int64_t *elements,
                             int64_t *shards, bool *even)
{
    wide all_weights = 0, all_elements = 0;
    for (int32_t i = 0; i < n_gpus; i++) all_weights += weights[i];
    for (int32_t u = 0; u < n_units; u++) all_elements += elements[u];
    wide chosen = choose_even(n_gpus, weights, all_weights, n_units, elements, all_elements, even);
    /* GPU i lacks w_i / W of all elements, less 1/N of those in even units: with the common denominator N W. */
    wide *numerators = ht_alloc_array((size_t)n_gpus, sizeof(*numerators));
    int64_t *lacking = HT_NEW_ARRAY(int64_t, n_gpus);
    for (int32_t i = 0; i < n_gpus; i++)
        numerators[i] = (wide)n_gpus * weights[i] * all_elements - all_weights * chosen;
    apportion(n_gpus, numerators, (wide)n_gpus * all_weights, (int64_t)(all_elements - chosen), lacking);
    memset(shards, 0, (size_t)n_units * (size_t)n_gpus * sizeof(*shards));
    for (int32_t u = 0; u < n_units; u++) {
        int64_t *row = shards + (int64_t)u * n_gpus, each = (elements[u] + n_gpus - 1) / n_gpus, left = elements[u];
        if (!even[u]) fill(n_gpus, lacking, elements[u], row);
        for (int32_t i = 0; even[u] && i < n_gpus; left -= row[i++]) row[i] = left < each ? left : each;
    }
    free(numerators);
    free(lacking);
}
