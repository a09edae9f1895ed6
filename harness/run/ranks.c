#include "harness/run/ranks.h"

#include "common/base/array.h"
#include "common/comm/host_slots.h"
#include "common/comm/launch.h"
#include "common/comm/tags.h"
#include "common/mem/arena.h"
#include "harness/run/disks.h"
#include "harness/run/engine.h"
#include "harness/run/events.h"
#include "harness/run/output.h"

#include <stdio.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int32_t ht_ranks_count(const struct ht_ranks *ranks)
{
    return ranks->comm ? ranks->comm->size : 1;
}

int32_t ht_ranks_me(const struct ht_ranks *ranks)
{
    return ranks->comm ? ranks->comm->rank : 0;
}

int ht_ranks_events(const struct ht_ranks *ranks)
{
    return ht_ranks_speaks(ranks) ? ranks->events : -1;
}

bool ht_ranks_speaks(const struct ht_ranks *ranks)
{
    return ht_ranks_me(ranks) == 0;
}

/* Lets all that is printed from now on go nowhere. freopen would not do: stdout may be a stream without a file
   (common/base/terminal.h). */
static bool silence_stdout(void)
{
    int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
    bool done = null >= 0 && dup2(null, STDOUT_FILENO) >= 0;
    if (null >= 0) close(null);
    clearerr(stdout);
    return done;
}

enum ht_status ht_ranks_open(struct ht_error *err, struct ht_ranks *out)
{
    *out = (struct ht_ranks){.launcher = -1, .events = -1};
    int32_t n;
    enum ht_status status = ht_launched_ranks(err, &n);
    const char *task = getenv("SLURM_PROCID");
    if (status && task && strcmp(task, "0") && !freopen("/dev/null", "w", stderr))
        return status; /* the first one speaks */
    if (status || n < 2) return status;
    out->launcher = ht_launch_begin();
    status = ht_launched_connect(err, &out->comm);
    if (!status) ht_launch_take_streams(out->launcher);
    if (!status) status = ht_hosts_find(out->comm, err, &out->hosts);
    if (!status && out->comm->rank != 0 && !silence_stdout())
        status = ht_fail(err, HT_FAILED, "/dev/null cannot be opened");
    return status;
}

/* A node's ranks share its memory: refuses a mapping that spreads them over hosts. */
static enum ht_status check_hosts(const struct ht_hosts *hosts, const struct ht_schedule *s, struct ht_error *err)
{
    for (int32_t r = 1; r < s->n_ranks; r++) {
        int32_t first = 0;
        while (s->rank_node[first] != s->rank_node[r]) first++;
        if (hosts->of[first] == hosts->of[r]) continue;
        return ht_fail(
            err, HT_BAD_INPUT,
            "rank %d is on host %s and rank %d on host %s, but both are of node %d, whose ranks share memory: "
            "expected a node's ranks on one host (mpirun --map-by slot, as many slots as the node has devices)",
            first, hosts->hosts[hosts->of[first]].name, r, hosts->hosts[hosts->of[r]].name, s->rank_node[r]);
    }
    return HT_OK;
}

enum ht_status ht_ranks_wanted(const struct ht_ranks *ranks, const struct ht_options *options, const struct ht_job *job,
                               struct ht_error *err, bool *launch)
{
    const struct ht_launch_options *o = &options->launch;
    int32_t n = job->schedule->n_ranks, started = ht_ranks_count(ranks);
    *launch = n != started;
    if (o->hosts && o->hostfile)
        return ht_fail(err, HT_BAD_INPUT, "--hosts and --hostfile say the same thing: expected one of them");
    if ((o->hosts || o->hostfile) && n == 1)
        return ht_fail(err, HT_BAD_INPUT, "the job has one rank: expected several for --host%s",
                       o->hosts ? "s" : "file");
    if (*launch && started > 1)
        return ht_fail(err, HT_BAD_INPUT, "mpirun started %d ranks; the job has %d, one a device", started, n);
    return n == started && ranks->comm ? check_hosts(&ranks->hosts, job->schedule, err) : HT_OK;
}

