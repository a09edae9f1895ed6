#include "common/ckpt/manifest.h"

#include "common/base/array.h"
#include "common/ckpt/durable.h"
#include "common/ckpt/manifest_parts.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { FORMAT = 2, MAX_BYTES = 16 << 20 }; /* 10,000 units take 1 MB */

void ht_manifest_file_name(int64_t unit, char name[40])
{
    snprintf(name, 40, "unit-%04lld.safetensors", (long long)unit);
}

static void hex_of(uint64_t hash, char text[17])
{
    snprintf(text, 17, "%016llx", (unsigned long long)hash);
}

static uint64_t hash_of(const json_t *body)
{
    char *text = json_dumps(body, JSON_COMPACT | JSON_SORT_KEYS);
    uint64_t hash = text ? ht_hash_bytes(text, strlen(text)) : 0;
    free(text);
    return hash;
}

/* Returns the fields by which models differ. The files have the shapes of the parameters too. */
static json_t *model_json(const struct ht_model *m)
{
    json_t *model = json_pack("{s:i,s:I,s:I,s:I,s:I,s:f,s:f,s:I,s:I,s:I,s:b,s:b}", "arch", (int)m->arch, "layers",
                              (json_int_t)m->layers, "width", (json_int_t)m->width, "heads", (json_int_t)m->heads,
                              "kv_heads", (json_int_t)ht_model_kv_heads(m), "rope_theta", m->rope_theta, "norm_eps",
                              m->norm_eps, "ffn", (json_int_t)m->ffn, "vocab", (json_int_t)m->vocab, "max_seq",
                              (json_int_t)m->max_seq, "tied", (int)m->tied, "flash", (int)m->flash);
    if (m->classes) json_object_set_new(model, "classes", json_integer((json_int_t)m->classes));
    if (m->image) {
        json_object_set_new(model, "image", json_integer((json_int_t)m->image));
        json_object_set_new(model, "patch", json_integer((json_int_t)m->patch));
        json_object_set_new(model, "channels", json_integer((json_int_t)m->channels));
    }
    return model;
}

/* ---- writing ---- */

void ht_manifest_add_facts(json_t *body, const struct ht_state *state, const struct ht_checkpoint_setting *settings,
                           int n_settings)
{
    json_t *map = json_object(), *steps = json_array();
    for (int64_t u = 0; u < state->n_units; u++)
        json_array_append_new(steps, json_integer((json_int_t)state->steps[u]));
    for (int i = 0; i < n_settings; i++) json_object_set_new(map, settings[i].name, json_string(settings[i].value));
    json_object_set_new(body, "model", model_json(&state->model));
    json_object_set_new(body, "settings", map);
    json_object_set_new(body, "optimizer_steps", steps);
    json_object_set_new(body, "loss_scale", json_real(state->loss_scale));
    json_object_set_new(body, "good_iterations", json_integer((json_int_t)state->good));
}

void ht_manifest_add_size(json_t *entry, const struct ht_manifest_file *file)
{
    char hex[17];
    hex_of(file->hash, hex);
    json_object_set_new(entry, "bytes", json_integer((json_int_t)file->bytes));
    json_object_set_new(entry, "xxh3", json_string(hex));
}

char *ht_manifest_text(const char *kind, json_t *body)
{
    char hex[17];
    hex_of(hash_of(body), hex);
    json_t *root = json_pack("{s:o,s:s}", kind, body, "xxh3", hex);
    char *text = json_dumps(root, JSON_INDENT(1));
    json_decref(root);
    return text;
}

enum ht_status ht_manifest_save(const char *path, const struct ht_state *state, int64_t step,
                                const struct ht_manifest_file *files, const struct ht_checkpoint_setting *settings,
                                int n_settings, struct ht_error *err)
{
    char name[40];
    json_t *body = json_pack("{s:i,s:I}", "format", FORMAT, "step", (json_int_t)step), *list = json_array();
    ht_manifest_add_facts(body, state, settings, n_settings);
    for (int64_t u = 0; u < state->n_units; u++) {
        ht_manifest_file_name(u, name);
        json_t *entry = json_pack("{s:s}", "file", name);
        ht_manifest_add_size(entry, &files[u]);
        json_array_append_new(list, entry);
    }
    json_object_set_new(body, "files", list);
    const struct ht_manifest_file *losses = &files[state->n_units];
    if (losses->bytes >= 0) {
        json_t *entry = json_object();
        ht_manifest_add_size(entry, losses);
        json_object_set_new(body, "losses", entry);
    }
    char *text = ht_manifest_text("checkpoint", body);
    if (!text) return ht_fail(err, HT_FAILED, "%s: cannot be composed", path);
    struct ht_durable file;
    enum ht_status status = ht_durable_open(path, err, &file);
    if (status == HT_OK) {
        status = ht_durable_write(&file, text, strlen(text), err);
        if (status == HT_OK) status = ht_durable_write(&file, "\n", 1, err);
        if (status == HT_OK) status = ht_durable_commit(&file, err, NULL);
    }
    free(text);
    return status;
}

