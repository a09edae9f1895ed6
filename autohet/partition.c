/*
 * The division of a model's layers over the stages of a pipeline: Sec. III-C, eq. (4), exactly.
 *
 * A stage's time is fixed + l tau. For a bound T on all of them, stage p takes at most cap_p = min(most, floor((T -
 * fixed) / tau)) layers. If no stage is above T, eq. (1) is at most (K - 1) T + sum of fixed + sum of l tau, which is
 * linear in l; the least of it gives every stage one layer and the rest to the cheapest stages, up to their caps. The
 * best division's own slowest stage is one of the bounds fixed + l tau that are tried, so nothing better exists.
 *
 * tests/autohet/test_partition.c compares with all divisions of random pipelines.
 */
#include "autohet/planner.h"

#include "common/base/array.h"

#include <math.h>
#include <stdlib.h>

/* Times that differ by rounding alone are equal. */
#define EQUAL (1 + 1e-12)

int32_t autohet_most_layers(const struct autohet_memory *m, double memory_bytes, int32_t stages, int32_t stage,
                            double micro_batches)
{
    double in_flight = fmin(micro_batches, stages - stage);
    double room = memory_bytes - m->fixed_bytes - in_flight * m->fixed_activation_bytes;
    double most = floor(room / (m->layer_bytes + in_flight * m->activation_bytes));
    return most < 0 ? 0 : most > 1 << 20 ? 1 << 20 : (int32_t)most;
}

double autohet_stage_bytes(const struct autohet_memory *m, int64_t layers, int32_t stages, int32_t stage,
                           double micro_batches)
{
    double in_flight = fmin(micro_batches, stages - stage);
    return (double)layers * (m->layer_bytes + in_flight * m->activation_bytes) + m->fixed_bytes +
           in_flight * m->fixed_activation_bytes;
}

static double stage_s(const struct autohet_stage *s, int64_t layers)
{
    return s->fixed_s + (double)layers * s->layer_s;
}

static int64_t cap(const struct autohet_stage *s, double bound)
{
    double fits = floor((bound * EQUAL - s->fixed_s) / s->layer_s);
    return fits < s->most ? (int64_t)fits : s->most;
}

/* Fills `blocks` with the cheapest division whose stages take at most `bound`. Returns false if no division does. order:
   stages by rising tau. */
static bool fill(const struct autohet_stage *stages, const int32_t *order, int32_t n, int32_t layers, double bound,
                 int64_t *blocks)
{
    int64_t left = layers - n;
    for (int32_t p = 0; p < n; p++) {
        if (cap(&stages[p], bound) < 1) return false;
        blocks[p] = 1;
    }
    for (int32_t i = 0; i < n && left > 0; i++) {
        int64_t more = cap(&stages[order[i]], bound) - 1;
        if (more > left) more = left;
        blocks[order[i]] += more;
        left -= more;
    }
    return left == 0;
}

static double cost(const struct autohet_stage *stages, const int64_t *blocks, int32_t n, double micro_batches,
                   double *slowest)
{
    double sum = 0;
    *slowest = 0;
    for (int32_t p = 0; p < n; p++) {
        double s = stage_s(&stages[p], blocks[p]);
        sum += s;
        if (s > *slowest) *slowest = s;
    }
    return sum + (micro_batches - 1) * *slowest;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Lists the possible times of a slowest stage, rising. Returns their number. */
static int32_t list_bounds(const struct autohet_stage *stages, int32_t n, int32_t layers, double *bounds)
{
    int32_t count = 0;
    for (int32_t p = 0; p < n; p++)
        for (int32_t l = 1; l <= layers - n + 1 && l <= stages[p].most; l++) bounds[count++] = stage_s(&stages[p], l);
    qsort(bounds, (size_t)count, sizeof(*bounds), ascending);
    return count;
}

/* Sorts the stages by tau; of equal ones the first comes first. */
static void sort_by_speed(const struct autohet_stage *stages, int32_t n, int32_t *order)
{
    for (int32_t i = 0; i < n; i++) {
        int32_t j = i;
        for (; j > 0 && stages[order[j - 1]].layer_s > stages[i].layer_s; j--) order[j] = order[j - 1];
        order[j] = i;
    }
}

enum ht_status autohet_partition(const struct autohet_stage *stages, int32_t n, int32_t layers, double micro_batches,
                                 enum autohet_objective objective, struct ht_error *err, int64_t *blocks)
{
    double least = INFINITY, slowest;
    if (layers < n)
        return ht_fail(err, HT_INFEASIBLE, "%d layers for %d stages: expected at least one each", layers, n);
    double *bounds = HT_NEW_ARRAY(double, (size_t)n *(size_t)layers);
    int32_t *order = HT_NEW_ARRAY(int32_t, n);
    int64_t *tried = HT_NEW_ARRAY(int64_t, n);
    sort_by_speed(stages, n, order);
    int32_t count = list_bounds(stages, n, layers, bounds);
    for (int32_t i = 0; i < count; i++) {
        if ((micro_batches - 1) * bounds[i] >= least) break; /* and so are all that follow */
        if (i > 0 && bounds[i] == bounds[i - 1]) continue;
        if (!fill(stages, order, n, layers, bounds[i], tried)) continue;
        double s = cost(stages, tried, n, micro_batches, &slowest);
        if (s * EQUAL < least) {
            least = s;
            for (int32_t p = 0; p < n; p++) blocks[p] = tried[p];
        }
        if (objective == AUTOHET_EQ_4) break; /* the first bound that holds all layers is the smallest */
    }
    free(bounds);
    free(order);
    free(tried);
    if (isfinite(least)) return HT_OK;
    return ht_fail(err, HT_INFEASIBLE, "%d layers do not fit the memory of a pipeline of %d stages", layers, n);
}

enum ht_status autohet_equal_layers(const struct autohet_stage *stages, int32_t n, int32_t layers, struct ht_error *err,
                                    int64_t *blocks)
{
    for (int32_t q = 0; q < n; q++) {
        blocks[q] = (int64_t)(q + 1) * layers / n - (int64_t)q * layers / n;
        if (blocks[q] < 1 || blocks[q] > stages[q].most)
            return ht_fail(err, HT_INFEASIBLE, "stage %d of %d has room for %d layers; expected %lld, an equal part", q,
                           n, stages[q].most, (long long)blocks[q]);
    }
    return HT_OK;
}
