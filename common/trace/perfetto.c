/*
 * Traces as Chrome trace-event JSON. Files open in ui.perfetto.dev and in chrome://tracing, and read back as the same
 * trace.
 *
 *     {"displayTimeUnit":"ns","otherData":{"format":"hetbench-trace-1","hash":"...","clock":"sim",...},"traceEvents":[
 *     {"ph":"M","name":"process_name","pid":0,"args":{"name":"rank 0"}},
 *     {"ph":"X","name":"F3","cat":"forward","pid":0,"tid":1,"ts":12.345,"dur":1.2,"args":{"iteration":0,"op":7,...}},
 *     {"ph":"C","name":"device 0","pid":8,"tid":0,"ts":12.345,"args":{"param":1024}},
 *     ...
 *     {"ph":"M","name":"end","pid":0}]}
 *
 * Times there are microseconds with three decimals. `args` repeats them as integers, which the reader takes. A process
 * is a rank, its threads are the rank's lanes; one more process has the memory counters. For drawings `args` has further
 * what a copy, message or collective moves (`bytes`, `moves`: a tensor class, `write`: to a disk) and `after`: iteration and
 * op that determined the start (common/trace/critical.h). The reader does not need them.
 *
 * The reader takes one event a line, as written, so that a file of millions of events never becomes a tree in memory.
 */
#include "common/base/array.h"
#include "common/trace/critical.h"
#include "common/trace/trace.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#define FORMAT "hetbench-trace-1"

static const char *const clock_names[] = {"sim", "emu", "run"};

/* Writes a JSON string with its quotes. */
static void write_string(FILE *out, const char *s)
{
    putc('"', out);
    for (; *s; s++) {
        unsigned char ch = (unsigned char)*s;
        if (ch == '"' || ch == '\\')
            fprintf(out, "\\%c", ch);
        else if (ch < 0x20 || ch >= 0x7f)
            fprintf(out, "\\u%04x", ch); /* names are ASCII; any other byte must give valid JSON */
        else
            putc(ch, out);
    }
    putc('"', out);
}

static void write_us(FILE *out, const char *key, int64_t ns)
{
    fprintf(out, ",\"%s\":%" PRId64 ".%03d", key, ns / 1000, (int)(ns % 1000));
}

static void write_names(const struct ht_schedule *s, FILE *out)
{
    for (int32_t r = 0; r <= s->n_ranks; r++) {
        fprintf(out, ",\n{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":%d,\"args\":{\"name\":", r);
        if (r < s->n_ranks)
            fprintf(out, "\"rank %d\"}}", r);
        else
            fprintf(out, "\"memory\"}}");
        fprintf(out, ",\n{\"ph\":\"M\",\"name\":\"process_sort_index\",\"pid\":%d,\"args\":{\"sort_index\":%d}}", r, r);
    }
    for (int32_t l = 0; l < s->n_lanes; l++) {
        fprintf(out,
                ",\n{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":%d,\"tid\":%d,\"args\":{\"name\":", s->lanes[l].rank,
                l);
        char name[64];
        snprintf(name, sizeof(name), "rank %d %s", s->lanes[l].rank, s->lanes[l].name);
        write_string(out, name);
        fputs("}}", out);
    }
}

static void write_counters(const struct ht_trace *t, int32_t space, FILE *out)
{
    const struct ht_schedule *s = t->schedule;
    struct ht_memory_sample *samples;
    int64_t n = ht_trace_memory(t, space, &samples);
    bool used[HT_N_TENSOR_CLASSES] = {false}, any = false;
    for (int64_t i = 0; i < n; i++)
        for (int c = 0; c < HT_N_TENSOR_CLASSES; c++)
            if (samples[i].by_class[c]) used[c] = any = true;
    char name[64];
    for (int64_t i = 0; any && i < n; i++) {
        if (i + 1 < n && samples[i + 1].time_ns == samples[i].time_ns) continue; /* not the last at this time */
        fputs(",\n{\"ph\":\"C\",\"name\":", out);
        write_string(out, ht_space_name(s, space, name, sizeof(name)));
        fprintf(out, ",\"pid\":%d,\"tid\":0", s->n_ranks);
        write_us(out, "ts", samples[i].time_ns);
        fputs(",\"args\":{", out);
        const char *comma = "";
        for (int c = 0; c < HT_N_TENSOR_CLASSES; c++) {
            if (!used[c]) continue;
            fprintf(out, "%s\"%s\":%" PRId64, comma, ht_tensor_class_name((enum ht_tensor_class)c),
                    samples[i].by_class[c]);
            comma = ",";
        }
        fputs("}}", out);
    }
    free(samples);
}

