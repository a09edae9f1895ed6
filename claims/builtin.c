#include "claims/builtin.h"

#include "common/base/array.h"

HT_EMBED(ht_claims_autohete, "claims/autohete.yaml");

static const struct ht_builtin ledgers[] = {
    {"builtin:claims/autohete.yaml", ht_claims_autohete, ht_claims_autohete_end},
};

const struct ht_builtin *ht_claims_ledger(size_t index)
{
    return index < HT_COUNT(ledgers) ? &ledgers[index] : NULL;
}