/* Starts the ranks on the hosts of --hosts or --hostfile. Reads the file, which may be a pipe, once. */
static enum ht_status launch_away(const struct ht_launch_options *options, int32_t n_ranks, char *const argv[],
                                  struct ht_launch_loss *loss, struct ht_error *err)
{
    struct ht_host_slots h = {0};
    enum ht_status status =
        options->hosts ? ht_host_slots_parse(options->hosts, err, &h) : ht_host_slots_read(options->hostfile, err, &h);
    struct ht_launch_where where = {h.list, options->start_timeout};
    if (status == HT_OK && h.slots >= 0 && h.slots < n_ranks)
        status = ht_fail(err, HT_BAD_INPUT, "--host%s: '%s' has %lld slots; the job has %d ranks",
                         options->hosts ? "s" : "file", options->hosts ? options->hosts : options->hostfile,
                         (long long)h.slots, n_ranks);
    if (status == HT_OK) status = ht_launch_hosts(n_ranks, &where, argv, loss, err);
    ht_host_slots_free(&h);
    return status;
}

/* Says who was lost. */
static void say_loss(int events, const struct ht_launch_loss *loss)
{
    if (loss->host[0])
        ht_events_say(events, "lost", "\"host\": \"%.255s\", \"rank\": %d", loss->host, loss->rank);
    else if (loss->rank >= 0)
        ht_events_say(events, "lost", "\"rank\": %d", loss->rank);
}

enum ht_status ht_ranks_launch(const struct ht_ranks *ranks, const struct ht_options *options, const struct ht_job *job,
                               struct ht_error *err)
{
    struct ht_launch_loss loss = {.rank = -1};
    char **argv = NULL, *text = NULL;
    size_t n = 0, cap = 0, n_text = 0, text_cap = 0;
    if (!ht_comm_has_mpi() && (options->launch.hosts || options->launch.hostfile)) {
        struct ht_comm *none;
        return ht_comm_mpi(err, &none); /* fills in the error */
    }
    FILE *f = fopen("/proc/self/cmdline", "re");
    if (!f) return ht_fail(err, HT_FAILED, "/proc/self/cmdline cannot be read; the ranks need its command line");
    for (int c; (c = fgetc(f)) != EOF;) HT_PUSH(text, n_text, text_cap, (char)c);
    fclose(f);
    for (size_t at = 0; at < n_text; at += strlen(text + at) + 1) HT_PUSH(argv, n, cap, text + at);
    HT_PUSH(argv, n, cap, NULL);
    enum ht_status status = options->launch.hosts || options->launch.hostfile
                                ? launch_away(&options->launch, job->schedule->n_ranks, argv, &loss, err)
                                : ht_launch(job->schedule->n_ranks, argv, &loss, err);
    say_loss(ranks->events, &loss);
    free(argv);
    free(text);
    return status;
}

enum ht_status ht_ranks_agree(const struct ht_ranks *ranks, enum ht_status status, struct ht_error *err)
{
    if (!ranks->comm || (status && atomic_load(&ranks->comm->cancelled))) return status; /* nobody would answer */
    return ht_agree(ranks->comm, status, err);
}

int32_t ht_ranks_local(const struct ht_ranks *ranks, int32_t *n)
{
    *n = ranks->comm ? ranks->hosts.hosts[ranks->hosts.of[ranks->comm->rank]].n_ranks : 1;
    return ranks->comm ? ht_hosts_local_rank(&ranks->hosts, ranks->comm->rank) : 0;
}

/* Returns true if a space is in the memory of this rank's host. The first rank of its node has it, or for the remote
   store rank 0. */
static bool is_here(const struct ht_ranks *ranks, const struct ht_schedule *s, int32_t space)
{
    int32_t owner = space;
    if (space >= s->n_ranks)
        for (owner = 0;
             space < s->n_ranks + 2 * s->n_nodes && s->rank_node[owner] != (space - s->n_ranks) % s->n_nodes;)
            owner++;
    return ranks->hosts.of[owner] == ranks->hosts.of[ranks->comm->rank];
}

static bool holds_tensors(const struct ht_schedule *s, int32_t space)
{
    for (int32_t i = 0; i < s->n_residents; i++)
        if (ht_space(s, s->residents[i].tier, s->residents[i].rank) == space) return true;
    return false;
}

