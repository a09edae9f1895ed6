#include "common/exec/node_clock.h"

#include "common/base/clock.h"
#include "common/comm/tags.h"

enum { ROUND_TRIPS = 100 };

static enum ht_status pass(struct ht_comm *c, int32_t peer, bool send, int64_t *ns, struct ht_error *err)
{
    struct ht_message m;
    if (send)
        ht_comm_send(c, peer, HT_TAG_TRACE, ns, sizeof(*ns), &m);
    else
        ht_comm_receive(c, peer, HT_TAG_TRACE, ns, sizeof(*ns), &m);
    return ht_comm_wait(c, &m, err);
}

static enum ht_status answer(struct ht_comm *c, int32_t leader, struct ht_error *err)
{
    enum ht_status status = HT_OK;
    for (int i = 0; i < ROUND_TRIPS && !status; i++) {
        int64_t t;
        status = pass(c, leader, false, &t, err);
        t = ht_now_ns();
        if (!status) status = pass(c, leader, true, &t, err);
    }
    return status;
}

struct ht_node_offset ht_node_offset_of(int64_t begin_ns, int64_t end_ns, int64_t theirs_ns)
{
    int64_t half = (end_ns - begin_ns) / 2, ahead = theirs_ns - (begin_ns + half), error = half + 1;
    return (struct ht_node_offset){
        .at_ns = begin_ns + half, .ahead_ns = ahead <= error && -ahead <= error ? 0 : ahead, .error_ns = error};
}

static enum ht_status ask(struct ht_comm *c, struct ht_node_offset *best, struct ht_error *err)
{
    enum ht_status status = HT_OK;
    for (int i = 0; i < ROUND_TRIPS && !status; i++) {
        int64_t begin = ht_now_ns(), sent = begin, theirs = 0;
        status = pass(c, 0, true, &sent, err);
        if (!status) status = pass(c, 0, false, &theirs, err);
        struct ht_node_offset found = ht_node_offset_of(begin, ht_now_ns(), theirs);
        if (!status && (i == 0 || found.error_ns < best->error_ns)) *best = found;
    }
    return status;
}

enum ht_status ht_node_clock_compare(struct ht_comm *comm, const int32_t *leaders, int32_t n, int which,
                                     struct ht_node_clock *clock, struct ht_error *err)
{
    enum ht_status status = HT_OK;
    if (comm->rank != 0) return ask(comm, &clock->offsets[which], err);
    for (int32_t i = 0; i < n && !status; i++)
        if (leaders[i] > 0) status = answer(comm, leaders[i], err);
    return status;
}

int64_t ht_node_clock_convert(const struct ht_node_clock *clock, int64_t t_ns)
{
    const struct ht_node_offset *before = &clock->offsets[0], *after = &clock->offsets[1];
    int64_t between = after->at_ns - before->at_ns, drift = after->ahead_ns - before->ahead_ns;
    double share = between > 0 ? (double)(t_ns - before->at_ns) / (double)between : 0;
    return t_ns + before->ahead_ns + (int64_t)((double)drift * share);
}

int64_t ht_node_clock_error_ns(const struct ht_node_clock *clock)
{
    const struct ht_node_offset *before = &clock->offsets[0], *after = &clock->offsets[1];
    if (before->ahead_ns == 0 && after->ahead_ns == 0) return 0;
    return before->error_ns > after->error_ns ? before->error_ns : after->error_ns;
}

void ht_node_clock_move(const struct ht_node_clock *clock, struct ht_trace *t)
{
    int64_t old = t->begin_ns, begin = ht_node_clock_convert(clock, old);
    for (int64_t i = 0; i < t->n_events; i++) {
        struct ht_trace_event *e = &t->events[i];
        if (e->grant_seq < 0) continue;
        e->issue_ns = ht_node_clock_convert(clock, old + e->issue_ns) - begin;
        e->start_ns = ht_node_clock_convert(clock, old + e->start_ns) - begin;
        e->end_ns = ht_node_clock_convert(clock, old + e->end_ns) - begin;
    }
    for (int32_t k = 0; k < t->iterations; k++)
        t->iteration_end_ns[k] = ht_node_clock_convert(clock, old + t->iteration_end_ns[k]) - begin;
    t->end_ns = ht_node_clock_convert(clock, old + t->end_ns) - begin;
    t->begin_ns = begin;
}
