/* Results for people. */
#include "harness/result/result.h"

#include "common/base/array.h"
#include "common/base/units.h"
#include "common/schedule/fold.h"
#include "harness/result/heading.h"
#include "harness/result/table.h"
#include "harness/result/variations.h"

#include <stdlib.h>
#include <string.h>

static const char *ns_text(int64_t ns, char buf[HT_QUANTITY_TEXT])
{
    return ht_format_rounded(HT_TIME, (double)ns, buf);
}

/* Prints the options that differ from the papers': ", control gate, clip 1, loss scale dynamic from 65536, doubled after 2000 iterations without
   overflow". */
static void print_control(const struct ht_scenario *s, FILE *out)
{
    const struct ht_control_options *o = &s->control.options;
    if (s->control.mode != HT_CONTROL_NONE) fprintf(out, ", control %s", ht_control_mode_names[s->control.mode]);
    if (o->clip > 0) fprintf(out, ", clip %g", o->clip);
    if (o->dynamic || o->loss_scale != 1)
        fprintf(out, ", loss scale %s%g", o->dynamic ? "dynamic from " : "", o->loss_scale);
    if (o->dynamic) fprintf(out, ", doubled after %lld iterations without overflow", (long long)o->growth_interval);
}

/* Prints " m=4,2,1,1", as --set takes it from a shell. */
static void print_variable(const struct ht_variable *v, FILE *out)
{
    const char *quote = v->n > HT_SHORT_VECTOR ? "'" : "";
    fprintf(out, " %s=%s", v->name, quote);
    ht_variable_print(v, out);
    fputs(quote, out);
}

void ht_job_print(const struct ht_job *job, FILE *out)
{
    if (!job->system) {
        fprintf(out, "graph %s: %d ops on %d lanes, %d ranks\n", job->schedule->name, job->schedule->n_ops,
                job->schedule->n_lanes, job->schedule->n_ranks);
        return;
    }
    const struct ht_scenario *s = &job->scenario;
    char note[HT_HEADING_TEXT];
    fprintf(out, "%s (%s), model %s (%.3g parameters)\n", ht_system_title(job->system, s), job->system->name,
            s->model.name, (double)ht_model_params(&s->model));
    ht_scenario_print(s, job->system->division, out);
    print_control(s, out);
    putc('\n', out);
    if (*ht_rate_note(s, note)) fprintf(out, "%s\n", note);
    if (*ht_host_path_note(s, note)) fprintf(out, "%s\n", note);
    const struct ht_plan *p = &job->plan;
    fputs("plan:", out);
    for (int i = 0; i < p->n_variables; i++) print_variable(&p->variables[i], out);
    if (*p->why) fprintf(out, "%s(%s)", p->n_variables ? "  " : " ", p->why);
    if (!*p->why && job->answer != HT_OK) fputs(p->n_variables ? "  (does not fit)" : " none that fits", out);
    putc('\n', out);
    if (job->profile) fprintf(out, "costs: %s (%s)\n", ht_profile_name(job->profile), ht_profile_source(job->profile));
}

/* Lists the tensor classes in the spaces memory[first .. last], which are of one tier and hold the same. */
static void print_classes(const struct ht_memory_row *first, const struct ht_memory_row *last, FILE *out)
{
    bool used[HT_N_TENSOR_CLASSES];
    for (int c = 0; c < HT_N_TENSOR_CLASSES; c++) used[c] = first->by_class[c] > 0;
    const char *comma = "", *when = first->peak_bytes >= 0 ? "peak" : "worst";
    char text[HT_QUANTITY_TEXT];
    if (first == last)
        fprintf(out, "  %s at its %s: ", first->name, when);
    else
        fprintf(out, "  %s to %s, each at its %s: ", first->name, last->name, when);
    for (;;) { /* largest first */
        int best = -1;
        for (int c = 0; c < HT_N_TENSOR_CLASSES; c++)
            if (used[c] && (best < 0 || first->by_class[c] > first->by_class[best])) best = c;
        if (best < 0) break;
        used[best] = false;
        fprintf(out, "%s%s %s", comma, ht_tensor_class_plural((enum ht_tensor_class)best),
                ht_format_quantity(HT_BYTES, (double)first->by_class[best], text));
        comma = ", ";
    }
    putc('\n', out);
}

static bool hold_the_same(const struct ht_memory_row *a, const struct ht_memory_row *b)
{
    return a->tier == b->tier && memcmp(a->by_class, b->by_class, sizeof(a->by_class)) == 0;
}

static bool any_planned(const struct ht_result *r)
{
    for (int32_t i = 0; i < r->n_memory; i++)
        if (r->memory[i].planned_bytes >= 0) return true;
    return false;
}

