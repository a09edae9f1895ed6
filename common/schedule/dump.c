/* Writes a graph file: one row a line, names if they are unambiguous, and every field that differs from its default. */
#include "common/schedule/file.h"

#include "common/base/array.h"
#include "common/schedule/build.h"
#include "common/schedule/names.h"
#include "common/schedule/symbols.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { TENSOR_NAME = 64 };

struct dumper {
    const struct ht_schedule *s;
    FILE *out;
    char (*tensor_names)[TENSOR_NAME];
    struct ht_symbols ops, tensors, lanes, lanes_full, resources;
    char (*lane_full)[40];
    const char *sep; /* separator before the next key of the current row */
};

/* Returns true if YAML reads the word as the same string, anywhere in a flow collection. */
static bool is_plain(const char *text)
{
    static const char *const taken[] = {"true", "false", "null", "yes", "no", "on", "off", "y", "n"};
    if (!((*text >= 'a' && *text <= 'z') || (*text >= 'A' && *text <= 'Z') || *text == '_')) return false;
    for (const char *c = text; *c; c++)
        if (!((*c >= 'a' && *c <= 'z') || (*c >= 'A' && *c <= 'Z') || (*c >= '0' && *c <= '9') || *c == '_' ||
              *c == '.' || *c == '-' || *c == '@'))
            return false;
    for (size_t i = 0; i < HT_COUNT(taken); i++)
        if (strcasecmp(text, taken[i]) == 0) return false;
    return true;
}

static void put_text(FILE *out, const char *text)
{
    if (is_plain(text) || ht_all_digits(text)) { /* digits: a reference by number */
        fputs(text, out);
        return;
    }
    putc('"', out);
    for (const char *c = text; *c; c++) {
        if (*c == '"' || *c == '\\') putc('\\', out);
        putc(*c, out);
    }
    putc('"', out);
}

static void begin_row(struct dumper *d)
{
    fputs("  - {", d->out);
    d->sep = "";
}

static void end_row(struct dumper *d)
{
    fputs("}\n", d->out);
}

static void key(struct dumper *d, const char *name)
{
    fprintf(d->out, "%s%s: ", d->sep, name);
    d->sep = ", ";
}

static void put_string(struct dumper *d, const char *name, const char *text)
{
    key(d, name);
    if (ht_all_digits(text))
        fprintf(d->out, "\"%s\"", text);
    else
        put_text(d->out, text);
}

static void put_word(struct dumper *d, const char *name, const char *const names[], int n, int i)
{
    key(d, name);
    fputs(i >= 0 && i < n ? names[i] : "?", d->out);
}

static void put_count(struct dumper *d, const char *name, int64_t value, int64_t fallback)
{
    if (value == fallback) return;
    key(d, name);
    fprintf(d->out, "%lld", (long long)value);
}

static void put_sub_ops(struct dumper *d, uint32_t mask, uint32_t fallback)
{
    const char *sep = "";
    if (mask == fallback) return;
    key(d, "sub_ops");
    if (mask == HT_ALL_SUB_OPS) {
        fputs("all", d->out);
        return;
    }
    putc('[', d->out);
    for (int i = 0; i < HT_N_SUB_OPS; i++)
        if (mask >> i & 1) {
            fprintf(d->out, "%s%s", sep, ht_sub_op_names[i]);
            sep = ", ";
        }
    putc(']', d->out);
}

static void put_label(struct dumper *d, const struct ht_label *l)
{
    put_count(d, "unit", l->unit, -1);
    put_count(d, "n_units", l->n_units, l->unit >= 0 ? 1 : 0);
    put_count(d, "mb", l->micro_batch, -1);
    put_sub_ops(d, l->sub_ops, l->unit >= 0 ? HT_ALL_SUB_OPS : 0);
}

/* ---- header ---- */

static void put_bytes(struct dumper *d, int64_t bytes)
{
    if (bytes == INT64_MAX)
        fputs("unlimited", d->out);
    else
        fprintf(d->out, "%lld B", (long long)bytes);
}