/* ---- reading ---- */

enum ht_status ht_manifest_check_model(const char *path, const json_t *body, const struct ht_model *model,
                                       struct ht_error *err)
{
    json_t *want = model_json(model), *got = json_object_get(body, "model"), *value;
    enum ht_status status = HT_OK;
    const char *key;
    json_object_foreach(want, key, value)
    {
        const json_t *other = json_object_get(got, key);
        if (json_equal(value, other)) continue;
        char *a = json_dumps(value, JSON_ENCODE_ANY), *b = other ? json_dumps(other, JSON_ENCODE_ANY) : NULL;
        status = ht_fail(err, HT_BAD_INPUT, "%s: is of another model: its %s is %.40s, that of this run's model %s",
                         path, key, b ? b : "not said", a);
        free(a);
        free(b);
        break;
    }
    json_decref(want);
    return status;
}

enum ht_status ht_manifest_check_settings(const char *path, const json_t *body, struct ht_checkpoint_setting *settings,
                                          int n_settings, struct ht_error *err)
{
    const json_t *map = json_object_get(body, "settings");
    for (int i = 0; i < n_settings; i++) {
        const char *was = json_string_value(json_object_get(map, settings[i].name));
        settings[i].changed = was ? strcmp(was, settings[i].value) != 0 : !settings[i].may_lack;
        snprintf(settings[i].was, sizeof(settings[i].was), "%s", was ? was : "unsaid");
        if (!settings[i].changed || (was && settings[i].may_change)) continue;
        return ht_fail(err, HT_BAD_INPUT,
                       "%s: was made with %s %.60s; this run has %s, so it would not go on as it began", path,
                       settings[i].name, settings[i].was, settings[i].value);
    }
    return HT_OK;
}

static bool read_count(const json_t *value, int64_t most, int64_t *out)
{
    if (!json_is_integer(value) || json_integer_value(value) < 0 || json_integer_value(value) > most) return false;
    *out = json_integer_value(value);
    return true;
}

/* Reads the optimizer's steps and the loss scale. No count may exceed the number of iterations. */
bool ht_manifest_read_progress(const json_t *body, int64_t step, struct ht_state *state)
{
    const json_t *steps = json_object_get(body, "optimizer_steps"), *scale = json_object_get(body, "loss_scale");
    bool sound = (int64_t)json_array_size(steps) == state->n_units && json_is_real(scale) &&
                 isfinite((float)json_real_value(scale)) && json_real_value(scale) > 0 &&
                 read_count(json_object_get(body, "good_iterations"), step, &state->good);
    for (int64_t u = 0; u < state->n_units && sound; u++)
        sound = read_count(json_array_get(steps, (size_t)u), step, &state->steps[u]);
    if (sound) state->loss_scale = json_real_value(scale);
    return sound;
}

bool ht_manifest_read_size(const json_t *entry, struct ht_manifest_file *out)
{
    char hex[17];
    const char *hash = json_string_value(json_object_get(entry, "xxh3"));
    const json_t *bytes = json_object_get(entry, "bytes");
    if (!hash || !json_is_integer(bytes) || json_integer_value(bytes) < 0) return false;
    out->bytes = json_integer_value(bytes);
    out->hash = strtoull(hash, NULL, 16);
    hex_of(out->hash, hex);
    return !strcmp(hex, hash);
}

static bool read_file(const json_t *entry, int64_t unit, struct ht_manifest_file *out)
{
    char name[40];
    ht_manifest_file_name(unit, name);
    const char *file = json_string_value(json_object_get(entry, "file"));
    return file && !strcmp(file, name) && ht_manifest_read_size(entry, out);
}

/* Reads the losses' entry; checkpoints of older versions have none. */
static bool read_losses(const json_t *entry, struct ht_manifest_file *out)
{
    *out = (struct ht_manifest_file){.bytes = -1};
    return !entry || ht_manifest_read_size(entry, out);
}

enum ht_status ht_manifest_body(const char *kind, const char *text, size_t bytes, const char *path,
                                struct ht_error *err, json_t **root, const json_t **body)
{
    char hex[17];
    json_error_t why;
    *root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &why);
    if (!*root) return ht_fail(err, HT_BAD_INPUT, "%s:%d:%d: %s", path, why.line, why.column, why.text);
    const char *hash = json_string_value(json_object_get(*root, "xxh3"));
    *body = json_object_get(*root, kind);
    if (!hash || !json_is_object(*body)) return ht_fail(err, HT_BAD_INPUT, "%s: is not a %s's manifest", path, kind);
    hex_of(hash_of(*body), hex);
    if (strcmp(hash, hex) != 0)
        return ht_fail(err, HT_BAD_INPUT, "%s: has the hash %s; its own record says %.16s", path, hex, hash);
    return HT_OK;
}

/* Reads a whole number of a model. A missing one is 0: only some models have an image, say. */
static bool read_dimension(const json_t *model, const char *key, int64_t *out)
{
    const json_t *value = json_object_get(model, key);
    *out = 0;
    return !value || read_count(value, (int64_t)1 << 40, out);
}

