#include "harness/run/registry.h"

#include "autohet/autohet.h"
#include "autohete/autohete.h"
#include "baselines/baselines.h"
#include "cephalo/cephalo.h"
#include "common/base/array.h"
#include "common/base/config.h"
#include "examples/examples.h"
#include "lohan/lohan.h"
#include "sysx/sysx.h"

#include <string.h>

static const struct ht_system *const systems[] = {
    &ht_in_memory,
    &ht_in_memory_ckpt,
    &ht_ddp,
    &ht_whale,
    &ht_fast_dit,
    &ht_fsdp,
    &ht_fsdp_ga,
    &ht_zero_offload,
    &ht_zero_offload_ckpt,
    &ht_zero3_offload,
    &ht_zero3_offload_ckpt,
    &ht_zero_infinity,
    &ht_patrickstar,
    &ht_patrickstar_ckpt,
    &ht_stronghold,
    &ht_stronghold_ckpt,
    &ht_gpipe,
    &ht_dapple,
    &ht_interleaved,
    &ht_mobius,
    &ht_megatron,
    &ht_megatron_3d,
    &ht_whale_3d,
    &ht_varuna,
    &ht_autohete,
    &ht_autohete_nops,
    &ht_autohete_period,
    &autohet,
    &autohet_mapped,
    &autohet_grouped,
    &autohet_one_pipeline,
    &cephalo,
    &cephalo_cb,
    &cephalo_mb,
    &sysx,
    &sysx_cfg0,
    &sysx_cfg1,
    &sysx_cfg2,
    &sysx_cfg3,
    &sysx_cfg4,
    &ht_example_stream,
    &ht_example_by_speed,
    &lohan,
    &lohan_halves,
    &lohan_naive,
    &lohan_zero,
    &lohan_cpuact,
    &lohan_ds,
    &lohan_artifact,
    &lohan_cap,
    &lohan_g10,
    &lohan_cm,
    &ht_capuchin,
    &ht_checkmate,
    &ht_flashneuron,
    &ht_g10,
    &ht_gemini,
};

/* Ablations and variants that a paper compares its method with, and the examples: not what one would train with. */
static const struct ht_system *const ablations[] = {
    &autohet_mapped,      &autohet_grouped, &autohet_one_pipeline,
    &ht_autohete_nops,    &cephalo_cb,      &cephalo_mb,
    &sysx_cfg0,           &sysx_cfg1,       &sysx_cfg2,
    &sysx_cfg3,           &sysx_cfg4,       &ht_example_stream,
    &ht_example_by_speed, &lohan_naive,     &lohan_zero,
    &lohan_cpuact,        &lohan_ds,        &lohan_artifact,
    &lohan_cap,           &lohan_g10,       &lohan_cm,
};

bool ht_system_is_ablation(const struct ht_system *system)
{
    for (size_t i = 0; i < HT_COUNT(ablations); i++)
        if (ablations[i] == system) return true;
    return false;
}

const struct ht_system *ht_system_at(size_t index)
{
    return index < HT_COUNT(systems) ? systems[index] : NULL;
}

enum ht_status ht_system_find(const char *name, struct ht_error *err, const struct ht_system **out)
{
    const char *names[HT_COUNT(systems)];
    for (size_t i = 0; i < HT_COUNT(systems); i++) {
        names[i] = systems[i]->name;
        if (!strcmp(names[i], name)) {
            *out = systems[i];
            return HT_OK;
        }
    }
    const char *near = ht_nearest(name, names, HT_COUNT(systems));
    if (near) return ht_fail(err, HT_BAD_INPUT, "unknown system '%s'; expected '%s'?", name, near);
    return ht_fail(err, HT_BAD_INPUT, "unknown system '%s'; hetbench list systems shows those there are", name);
}

const char *ht_variant_of(char *words, struct ht_options *options)
{
    char *save = NULL, *system = strtok_r(words, " ", &save);
    for (char *w = strtok_r(NULL, " ", &save); w && options->plan.n_set < HT_MAX_SET; w = strtok_r(NULL, " ", &save))
        options->plan.set[options->plan.n_set++] = w;
    return system ? system : "";
}