/* Returns true if a program takes more of a device than its tensors. */
static bool any_program(const struct ht_result *r)
{
    for (int32_t i = 0; i < r->n_memory; i++)
        if (r->memory[i].program_bytes > r->memory[i].safe_bytes) return true;
    return false;
}

/* Returns the end of the spaces from `first` on that are alike in all that the tables show. */
static int32_t end_of_alike(const struct ht_result *r, int32_t first)
{
    int32_t end = first + 1;
    const struct ht_memory_row *a = &r->memory[first];
    for (; end < r->n_memory; end++) {
        const struct ht_memory_row *b = &r->memory[end];
        if (a->tier != b->tier || a->capacity_bytes != b->capacity_bytes || a->peak_bytes != b->peak_bytes ||
            a->safe_bytes != b->safe_bytes || a->program_bytes != b->program_bytes ||
            a->short_bytes != b->short_bytes || a->bound_bytes != b->bound_bytes ||
            a->planned_bytes != b->planned_bytes || a->arena_bytes != b->arena_bytes)
            break;
    }
    return end;
}

/* Adds the cell "device 0", or "device 0 to device 3". */
static void add_places(const struct ht_result *r, int32_t first, int32_t end, struct ht_table *t)
{
    if (end - first == 1)
        ht_table_cell(t, "%s", r->memory[first].name);
    else
        ht_table_cell(t, "%s to %s", r->memory[first].name, r->memory[end - 1].name);
}

/* Prints the memory of a run, with its arenas when there were any. */
static void print_peaks(const struct ht_result *r, FILE *out)
{
    bool arena = false, planned = any_planned(r), program = any_program(r);
    for (int32_t i = 0; i < r->n_memory; i++) arena |= r->memory[i].arena_bytes >= 0;
    fprintf(out, "\nmemory (%s; in id order: ops one at a time; bound: no order of execution needs more%s%s)\n",
            ht_obtained(r), planned ? "; planned: the paper's equation" : "",
            program ? "; program: with its allocator's free blocks" : "");
    char header[160];
    snprintf(header, sizeof(header), "<place|%s|>?in id order%s|>?bound%s|>capacity",
             arena ? ">arena peak|>trace peak" : ">peak", program ? "|>program" : "", planned ? "|>planned" : "");
    struct ht_table *t = ht_table_create(header);
    for (int32_t i = 0, end; i < r->n_memory; i = end) {
        const struct ht_memory_row *m = &r->memory[i];
        end = end_of_alike(r, i);
        add_places(r, i, end, t);
        if (arena) ht_table_bytes(t, m->arena_bytes);
        ht_table_bytes(t, m->peak_bytes);
        ht_table_bytes(t, m->safe_bytes);
        if (program) ht_table_bytes(t, m->program_bytes);
        ht_table_bytes(t, m->bound_bytes);
        if (planned) ht_table_bytes(t, m->planned_bytes);
        ht_table_bytes(t, m->capacity_bytes);
    }
    ht_table_print(t, "  ", out);
}

/* Prints the memory that a schedule needs which was not run. */
static void print_needs(const struct ht_result *r, FILE *out)
{
    bool program = any_program(r);
    fprintf(out, "\nmemory (computed from the graph, ops one at a time in order; planned: the paper's equation%s)\n",
            program ? "; program: with its allocator's free blocks" : "");
    struct ht_table *t = ht_table_create(program ? "<place|>needs|>program|>capacity|>short by|>?planned|>?bound"
                                                 : "<place|>needs|>capacity|>short by|>planned|>bound");
    for (int32_t i = 0, end; i < r->n_memory; i = end) {
        const struct ht_memory_row *m = &r->memory[i];
        end = end_of_alike(r, i);
        add_places(r, i, end, t);
        ht_table_bytes(t, m->safe_bytes);
        if (program) ht_table_bytes(t, m->program_bytes);
        ht_table_bytes(t, m->capacity_bytes);
        ht_table_bytes(t, m->short_bytes ? m->short_bytes : -1);
        ht_table_bytes(t, m->planned_bytes);
        ht_table_bytes(t, m->bound_bytes);
    }
    ht_table_print(t, "  ", out);
}

void ht_memory_print(const struct ht_result *r, FILE *out)
{
    if (!r->n_memory) return;
    if (r->trace)
        print_peaks(r, out);
    else
        print_needs(r, out);
    for (int32_t i = 0, end; i < r->n_memory; i = end) {
        for (end = i + 1; end < r->n_memory && hold_the_same(&r->memory[i], &r->memory[end]);) end++;
        print_classes(&r->memory[i], &r->memory[end - 1], out);
    }
}