/* Names the rank whose GPU has no room: its error is all ranks'. */
static enum ht_status take_device(struct ht_engine *engine, const struct ht_job *job, int32_t rank,
                                  struct ht_space_size *size, struct ht_error *err)
{
    struct ht_error why = {0};
    enum ht_status status = ht_engine_take_device(engine, job, size, &why);
    return status ? ht_fail(err, status, "rank %d: %.900s", rank, why.text) : HT_OK;
}

enum ht_status ht_ranks_make_node(struct ht_ranks *ranks, const struct ht_job *job, struct ht_engine *engine,
                                  struct ht_error *err)
{
    const struct ht_schedule *s = job->schedule;
    int32_t n = ht_n_spaces(s);
    struct ht_space_size *sizes = HT_NEW_ARRAY(struct ht_space_size, n);
    char what[96 + HT_HOST_NAME];
    double here = 0; /* bytes of this host */
    for (int32_t i = 0; i < n; i++) {
        bool in_ram = !ht_disks_is_space(s, i) && !(engine->gpu && i < s->n_ranks);
        if (is_here(ranks, s, i) && in_ram) here += (double)job->bound_bytes[i];
        if (job->proof.spaces[i].peak_bytes || holds_tensors(s, i)) sizes[i] = ht_engine_space(job, i);
    }
    snprintf(what, sizeof(what), "training '%s' on %s", s->name,
             ranks->hosts.hosts[ranks->hosts.of[ranks->comm->rank]].name);
    enum ht_status status = ht_arena_check_machine(here, what, err);
    if (!status) status = take_device(engine, job, ranks->comm->rank, &sizes[ranks->comm->rank], err);
    status = ht_ranks_agree(ranks, status, err);
    if (!status) status = ht_node_create(s, ranks->comm, sizes, err, &ranks->node);
    if (!status) ht_engine_join_node(engine, job, ranks);
    free(sizes);
    return status;
}

enum ht_status ht_ranks_make_residents(const struct ht_ranks *ranks, const struct ht_schedule *s,
                                       struct ht_arena **arenas, struct ht_error *err, struct ht_residents **out)
{
    return ranks->node ? ht_residents_create_ranks(ranks->node, err, out) : ht_residents_create(s, arenas, err, out);
}

enum ht_status ht_ranks_run(const struct ht_ranks *ranks, const struct ht_schedule *s, const struct ht_run_options *o,
                            struct ht_error *err, struct ht_trace **trace)
{
    return ranks->node ? ht_run_ranks(s, o, ranks->node, err, trace) : ht_run(s, o, err, trace);
}

/* Returns the team of all ranks. The caller frees its list. */
static struct ht_team team_of_all(const struct ht_comm *c, int32_t **list)
{
    *list = HT_NEW_ARRAY(int32_t, c->size);
    for (int32_t i = 0; i < c->size; i++) (*list)[i] = i;
    return (struct ht_team){.ranks = *list, .n = c->size, .me = c->rank};
}

enum ht_status ht_ranks_broadcast(const struct ht_ranks *ranks, int32_t tag, void *data, int64_t bytes,
                                  struct ht_error *err)
{
    int32_t *list;
    if (!ranks->comm) return HT_OK;
    struct ht_team team = team_of_all(ranks->comm, &list);
    enum ht_status status = ht_comm_broadcast(ranks->comm, team, tag, 0, data, bytes, err);
    free(list);
    return status;
}

enum ht_status ht_ranks_gather(const struct ht_ranks *ranks, int32_t tag, const void *mine, int64_t bytes, void *all,
                               struct ht_error *err)
{
    int32_t *list;
    if (!ranks->comm) memcpy(all, mine, (size_t)bytes);
    if (!ranks->comm) return HT_OK;
    struct ht_team team = team_of_all(ranks->comm, &list);
    int64_t *counts = HT_NEW_ARRAY(int64_t, team.n);
    for (int32_t i = 0; i < team.n; i++) counts[i] = bytes;
    enum ht_status status = ht_comm_all_gather(ranks->comm, team, tag, mine, all, counts, HT_COMM_BYTE, err);
    free(list);
    free(counts);
    return status;
}

