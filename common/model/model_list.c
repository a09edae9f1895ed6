#include "common/model/model_list.h"

#include "common/base/array.h"
#include "common/base/builtin.h"

#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

static enum ht_status add(struct ht_model_list *l, const char *name, struct ht_error *err)
{
    struct ht_listed_model m = {0};
    for (size_t i = 0; i < l->n; i++)
        if (!strcmp(l->list[i].name, name)) return HT_OK;
    enum ht_status status = ht_model_load(name, err, &m.model);
    if (status != HT_OK) return status;
    m.name = ht_strdup(name);
    HT_PUSH(l->list, l->n, l->cap, m);
    return HT_OK;
}

static enum ht_status add_matching(struct ht_model_list *l, const char *pattern, struct ht_error *err)
{
    char name[64];
    size_t matches = 0;
    enum ht_status status = HT_OK;
    for (int64_t i = 0; ht_model_zoo_name(i, name) && status == HT_OK; i++)
        if (fnmatch(pattern, name, 0) == 0) {
            status = add(l, name, err);
            matches++;
        }
    if (!matches) return ht_fail(err, HT_BAD_INPUT, "no built-in model matches '%s'", pattern);
    return status;
}

enum ht_status ht_model_list_create(const char *const *words, size_t n, struct ht_error *err, struct ht_model_list *out)
{
    struct ht_model_list l = {0};
    enum ht_status status = HT_OK;
    for (size_t i = 0; i < n && status == HT_OK; i++) {
        bool is_pattern = !ht_is_path(words[i]) && strpbrk(words[i], "*?[");
        status = is_pattern ? add_matching(&l, words[i], err) : add(&l, words[i], err);
    }
    if (status == HT_OK)
        *out = l;
    else
        ht_model_list_free(&l);
    return status;
}

void ht_model_list_free(struct ht_model_list *l)
{
    for (size_t i = 0; i < l->n; i++) free(l->list[i].name);
    free(l->list);
    *l = (struct ht_model_list){0};
}