static void put_tier(struct dumper *d, const char *tier, const int64_t *bytes, int32_t first, int32_t end)
{
    bool same = true;
    for (int32_t i = first; i < end; i++) same &= bytes[i] == bytes[first];
    key(d, tier);
    if (!same) putc('[', d->out);
    for (int32_t i = first; i < (same ? first + 1 : end); i++) {
        if (i > first) fputs(", ", d->out);
        put_bytes(d, bytes[i]);
    }
    if (!same) putc(']', d->out);
}

/* Writes a map of tiers to sizes. */
static void put_spaces(struct dumper *d, const char *name, const int64_t *bytes)
{
    int32_t host = d->s->n_ranks, disk = host + d->s->n_nodes, remote = disk + d->s->n_nodes;
    fprintf(d->out, "%s: {", name);
    d->sep = "";
    put_tier(d, "device", bytes, 0, host);
    put_tier(d, "host", bytes, host, disk);
    put_tier(d, "disk", bytes, disk, remote);
    put_tier(d, "remote", bytes, remote, remote + 1);
    fputs("}\n", d->out);
}

static void put_header(struct dumper *d)
{
    const struct ht_schedule *s = d->s;
    if (s->name[0]) {
        fputs("name: ", d->out);
        d->sep = "";
        if (ht_all_digits(s->name))
            fprintf(d->out, "\"%s\"", s->name);
        else
            put_text(d->out, s->name);
        putc('\n', d->out);
    }
    fprintf(d->out, "ranks: %d\nnodes: %d\nrank_node: [", s->n_ranks, s->n_nodes);
    for (int32_t i = 0; i < s->n_ranks; i++) fprintf(d->out, "%s%d", i ? ", " : "", s->rank_node[i]);
    fputs("]\n", d->out);
    put_spaces(d, "capacity", s->capacity_bytes);
    bool limited = false;
    for (int32_t i = 0; i < ht_n_spaces(s); i++) limited |= s->limit_bytes[i] < INT64_MAX;
    if (limited) put_spaces(d, "limit", s->limit_bytes);
    fprintf(d->out, "n_units: %d\nn_micro_batches: %d\n", s->n_units, s->n_micro_batches);
    if (s->slices) fputs("slices: [", d->out);
    for (int32_t j = 0; j < s->n_micro_batches && s->slices; j++)
        fprintf(d->out, "%s[%lld, %lld]", j ? ", " : "", (long long)s->slices[j].first, (long long)s->slices[j].count);
    if (s->slices) fputs("]\n", d->out);
}

/* ---- tables ---- */

static void put_lanes(struct dumper *d)
{
    const struct ht_schedule *s = d->s;
    struct ht_sparse counts = {0};
    fputs("lanes:", d->out);
    if (s->n_lanes == 0) fputs(" []", d->out);
    putc('\n', d->out);
    for (int32_t i = 0; i < s->n_lanes; i++) {
        const struct ht_lane *l = &s->lanes[i];
        int64_t slot = (int64_t)l->rank * HT_N_LANE_KINDS + (int64_t)l->kind, index = ht_sparse_get(&counts, slot) + 1;
        begin_row(d);
        put_string(d, "name", l->name);
        put_word(d, "kind", ht_lane_kind_names, HT_N_LANE_KINDS, (int)l->kind);
        if (l->order != HT_FIFO) put_word(d, "order", ht_lane_order_names, HT_N_LANE_ORDERS, (int)l->order);
        put_count(d, "rank", l->rank, 0);
        put_count(d, "index", l->index, index);
        end_row(d);
        ht_sparse_set(&counts, slot, l->index);
    }
    free(counts.where);
}

/* Names tensors: "activation.3.1" for unit 3, micro-batch 1; with the row's number if several would have that name. */
static void name_tensors(struct dumper *d)
{
    const struct ht_schedule *s = d->s;
    d->tensor_names = ht_alloc(sizeof *d->tensor_names * (size_t)s->n_tensors);
    for (int32_t i = 0; i < s->n_tensors; i++) {
        const struct ht_tensor *t = &s->tensors[i];
        char unit[16] = "", batch[16] = "";
        if (t->label.unit >= 0) snprintf(unit, sizeof unit, ".%d", t->label.unit);
        if (t->label.micro_batch >= 0) snprintf(batch, sizeof batch, ".%d", t->label.micro_batch);
        snprintf(d->tensor_names[i], TENSOR_NAME, "%s%s%s", ht_tensor_class_name(t->class), unit, batch);
        ht_symbols_add(&d->tensors, d->tensor_names[i], i);
    }
    for (int32_t i = s->n_tensors; i-- > 0;) {
        const struct ht_symbol *symbol = ht_symbols_find(&d->tensors, d->tensor_names[i]);
        if (!symbol->ambiguous || symbol->value == i) continue;
        size_t n = strlen(d->tensor_names[i]);
        snprintf(d->tensor_names[i] + n, TENSOR_NAME - n, ".t%d", i);
    }
}