/* Writes what an op moves, if it moves anything. Its largest tensor tells the class. */
static void write_moved(const struct ht_schedule *s, int32_t op, FILE *out)
{
    const struct ht_work *w = s->ops[op].work < 0 ? NULL : &s->works[s->ops[op].work];
    const struct ht_tensor *most = NULL;
    if (!w || !w->bytes) return;
    fprintf(out, ",\"bytes\":%" PRId64, w->bytes);
    for (int64_t e = s->effects_begin[op]; e < s->effects_begin[op + 1]; e++) {
        const struct ht_tensor *t = &s->tensors[s->effects[e].tensor];
        if (!most || t->bytes > most->bytes) most = t;
    }
    if (most) fprintf(out, ",\"moves\":\"%s\"", ht_tensor_class_name(most->class));
    if (w->write) fputs(",\"write\":1", out);
}

static void write_event(const struct ht_trace *t, int64_t event, int64_t cause, FILE *out)
{
    const struct ht_schedule *s = t->schedule;
    const struct ht_trace_event *e = &t->events[event];
    int32_t id = ht_trace_op(t, event);
    const struct ht_op *op = &s->ops[id];
    char label[64];
    fputs(",\n{\"ph\":\"X\",\"name\":", out);
    write_string(out, ht_op_label(s, id, label, sizeof(label)));
    fprintf(out, ",\"cat\":\"%s\",\"pid\":%d,\"tid\":%d", ht_op_kind_name((enum ht_op_kind)op->kind),
            s->lanes[op->lane].rank, op->lane);
    write_us(out, "ts", e->start_ns);
    write_us(out, "dur", e->end_ns > e->start_ns ? e->end_ns - e->start_ns : 0);
    fprintf(out,
            ",\"args\":{\"iteration\":%d,\"op\":%d,\"issue_ns\":%" PRId64 ",\"start_ns\":%" PRId64
            ",\"end_ns\":%" PRId64 ",\"grant_seq\":%" PRId64 ",\"release_seq\":%" PRId64,
            ht_trace_iteration(t, event), id, e->issue_ns, e->start_ns, e->end_ns, e->grant_seq, e->release_seq);
    write_moved(s, id, out);
    if (cause >= 0) fprintf(out, ",\"after\":[%d,%d]", ht_trace_iteration(t, cause), ht_trace_op(t, cause));
    fputs("}}", out);
}

enum ht_status ht_trace_write(const struct ht_trace *t, FILE *out, struct ht_error *err)
{
    const struct ht_schedule *s = t->schedule;
    int64_t *causes = HT_NEW_ARRAY(int64_t, t->n_events);
    ht_trace_causes(t, causes);
    fprintf(out,
            "{\"displayTimeUnit\":\"ns\",\"otherData\":{\"format\":\"" FORMAT "\",\"hash\":\"%016" PRIx64
            "\",\"clock\":\"%s\"",
            ht_schedule_hash(s), clock_names[t->clock]);
    fprintf(out, ",\"iterations\":%d,\"end_ns\":%" PRId64 ",\"schedule\":", t->iterations, t->end_ns);
    write_string(out, s->name);
    if (t->clock_error_ns) fprintf(out, ",\"clock_error_ns\":%" PRId64, t->clock_error_ns);
    fputs("},\"traceEvents\":[\n{\"ph\":\"M\",\"name\":\"begin\",\"pid\":0}", out);
    write_names(s, out);
    for (int64_t i = 0; i < t->n_events; i++)
        if (t->events[i].grant_seq >= 0) write_event(t, i, causes[i], out);
    free(causes);
    for (int32_t space = 0; space < ht_n_spaces(s); space++) write_counters(t, space, out);
    fputs(",\n{\"ph\":\"M\",\"name\":\"end\",\"pid\":0}]}\n", out);
    if (fflush(out) != 0 || ferror(out)) return ht_fail(err, HT_FAILED, "writing the trace: %s", strerror(errno));
    return HT_OK;
}

