#include "harness/sweep/builtin.h"

#include "common/base/array.h"

HT_EMBED(ht_experiments_autohet, "harness/sweep/autohet.yaml");
HT_EMBED(ht_experiments_autohete, "harness/sweep/autohete.yaml");
HT_EMBED(ht_experiments_cephalo, "harness/sweep/cephalo.yaml");
HT_EMBED(ht_experiments_grid, "harness/sweep/grid.yaml");
HT_EMBED(ht_experiments_lohan, "harness/sweep/lohan.yaml");
HT_EMBED(ht_experiments_sysx, "harness/sweep/sysx.yaml");

static const struct ht_builtin files[] = {
    {"builtin:harness/sweep/autohet.yaml", ht_experiments_autohet, ht_experiments_autohet_end},
    {"builtin:harness/sweep/autohete.yaml", ht_experiments_autohete, ht_experiments_autohete_end},
    {"builtin:harness/sweep/cephalo.yaml", ht_experiments_cephalo, ht_experiments_cephalo_end},
    {"builtin:harness/sweep/grid.yaml", ht_experiments_grid, ht_experiments_grid_end},
    {"builtin:harness/sweep/lohan.yaml", ht_experiments_lohan, ht_experiments_lohan_end},
    {"builtin:harness/sweep/sysx.yaml", ht_experiments_sysx, ht_experiments_sysx_end},
};

enum ht_status ht_experiment_find(const char *name, struct ht_error *err, struct ht_doc **doc,
                                  const struct ht_node **entry)
{
    return ht_builtin_find(files, HT_COUNT(files), "experiment", name, err, doc, entry);
}

bool ht_experiment_name(int64_t index, char *buf, size_t bytes)
{
    return ht_builtin_name(files, HT_COUNT(files), index, buf, bytes);
}
