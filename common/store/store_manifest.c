/* The manifest of what a rank has written (store.h). */
#include "common/base/array.h"
#include "common/ckpt/manifest_parts.h"
#include "common/store/store_manifest.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { FORMAT = 1 };

static json_t *extent_json(const struct ht_extent *e)
{
    return json_pack("[s,I,I]", ht_state_part_names[e->part], (json_int_t)e->begin, (json_int_t)e->end);
}

static json_t *file_json(const struct ht_store_file *f)
{
    json_t *extents = json_array();
    for (int64_t i = 0; i < f->n_extents; i++) json_array_append_new(extents, extent_json(&f->extents[i]));
    json_t *entry = json_pack("{s:s,s:I,s:i,s:i,s:o}", "file", f->name, "unit", (json_int_t)f->extents->unit, "tp_part",
                              f->extents->tp_part, "tp_parts", f->extents->tp_parts, "extents", extents);
    ht_manifest_add_size(entry, &f->sum);
    return entry;
}

char *ht_store_manifest_text(const struct ht_store_part *p, const struct ht_state *state,
                             const struct ht_checkpoint_setting *settings, int n_settings)
{
    char run[17];
    snprintf(run, sizeof(run), "%016" PRIx64, p->version.run);
    json_t *files = json_array();
    for (int64_t i = 0; i < p->n_files; i++) json_array_append_new(files, file_json(&p->files[i]));
    json_t *body = json_pack("{s:i,s:I,s:s,s:i,s:o}", "format", FORMAT, "step", (json_int_t)p->version.step, "run", run,
                             "rank", p->rank, "files", files);
    ht_manifest_add_facts(body, state, settings, n_settings);
    if (p->losses.bytes >= 0) {
        json_t *losses = json_object();
        ht_manifest_add_size(losses, &p->losses);
        json_object_set_new(body, "losses", losses);
    }
    return ht_manifest_text("store", body);
}

static bool names(const struct ht_store_part *p, const json_t *entry)
{
    const char *name = json_string_value(json_object_get(entry, "file"));
    for (int64_t i = 0; i < p->n_files; i++)
        if (name && !strcmp(p->files[i].name, name)) return true;
    return false;
}

char *ht_store_manifest_of(const char *text, const struct ht_store_part *p)
{
    json_t *root = json_loads(text, 0, NULL), *body = json_deep_copy(json_object_get(root, "store"));
    json_t *files = json_object_get(body, "files");
    for (size_t i = json_array_size(files); i-- > 0;)
        if (!names(p, json_array_get(files, i))) json_array_remove(files, i);
    if (p->losses.bytes < 0) json_object_del(body, "losses");
    json_decref(root);
    return ht_manifest_text("store", body);
}

/* ---- reading ---- */

static bool read_extent(const json_t *entry, const struct ht_extent *of, const struct ht_model *m, struct ht_extent *e)
{
    const char *part = json_string_value(json_array_get(entry, 0));
    *e = *of;
    e->part = HT_N_STATE_PARTS;
    for (int i = 0; part && i < HT_N_STATE_PARTS; i++)
        if (!strcmp(part, ht_state_part_names[i])) e->part = (enum ht_state_part)i;
    e->begin = json_integer_value(json_array_get(entry, 1));
    e->end = json_integer_value(json_array_get(entry, 2));
    return ht_extent_is_sound(m, e);
}

/* Reads a file's entry. It may name a file of its own folder only. */
static bool read_file(const json_t *entry, const struct ht_model *m, struct ht_store_file *out)
{
    const char *name = json_string_value(json_object_get(entry, "file"));
    const json_t *extents = json_object_get(entry, "extents");
    const struct ht_extent of = {.unit = json_integer_value(json_object_get(entry, "unit")),
                                 .tp_part = (int32_t)json_integer_value(json_object_get(entry, "tp_part")),
                                 .tp_parts = (int32_t)json_integer_value(json_object_get(entry, "tp_parts"))};
    if (!name || strlen(name) >= sizeof(out->name) || strchr(name, '/') || strncmp(name, "unit-", 5) != 0) return false;
    if (json_array_size(extents) < 1 || !ht_manifest_read_size(entry, &out->sum)) return false;
    snprintf(out->name, sizeof(out->name), "%s", name);
    for (size_t i = 0; i < json_array_size(extents); i++) {
        struct ht_extent e;
        if (!read_extent(json_array_get(extents, i), &of, m, &e)) return false;
        HT_PUSH(out->extents, out->n_extents, out->cap, e);
    }
    return true;
}

static bool read_files(const json_t *body, const struct ht_model *m, struct ht_store_part *out)
{
    const json_t *files = json_object_get(body, "files"), *losses = json_object_get(body, "losses");
    out->losses = (struct ht_manifest_file){.bytes = -1};
    if (!json_is_array(files) || (losses && !ht_manifest_read_size(losses, &out->losses))) return false;
    for (size_t i = 0; i < json_array_size(files); i++) {
        struct ht_store_file f = {0};
        bool sound = read_file(json_array_get(files, i), m, &f);
        HT_PUSH(out->files, out->n_files, out->cap, f);
        if (!sound) return false;
    }
    return true;
}

