/* Any bytes are a ledger or one line of complaint. */
#include "harness/claims/ledger/ledger.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    struct ht_error err = {0};
    struct ht_doc *doc;
    struct ht_ledger ledger;
    if (ht_doc_parse((const char *)bytes, n, "fuzz.yaml", &err, &doc) != HT_OK) return 0;
    enum ht_status status = ht_ledger_load(doc, &err, &ledger);
    assert(status == HT_OK || (status == HT_BAD_INPUT && err.text[0] && !strchr(err.text, '\n')));
    if (status == HT_OK) ht_ledger_free(&ledger);
    return 0;
}
