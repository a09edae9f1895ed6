/*
 * The minimum is entry B of the min-plus product of all F_i. Powers of F are computed by squaring. Two things keep the
 * products short.
 *
 * Bounds. For any price mu of a sample, sum F_i(b_i) >= mu B + sum_i min_b (F_i(b) - mu b). The best mu is a slope of
 * the lower convex hulls: sort their edges by slope and take them until B samples are reached. If even this bound
 * exceeds the room, there is no solution. Otherwise the difference is the most by which F_i(b) - mu b of an entry may
 * exceed its minimum. If memory is short, most entries exceed it and are dropped.
 *
 * Offsets. The remaining entries are b = low..high. Only the sum of their offsets matters, from below or from above,
 * whichever is less. An upper bound on time that is close to the optimum leaves a few samples:
 *
 *     sum of low   240 ------- B = 256 -- 260   sum of high: products of length 4
 */
#include "cephalo/knapsack.h"

#include "common/base/array.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

/* An edge of a kind's lower hull: so many samples at so many bytes each. */
struct cephalo_edge {
    double bytes;
    int64_t samples;
};

void cephalo_knapsack_init(struct cephalo_knapsack *k, int32_t n_kinds, int32_t batch)
{
    size_t width = (size_t)batch + 1, kinds = (size_t)n_kinds;
    *k = (struct cephalo_knapsack){.n_kinds = n_kinds,
                                   .batch = batch,
                                   .n_gpus = HT_NEW_ARRAY(int32_t, kinds),
                                   .reach = HT_NEW_ARRAY(int32_t, kinds),
                                   .bytes = HT_NEW_ARRAY(double, kinds *width),
                                   .low = HT_NEW_ARRAY(int32_t, kinds),
                                   .high = HT_NEW_ARRAY(int32_t, kinds),
                                   .off = HT_NEW_ARRAY(double, kinds),
                                   .hull = HT_NEW_ARRAY(int32_t, width),
                                   .edges = HT_NEW_ARRAY(struct cephalo_edge, kinds * width)};
    for (int i = 0; i < 3; i++) k->row[i] = HT_NEW_ARRAY(double, width);
}

void cephalo_knapsack_free(struct cephalo_knapsack *k)
{
    void *all[] = {k->n_gpus, k->reach, k->bytes,  k->low,    k->high,  k->off,
                   k->hull,   k->edges, k->row[0], k->row[1], k->row[2]};
    for (size_t i = 0; i < HT_COUNT(all); i++) free(all[i]);
}

double *cephalo_knapsack_row(const struct cephalo_knapsack *k, int32_t kind)
{
    return k->bytes + (int64_t)kind * (k->batch + 1);
}

/* ---- bounds ---------------------------------------------------------------------------------------------------- */

/* Finds the lower convex hull of F's finite entries; returns its number of points. */
static int32_t make_hull(const double *f, int32_t reach, int32_t *hull)
{
    int32_t n = 0;
    for (int32_t b = 0; b <= reach; b++) {
        if (isinf(f[b])) continue;
        while (n > 1 && (f[hull[n - 1]] - f[hull[n - 2]]) * (b - hull[n - 1]) >=
                            (f[b] - f[hull[n - 1]]) * (hull[n - 1] - hull[n - 2]))
            n--;
        hull[n++] = b;
    }
    return n;
}

static int by_bytes(const void *a, const void *b)
{
    double x = ((const struct cephalo_edge *)a)->bytes, y = ((const struct cephalo_edge *)b)->bytes;
    return (x > y) - (x < y);
}

/* Returns the price of a sample, mu. */
static double find_price(struct cephalo_knapsack *k)
{
    int64_t left = k->batch;
    size_t n = 0;
    for (int32_t kind = 0; kind < k->n_kinds; kind++) {
        const double *f = cephalo_knapsack_row(k, kind);
        int32_t points = k->n_gpus[kind] ? make_hull(f, k->reach[kind], k->hull) : 0;
        if (points) left -= (int64_t)k->n_gpus[kind] * k->hull[0];
        for (int32_t i = 1; i < points; i++) {
            int32_t a = k->hull[i - 1], b = k->hull[i];
            k->edges[n++] = (struct cephalo_edge){(f[b] - f[a]) / (b - a), (int64_t)k->n_gpus[kind] * (b - a)};
        }
    }
    qsort(k->edges, n, sizeof(*k->edges), by_bytes);
    size_t i = 0;
    while (i + 1 < n && left > k->edges[i].samples) left -= k->edges[i++].samples;
    return n ? k->edges[i].bytes : 0;
}

/* Drops entries that no solution within `room` has, and sets low and high. Returns false if there is no solution. */
static bool prune(struct cephalo_knapsack *k, double room)
{
    double price = find_price(k), bound = price * k->batch, size = fabs(bound) + fabs(room);
    for (int32_t kind = 0; kind < k->n_kinds; kind++) {
        const double *f = cephalo_knapsack_row(k, kind);
        double least = INFINITY;
        for (int32_t b = 0; b <= k->reach[kind]; b++) least = f[b] - price * b < least ? f[b] - price * b : least;
        k->off[kind] = least;
        if (!k->n_gpus[kind]) continue;
        bound += k->n_gpus[kind] * least;
        size += k->n_gpus[kind] * fabs(least);
    }
    double left = room - bound + 1 + 1e-12 * size; /* a byte, and the rounding error of these sums */
    int64_t low = 0, high = 0;
    if (left < 0) return false;
    for (int32_t kind = 0; kind < k->n_kinds; kind++) {
        double *f = cephalo_knapsack_row(k, kind);
        if (!k->n_gpus[kind]) continue;
        k->low[kind] = -1;
        for (int32_t b = 0; b <= k->reach[kind]; b++) {
            if (f[b] - price * b - k->off[kind] > left) f[b] = INFINITY;
            if (isinf(f[b])) continue;
            if (k->low[kind] < 0) k->low[kind] = b;
            k->high[kind] = b;
        }
        low += (int64_t)k->n_gpus[kind] * k->low[kind];
        high += (int64_t)k->n_gpus[kind] * k->high[kind];
    }
    return low <= k->batch && high >= k->batch;
}