static bool is_of(const json_t *body, struct ht_version v, int32_t rank)
{
    char run[17];
    snprintf(run, sizeof(run), "%016" PRIx64, v.run);
    const char *said = json_string_value(json_object_get(body, "run"));
    return json_integer_value(json_object_get(body, "step")) == v.step && said && !strcmp(said, run) &&
           json_integer_value(json_object_get(body, "rank")) == rank;
}

/* Parses a text and checks its format. */
static enum ht_status read_body(const char *text, size_t bytes, const char *name, struct ht_error *err, json_t **root,
                                const json_t **body)
{
    enum ht_status status = ht_manifest_body("store", text, bytes, name, err, root, body);
    if (status != HT_OK) return status;
    long long format = json_integer_value(json_object_get(*body, "format"));
    if (format == FORMAT) return HT_OK;
    return ht_fail(err, HT_BAD_INPUT, "%s: has format %lld; expected %d", name, format, FORMAT);
}

enum ht_status ht_store_parse_part(const char *text, size_t bytes, const char *path, struct ht_version v, int32_t rank,
                                   struct ht_error *err, struct ht_store_part *out)
{
    struct ht_store_part p = {.version = v, .rank = rank};
    struct ht_model m;
    json_t *root = NULL;
    const json_t *body = NULL;
    enum ht_status status = read_body(text, bytes, path, err, &root, &body);
    if (status == HT_OK && !is_of(body, v, rank))
        status = ht_fail(err, HT_BAD_INPUT, "%s: is of another step, run or rank", path);
    if (status == HT_OK && !(ht_manifest_read_model(body, &m) && read_files(body, &m, &p)))
        status = ht_fail(err, HT_BAD_INPUT, "%s: does not list files of its model", path);
    json_decref(root);
    if (status == HT_OK)
        *out = p;
    else
        ht_store_part_free(&p);
    return status;
}

enum ht_status ht_store_read_part(const char *dir, struct ht_version v, int32_t rank, struct ht_error *err,
                                  struct ht_store_part *out, char **text)
{
    char path[HT_STORE_PATH], name[HT_STORE_NAME], *read = NULL;
    size_t bytes;
    ht_store_manifest_name(rank, name);
    ht_store_path(dir, v, name, path);
    enum ht_status status = ht_manifest_read_text(path, err, &read, &bytes);
    if (status != HT_OK) return status;
    status = ht_store_parse_part(read, bytes, path, v, rank, err, out);
    if (status == HT_OK && text)
        *text = read;
    else
        free(read);
    return status;
}

enum ht_status ht_store_facts(const char *text, const char *name, struct ht_checkpoint_setting *settings,
                              int n_settings, struct ht_error *err, struct ht_state *state)
{
    json_t *root = NULL;
    const json_t *body = NULL;
    enum ht_status status = read_body(text, strlen(text), name, err, &root, &body);
    if (status == HT_OK) status = ht_manifest_check_model(name, body, &state->model, err);
    if (status == HT_OK) status = ht_manifest_check_settings(name, body, settings, n_settings, err);
    if (status == HT_OK && !ht_manifest_read_progress(body, json_integer_value(json_object_get(body, "step")), state))
        status =
            ht_fail(err, HT_BAD_INPUT, "%s: does not say what the optimizer's steps and the loss scale were", name);
    json_decref(root);
    return status;
}

struct ht_checkpoint_setting *ht_store_settings(const char *text, int *n)
{
    json_t *root = NULL, *value;
    const json_t *body = NULL;
    const char *key;
    struct ht_checkpoint_setting *settings = NULL;
    *n = 0;
    if (read_body(text, strlen(text), "", NULL, &root, &body) == HT_OK) {
        json_t *map = json_object_get(body, "settings");
        settings = HT_NEW_ARRAY(struct ht_checkpoint_setting, json_object_size(map));
        json_object_foreach(map, key, value)
        {
            struct ht_checkpoint_setting *s = &settings[(*n)++];
            const char *said = json_string_value(value);
            s->name = ht_strdup(key);
            snprintf(s->value, sizeof(s->value), "%s", said ? said : "");
        }
    }
    json_decref(root);
    return settings;
}

void ht_store_settings_free(struct ht_checkpoint_setting *settings, int n)
{
    for (int i = 0; i < n; i++) free((void *)(uintptr_t)settings[i].name);
    free(settings);
}

enum ht_status ht_store_model(const char *text, const char *name, struct ht_error *err, struct ht_model *out)
{
    json_t *root = NULL;
    const json_t *body = NULL;
    enum ht_status status = read_body(text, strlen(text), name, err, &root, &body);
    if (status == HT_OK && !ht_manifest_read_model(body, out))
        status = ht_fail(err, HT_BAD_INPUT, "%s: does not describe a model", name);
    json_decref(root);
    return status;
}
