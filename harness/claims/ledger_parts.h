/* What the files that read a ledger share. Internal to harness/claims/; see ledger.h. */
#ifndef HT_HARNESS_CLAIMS_LEDGER_PARTS_H
#define HT_HARNESS_CLAIMS_LEDGER_PARTS_H

#include "harness/claims/ledger.h"

/* setup.c */
enum ht_status ht_claim_load_setup(const struct ht_node *map, struct ht_error *err, struct ht_claim_setup *out);
/* Which entry of a setup's list a scalar names. HT_BAD_INPUT when it is none of them. */
enum ht_status ht_claim_find_entry(const struct ht_claim_setup *setup, enum ht_claim_axis axis,
                                   const struct ht_node *node, struct ht_error *err, int *out);

/* rows.c: the ledger's tolerances, systems and setups are there. */
enum ht_status ht_claim_load_row(const struct ht_ledger *ledger, const struct ht_node *map, struct ht_error *err,
                                 struct ht_claim *out);

#endif
