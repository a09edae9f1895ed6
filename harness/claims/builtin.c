#include "harness/claims/builtin.h"

#include "common/base/array.h"

HT_EMBED(ht_claims_autohet, "harness/claims/autohet.yaml");
HT_EMBED(ht_claims_autohete, "harness/claims/autohete.yaml");
HT_EMBED(ht_claims_cephalo, "harness/claims/cephalo.yaml");
HT_EMBED(ht_claims_lohan, "harness/claims/lohan.yaml");
HT_EMBED(ht_claims_sysx, "harness/claims/sysx.yaml");

static const struct ht_builtin ledgers[] = {
    {"builtin:harness/claims/autohet.yaml", ht_claims_autohet, ht_claims_autohet_end},
    {"builtin:harness/claims/autohete.yaml", ht_claims_autohete, ht_claims_autohete_end},
    {"builtin:harness/claims/cephalo.yaml", ht_claims_cephalo, ht_claims_cephalo_end},
    {"builtin:harness/claims/lohan.yaml", ht_claims_lohan, ht_claims_lohan_end},
    {"builtin:harness/claims/sysx.yaml", ht_claims_sysx, ht_claims_sysx_end},
};

const struct ht_builtin *ht_claims_ledger(size_t index)
{
    return index < HT_COUNT(ledgers) ? &ledgers[index] : NULL;
}