/* ---- products -------------------------------------------------------------------------------------------------- */

/* Direction in which rows are indexed: row[x] stands for x samples more than low, or x fewer than high. */
struct axis {
    int32_t length; /* only entries 0..length matter; the last one is the answer */
    bool down;
};

static struct axis axis_of(const struct cephalo_knapsack *k)
{
    int64_t up = k->batch, down = -(int64_t)k->batch;
    for (int32_t kind = 0; kind < k->n_kinds; kind++) {
        if (!k->n_gpus[kind]) continue;
        up -= (int64_t)k->n_gpus[kind] * k->low[kind];
        down += (int64_t)k->n_gpus[kind] * k->high[kind];
    }
    return (struct axis){(int32_t)(up < down ? up : down), down <= up};
}

static int32_t least(int32_t a, int32_t b)
{
    return a < b ? a : b;
}

/* Writes the row F of a kind along the axis; returns its last index. */
static int32_t make_row(const struct cephalo_knapsack *k, int32_t kind, struct axis axis, double *row)
{
    const double *f = cephalo_knapsack_row(k, kind);
    int32_t last = least(k->high[kind] - k->low[kind], axis.length);
    for (int32_t x = 0; x <= last; x++) row[x] = axis.down ? f[k->high[kind] - x] : f[k->low[kind] + x];
    return last;
}

/* Computes out[z] = min over x + y = z of a[x] + b[y], z = 0..length; returns the last index of out. */
static int32_t multiply(const double *restrict a, int32_t last_a, const double *restrict b, int32_t last_b,
                        int32_t length, double *restrict out)
{
    int32_t last = least(last_a + last_b, length);
    for (int32_t z = 0; z <= last; z++) out[z] = INFINITY;
    for (int32_t y = 0; y <= last_b; y++) {
        if (isinf(b[y])) continue;
        double more = b[y], *restrict to = out + y;
        int32_t end = least(last_a, length - y);
        for (int32_t x = 0; x <= end; x++) to[x] = a[x] + more < to[x] ? a[x] + more : to[x];
    }
    return last;
}

static void swap(double **a, double **b)
{
    double *t = *a;
    *a = *b;
    *b = t;
}

double cephalo_knapsack_least(struct cephalo_knapsack *k, double room)
{
    if (!prune(k, room)) return INFINITY;
    struct axis axis = axis_of(k);
    double *product = k->row[0], *power = k->row[1], *spare = k->row[2];
    int32_t last = 0;
    product[0] = 0;
    for (int32_t kind = 0; kind < k->n_kinds; kind++) {
        int32_t n = k->n_gpus[kind];
        if (!n) continue;
        for (int32_t last_power = make_row(k, kind, axis, power);;) {
            if (n & 1) {
                last = multiply(product, last, power, last_power, axis.length, spare);
                swap(&product, &spare);
            }
            if (!(n >>= 1)) break;
            last_power = multiply(power, last_power, power, last_power, axis.length, spare);
            swap(&power, &spare);
        }
    }
    return last < axis.length || product[axis.length] > room ? INFINITY : product[axis.length];
}

void cephalo_knapsack_solve(const struct cephalo_knapsack *k, int32_t n_gpus, const int32_t *kind_of, int32_t *batches)
{
    struct axis axis = axis_of(k);
    size_t width = (size_t)axis.length + 1;
    double *rows = HT_NEW_ARRAY(double, (size_t)k->n_kinds *width);
    double *products = HT_NEW_ARRAY(double, ((size_t)n_gpus + 1) * width); /* of the first i GPUs */
    int32_t *last = HT_NEW_ARRAY(int32_t, k->n_kinds), *last_product = HT_NEW_ARRAY(int32_t, n_gpus + 1);
    int64_t reach = 0, left = k->batch;
    for (int32_t kind = 0; kind < k->n_kinds; kind++)
        if (k->n_gpus[kind]) last[kind] = make_row(k, kind, axis, rows + (size_t)kind * width);
    for (int32_t i = 0; i < n_gpus; i++) {
        last_product[i + 1] = multiply(products + (size_t)i * width, last_product[i], rows + (size_t)kind_of[i] * width,
                                       last[kind_of[i]], axis.length, products + (size_t)(i + 1) * width);
        reach += k->reach[kind_of[i]];
    }
    for (int32_t i = n_gpus - 1, z = axis.length; i >= 0; i--) {
        int32_t kind = kind_of[i], best = -1, taken = 0;
        const double *row = rows + (size_t)kind * width, *before = products + (size_t)i * width;
        double sum = before[(size_t)z + width];
        int64_t off = 0;
        for (int32_t x = 0; x <= last[kind] && x <= z; x++) {
            if (z - x > last_product[i] || isinf(row[x]) || before[z - x] + row[x] != sum) continue;
            int32_t b = axis.down ? k->high[kind] - x : k->low[kind] + x;
            int64_t distance = llabs(b * reach - left * k->reach[kind]); /* from left / reach of the GPU's own reach */
            if (best >= 0 && (distance > off || (distance == off && b > best))) continue;
            best = b;
            off = distance;
            taken = x;
        }
        batches[i] = best;
        left -= best;
        reach -= k->reach[kind];
        z -= taken;
    }
    free(rows);
    free(products);
    free(last);
    free(last_product);
}
