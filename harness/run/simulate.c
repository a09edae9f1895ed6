#include "harness/run/simulate.h"

#include "common/base/array.h"
#include "common/base/minmax.h"
#include "common/base/units.h"
#include "common/exec/sim.h"
#include "harness/run/output.h"
#include "harness/run/progress.h"

#include <stdlib.h>
#include <unistd.h>

enum ht_status ht_check_events(const struct ht_job *job, const char *flag, int64_t iterations, struct ht_error *err)
{
    double needed = (double)iterations * job->schedule->n_ops * (double)sizeof(struct ht_trace_event);
    double half = 0.5 * (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGE_SIZE);
    char a[HT_QUANTITY_TEXT], b[HT_QUANTITY_TEXT];
    if (needed <= half) return HT_OK;
    return ht_fail(err, HT_BAD_INPUT,
                   "%s: a trace of %lld iterations of %d ops takes %s of memory; expected at most %s", flag,
                   (long long)iterations, job->schedule->n_ops, ht_format_quantity(HT_BYTES, needed, a),
                   ht_format_quantity(HT_BYTES, half, b));
}

enum ht_status ht_check_bad(const struct ht_options *o, const struct ht_job *job, struct ht_error *err)
{
    int64_t ignored;
    enum ht_status status = HT_OK;
    for (int64_t i = 0; i < o->sim.n_bad && status == HT_OK; i++)
        status = ht_flag_count("--bad", o->sim.bad[i], 1, o->sim.iterations, err, &ignored);
    if (status != HT_OK || !o->sim.n_bad) return status;
    if (o->sim.replay)
        return ht_fail(err, HT_BAD_INPUT, "--bad beside --replay; expected one of them: a trace has its outcomes");
    if (job->schedule && !ht_job_checks_gradients(job))
        return ht_fail(err, HT_BAD_INPUT,
                       "--bad: schedule '%s' has no final check, so no outcome changes it; expected --control gate or "
                       "rollback",
                       job->schedule->name);
    return HT_OK;
}

bool *ht_bad_iterations(const struct ht_options *o, int64_t *n)
{
    struct ht_error ignored;
    int64_t k = 0;
    *n = 0;
    if (!o->sim.n_bad) return NULL;
    bool *bad = HT_NEW_ARRAY(bool, o->sim.iterations);
    for (int64_t i = 0; i < o->sim.n_bad; i++) {
        if (ht_flag_count("--bad", o->sim.bad[i], 1, o->sim.iterations, &ignored, &k) != HT_OK) continue;
        *n += !bad[k - 1];
        bad[k - 1] = true;
    }
    return bad;
}

static struct ht_sim_options sim_options(const struct ht_options *o, const struct ht_job *job, const bool *bad)
{
    return (struct ht_sim_options){.iterations = (int32_t)o->sim.iterations,
                                   .issue_ahead = job->issue_ahead,
                                   .jitter_percent = (int32_t)o->sim.jitter_percent,
                                   .seed = (uint64_t)o->sim.seed,
                                   .every = o->sim.every,
                                   .bad = bad};
}

enum ht_status ht_simulate(const struct ht_options *o, const struct ht_job *job, struct ht_error *err,
                           struct ht_trace **out)
{
    if (o->sim.replay) return ht_trace_read(o->sim.replay, job->schedule, err, out);
    enum ht_status status = ht_check_events(job, "--iterations", o->sim.iterations, err);
    if (status != HT_OK) return status;
    int64_t n_bad;
    bool *bad = ht_bad_iterations(o, &n_bad);
    struct ht_sim_options sim = sim_options(o, job, bad);
    struct ht_progress progress = ht_progress_begin("simulation");
    if (o->plan.progress) {
        sim.progress = ht_progress_share;
        sim.progress_ctx = &progress;
    }
    status = ht_sim_run(job->schedule, job->cost_ns, &sim, err, out);
    ht_progress_end(&progress);
    free(bad);
    return status;
}

/* Asks for the window of ht_metrics_compute. */
static struct ht_sim_question steady_iterations(const struct ht_options *o)
{
    int32_t iterations = (int32_t)o->sim.iterations, warmup = (int32_t)ht_min(o->sim.warmup, o->sim.iterations - 1);
    return (struct ht_sim_question){.after = warmup - 1, .last = ht_metrics_last_iteration(iterations, warmup)};
}

enum ht_status ht_iteration_time(const struct ht_options *o, const struct ht_job *job, int64_t limit_ns,
                                 struct ht_error *err, int64_t *iteration_ns)
{
    enum ht_status status = ht_check_events(job, "--iterations", o->sim.iterations, err);
    if (status != HT_OK) return status;
    struct ht_sim_question question = steady_iterations(o);
    int64_t ns = 0, n_bad, n = question.last - question.after;
    if (limit_ns <= INT64_MAX / n) question.limit_ns = n * ht_max(limit_ns, 1);
    bool *bad = ht_bad_iterations(o, &n_bad);
    struct ht_sim_options sim = sim_options(o, job, bad);
    status = ht_sim_time(job->schedule, job->cost_ns, &sim, question, err, &ns);
    if (status == HT_OK) *iteration_ns = ns / n;
    free(bad);
    return status;
}

int64_t ht_least_iteration_ns(const struct ht_options *o, const struct ht_job *job)
{
    struct ht_sim_question question = steady_iterations(o);
    return ht_sim_least_ns(job->schedule, job->cost_ns, (int32_t)o->sim.jitter_percent, question) /
           (question.last - question.after);
}

enum ht_status ht_trace_times(const struct ht_trace *trace, const int64_t *cost_ns, int32_t warmup,
                              struct ht_error *err, struct ht_times *out)
{
    struct ht_metrics m;
    enum ht_status status = ht_metrics_compute(trace, cost_ns, warmup, err, &m);
    if (status != HT_OK) return status;
    *out = (struct ht_times){m.first_iteration_ns, m.iteration_ns, m.lower_bound_ns};
    ht_metrics_free(&m);
    return HT_OK;
}

enum ht_status ht_save_trace(const struct ht_trace *trace, const char *path, struct ht_error *err)
{
    struct ht_output file;
    if (!trace || !path) return HT_OK;
    enum ht_status status = ht_output_open(path, err, &file);
    if (status != HT_OK) return status;
    return ht_output_end(&file, ht_trace_write(trace, file.file, err), err);
}