/* Writes "gpu", or "rank 2 gpu" where there are several ranks. */
static const char *lane_text(const struct ht_schedule *s, int32_t lane, char buf[64])
{
    if (s->n_ranks > 1)
        snprintf(buf, 64, "rank %d %s", s->lanes[lane].rank, s->lanes[lane].name);
    else
        snprintf(buf, 64, "%s", s->lanes[lane].name);
    return buf;
}

/* Prints the lanes that the critical path spends most time on, at most this many. */
enum { CRITICAL_LANES = 6 };

static void print_critical_path(const struct ht_result *r, FILE *out)
{
    const struct ht_schedule *s = r->job->schedule;
    char text[HT_QUANTITY_TEXT], name[64];
    bool *shown = HT_NEW_ARRAY(bool, s->n_lanes);
    fprintf(out, "  critical path    ");
    for (int i = 0; i < CRITICAL_LANES; i++) {
        int32_t best = -1;
        for (int32_t l = 0; l < s->n_lanes; l++)
            if (!shown[l] && r->metrics.critical_ns[l] &&
                (best < 0 || r->metrics.critical_ns[l] > r->metrics.critical_ns[best]))
                best = l;
        if (best < 0) break;
        shown[best] = true;
        fprintf(out, "%s %s, ", lane_text(s, best, name), ns_text(r->metrics.critical_ns[best], text));
    }
    fprintf(out, "waiting %s\n", ns_text(r->metrics.critical_wait_ns, text));
    free(shown);
}

static void print_rates(const struct ht_result *r, FILE *out)
{
    const struct ht_metrics *m = &r->metrics;
    char a[HT_QUANTITY_TEXT], b[HT_QUANTITY_TEXT], c[HT_QUANTITY_TEXT];
    if (r->samples_per_s > 0)
        fprintf(out, "  throughput       %.3g samples/s, %.3g tokens/s\n", r->samples_per_s, r->tokens_per_s);
    fprintf(out, "  iteration time   %s steady (%d iterations after %d of warm-up; the first took %s)\n",
            ns_text(m->iteration_ns, a), (int)(r->trace->iterations - m->warmup), (int)m->warmup,
            ns_text(m->first_iteration_ns, b));
    if (r->bad.n)
        fprintf(out, "  bad iteration    %s, an ok one %s; %lld of %d are bad, which the rates include\n",
                ht_format_rounded(HT_TIME, 1e9 * r->bad.bad_s, a), ht_format_rounded(HT_TIME, 1e9 * r->bad.ok_s, b),
                (long long)r->bad.n, (int)r->trace->iterations);
    if (r->useful_flops > 0) {
        double per_device_s = r->iteration_s * (double)r->n_devices;
        fprintf(out, "  compute          %s per device useful (3 x forward matrix products), %s with recomputation\n",
                ht_format_rounded(HT_FLOPS_PER_S, r->useful_flops / per_device_s, a),
                ht_format_rounded(HT_FLOPS_PER_S, r->hardware_flops / per_device_s, b));
        fprintf(out, "  MFU              %.3g%% of %s (dense %s peak", 100 * ht_result_mfu(r),
                ht_format_rounded(HT_FLOPS_PER_S, r->peak_flops_per_s, a), r->peak_dtype);
        if (r->n_devices > 1) fprintf(out, ", summed over %lld devices", (long long)r->n_devices);
        fputs(")\n", out);
    }
    if (r->price_usd > 0)
        fprintf(out, "  price            $%.0f for the cluster: %.3g tokens/s and %.3g useful TFLOP/s per $1000\n",
                r->price_usd, ht_result_per_1000_usd(r, r->tokens_per_s),
                ht_result_per_1000_usd(r, ht_result_tflops(r, r->useful_flops) * (double)r->n_devices));
    fprintf(out, "  lower bound      %s, set by %s; achieved is %.3g x that\n", ns_text(m->lower_bound_ns, a),
            m->lower_bound_of, m->lower_bound_ns ? (double)m->iteration_ns / (double)m->lower_bound_ns : 0.0);
    if (m->passes_ns)
        fprintf(
            out,
            "  passes           %s from the first forward to the last backward, %s before them, %s of copies after\n",
            ns_text(m->passes_ns, a), ns_text(m->fill_ns, b), ns_text(m->drain_ns, c));
    fprintf(out, "  bubble           %.3g%% of the compute lanes' time is idle\n", 100 * m->bubble_ratio);
    print_critical_path(r, out);
}

