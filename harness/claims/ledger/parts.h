/* Functions that the files which read a ledger share. Internal to harness/claims/; see ledger.h. */
#ifndef HT_HARNESS_CLAIMS_LEDGER_PARTS_H
#define HT_HARNESS_CLAIMS_LEDGER_PARTS_H

#include "harness/claims/ledger/ledger.h"

/* ---- setup.c */
/* Reads {name, why} of a software profile. Returns HT_BAD_INPUT if no such profile exists. */
enum ht_status ht_claim_load_software(const struct ht_node *map, struct ht_error *err, struct ht_claim_software *out);
/* Reads a setup. software: the ledger's, for setups without their own. */
enum ht_status ht_claim_load_setup(const struct ht_node *map, const struct ht_claim_software *software,
                                   struct ht_error *err, struct ht_claim_setup *out);
/* Finds the entry of a setup's list that a scalar names. Returns HT_BAD_INPUT if no entry matches. */
enum ht_status ht_claim_find_entry(const struct ht_claim_setup *setup, enum ht_claim_axis axis,
                                   const struct ht_node *node, struct ht_error *err, int *out);

/* ---- rows.c: after the ledger's tolerances, systems and setups */
enum ht_status ht_claim_load_row(const struct ht_ledger *ledger, const struct ht_node *map, struct ht_error *err,
                                 struct ht_claim *out);

#endif
