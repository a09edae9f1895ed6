#include "harness/run/emulate.h"

#include "common/base/array.h"
#include "common/base/units.h"
#include "common/comm/tags.h"
#include "common/exec/pacer_link.h"
#include "common/exec/sim.h"

#include <stdio.h>
#include <stdlib.h>

enum { MARGIN = 10 }; /* of auto: the machine may be busy, and waking a thread takes time */

enum ht_status ht_emulation_find_scale(const struct ht_ranks *ranks, const struct ht_trace *trace,
                                       const int64_t *cost_ns, struct ht_error *err, struct ht_emulated *out)
{
    double fitting = trace ? ht_emu_fitting_scale(trace, cost_ns) : 0;
    enum ht_status status = ht_ranks_broadcast(ranks, HT_TAG_EMULATION, &fitting, sizeof(fitting), err);
    if (status == HT_OK && !(fitting > 0))
        return ht_fail(err, HT_FAILED, "no op of the schedule has any modelled time; expected --emu-scale");
    out->fitting_scale = fitting;
    out->scale = MARGIN * fitting;
    return status;
}

/* ---- begin, end ------------------------------------------------------------------------------------------------ */

/* Sends the window's process and descriptor from a host's first rank to the others of the host. */
static enum ht_status tell_host(const struct ht_ranks *ranks, int32_t where[2], struct ht_error *err)
{
    const struct ht_hosts *h = &ranks->hosts;
    struct ht_comm *c = ranks->comm;
    int32_t *members = HT_NEW_ARRAY(int32_t, c->size);
    struct ht_team team = {.ranks = members};
    for (int32_t r = 0; r < c->size; r++) {
        if (r == c->rank) team.me = team.n;
        if (h->of[r] == h->of[c->rank]) members[team.n++] = r;
    }
    enum ht_status status = ht_comm_broadcast(c, team, HT_TAG_EMULATION, 0, where, 2 * (int64_t)sizeof(*where), err);
    free(members);
    return status;
}

/* Begins the pacer of each host's ranks; the host's first rank serves it. */
static enum ht_status share_pacer(struct ht_emulation *e, const struct ht_job *job, double scale, struct ht_error *err,
                                  struct ht_pacer_table **table)
{
    const struct ht_schedule *s = job->schedule;
    const struct ht_hosts *hosts = &e->ranks->hosts;
    struct ht_comm *c = e->ranks->comm;
    int64_t bytes = ht_pacer_table_bytes(s->n_lanes);
    bool serves = ht_hosts_local_rank(hosts, c->rank) == 0;
    enum ht_status status = serves ? ht_window_create(bytes, err, &e->window) : HT_OK;
    int32_t where[2] = {e->window.pid, e->window.fd};
    status = ht_ranks_agree(e->ranks, status, err);
    if (status == HT_OK && serves) {
        *table = ht_pacer_table_init(e->window.base, s->n_lanes);
        if (hosts->n > 1) status = ht_pacer_link_create(c, hosts, err, &e->link);
        if (status == HT_OK) status = ht_pacer_start(s, job->cost_ns, scale, *table, e->link, err, &e->pacer);
    }
    status = ht_ranks_agree(e->ranks, status, err);
    if (status == HT_OK) status = tell_host(e->ranks, where, err);
    if (status == HT_OK && !serves) {
        status = ht_window_attach(where[0], where[1], bytes, err, &e->window);
        *table = e->window.base;
    }
    status = ht_ranks_agree(e->ranks, status, err);
    if (status == HT_OK) ht_window_seal(&e->window);
    return status;
}

enum ht_status ht_emulation_begin(const struct ht_ranks *ranks, const struct ht_job *job, double scale,
                                  const struct ht_backend_ops *ops, void *ctx, struct ht_error *err,
                                  struct ht_emulation *out)
{
    struct ht_emulation e = {.ranks = ranks, .window = {.fd = -1}};
    struct ht_emu_options o = {
        .schedule = job->schedule, .cost_ns = job->cost_ns, .scale = scale, .inner = ops, .inner_ctx = ctx};
    enum ht_status status = HT_OK;
    if (ranks->comm) {
        status = share_pacer(&e, job, scale, err, &o.table);
        o.cancelled = &ranks->comm->cancelled;
    }
    if (status == HT_OK) status = ht_emu_create(&o, err, &e.emu);
    status = ht_ranks_agree(ranks, status, err);
    if (status != HT_OK) ht_emulation_end(&e);
    *out = e;
    return status;
}

void ht_emulation_end(struct ht_emulation *e)
{
    ht_emu_destroy(e->emu);
    ht_pacer_stop(e->pacer);
    ht_pacer_link_destroy(e->link);
    if (e->window.base) ht_window_free(&e->window);
    *e = (struct ht_emulation){0};
}

/* ---- reports ---------------------------------------------------------------------------------------- */

enum ht_status ht_emulation_account(const struct ht_emulation *e, struct ht_trace *trace, struct ht_error *err,
                                    struct ht_emulated *out)
{
    int32_t n = ht_ranks_count(e->ranks);
    struct ht_emu_overruns mine = ht_emu_overruns(e->emu), *all = HT_NEW_ARRAY(struct ht_emu_overruns, n);
    enum ht_status status = ht_ranks_gather(e->ranks, HT_TAG_EMULATION, &mine, sizeof(mine), all, err);
    out->overruns = (struct ht_emu_overruns){.worst_op = -1, .valid = true};
    for (int32_t i = 0; i < n; i++) ht_emu_add_overruns(&out->overruns, &all[i]);
    free(all);
    if (trace) ht_emu_rescale(e->emu, trace);
    return status;
}

enum ht_status ht_emulation_model(const struct ht_job *job, int32_t iterations, int32_t warmup, struct ht_error *err,
                                  struct ht_times *out)
{
    struct ht_sim_options options = {.iterations = iterations, .issue_ahead = job->issue_ahead};
    struct ht_trace *trace = NULL;
    enum ht_status status = ht_sim_run(job->schedule, job->cost_ns, &options, err, &trace);
    if (status == HT_OK) status = ht_trace_times(trace, job->cost_ns, warmup, err, out);
    ht_trace_destroy(trace);
    return status;
}

enum ht_status ht_emulation_announce(const struct ht_ranks *ranks, const struct ht_job *job, int64_t steps,
                                     struct ht_error *err, struct ht_emulated *out)
{
    enum { ENOUGH = 4 }; /* iterations to know the steady state */
    struct ht_times m;
    char each[HT_QUANTITY_TEXT], all[HT_QUANTITY_TEXT];
    if (steps < 1 || !ht_ranks_speaks(ranks)) return HT_OK;
    enum ht_status status =
        ht_emulation_model(job, steps < ENOUGH ? (int32_t)steps : ENOUGH, steps > 1 ? 1 : 0, err, &m);
    if (status != HT_OK) return status;
    double held_ns = out->scale * ((double)m.first_iteration_ns + (double)(steps - 1) * (double)m.iteration_ns);
    out->estimated_s = held_ns * 1e-9;
    fprintf(stderr, "emulated clock: %lld step%s of %s, held %.6g times as long: about %s\n", (long long)steps,
            steps == 1 ? "" : "s", ht_format_quantity(HT_TIME, (double)m.iteration_ns, each), out->scale,
            ht_format_quantity(HT_TIME, held_ns, all));
    return HT_OK;
}