/* What the table shows of a lane or resource. */
struct lane_row {
    char name[32], kind[24], busy[HT_QUANTITY_TEXT], share[16];
    int32_t first, last; /* ranks; -1: a resource */
};

/* Adds a row, or its rank to the row before that says the same of the rank before. */
static void add_lane(struct lane_row row, struct lane_row **rows, size_t *n, size_t *cap)
{
    for (size_t i = *n; i-- > 0 && row.first >= 0;) {
        struct lane_row *x = &(*rows)[i];
        if (x->last + 1 != row.first || strcmp(x->name, row.name) || strcmp(x->kind, row.kind) ||
            strcmp(x->busy, row.busy) || strcmp(x->share, row.share))
            continue;
        x->last = row.last;
        return;
    }
    HT_PUSH(*rows, *n, *cap, row);
}

/* Lists the lanes and resources that do anything. Returns the number of idle lanes. */
static int32_t list_lanes(const struct ht_result *r, struct lane_row **rows, size_t *n)
{
    const struct ht_schedule *s = r->job->schedule;
    const struct ht_metrics *m = &r->metrics;
    double whole = m->iteration_ns ? (double)m->iteration_ns : 1;
    size_t cap = 0;
    int32_t idle = 0;
    struct ht_fold_lane *lanes = ht_fold_lanes(s);
    for (int32_t k = 0; k < ht_copies(s) * s->n_lanes; k++) {
        int32_t l = lanes[k].of, rank = lanes[k].rank;
        struct lane_row row = {.first = rank, .last = rank};
        idle += m->lane_busy_ns[l] == 0;
        if (m->lane_busy_ns[l] == 0) continue;
        snprintf(row.name, sizeof(row.name), "%s", s->lanes[l].name);
        snprintf(row.kind, sizeof(row.kind), "%s lane", ht_lane_kind_name(s->lanes[l].kind));
        ht_format_rounded(HT_TIME, (double)m->lane_busy_ns[l], row.busy);
        snprintf(row.share, sizeof(row.share), "%.1f%%", 100 * (double)m->lane_busy_ns[l] / whole);
        add_lane(row, rows, n, &cap);
    }
    free(lanes);
    for (int32_t i = 0; i < s->n_resources; i++) {
        struct lane_row row = {.first = -1, .kind = "resource", .busy = "-"};
        int behind = 0;
        if (sscanf(s->resources[i].name, "rank %d %n", &row.first, &behind) < 1 || !behind) row.first = -1, behind = 0;
        row.last = row.first;
        snprintf(row.name, sizeof(row.name), "%s", s->resources[i].name + behind);
        snprintf(row.share, sizeof(row.share), "%.1f%%", 100 * m->resource_busy[ht_fold_resource(s, i)]);
        add_lane(row, rows, n, &cap);
    }
    return idle;
}

/* Prints the lanes and resources that do anything; the first ones when there are very many. */
enum { MOST_LANES = 48 };

static void print_lanes(const struct ht_result *r, FILE *out)
{
    struct lane_row *rows = NULL;
    size_t n = 0;
    bool several = r->job->schedule->n_ranks > 1;
    int32_t idle = list_lanes(r, &rows, &n);
    fprintf(out, "\nlanes and shared resources, per steady iteration (%s; h2d, d2h: copies to the device and back)\n",
            ht_obtained(r));
    struct ht_table *t = ht_table_create("<name|<kind|>busy|>share");
    for (size_t i = 0; i < n && i < MOST_LANES; i++) {
        const struct lane_row *x = &rows[i];
        if (x->first < 0 || !several)
            ht_table_cell(t, "%s", x->name);
        else if (x->first == x->last)
            ht_table_cell(t, "rank %d %s", x->first, x->name);
        else
            ht_table_cell(t, "ranks %d to %d %s", x->first, x->last, x->name);
        ht_table_cell(t, "%s", x->kind);
        ht_table_cell(t, "%s", x->busy);
        ht_table_cell(t, "%s", x->share);
    }
    ht_table_print(t, "  ", out);
    if (n > MOST_LANES) fprintf(out, "  and %zu more; --json has them all\n", n - MOST_LANES);
    if (idle) fprintf(out, "  %d lane%s idle\n", idle, idle == 1 ? " is" : "s are");
    free(rows);
}

void ht_result_print(const struct ht_result *r, FILE *out)
{
    ht_job_print(r->job, out);
    if (r->has_metrics) {
        fprintf(out, "\nrates (%s)\n", ht_obtained(r));
        print_rates(r, out);
        print_lanes(r, out);
    }
    if (r->variations) ht_variations_print(r->variations, r->iteration_s, out);
    ht_memory_print(r, out);
}
