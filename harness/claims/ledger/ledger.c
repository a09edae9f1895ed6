#include "harness/claims/ledger/ledger.h"

#include "harness/claims/ledger/parts.h"
#include "common/base/array.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- tolerances, systems --------------------------------------------------------------------------------------- */

static enum ht_status load_tolerance(const struct ht_node *map, struct ht_error *err, struct ht_claim_tolerance *out)
{
    static const struct ht_field fields[] = {
        {.key = "relative", HT_FIELD_REAL(struct ht_claim_tolerance, relative), .min = 0, .max = 1},
        {.key = "absolute", HT_FIELD_REAL(struct ht_claim_tolerance, absolute), .min = 0, .max = 1e12},
        {.key = "why", HT_FIELD_TEXT(struct ht_claim_tolerance, why), .required = true},
        {0},
    };
    *out = (struct ht_claim_tolerance){.name = map->key, .relative = -1, .absolute = -1};
    enum ht_status status = ht_config_load(map, fields, err, out);
    if (status == HT_OK && (out->relative < 0) == (out->absolute < 0))
        return ht_node_key_error(map, err, "invalid tolerance; expected either 'relative' or 'absolute'");
    return status;
}

static enum ht_status load_system(const struct ht_node *list, struct ht_error *err, struct ht_claim_system *out)
{
    *out = (struct ht_claim_system){.name = list->key};
    enum ht_status status = ht_node_want(list, HT_NODE_LIST, err);
    if (status != HT_OK) return status;
    if (list->n_children < 1 || list->n_children > HT_CLAIM_SYSTEMS)
        return ht_node_error(list, err, "the list has %u systems; expected 1 to %d", list->n_children,
                             HT_CLAIM_SYSTEMS);
    HT_EACH_CHILD(list, c)
    {
        status = ht_node_string(c, err, &out->variants[out->n_variants]);
        if (status != HT_OK) return status;
        if (strlen(out->variants[out->n_variants++]) >= HT_CLAIM_NAME)
            return ht_node_error(c, err, "too long; expected a system and settings such as 'autohete c=2'");
    }
    return HT_OK;
}

/* ---- the file -------------------------------------------------------------------------------------------------- */

struct top {
    char paper[256];
    const struct ht_node *tolerances, *systems, *software, *setups, *claims;
};

static enum ht_status load_all(const struct top *top, struct ht_error *err, struct ht_ledger *l)
{
    enum ht_status status = HT_OK;
    l->tolerances = HT_NEW_ARRAY(struct ht_claim_tolerance, top->tolerances->n_children);
    l->systems = HT_NEW_ARRAY(struct ht_claim_system, top->systems->n_children);
    l->setups = HT_NEW_ARRAY(struct ht_claim_setup, top->setups->n_children);
    l->claims = HT_NEW_ARRAY(struct ht_claim, top->claims->n_children);
    HT_EACH_CHILD(top->tolerances, c)
    if ((status = load_tolerance(c, err, &l->tolerances[l->n_tolerances++])) != HT_OK) return status;
    HT_EACH_CHILD(top->systems, c)
    if ((status = load_system(c, err, &l->systems[l->n_systems++])) != HT_OK) return status;
    if (top->software && (status = ht_claim_load_software(top->software, err, &l->software)) != HT_OK) return status;
    HT_EACH_CHILD(top->setups, c)
    if ((status = ht_claim_load_setup(c, &l->software, err, &l->setups[l->n_setups++])) != HT_OK) return status;
    HT_EACH_CHILD(top->claims, c)
    if ((status = ht_claim_load_row(l, c, err, &l->claims[l->n_claims++])) != HT_OK) return status;
    return HT_OK;
}

enum ht_status ht_ledger_load(struct ht_doc *doc, struct ht_error *err, struct ht_ledger *out)
{
    static const struct ht_field fields[] = {
        {.key = "paper", HT_FIELD_TEXT(struct top, paper), .required = true},
        {.key = "tolerances", .type = HT_FIELD_MAP_NODE, .offset = offsetof(struct top, tolerances), .required = true},
        {.key = "systems", .type = HT_FIELD_MAP_NODE, .offset = offsetof(struct top, systems), .required = true},
        {.key = "software", .type = HT_FIELD_MAP_NODE, .offset = offsetof(struct top, software)},
        {.key = "setups", .type = HT_FIELD_MAP_NODE, .offset = offsetof(struct top, setups), .required = true},
        {.key = "claims", .type = HT_FIELD_MAP_NODE, .offset = offsetof(struct top, claims), .required = true},
        {0},
    };
    struct top top = {0};
    struct ht_ledger l = {.doc = doc};
    enum ht_status status = ht_config_load(ht_doc_root(doc), fields, err, &top);
    if (status == HT_OK) status = load_all(&top, err, &l);
    if (status != HT_OK) {
        ht_ledger_free(&l);
        *out = (struct ht_ledger){0};
        return status;
    }
    memcpy(l.paper, top.paper, sizeof(l.paper));
    *out = l;
    return HT_OK;
}

void ht_ledger_free(struct ht_ledger *l)
{
    free(l->tolerances);
    free(l->systems);
    free(l->setups);
    free(l->claims);
    ht_doc_destroy(l->doc);
    *l = (struct ht_ledger){0};
}
