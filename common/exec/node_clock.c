#include "common/exec/node_clock.h"

#include "common/comm/tags.h"

#include <time.h>

enum { ROUND_TRIPS = 100 };

static int64_t clock_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

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
        t = clock_ns();
        if (!status) status = pass(c, leader, true, &t, err);
    }
    return status;
}

static enum ht_status ask(struct ht_comm *c, int which, struct ht_node_clock *clock, struct ht_error *err)
{
    enum ht_status status = HT_OK;
    int64_t shortest_ns = INT64_MAX;
    for (int i = 0; i < ROUND_TRIPS && !status; i++) {
        int64_t begin = clock_ns(), sent = begin, theirs;
        status = pass(c, 0, true, &sent, err);
        if (!status) status = pass(c, 0, false, &theirs, err);
        int64_t took = clock_ns() - begin;
        if (status || took >= shortest_ns) continue;
        shortest_ns = took;
        clock->at_ns[which] = begin + took / 2;
        clock->ahead_ns[which] = theirs - clock->at_ns[which];
    }
    if (clock->ahead_ns[which] <= shortest_ns / 2 + 1 && -clock->ahead_ns[which] <= shortest_ns / 2 + 1)
        clock->ahead_ns[which] = 0;
    return status;
}

enum ht_status ht_node_clock_compare(struct ht_comm *comm, const int32_t *leaders, int32_t n, int which,
                                     struct ht_node_clock *clock, struct ht_error *err)
{
    enum ht_status status = HT_OK;
    if (comm->rank != 0) return ask(comm, which, clock, err);
    for (int32_t i = 0; i < n && !status; i++)
        if (leaders[i] > 0) status = answer(comm, leaders[i], err);
    return status;
}

int64_t ht_node_clock_convert(const struct ht_node_clock *clock, int64_t t_ns)
{
    int64_t between = clock->at_ns[1] - clock->at_ns[0], drift = clock->ahead_ns[1] - clock->ahead_ns[0];
    double share = between > 0 ? (double)(t_ns - clock->at_ns[0]) / (double)between : 0;
    return t_ns + clock->ahead_ns[0] + (int64_t)((double)drift * share);
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
