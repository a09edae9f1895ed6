/*
 * Profiles as lists of keys and times: loading, looking up, writing.
 */
#include <stdlib.h>
#include <string.h>

#include "common/base/array.h"
#include "common/profile/internal.h"

struct ht_list_entry {
    char name[HT_NAME_BYTES], source[HT_SOURCE_BYTES];
    const struct ht_node *costs;
};
struct ht_cost_entry {
    char work[HT_WORK_KEY_MAX];
    int64_t ns;
};

#define AT(t, m) .offset = offsetof(struct t, m)
static const struct ht_field ht_list_fields[] = {
    {.key = "name", .type = HT_FIELD_STRING, AT(ht_list_entry, name), .size = HT_NAME_BYTES, .required = true},
    {.key = "source", .type = HT_FIELD_STRING, AT(ht_list_entry, source), .size = HT_SOURCE_BYTES, .required = true},
    {.key = "costs", .type = HT_FIELD_LIST_NODE, AT(ht_list_entry, costs), .required = true},
    {0},
};
static const struct ht_field ht_cost_fields[] = {
    {.key = "work", .type = HT_FIELD_STRING, AT(ht_cost_entry, work), .size = HT_WORK_KEY_MAX, .required = true},
    {.key = "time",
     .type = HT_FIELD_NS,
     AT(ht_cost_entry, ns),
     .min = 0,
     .max = (double)HT_PROFILE_MAX_NS,
     .required = true},
    {0},
};

/* Where the key is or would be. */
static size_t ht_cost_place(const struct ht_profile *p, const char *key, bool *found)
{
    size_t lo = 0, hi = p->n_costs;
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        if (strcmp(p->costs[mid].key, key) < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    *found = lo < p->n_costs && strcmp(p->costs[lo].key, key) == 0;
    return lo;
}

void ht_profile_add(struct ht_profile *p, const char *key, int64_t ns)
{
    bool found;
    size_t at = ht_cost_place(p, key, &found);
    if (!found) {
        HT_RESERVE(p->costs, p->costs_cap, p->n_costs + 1);
        memmove(p->costs + at + 1, p->costs + at, (p->n_costs - at) * sizeof(*p->costs));
        p->n_costs++;
        p->costs[at].key = ht_strdup(key);
    }
    p->costs[at].ns = ns;
}

static int ht_by_key(const void *a, const void *b)
{
    return strcmp(((const struct ht_cost *)a)->key, ((const struct ht_cost *)b)->key);
}

/* Two entries of one work: found after sorting, reported at the later place in the file. */
static enum ht_status ht_check_twice(const struct ht_profile *p, const struct ht_node *list, struct ht_error *err)
{
    for (size_t i = 1; i < p->n_costs; i++) {
        if (strcmp(p->costs[i - 1].key, p->costs[i].key) != 0) continue;
        const struct ht_node *last = NULL;
        HT_EACH_CHILD(list, c)
        {
            const struct ht_node *work = ht_node_find(c, "work");
            if (strcmp(work->text, p->costs[i].key) == 0) last = work;
        }
        return ht_node_error(last, err, "'%s' is given twice; expected it once", p->costs[i].key);
    }
    return HT_OK;
}

enum ht_status ht_profile_parse(const struct ht_doc *doc, struct ht_error *err, struct ht_profile **out)
{
    struct ht_list_entry list = {0};
    struct ht_profile *p = NULL;
    const struct ht_node *root = ht_doc_root(doc), *map;
    enum ht_status st = ht_node_get(root, "profile", err, &map);
    if (!st && root->n_children > 1) {
        HT_EACH_CHILD(root, c)
        if (!st && c != map) st = ht_node_key_error(c, err, "is unknown here; expected only 'profile'");
    }
    if (!st) st = ht_config_load(map, ht_list_fields, err, &list);
    if (st) return st;
    p = ht_profile_create(list.name, list.source);
    HT_EACH_CHILD(list.costs, c)
    {
        struct ht_cost_entry e = {0};
        st = ht_config_load(c, ht_cost_fields, err, &e);
        if (st) goto out;
        struct ht_cost cost = {.key = ht_strdup(e.work), .ns = e.ns};
        HT_PUSH(p->costs, p->n_costs, p->costs_cap, cost);
    }
    if (p->n_costs > 1) qsort(p->costs, p->n_costs, sizeof(*p->costs), ht_by_key);
    st = ht_check_twice(p, list.costs, err);
out:
    if (st) {
        ht_profile_destroy(p);
        return st;
    }
    *out = p;
    return HT_OK;
}

enum ht_status ht_profile_load(const char *path, struct ht_error *err, struct ht_profile **out)
{
    struct ht_doc *doc = NULL;
    enum ht_status st = ht_doc_open(path, err, &doc);
    if (!st) st = ht_profile_parse(doc, err, out);
    ht_doc_destroy(doc);
    return st;
}

enum ht_status ht_listed_cost(const struct ht_profile *p, const struct ht_work *work, struct ht_error *err, int64_t *ns)
{
    char key[HT_WORK_KEY_MAX];
    bool found;
    if (work->free) {
        *ns = 0;
        return HT_OK;
    }
    size_t at = ht_cost_place(p, ht_work_key(work, key, sizeof(key)), &found);
    if (found) {
        *ns = p->costs[at].ns;
        return HT_OK;
    }
    if (work->kind == HT_OP_RESTORE && work->params) {
        /* Only bad iterations cast a copy anew, and no run may have cast this one: it is at most the step's cost, which
           writes the same copy and moves four times as much. */
        struct ht_work step = *work;
        step.kind = HT_OP_OPTIMIZER_STEP;
        return ht_listed_cost(p, &step, err, ns);
    }
    if (!p->n_costs) return ht_fail(err, HT_BAD_INPUT, "profile '%s' has no cost of '%s'; it is empty", p->name, key);
    size_t nearest = 0, best = SIZE_MAX;
    for (size_t i = 0; i < p->n_costs; i++) {
        size_t d = ht_edit_distance(key, p->costs[i].key);
        if (d < best) best = d, nearest = i;
    }
    return ht_fail(err, HT_BAD_INPUT, "profile '%s' has no cost of '%s'; the nearest it has is '%s'", p->name, key,
                   p->costs[nearest].key);
}

/* A double-quoted YAML scalar. */
static void ht_write_quoted(FILE *f, const char *s)
{
    fputc('"', f);
    for (; *s; s++) {
        if (*s == '"' || *s == '\\') fputc('\\', f);
        if ((unsigned char)*s < ' ')
            fprintf(f, "\\x%02x", (unsigned)(unsigned char)*s);
        else
            fputc(*s, f);
    }
    fputc('"', f);
}

enum ht_status ht_profile_save(const struct ht_profile *p, FILE *f, struct ht_error *err)
{
    fprintf(f, "profile:\n  name: ");
    ht_write_quoted(f, p->name);
    fprintf(f, "\n  source: ");
    ht_write_quoted(f, p->source);
    fprintf(f, "\n  costs:%s\n", p->n_costs ? "" : " []");
    for (size_t i = 0; i < p->n_costs; i++) {
        fprintf(f, "    - {work: ");
        ht_write_quoted(f, p->costs[i].key);
        fprintf(f, ", time: %lld ns}\n", (long long)p->costs[i].ns);
    }
    if (fflush(f) != 0 || ferror(f)) return ht_fail(err, HT_FAILED, "the profile '%s' cannot be written", p->name);
    return HT_OK;
}
