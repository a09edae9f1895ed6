/*
 * SimGrid's side of bench_simgrid, in S4U.
 *
 * Activities belong to SimGrid's main actor. Its list of activities is searched when one of them completes (3.32), so a graph
 * that is handed over as a whole costs the square of its length. Made one by one, from a callback that counts down
 * predecessors, activities are few at a time; then SimGrid keeps no dependencies.
 */
#include "bench/simgrid.h"

#include <ctime>
#include <simgrid/s4u.hpp>
#include <simgrid/version.h>
#include <string>
#include <vector>

namespace sg = simgrid::s4u;

static std::vector<sg::Host *> hosts;
static std::vector<sg::Link *> links;
static sg::NetZone *zone;

/* The run in progress. */
static const bench_activities *graph;
static std::vector<sg::ActivityPtr> activities;
static std::vector<int32_t> pending; /* of a graph that is made one by one; else empty */

static double processor_s()
{
    timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void make(int32_t i)
{
    const bench_activity &a = graph->list[i];
    if (a.to < 0)
        activities[i] = sg::Exec::init()->set_flops_amount(a.amount)->set_host(hosts[a.host]);
    else
        activities[i] = sg::Comm::sendto_init(hosts[a.host], hosts[a.to])->set_payload_size((uint64_t)a.amount);
}

static void add_dependency(int32_t from, int32_t to)
{
    if (graph->list[from].to < 0)
        static_cast<sg::Exec *>(activities[from].get())->add_successor(activities[to]);
    else
        static_cast<sg::Comm *>(activities[from].get())->add_successor(activities[to]);
}

static void start(int32_t i)
{
    make(i);
    activities[i]->set_data((void *)(intptr_t)i);
    activities[i]->vetoable_start();
}

static void completed(sg::Activity const &activity)
{
    if (pending.empty()) return;
    int32_t i = (int32_t)(intptr_t)activity.get_data<void>();
    for (int64_t k = graph->after_begin[i]; k < graph->after_begin[i + 1]; k++)
        if (--pending[graph->after[k]] == 0) start(graph->after[k]);
}

void bench_simgrid_open(int32_t n_hosts, int32_t n_links, const double *bytes_per_s, double most_bytes_per_s)
{
    static char name[] = "bench_simgrid", quiet[] = "--log=root.threshold:warning", *args[] = {name, quiet, nullptr};
    int n = 2;
    new sg::Engine(&n, args); /* lives as long as the process */
    /* Flows share by max-min fairness over plain bandwidths; without TCP's window and reverse traffic. */
    sg::Engine::set_config("network/model:CM02");
    sg::Engine::set_config("network/TCP-gamma:0");
    sg::Engine::set_config("network/crosstraffic:0");
    sg::Engine::set_config("surf/precision:1e-9"); /* s */
    sg::Activity::on_completion_cb(completed);
    zone = sg::create_full_zone("zone");
    for (int32_t i = 0; i < n_hosts; i++) hosts.push_back(zone->create_host("host" + std::to_string(i), 1e9));
    for (int32_t i = 0; i < n_links; i++) {
        links.push_back(zone->create_link("link" + std::to_string(i), bytes_per_s[i]));
        links.back()->seal();
    }
    links.push_back(zone->create_link("most", most_bytes_per_s)->set_sharing_policy(sg::Link::SharingPolicy::FATPIPE));
    links.back()->seal();
}

void bench_simgrid_route(int32_t from, int32_t to, int32_t n, const int32_t *list)
{
    std::vector<sg::LinkInRoute> route;
    for (int32_t i = 0; i < n; i++) route.emplace_back(links[list[i]]);
    zone->add_route(hosts[from]->get_netpoint(), hosts[to]->get_netpoint(), nullptr, nullptr, route, false);
}

void bench_simgrid_seal(void)
{
    zone->seal();
}

bench_simgrid_times bench_simgrid_run(const bench_activities *g, bool all)
{
    sg::Engine *engine = sg::Engine::get_instance();
    double begin_s = sg::Engine::get_clock(), began = processor_s();
    graph = g;
    activities.resize(g->n);
    if (all) {
        for (int32_t i = 0; i < g->n; i++) make(i);
        for (int32_t i = 0; i < g->n; i++)
            for (int64_t k = g->after_begin[i]; k < g->after_begin[i + 1]; k++) add_dependency(i, g->after[k]);
        for (int32_t i = 0; i < g->n; i++) activities[i]->vetoable_start();
    } else {
        pending.resize(g->n);
        for (int32_t i = 0; i < g->n; i++) pending[i] = (int32_t)(g->before_begin[i + 1] - g->before_begin[i]);
        for (int32_t i = 0; i < g->n; i++)
            if (g->before_begin[i + 1] == g->before_begin[i]) start(i);
    }
    double built = processor_s();
    engine->run();
    double ran = processor_s();
    for (auto const &a : activities)
        if (!a || a->get_state() != sg::Activity::State::FINISHED) throw std::runtime_error("an activity has not run");
    activities.clear();
    pending.clear();
    return {built - began, ran - built, sg::Engine::get_clock() - begin_s};
}

void bench_simgrid_version(int version[2])
{
    version[0] = SIMGRID_VERSION_MAJOR;
    version[1] = SIMGRID_VERSION_MINOR;
}
