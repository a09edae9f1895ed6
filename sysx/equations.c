#include "sysx/equations.h"

int64_t sysx_bubble_time(const struct sysx_pipeline *p)
{
    return (p->n_gpus - 1) * (p->forward + p->backward);
}

int64_t sysx_overall_time(const struct sysx_pipeline *p)
{
    return (p->v * p->n_micro_batches + p->n_gpus - 1) * (p->forward + p->backward);
}

double sysx_bubble_ratio(const struct sysx_pipeline *p)
{
    return (double)sysx_bubble_time(p) / (double)sysx_overall_time(p);
}

int64_t sysx_decoupled_time(const struct sysx_pipeline *p, int64_t d)
{
    int64_t fine = p->backward / d, skew = p->forward > fine ? p->forward : fine;
    return p->n_micro_batches * p->v * (p->forward + p->backward) + (p->n_gpus - 1) * skew;
}
