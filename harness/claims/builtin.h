/*
 * The ledgers of the papers' claims that the binary carries: one YAML file a paper, in this folder. docs/claims.md
 * describes the format, ledger.h reads it.
 */
#ifndef HT_HARNESS_CLAIMS_BUILTIN_H
#define HT_HARNESS_CLAIMS_BUILTIN_H

#include "common/base/builtin.h"

/* Returns the index-th ledger, NULL past the end. */
const struct ht_builtin *ht_claims_ledger(size_t index);

#endif
