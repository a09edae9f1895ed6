/*
 * Builds the graph of bench_sim and bench_simgrid.
 *
 * One training iteration of a 1F1B pipeline over 32 ranks, 8 to a node. Per stage and micro-batch: forward, backward, the
 * activation's copy to the host and back (its GPU's PCIe port, a switch shared by two GPUs, the node's DRAM), and to each
 * neighbour a send and its receive as a group (NVLink inside a node, two NICs between nodes). Activations, their
 * gradients and their copies are allocated and released, in device and host memory of limited capacity.
 */
#ifndef HT_BENCH_PIPELINE_1F1B_H
#define HT_BENCH_PIPELINE_1F1B_H

#include "common/base/array.h"
#include "common/schedule/schedule.h"

#include <stdlib.h>
#include <string.h>

enum { RANKS = 32, PER_NODE = 8, NODES = RANKS / PER_NODE };
static const int64_t forward_ns = 1000000, backward_ns = 2000000, bytes = 20 << 20;
static const int64_t message_ns = 200000, message_bytes = (20 << 20) / 10;

struct costs {
    int64_t *ns;
    int64_t n;
    size_t cap;
};

struct pipeline {
    struct ht_schedule *s;
    struct costs costs;
    bool full; /* with copies, resources and priced messages */
    int32_t gpu[RANKS], h2d[RANKS], d2h[RANKS], p2p[RANKS];
    int32_t port_in[RANKS], port_out[RANKS], pcie_switch[RANKS / 2], dram[NODES], nvlink[NODES], nic[NODES];
    int32_t match;
};

static int32_t add(struct pipeline *p, enum ht_op_kind kind, int32_t lane, int64_t cost_ns)
{
    struct ht_work w = {.kind = kind, .where = p->s->lanes[lane].kind, .tp = 1, .ranks = 1};
    strcpy(w.custom, "bench");
    HT_PUSH(p->costs.ns, p->costs.n, p->costs.cap, cost_ns);
    return ht_add_op(p->s, kind, lane, (struct ht_label){.unit = -1, .micro_batch = -1}, ht_add_work(p->s, &w));
}

static int32_t tensor(struct pipeline *p, enum ht_tensor_class class, int32_t rank)
{
    return ht_add_tensor(
        p->s,
        (struct ht_tensor){.class = class, .label = {.unit = -1, .micro_batch = -1}, .bytes = bytes, .rank = rank});
}

static void make_machine(struct pipeline *p)
{
    int32_t node[RANKS];
    for (int32_t r = 0; r < RANKS; r++) node[r] = r / PER_NODE;
    p->s = ht_schedule_create("bench", RANKS, NODES, node);
    for (int32_t r = 0; r < RANKS; r++) {
        p->gpu[r] = ht_add_lane(p->s, "gpu", HT_LANE_COMPUTE, r, HT_FIFO);
        p->h2d[r] = ht_add_lane(p->s, "h2d", HT_LANE_H2D, r, HT_FIFO);
        p->d2h[r] = ht_add_lane(p->s, "d2h", HT_LANE_D2H, r, HT_PRIORITY);
        p->p2p[r] = ht_add_lane(p->s, "p2p", HT_LANE_P2P, r, HT_FIFO);
        p->port_in[r] = ht_add_resource(p->s, "h2d", HT_RES_PCIE_H2D, node[r], 25000000000);
        p->port_out[r] = ht_add_resource(p->s, "d2h", HT_RES_PCIE_D2H, node[r], 25000000000);
        ht_schedule_set_capacity(p->s, HT_DEVICE, r, 80 * bytes);
    }
    for (int32_t i = 0; i < RANKS / 2; i++)
        p->pcie_switch[i] = ht_add_resource(p->s, "switch", HT_RES_PCIE_SWITCH, i * 2 / PER_NODE, 32000000000);
    for (int32_t n = 0; n < NODES; n++) {
        p->dram[n] = ht_add_resource(p->s, "dram", HT_RES_DRAM, n, 120000000000);
        p->nvlink[n] = ht_add_resource(p->s, "nvlink", HT_RES_NVLINK, n, 200000000000);
        p->nic[n] = ht_add_resource(p->s, "nic", HT_RES_NIC, n, 25000000000);
        ht_schedule_set_capacity(p->s, HT_HOST, n * PER_NODE, 2000 * bytes);
    }
}