enum ht_status ht_ranks_sum(const struct ht_ranks *ranks, double *numbers, int64_t n, struct ht_error *err)
{
    int32_t *list;
    if (!ranks->comm || n == 0) return HT_OK;
    struct ht_team team = team_of_all(ranks->comm, &list);
    int64_t *counts = HT_NEW_ARRAY(int64_t, team.n);
    counts[0] = n;
    enum ht_status status =
        ht_comm_reduce_scatter(ranks->comm, team, HT_TAG_SUMS, numbers, numbers, counts, HT_COMM_F64, err);
    free(list);
    free(counts);
    return status;
}

enum ht_status ht_ranks_arenas(const struct ht_ranks *ranks, const struct ht_schedule *s, struct ht_arena **own,
                               int64_t *peak_bytes, int64_t *extent_bytes, struct ht_error *err)
{
    int32_t n = ht_n_spaces(s);
    struct ht_arena **arenas = ranks->node ? ht_node_arenas(ranks->node) : own;
    double *stats =
        HT_NEW_ARRAY(double, 2 * n); /* a space is of one leader, so that sums are exact; 1 more than it is */
    for (int32_t i = 0; i < n; i++) {
        if (!arenas || !arenas[i]) continue;
        struct ht_arena_stats st = ht_arena_stats(arenas[i]);
        stats[2 * i] = (double)st.peak_bytes + 1;
        stats[2 * i + 1] = (double)st.extent_bytes + 1;
    }
    enum ht_status status = ht_ranks_sum(ranks, stats, 2 * n, err);
    for (int32_t i = 0; i < n; i++) {
        peak_bytes[i] = (int64_t)stats[2 * i] - 1;
        extent_bytes[i] = (int64_t)stats[2 * i + 1] - 1;
    }
    free(stats);
    return status;
}

/* Returns VmHWM of this process in bytes, 0 when the kernel does not tell. */
static int64_t resident_peak(void)
{
    char line[128];
    long long kb = 0;
    FILE *f = fopen("/proc/self/status", "re");
    while (f && fgets(line, sizeof(line), f))
        if (sscanf(line, "VmHWM: %lld kB", &kb) == 1) break;
    if (f) fclose(f);
    return kb * 1024;
}

enum ht_status ht_ranks_resident_peaks(const struct ht_ranks *ranks, int64_t *bytes, struct ht_error *err)
{
    int64_t mine = resident_peak();
    return ht_ranks_gather(ranks, HT_TAG_SUMS, &mine, sizeof(mine), bytes, err);
}

void ht_ranks_free_node(struct ht_ranks *ranks)
{
    if (ranks->comm && !atomic_load(&ranks->comm->cancelled)) ht_node_destroy(ranks->node);
    ranks->node = NULL;
}

enum ht_status ht_ranks_close(struct ht_ranks *ranks, enum ht_status status, struct ht_error *err)
{
    struct ht_comm *c = ranks->comm;
    if (!c) return ht_launch_report(ranks->launcher, status, err) ? HT_OK : status;
    bool lost = atomic_load(&c->cancelled),
         speaks = ht_ranks_speaks(ranks); /* lost: others may wait for what will not come */
    status = ht_flush_stdout(status, err);
    if (!lost) {
        if (status) err->status = status;
        status = ht_agree(c, status, err);
        lost = atomic_load(&c->cancelled);
    }
    if (lost) {
        if (!ht_launch_report(ranks->launcher, status, err) && speaks) fprintf(stderr, "hetbench: %s\n", err->text);
        ht_comm_abort(c, status ? (int)status : HT_FAILED);
    }
    ht_comm_close(c);
    ht_hosts_free(&ranks->hosts);
    bool taken = ht_launch_report(ranks->launcher, status, err);
    *ranks = (struct ht_ranks){.launcher = -1, .events = ranks->events};
    if (taken) return silence_stdout() ? HT_OK : HT_FAILED; /* the launcher says it; main() tries again */
    if (!speaks && !freopen("/dev/null", "w", stderr)) return status;
    return status;
}