/* ---- reading --------------------------------------------------------------------------------------------------- */

struct event { /* as it is read: of which iteration and op */
    int32_t iteration, op;
    struct ht_trace_event times;
};

struct reader {
    const char *path;
    const struct ht_schedule *s;
    struct ht_error *err;
    int64_t line;
    struct event *events;
    size_t n, cap;
};

static enum ht_status bad(const struct reader *r, const char *what)
{
    return ht_fail(r->err, HT_BAD_INPUT, "%s:%lld: %s; expected a trace as --trace writes it", r->path,
                   (long long)r->line, what);
}

/* Reads the first line, which ends inside the list of events; with the list closed it is a document. */
static enum ht_status read_head(struct reader *r, const char *line, size_t n, enum ht_clock *clock, int32_t *iterations,
                                int64_t *end_ns)
{
    char *text = ht_alloc(n + 3);
    memcpy(text, line, n);
    memcpy(text + n, "]}", 3);
    json_t *root = json_loadb(text, n + 2, JSON_REJECT_DUPLICATES, NULL);
    free(text);
    const char *format = NULL, *hash = NULL, *clock_name = NULL;
    json_int_t k = 0, end = 0;
    enum ht_status status = HT_OK;
    if (!root || json_unpack(root, "{s:{s:s,s:s,s:s,s:I,s:I}}", "otherData", "format", &format, "hash", &hash, "clock",
                             &clock_name, "iterations", &k, "end_ns", &end) != 0) {
        status = bad(r, "the first line is not the head of a trace");
        goto out;
    }
    if (strcmp(format, FORMAT) != 0) {
        status = bad(r, "its format is not " FORMAT);
        goto out;
    }
    char want[24];
    snprintf(want, sizeof(want), "%016" PRIx64, ht_schedule_hash(r->s));
    if (strcmp(hash, want) != 0) {
        status = ht_fail(r->err, HT_BAD_INPUT, "%s:1: key 'hash': the trace is of another schedule (%.16s, not %s)",
                         r->path, hash, want);
        goto out;
    }
    int c = 0;
    while (c < 3 && strcmp(clock_name, clock_names[c]) != 0) c++;
    if (c == 3 || k < 1 || k > INT32_MAX || end < 0) {
        status = bad(r, "clock, iterations or end_ns is out of range");
        goto out;
    }
    *clock = (enum ht_clock)c;
    *iterations = (int32_t)k;
    *end_ns = end;
out:
    json_decref(root);
    return status;
}

static enum ht_status read_event(struct reader *r, const char *line, size_t n, int32_t iterations)
{
    json_t *root = json_loadb(line, n, JSON_REJECT_DUPLICATES, NULL);
    const char *phase = NULL;
    json_int_t k, op, issue, start, end, grant, release;
    enum ht_status status = HT_OK;
    if (!root || json_unpack(root, "{s:s}", "ph", &phase) != 0) {
        status = bad(r, "this line is not an event");
        goto out;
    }
    if (strcmp(phase, "X") != 0) goto out;
    if (json_unpack(root, "{s:{s:I,s:I,s:I,s:I,s:I,s:I,s:I}}", "args", "iteration", &k, "op", &op, "issue_ns", &issue,
                    "start_ns", &start, "end_ns", &end, "grant_seq", &grant, "release_seq", &release) != 0) {
        status = bad(r, "the event's args are incomplete");
        goto out;
    }
    int64_t most = 2 * (int64_t)iterations * r->s->n_ops;
    if (k < 0 || k >= iterations || op < 0 || op >= r->s->n_ops || issue < 0 || start < issue || end < start ||
        grant < 0 || grant >= most || release < -1 || release >= most) {
        status = bad(r, "the event's iteration, op, times or order are out of range");
        goto out;
    }
    struct ht_trace_event times = {
        .issue_ns = issue, .start_ns = start, .end_ns = end, .grant_seq = grant, .release_seq = release};
    struct event e = {(int32_t)k, (int32_t)op, times};
    HT_PUSH(r->events, r->n, r->cap, e);
out:
    json_decref(root);
    return status;
}