bool ht_manifest_read_model(const json_t *body, struct ht_model *out)
{
    const json_t *from = json_object_get(body, "model");
    struct ht_model m = {.tied = json_is_true(json_object_get(from, "tied")),
                         .flash = json_is_true(json_object_get(from, "flash")),
                         .rope_theta = json_number_value(json_object_get(from, "rope_theta")),
                         .norm_eps = json_number_value(json_object_get(from, "norm_eps"))};
    const struct {
        const char *key;
        int64_t *to;
    } fields[] = {{"layers", &m.layers}, {"width", &m.width},     {"heads", &m.heads},      {"kv_heads", &m.kv_heads},
                  {"ffn", &m.ffn},       {"vocab", &m.vocab},     {"image", &m.image},      {"max_seq", &m.max_seq},
                  {"patch", &m.patch},   {"classes", &m.classes}, {"channels", &m.channels}};
    int64_t arch;
    bool sound = read_dimension(from, "arch", &arch) && arch <= HT_ARCH_DIT;
    for (size_t i = 0; i < HT_COUNT(fields); i++) sound = sound && read_dimension(from, fields[i].key, fields[i].to);
    if (!sound || !json_is_object(from) || m.width < 1 || m.heads < 1 || m.ffn < 1) return false;
    m.arch = (enum ht_arch)arch;
    *out = m;
    return true;
}

/* Refuses an intact manifest of another version. */
static enum ht_status check_format(const char *path, const json_t *body, struct ht_error *err)
{
    long long format = json_integer_value(json_object_get(body, "format"));
    if (format == FORMAT) return HT_OK;
    return ht_fail(err, HT_BAD_INPUT,
                   "%s: has format %lld; expected %d: go on with the version that wrote it, or take the weights from "
                   "there with --save and begin with --init",
                   path, format, FORMAT);
}

enum ht_status ht_manifest_parse(const char *text, size_t bytes, const char *path, int64_t step,
                                 struct ht_checkpoint_setting *settings, int n_settings, struct ht_error *err,
                                 bool *damaged, struct ht_state *state, struct ht_manifest_file *files)
{
    json_t *root = NULL;
    const json_t *body = NULL;
    enum ht_status status = ht_manifest_body("checkpoint", text, bytes, path, err, &root, &body);
    *damaged = status != HT_OK;
    if (status == HT_OK) status = check_format(path, body, err);
    if (status == HT_OK) status = ht_manifest_check_model(path, body, &state->model, err);
    if (status == HT_OK) status = ht_manifest_check_settings(path, body, settings, n_settings, err);
    if (status != HT_OK) goto out;
    const json_t *list = json_object_get(body, "files"), *number = json_object_get(body, "step");
    bool sound = json_is_integer(number) && json_integer_value(number) == step &&
                 (int64_t)json_array_size(list) == state->n_units;
    for (int64_t u = 0; u < state->n_units && sound; u++)
        sound = read_file(json_array_get(list, (size_t)u), u, &files[u]);
    sound = sound && read_losses(json_object_get(body, "losses"), &files[state->n_units]);
    *damaged = true;
    if (!sound)
        status = ht_fail(err, HT_BAD_INPUT, "%s: does not list the %lld files of step %lld", path,
                         (long long)state->n_units, (long long)step);
    else if (!ht_manifest_read_progress(body, step, state))
        status =
            ht_fail(err, HT_BAD_INPUT, "%s: does not say what the optimizer's steps and the loss scale were", path);
    else
        *damaged = false;
out:
    json_decref(root);
    return status;
}

enum ht_status ht_manifest_read_text(const char *path, struct ht_error *err, char **text, size_t *bytes)
{
    FILE *f = fopen(path, "rb");
    if (!f) return ht_fail(err, HT_BAD_INPUT, "%s: cannot be opened: %s", path, strerror(errno));
    enum ht_status status = HT_OK;
    *text = ht_alloc(MAX_BYTES + 2);
    *bytes = fread(*text, 1, MAX_BYTES + 1, f);
    if (ferror(f))
        status = ht_fail(err, HT_BAD_INPUT, "%s: cannot be read: %s", path, strerror(errno));
    else if (*bytes > MAX_BYTES)
        status = ht_fail(err, HT_BAD_INPUT, "%s: is larger than %d bytes; expected a manifest", path, MAX_BYTES);
    if (status == HT_OK)
        *text = ht_realloc(*text, *bytes + 1); /* with the end of a string */
    else
        free(*text);
    fclose(f);
    return status;
}

enum ht_status ht_manifest_load(const char *path, int64_t step, struct ht_checkpoint_setting *settings, int n_settings,
                                struct ht_error *err, bool *damaged, struct ht_state *state,
                                struct ht_manifest_file *files)
{
    char *text;
    size_t bytes;
    *damaged = true;
    enum ht_status status = ht_manifest_read_text(path, err, &text, &bytes);
    if (status != HT_OK) return status;
    status = ht_manifest_parse(text, bytes, path, step, settings, n_settings, err, damaged, state, files);
    free(text);
    return status;
}