/* A message: produced on `from` as `sent`, freed there; produced on `to`. */
static void message(struct pipeline *p, int32_t from, int32_t to, int32_t sent, int32_t received)
{
    int64_t cost = p->full ? message_ns : 0;
    for (int side = 0; side < 2; side++) {
        int32_t rank = side ? to : from, node = rank / PER_NODE;
        add(p, side ? HT_OP_RECEIVE : HT_OP_SEND, p->p2p[rank], cost);
        ht_op_match(p->s, p->match);
        if (side)
            ht_op_effect(p->s, received, HT_DEVICE, HT_PRODUCE);
        else
            ht_op_effect(p->s, sent, HT_DEVICE, HT_NEED | HT_RELEASE);
        if (!p->full) continue;
        if (from / PER_NODE != to / PER_NODE)
            ht_op_use(p->s, p->nic[node], message_bytes);
        else if (side)
            ht_op_use(p->s, p->nvlink[node], message_bytes);
    }
    p->match++;
}

static void copy(struct pipeline *p, int32_t r, int32_t t, bool out, int32_t priority)
{
    add(p, HT_OP_COPY, out ? p->d2h[r] : p->h2d[r], 10000);
    ht_op_effect(p->s, t, out ? HT_DEVICE : HT_HOST, HT_NEED | HT_RELEASE);
    ht_op_effect(p->s, t, out ? HT_HOST : HT_DEVICE, HT_PRODUCE);
    ht_op_use(p->s, out ? p->port_out[r] : p->port_in[r], bytes);
    ht_op_use(p->s, p->pcie_switch[r / 2], bytes);
    ht_op_use(p->s, p->dram[r / PER_NODE], bytes);
    if (out) ht_op_priority(p->s, priority);
}

/* 1F1B: stage r runs P - r forwards, then backward and forward in turn. Items are written stage by stage as soon as
   their input is written, so ids are a topological order. */
static void make_pipeline(struct pipeline *p, int32_t batches)
{
    make_machine(p);
    int32_t fwd[RANKS] = {0}, bwd[RANKS] = {0};
    int32_t cells = RANKS * batches;
    int32_t *act = HT_NEW_ARRAY(int32_t, cells), *in = HT_NEW_ARRAY(int32_t, cells),
            *grad = HT_NEW_ARRAY(int32_t, cells);
    for (int64_t left = 2 * (int64_t)cells; left > 0;) {
        for (int32_t r = 0; r < RANKS; r++) {
            int32_t f = fwd[r], b = bwd[r], cell_f = r * batches + f, cell_b = r * batches + b;
            bool forward = f < batches && f - b < RANKS - r;
            if (forward && (r == 0 || f < fwd[r - 1])) {
                add(p, HT_OP_FORWARD, p->gpu[r], forward_ns);
                if (r > 0) ht_op_effect(p->s, in[cell_f], HT_DEVICE, HT_NEED | HT_RELEASE);
                act[cell_f] = tensor(p, HT_ACTIVATION, r);
                ht_op_effect(p->s, act[cell_f], HT_DEVICE, HT_PRODUCE);
                if (r + 1 < RANKS) {
                    int32_t out = tensor(p, HT_COMM, r);
                    ht_op_effect(p->s, out, HT_DEVICE, HT_PRODUCE);
                    message(p, r, r + 1, out, in[cell_f + batches] = tensor(p, HT_COMM, r + 1));
                }
                if (p->full) copy(p, r, act[cell_f], true, -f);
                fwd[r]++;
                left--;
            } else if (!forward && b < f && (r + 1 == RANKS || b < bwd[r + 1])) {
                if (p->full) copy(p, r, act[cell_b], false, 0);
                add(p, HT_OP_BACKWARD, p->gpu[r], backward_ns);
                ht_op_effect(p->s, act[cell_b], HT_DEVICE, HT_NEED | HT_RELEASE);
                if (r + 1 < RANKS) ht_op_effect(p->s, grad[cell_b], HT_DEVICE, HT_NEED | HT_RELEASE);
                if (r > 0) {
                    int32_t out = tensor(p, HT_ACT_GRAD, r);
                    ht_op_effect(p->s, out, HT_DEVICE, HT_PRODUCE);
                    message(p, r, r - 1, out, grad[cell_b - batches] = tensor(p, HT_COMM, r - 1));
                }
                bwd[r]++;
                left--;
            }
        }
    }
    free(act);
    free(in);
    free(grad);
    ht_schedule_link(p->s);
}

static void free_pipeline(struct pipeline *p)
{
    ht_schedule_destroy(p->s);
    free(p->costs.ns);
}

#endif