/* Makes a trace of the collected events. Most ops of an iteration run, so checking their number keeps a bad head from
   allocating at will. */
static enum ht_status assemble(struct reader *r, enum ht_clock clock, int32_t iterations, int64_t end_ns,
                               struct ht_trace **out)
{
    if ((int64_t)iterations * (r->s->n_ops + 1) > 1000 * ((int64_t)r->n + 1))
        return bad(r, "there are too few events for its iterations");
    struct ht_trace *t = ht_trace_create(r->s, clock, iterations);
    t->end_ns = end_ns;
    for (size_t i = 0; i < r->n; i++) {
        const struct event *e = &r->events[i];
        struct ht_trace_event *to = &t->events[(int64_t)e->iteration * r->s->n_ops + e->op];
        if (to->grant_seq >= 0 || e->times.end_ns > end_ns) {
            ht_trace_destroy(t);
            return ht_fail(r->err, HT_BAD_INPUT, "%s: op %d of iteration %d is listed twice, or ends after the run",
                           r->path, e->op, e->iteration);
        }
        *to = e->times;
        if (to->end_ns > t->iteration_end_ns[e->iteration]) t->iteration_end_ns[e->iteration] = to->end_ns;
    }
    struct ht_error why;
    if (ht_trace_replay(t, &why, t->peak_bytes) != HT_OK) {
        ht_trace_destroy(t);
        return ht_fail(r->err, HT_BAD_INPUT, "%s: %s", r->path, why.text);
    }
    *out = t;
    return HT_OK;
}

enum ht_status ht_trace_read(const char *path, const struct ht_schedule *s, struct ht_error *err, struct ht_trace **out)
{
    *out = NULL;
    FILE *in = fopen(path, "r");
    if (!in) return ht_fail(err, HT_BAD_INPUT, "%s: %s", path, strerror(errno));
    struct reader r = {.path = path, .s = s, .err = err};
    char *line = NULL;
    size_t line_cap = 0;
    enum ht_clock clock = HT_CLOCK_SIM;
    int32_t iterations = 0;
    int64_t end_ns = 0;
    bool ended = false;
    enum ht_status status = HT_OK;
    int first = ungetc(getc(in), in);
    if (first != EOF && first != '{') { /* before a line of gigabytes is read: a sparse file, a device */
        r.line = 1;
        status = bad(&r, "the first line is not the head of a trace");
    }
    for (ssize_t n; status == HT_OK && !ended && (n = getline(&line, &line_cap, in)) >= 0;) {
        r.line++;
        while (n > 0 && (line[n - 1] == '\n' || line[n - 1] == '\r')) n--;
        if (r.line == 1) {
            status = read_head(&r, line, (size_t)n, &clock, &iterations, &end_ns);
            continue;
        }
        ended = n >= 2 && line[n - 1] == '}' && line[n - 2] == ']';
        n -= ended ? 2 : (n > 0 && line[n - 1] == ',');
        status = read_event(&r, line, (size_t)n, iterations);
    }
    if (status == HT_OK && ferror(in)) status = ht_fail(err, HT_BAD_INPUT, "%s: %s", path, strerror(errno));
    if (status == HT_OK && r.line == 0) status = bad(&r, "the file is empty");
    if (status == HT_OK && !ended) status = bad(&r, "the file is truncated");
    if (status == HT_OK) status = assemble(&r, clock, iterations, end_ns, out);
    fclose(in);
    free(line);
    free(r.events);
    return status;
}
