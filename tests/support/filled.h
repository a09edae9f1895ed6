/* Runs on residents of its own: `fill` writes their first values, `look` checks what a good run has left. */
#ifndef TESTS_SUPPORT_FILLED_H
#define TESTS_SUPPORT_FILLED_H

#include "common/exec/residents.h"

static inline enum ht_status run_filled(const struct ht_schedule *s, struct ht_run_options o, ht_resident_fn fill,
                                        ht_resident_fn look, void *ctx, struct ht_error *err, struct ht_trace **out)
{
    *out = NULL;
    enum ht_status status = ht_residents_create(s, o.arenas, err, &o.residents);
    if (status == HT_OK) status = ht_residents_each(o.residents, fill, ctx, err);
    if (status == HT_OK) status = ht_run(s, &o, err, out);
    if (status == HT_OK) status = ht_residents_each(o.residents, look, ctx, err);
    ht_residents_destroy(o.residents);
    return status;
}

#endif
