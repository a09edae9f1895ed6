#include "claims/builtin.h"

#include "common/base/array.h"

HT_EMBED(ht_claims_autohete, "claims/autohete.yaml");
HT_EMBED(ht_claims_sysx, "claims/sysx.yaml");

static const struct ht_builtin ledgers[] = {
    {"builtin:claims/autohete.yaml", ht_claims_autohete, ht_claims_autohete_end},
    {"builtin:claims/sysx.yaml", ht_claims_sysx, ht_claims_sysx_end},
};

const struct ht_builtin *ht_claims_ledger(size_t index)
{
    return index < HT_COUNT(ledgers) ? &ledgers[index] : NULL;
}
