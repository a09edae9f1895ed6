#include "common/base/builtin.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/array.h"

/* Holds what has been parsed. Planners ask for a device or a model hundreds of times, from several threads. */
static struct parsed {
    const char *text;
    struct ht_doc *doc;
} * parsed;
static size_t n_parsed, parsed_cap;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

enum ht_status ht_builtin_open(const struct ht_builtin *file, struct ht_error *err, struct ht_doc **out)
{
    enum ht_status st = HT_OK;
    pthread_mutex_lock(&lock);
    size_t i = 0;
    while (i < n_parsed && parsed[i].text != file->text) i++;
    if (i == n_parsed) {
        struct ht_doc *doc = NULL;
        st = ht_doc_parse(file->text, (size_t)(file->end - file->text), file->name, err, &doc);
        if (!st) {
            ht_doc_keep(doc);
            HT_PUSH(parsed, n_parsed, parsed_cap, ((struct parsed){file->text, doc}));
        }
    }
    if (!st) *out = parsed[i].doc;
    pthread_mutex_unlock(&lock);
    return st;
}

static enum ht_status ht_unknown_name(const struct ht_builtin *files, size_t n_files, const char *what,
                                      const char *name, struct ht_error *err)
{
    enum { MAX_NAMES = 256, NAME_BYTES = 64 };
    char(*names)[NAME_BYTES] = ht_alloc(MAX_NAMES * NAME_BYTES);
    const char *list[MAX_NAMES];
    char all[600] = "";
    size_t n = 0, used = 0;
    while (n < MAX_NAMES && ht_builtin_name(files, n_files, (int64_t)n, names[n], NAME_BYTES)) {
        list[n] = names[n];
        if (used + NAME_BYTES + 2 < sizeof(all))
            used += (size_t)snprintf(all + used, sizeof(all) - used, "%s%s", n ? ", " : "", names[n]);
        n++;
    }
    const char *near = ht_nearest(name, list, n);
    enum ht_status st =
        near ? ht_fail(err, HT_BAD_INPUT, "unknown %s '%.80s'; expected '%s'?", what, name, near)
             : ht_fail(err, HT_BAD_INPUT, "unknown %s '%.80s'; expected a YAML file or one of %s", what, name, all);
    free(names);
    return st;
}

enum ht_status ht_builtin_find(const struct ht_builtin *files, size_t n_files, const char *what, const char *name,
                               struct ht_error *err, struct ht_doc **doc, const struct ht_node **entry)
{
    for (size_t i = 0; i < n_files; i++) {
        struct ht_doc *d = NULL;
        enum ht_status st = ht_builtin_open(&files[i], err, &d);
        if (st) return st;
        const struct ht_node *found = ht_node_find(ht_doc_root(d), name);
        if (found) {
            *doc = d;
            *entry = found;
            return HT_OK;
        }
        ht_doc_destroy(d);
    }
    return ht_unknown_name(files, n_files, what, name, err);
}

bool ht_builtin_name(const struct ht_builtin *files, size_t n_files, int64_t index, char *buf, size_t bytes)
{
    for (size_t i = 0; i < n_files; i++) {
        struct ht_doc *d = NULL;
        struct ht_error err;
        if (ht_builtin_open(&files[i], &err, &d)) return false;
        HT_EACH_CHILD(ht_doc_root(d), c)
        {
            if (index-- == 0) {
                snprintf(buf, bytes, "%s", c->key);
                ht_doc_destroy(d);
                return true;
            }
        }
        ht_doc_destroy(d);
    }
    return false;
}

bool ht_is_path(const char *word)
{
    static const char *const ends[] = {".yaml", ".yml", ".json"};
    size_t n = strlen(word);
    for (size_t i = 0; i < HT_COUNT(ends); i++)
        if (n >= strlen(ends[i]) && strcmp(word + n - strlen(ends[i]), ends[i]) == 0) return true;
    return strchr(word, '/') != NULL;
}
