#include "harness/elastic/journal.h"

#include "common/base/array.h"
#include "common/ckpt/durable.h"
#include "common/store/store.h"
#include "harness/result/provenance.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void path_of(const struct ht_journal *j, char path[PATH_MAX])
{
    snprintf(path, PATH_MAX, "%.4000s/state.json", j->folder);
}

enum ht_status ht_journal_open(const char *folder, struct ht_error *err, struct ht_journal *out)
{
    struct ht_journal j = {.lock = -1};
    char path[PATH_MAX];
    json_error_t why;
    enum ht_status status = ht_store_open(folder, 0, err, &j.lock);
    if (status != HT_OK) return status;
    if (!realpath(folder, j.folder)) snprintf(j.folder, sizeof(j.folder), "%.4000s", folder);
    path_of(&j, path);
    if (access(path, F_OK) == 0) {
        j.root = json_load_file(path, 0, &why);
        if (!json_is_object(j.root)) {
            json_decref(j.root);
            close(j.lock);
            return ht_fail(err, HT_BAD_INPUT, "%.400s: is not a supervisor's state: %.160s", path,
                           *why.text ? why.text : "expected an object");
        }
    } else {
        j.root = json_pack("{s:i,s:i,s:i,s:i,s:[],s:[]}", "incarnation", 0, "faults_met", 0, "saved", -1, "safe", -1,
                           "runs", "recoveries");
    }
    *out = j;
    return HT_OK;
}

void ht_journal_close(struct ht_journal *j)
{
    if (!j->root) return;
    json_decref(j->root);
    close(j->lock);
    *j = (struct ht_journal){.lock = -1};
}

enum ht_status ht_journal_write(const struct ht_journal *j, struct ht_error *err)
{
    struct ht_durable file;
    char path[PATH_MAX];
    path_of(j, path);
    char *text = json_dumps(j->root, JSON_INDENT(1) | JSON_SORT_KEYS);
    enum ht_status status = ht_durable_open(path, err, &file);
    if (status == HT_OK) {
        status = ht_durable_write(&file, text, strlen(text), err);
        if (status == HT_OK)
            status = ht_durable_commit(&file, err, NULL);
        else
            ht_durable_discard(&file);
    }
    free(text);
    return status;
}

int64_t ht_journal_number(const struct ht_journal *j, const char *key)
{
    const json_t *v = json_object_get(j->root, key);
    return json_is_integer(v) ? (int64_t)json_integer_value(v) : -1;
}

void ht_journal_set(struct ht_journal *j, const char *key, int64_t value)
{
    json_object_set_new(j->root, key, json_integer((json_int_t)value));
}

json_t *ht_journal_list(const struct ht_journal *j, const char *key)
{
    json_t *list = json_object_get(j->root, key);
    if (json_is_array(list)) return list;
    json_object_set_new(j->root, key, json_array());
    return json_object_get(j->root, key);
}

/* Copies an error's text without its digits and its paths: a full disk stops another file each time. */
static void without_names(const char *text, char *out, size_t cap)
{
    size_t n = 0;
    while (*text) {
        size_t word = strcspn(text, " ") + 1, length = strnlen(text, word);
        bool path = memchr(text, '/', length) != NULL;
        for (size_t i = 0; i < length && !path && n + 1 < cap; i++)
            if (text[i] < '0' || text[i] > '9') out[n++] = text[i];
        text += length;
    }
    out[n] = '\0';
}

int64_t ht_journal_fail(struct ht_journal *j, int64_t step, const char *error)
{
    char text[512];
    const json_t *last = json_object_get(j->root, "failures");
    const char *was = json_string_value(json_object_get(last, "error"));
    without_names(error, text, sizeof(text));
    bool same = was && !strcmp(was, text) && json_integer_value(json_object_get(last, "step")) == step;
    int64_t n = same ? (int64_t)json_integer_value(json_object_get(last, "n")) + 1 : 1;
    json_object_set_new(
        j->root, "failures",
        json_pack("{s:I,s:o,s:I}", "step", (json_int_t)step, "error", ht_json_text(text), "n", (json_int_t)n));
    return n;
}