static void put_tensors(struct dumper *d)
{
    const struct ht_schedule *s = d->s;
    if (s->n_resources > 0) fputs("resources:\n", d->out);
    for (int32_t i = 0; i < s->n_resources; i++) {
        const struct ht_resource *r = &s->resources[i];
        begin_row(d);
        put_string(d, "name", r->name);
        put_word(d, "kind", ht_resource_kind_names, HT_N_RESOURCE_KINDS, (int)r->kind);
        put_count(d, "node", r->node, 0);
        key(d, "capacity_per_s");
        fprintf(d->out, "%lld", (long long)r->capacity_per_s);
        end_row(d);
    }
    if (s->n_tensors > 0) fputs("tensors:\n", d->out);
    for (int32_t i = 0; i < s->n_tensors; i++) {
        const struct ht_tensor *t = &s->tensors[i];
        begin_row(d);
        put_string(d, "name", d->tensor_names[i]);
        put_word(d, "class", ht_tensor_class_names, HT_N_TENSOR_CLASSES, (int)t->class);
        put_label(d, &t->label);
        key(d, "bytes");
        fprintf(d->out, "%lld", (long long)t->bytes);
        if (t->sharded) {
            key(d, "shard");
            fprintf(d->out, "[%lld, %lld]", (long long)t->shard_begin, (long long)t->shard_end);
        }
        if (t->parts > 1) {
            key(d, "part");
            fprintf(d->out, "[%d, %d]", t->part, t->parts);
        }
        put_count(d, "rank", t->rank, 0);
        end_row(d);
    }
    if (s->n_residents > 0) fputs("residents:\n", d->out);
    for (int32_t i = 0; i < s->n_residents; i++) {
        const struct ht_resident *r = &s->residents[i];
        fprintf(d->out, "  - %s@%s", d->tensor_names[r->tensor], ht_tier_name(r->tier));
        if (r->rank != s->tensors[r->tensor].rank) fprintf(d->out, ":%d", r->rank);
        putc('\n', d->out);
    }
}

static void put_flag(struct dumper *d, const char *name, bool value)
{
    if (!value) return;
    key(d, name);
    fputs("true", d->out);
}

static void put_works(struct dumper *d)
{
    const struct ht_schedule *s = d->s;
    if (s->n_works > 0) fputs("works:\n", d->out);
    for (int32_t i = 0; i < s->n_works; i++) {
        const struct ht_work *w = &s->works[i];
        struct ht_work bare = {0};
        int64_t x[HT_WORK_WORDS], y[HT_WORK_WORDS];
        ht_copy_name(bare.custom, sizeof bare.custom, w->custom);
        ht_work_description(w, x);
        ht_work_description(&bare, y);
        if (w->custom[0] && memcmp(x, y, sizeof x) == 0) {
            fputs("  - ", d->out);
            if (ht_all_digits(w->custom))
                fprintf(d->out, "\"%s\"", w->custom);
            else
                put_text(d->out, w->custom);
            putc('\n', d->out);
            continue;
        }
        begin_row(d);
        if (w->custom[0]) put_string(d, "custom", w->custom);
        put_word(d, "kind", ht_op_kind_names, HT_N_OP_KINDS, (int)w->kind);
        put_word(d, "where", ht_lane_kind_names, HT_N_LANE_KINDS, (int)w->where);
        if (w->unit) put_word(d, "unit", ht_unit_kind_names, HT_N_UNIT_KINDS, (int)w->unit);
        if (w->arch) put_word(d, "arch", ht_work_arch_names, HT_N_ARCHS, (int)w->arch);
        put_count(d, "n_units", w->n_units, 1);
        put_sub_ops(d, w->sub_ops, 0);
        put_count(d, "batch", w->batch, 0);
        put_count(d, "seq", w->seq, 0);
        put_count(d, "width", w->width, 0);
        put_count(d, "heads", w->heads, 0);
        put_count(d, "kv_heads", w->kv_heads, 0);
        put_count(d, "ffn", w->ffn, 0);
        put_count(d, "vocab", w->vocab, 0);
        put_flag(d, "tied", w->tied);
        put_flag(d, "flash", w->flash);
        put_flag(d, "dropout", w->dropout);
        put_flag(d, "sequence", w->sequence);
        if (w->dtype) put_word(d, "dtype", ht_work_dtype_names, HT_N_DTYPES, (int)w->dtype);
        if (w->grad_dtype) put_word(d, "grad_dtype", ht_work_dtype_names, HT_N_DTYPES, (int)w->grad_dtype);
        put_count(d, "tp", w->tp, 1);
        put_count(d, "ranks", w->ranks, 1);
        put_count(d, "params", w->params, 0);
        put_count(d, "bytes", w->bytes, 0);
        put_count(d, "even_bytes", w->even_bytes, 0);
        put_flag(d, "free", w->free);
        put_flag(d, "write", w->write);
        end_row(d);
    }
}

