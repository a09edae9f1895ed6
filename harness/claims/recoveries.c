/* Prices recoveries for claims. */
#include "harness/claims/observe.h"

#include "common/base/array.h"
#include "common/model/zoo.h"
#include "common/store/recovery_case.h"

#include <stdlib.h>
#include <string.h>

struct variant {
    bool stores; /* or all from the remote store */
    bool once;
    struct ht_store_reading how;
};

static enum ht_status read_setting(const char *word, struct ht_error *err, struct variant *v)
{
    static const char *const names[] = {"whole_files", "param_bytes", "serial", "once"};
    const char *equals = strchr(word, '=');
    size_t which = 0, n = equals ? (size_t)(equals - word) : strlen(word);
    while (which < HT_COUNT(names) && (strlen(names[which]) != n || strncmp(names[which], word, n) != 0)) which++;
    char *end;
    long value = equals ? strtol(equals + 1, &end, 10) : -1;
    bool bytes = which == 1;
    if (which == HT_COUNT(names) || !equals || *end || value < (bytes ? 1 : 0) || value > (bytes ? 64 : 1))
        return ht_fail(
            err, HT_BAD_INPUT,
            "'%.40s' is no setting of a recovery; expected whole_files, serial or once = 0 or 1, or param_bytes", word);
    if (which == 0) v->how.whole_files = value;
    if (which == 1) v->how.param_bytes = value;
    if (which == 2) v->how.serial = value;
    if (which == 3) v->once = value;
    return HT_OK;
}

/* Reads "stores", "remote param_bytes=4". By default as AutoHet's paper: 16 bits of a parameter beside 4 bytes of its master. */
static enum ht_status read_variant(const char *text, struct ht_error *err, struct variant *v)
{
    char words[HT_CLAIM_NAME], *rest = NULL;
    *v = (struct variant){.how.param_bytes = 6};
    snprintf(words, sizeof(words), "%s", text);
    const char *word = strtok_r(words, " ", &rest);
    v->stores = word && !strcmp(word, "stores");
    if (!v->stores && (!word || strcmp(word, "remote") != 0))
        return ht_fail(err, HT_BAD_INPUT, "'%.40s' recovers nothing; expected stores or remote", text);
    enum ht_status status = HT_OK;
    while (status == HT_OK && (word = strtok_r(NULL, " ", &rest))) status = read_setting(word, err, v);
    return status;
}

/* Notes what each rank reads as vectors of the plan. */
static void note_reads(const struct ht_recovery_outcome *r, struct ht_plan *plan)
{
    static const char *const names[] = {"files", "first_layer", "last_layer", "first_part", "last_part"};
    int64_t *values = HT_NEW_ARRAY(int64_t, r->n_ranks);
    for (size_t k = 0; k < HT_COUNT(names); k++) {
        for (int32_t i = 0; i < r->n_ranks; i++) {
            const struct ht_rank_reads *x = &r->reads[i];
            const int64_t of[] = {x->files, x->first_layer, x->last_layer, x->first_part, x->last_part};
            values[i] = of[k];
        }
        ht_plan_set_values(plan, names[k], HT_VARIABLE_BY_RANK, r->n_ranks, values, false);
    }
    free(values);
}

enum ht_status ht_look_recovery(const char *text, const struct ht_claim_setup *setup, struct ht_claim_point point,
                                struct ht_error *err, struct ht_observation *out)
{
    struct variant v;
    struct ht_model model;
    struct ht_recovery_case c;
    struct ht_recovery_outcome r;
    enum ht_status status = read_variant(text, err, &v);
    if (status == HT_OK) status = ht_model_load(setup->models[point.at[HT_CLAIM_MODELS]], err, &model);
    if (status == HT_OK) status = ht_recovery_case_load(setup->recovery, err, &c);
    if (status == HT_OK) status = ht_recovery_case_price(&c, &model, v.how, v.once, err, &r);
    if (status != HT_OK) return status;
    const struct ht_store_price *p = v.stores ? &r.price.stores : &r.price.remote;
    double *metric = out->metric;
    out->sight = HT_SEEN;
    out->unit[HT_CLAIM_NO_UNIT] = 1;
    out->unit[HT_CLAIM_PARAMS] = metric[HT_CLAIM_PARAMETERS] = (double)r.params;
    metric[HT_CLAIM_RECOVERY_TIME] = (double)p->ns * 1e-9;
    metric[HT_CLAIM_REMOTE_BYTES] = (double)p->bytes[HT_PATH_REMOTE];
    metric[HT_CLAIM_PEER_BYTES] = (double)p->bytes[HT_PATH_PEER];
    if (r.lost_bytes) metric[HT_CLAIM_REMOTE_PER_LOST] = (double)p->bytes[HT_PATH_REMOTE] / (double)r.lost_bytes;
    metric[HT_CLAIM_STATE_BYTES] = (double)r.state_bytes;
    metric[HT_CLAIM_PEER_PER_REMOTE] = c.nic / c.cloud;
    if (v.stores) note_reads(&r, &out->plan);
    ht_recovery_outcome_free(&r);
    return HT_OK;
}
