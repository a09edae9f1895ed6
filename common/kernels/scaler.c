#include "common/kernels/scaler.h"

#include <math.h>

struct ht_control_options ht_control_filled(const struct ht_control_options *options)
{
    struct ht_control_options o = *options;
    if (o.loss_scale == 0) o.loss_scale = o.dynamic ? 65536 : 1;
    if (o.growth == 0) o.growth = 2;
    if (o.backoff == 0) o.backoff = 0.5;
    if (o.growth_interval == 0) o.growth_interval = 2000;
    return o;
}

struct ht_scaler ht_scaler_start(const struct ht_control_options *options)
{
    return (struct ht_scaler){.scale = (float)ht_control_filled(options).loss_scale};
}

void ht_scaler_update(struct ht_scaler *s, const struct ht_control_options *options, bool finite)
{
    struct ht_control_options o = ht_control_filled(options);
    if (!o.dynamic) return;
    if (!finite) {
        *s = (struct ht_scaler){.scale = (float)(s->scale * o.backoff)};
        return;
    }
    if (++s->good < o.growth_interval) return;
    float grown = (float)(s->scale * o.growth);
    if (isfinite(grown)) s->scale = grown;
    s->good = 0;
}

double ht_loss_weight(double scale, int64_t batch, int64_t rows)
{
    return scale / (double)(batch * rows);
}

double ht_clip_factor(double clip, double norm)
{
    if (clip == 0) return 1;
    double factor = clip / (norm + 1e-6);
    return factor < 1 ? factor : 1;
}
