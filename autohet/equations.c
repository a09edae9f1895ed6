/*
 * AutoHet's equations (1), (2) and (5), one function each. tests/autohet/test_equations.c checks them by hand.
 *
 * Eq. (1) takes t as one forward and backward pass without a break, which is exact for a pipeline that runs all forwards
 * first. 1F1B may be faster: where its slowest stage is an early one, later stages' passes hide behind it.
 */
#include "autohet/planner.h"

double autohet_pipeline_s(const double *times, int32_t stages, double micro_batches)
{
    double sum = 0, slowest = 0;
    for (int32_t p = 0; p < stages; p++) {
        sum += times[p];
        if (times[p] > slowest) slowest = times[p];
    }
    return sum + (micro_batches - 1) * slowest;
}

double autohet_sync_s(double bytes, double lowest_bytes_per_s)
{
    return bytes > 0 ? bytes / lowest_bytes_per_s : 0;
}

double autohet_bubble_ratio(int32_t stages, double micro_batches)
{
    return (stages - 1) / (micro_batches + stages - 1);
}

double autohet_effective_power(double power, int32_t stages, double micro_batches)
{
    return (1 - autohet_bubble_ratio(stages, micro_batches)) * power;
}

double autohet_composed_s(const double profile[AUTOHET_POWERS], int32_t n)
{
    double sum = 0;
    for (int32_t k = 0; k < AUTOHET_POWERS; k++)
        if (n >> k & 1) sum += profile[k];
    return sum;
}

struct autohet_line autohet_fit(const double *profile, int32_t powers)
{
    double n = powers, x = 0, y = 0, xx = 0, xy = 0;
    for (int32_t k = 0; k < powers; k++) {
        double layers = (double)(1 << k);
        x += layers, y += profile[k], xx += layers * layers, xy += layers * profile[k];
    }
    if (powers < 2) return (struct autohet_line){0, y};
    double slope = (n * xy - x * y) / (n * xx - x * x);
    return (struct autohet_line){(y - slope * x) / n, slope};
}

int32_t autohet_profiled_powers(int32_t layers)
{
    int32_t powers = 0;
    while (powers < AUTOHET_POWERS && 1 << powers <= layers) powers++;
    return powers;
}