/* ---- ops ---- */

/* Returns true if the op can be referred to by its name. */
static bool named(const struct dumper *d, int32_t op)
{
    const char *name = d->s->ops[op].name;
    if (!name[0] || ht_all_digits(name)) return false;
    return !ht_symbols_find(&d->ops, name)->ambiguous;
}

static void put_edges(struct dumper *d, const char *name, const int32_t *list, int64_t begin, int64_t end)
{
    if (begin == end) return;
    key(d, name);
    putc('[', d->out);
    for (int64_t i = begin; i < end; i++) {
        if (i > begin) fputs(", ", d->out);
        if (named(d, list[i]))
            put_text(d->out, d->s->ops[list[i]].name);
        else
            fprintf(d->out, "%d", list[i]);
    }
    putc(']', d->out);
}

/* Returns true if the op's effects are in the order of the lists: need, produce, update, release. */
static bool in_list_order(const struct ht_schedule *s, int32_t op)
{
    int64_t begin = s->effects_begin[op];
    for (int64_t i = begin + 1; i < s->effects_begin[op + 1]; i++)
        if (__builtin_ctz(s->effects[i - 1].flags | 16u) > __builtin_ctz(s->effects[i].flags | 16u)) return false;
    return true;
}

static void put_effects(struct dumper *d, int32_t op)
{
    const struct ht_schedule *s = d->s;
    int64_t begin = s->effects_begin[op], end = s->effects_begin[op + 1];
    bool lists = in_list_order(s, op);
    for (int k = 0; k < (lists ? HT_N_EFFECT_FLAGS : 1); k++) {
        const char *sep = "[";
        for (int64_t i = begin; i < end; i++) {
            const struct ht_effect *e = &s->effects[i];
            if (lists && !(e->flags >> k & 1)) continue;
            if (sep[0] == '[') key(d, lists ? ht_effect_names[k] : "effects");
            fputs(sep, d->out);
            sep = ", ";
            if (!lists) {
                const char *plus = "";
                for (int f = 0; f < HT_N_EFFECT_FLAGS; f++)
                    if (e->flags >> f & 1) {
                        fprintf(d->out, "%s%s", plus, ht_effect_names[f]);
                        plus = "+";
                    }
                putc(' ', d->out);
            }
            fprintf(d->out, "%s@%s", d->tensor_names[e->tensor], ht_tier_name((enum ht_tier)e->tier));
        }
        if (sep[0] != '[') putc(']', d->out);
    }
}

static void put_op(struct dumper *d, int32_t i)
{
    const struct ht_schedule *s = d->s;
    const struct ht_op *op = &s->ops[i];
    const struct ht_lane *lane = &s->lanes[op->lane];
    begin_row(d);
    if (op->name[0]) put_string(d, named(d, i) ? "name" : "title", op->name);
    put_word(d, "kind", ht_op_kind_names, HT_N_OP_KINDS, op->kind);
    key(d, "lane");
    if (!ht_symbols_find(&d->lanes, lane->name)->ambiguous)
        put_text(d->out, lane->name);
    else
        put_text(d->out, d->lane_full[op->lane]);
    put_label(d, &op->label);
    key(d, "work");
    fprintf(d->out, "%d", op->work);
    put_edges(d, "after", s->deps, s->deps_begin[i], s->deps_begin[i + 1]);
    put_edges(d, "prev", s->prev, s->prev_begin[i], s->prev_begin[i + 1]);
    put_effects(d, i);
    if (s->uses_begin[i] < s->uses_begin[i + 1]) {
        key(d, "use");
        const char *sep = "{";
        for (int64_t k = s->uses_begin[i]; k < s->uses_begin[i + 1]; k++) {
            fputs(sep, d->out);
            put_text(d->out, s->resources[s->uses[k].resource].name);
            fprintf(d->out, ": %lld", (long long)s->uses[k].amount);
            sep = ", ";
        }
        putc('}', d->out);
    }
    put_count(d, "priority", op->priority, 0);
    if (op->when != HT_ALWAYS) put_word(d, "when", ht_when_names, HT_N_WHENS, op->when);
    put_count(d, "match", op->match, -1);
    end_row(d);
}

/* Indexes the names and checks that a file can carry them, i.e. that the loader accepts them. */
static enum ht_status index_names(struct dumper *d, struct ht_error *err)
{
    const struct ht_schedule *s = d->s;
    if (!ht_printable(s->name, sizeof s->name)) return ht_fail(err, HT_FAILED, "the schedule's name is not printable");
    d->lane_full = ht_alloc(sizeof *d->lane_full * (size_t)s->n_lanes);
    for (int32_t i = 0; i < s->n_lanes; i++) {
        const char *name = s->lanes[i].name;
        snprintf(d->lane_full[i], sizeof d->lane_full[i], "%.24s@%d", name, s->lanes[i].rank);
        ht_symbols_add(&d->lanes, name, i);
        if (!name[0] || ht_all_digits(name) || strchr(name, '@') || !ht_printable(name, sizeof s->lanes[i].name) ||
            !ht_symbols_add(&d->lanes_full, d->lane_full[i], i))
            return ht_fail(err, HT_FAILED,
                           "lane %d: a graph file cannot carry the name '%s', which is empty, a number, "
                           "not printable, has an '@' or is taken on its rank",
                           i, name);
    }
    for (int32_t i = 0; i < s->n_resources; i++) {
        const char *name = s->resources[i].name;
        if (!name[0] || ht_all_digits(name) || !ht_printable(name, sizeof s->resources[i].name) ||
            !ht_symbols_add(&d->resources, name, i))
            return ht_fail(err, HT_FAILED,
                           "resource %d: a graph file cannot carry the name '%s', which is empty, a "
                           "number, not printable or taken",
                           i, name);
    }
    for (int32_t i = 0; i < s->n_works; i++)
        if (!ht_printable(s->works[i].custom, sizeof s->works[i].custom))
            return ht_fail(err, HT_FAILED, "work %d: its name is not printable", i);
    for (int32_t i = 0; i < s->n_ops; i++) {
        if (!ht_printable(s->ops[i].name, sizeof s->ops[i].name))
            return ht_fail(err, HT_FAILED, "op %d: its name is not printable", i);
        if (s->ops[i].name[0]) ht_symbols_add(&d->ops, s->ops[i].name, i);
    }
    return HT_OK;
}

enum ht_status ht_schedule_dump(const struct ht_schedule *s, FILE *out, struct ht_error *err)
{
    struct dumper d = {.s = s, .out = out};
    enum ht_status status = index_names(&d, err);
    if (!status) {
        name_tensors(&d);
        put_header(&d);
        put_lanes(&d);
        put_tensors(&d);
        put_works(&d);
        fputs(s->n_ops ? "ops:\n" : "ops: []\n", out);
        for (int32_t i = 0; i < s->n_ops; i++) put_op(&d, i);
        if (fflush(out) || ferror(out))
            status = ht_fail(err, HT_FAILED, "cannot write schedule '%.64s': %s", s->name, strerror(errno));
    }
    free(d.tensor_names);
    free(d.lane_full);
    ht_symbols_free(&d.ops);
    ht_symbols_free(&d.tensors);
    ht_symbols_free(&d.lanes);
    ht_symbols_free(&d.lanes_full);
    ht_symbols_free(&d.resources);
    return status;
}
