#include "harness/run/persist.h"

#include "common/base/array.h"
#include "common/base/clock.h"
#include "common/base/rng.h"
#include "common/base/text.h"
#include "common/ckpt/durable.h"
#include "common/ckpt/model_folder.h"
#include "common/comm/tags.h"
#include "common/schedule/sum_order.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The default of --save-shard, which transformers' save_pretrained had for years. */
static const int64_t shard_bytes = 5000000000;

enum ht_status ht_persist_model(const struct ht_options *o, char path[4096], struct ht_error *err)
{
    const char *init = o->state.init;
    struct stat sb;
    path[0] = '\0';
    if (!init || o->request.model) return HT_OK;
    if (stat(init, &sb) != 0 || !S_ISDIR(sb.st_mode))
        return ht_fail(
            err, HT_BAD_INPUT,
            "--init %s: not a folder with a config.json; expected --model beside it to say the model's shape", init);
    if (snprintf(path, 4096, "%s/config.json", init) >= 4096)
        return ht_fail(err, HT_BAD_INPUT, "--init: the path is too long");
    return HT_OK;
}

static enum ht_status check_folder(const char *flag, const char *dir, struct ht_error *err)
{
    struct stat sb;
    if (mkdir(dir, 0777) != 0 && errno != EEXIST)
        return ht_fail(err, HT_BAD_INPUT, "%s: %s: cannot be made: %s", flag, dir, strerror(errno));
    if (access(dir, W_OK | X_OK) != 0)
        return ht_fail(err, HT_BAD_INPUT, "%s: %s: cannot be written: %s", flag, dir, strerror(errno));
    if (stat(dir, &sb) != 0 || !S_ISDIR(sb.st_mode))
        return ht_fail(err, HT_BAD_INPUT, "%s: %s: not a folder", flag, dir);
    return HT_OK;
}

static enum ht_status dtype_of(const struct ht_state_options *o, const struct ht_job *job, struct ht_error *err,
                               enum ht_dtype *out)
{
    *out = job->scenario.numerics.param;
    if (!o->save_dtype || ht_hf_find_dtype(o->save_dtype, out)) return HT_OK;
    return ht_fail(err, HT_BAD_INPUT, "--save-dtype '%s' is not known; expected f32, f16 or bf16", o->save_dtype);
}

/* Checks before the first step that --save can be written after the last. Locks a folder from then on. */
static enum ht_status check_save(const struct ht_state_options *o, const struct ht_job *job, struct ht_error *err,
                                 enum ht_dtype *dtype, DIR **lock)
{
    const char *alone = o->save_dtype ? "--save-dtype" : o->save_shard_bytes ? "--save-shard" : NULL;
    char target[4096], folder[4096];
    if (alone && !o->save) return ht_fail(err, HT_BAD_INPUT, "%s: --save is missing beside it", alone);
    if (!o->save) return HT_OK;
    if (strlen(o->save) > HT_MODEL_PATH_BYTES - 128) return ht_fail(err, HT_BAD_INPUT, "--save: the path is too long");
    enum ht_status status = dtype_of(o, job, err, dtype);
    if (status != HT_OK) return status;
    if (!ht_hf_is_file(o->save)) {
        status = check_folder("--save", o->save, err);
        return status == HT_OK ? ht_model_folder_lock(o->save, err, lock) : status;
    }
    if (o->save_shard_bytes)
        return ht_fail(err, HT_BAD_INPUT, "--save-shard: '%s' is one file; expected a folder to be filled with shards",
                       o->save);
    struct stat sb;
    bool exists = stat(o->save, &sb) == 0;
    if (exists && S_ISDIR(sb.st_mode))
        return ht_fail(err, HT_BAD_INPUT, "--save: %s: is a folder; a name that ends in .safetensors is one file",
                       o->save);
    if (exists && !S_ISREG(sb.st_mode))
        return ht_fail(err, HT_BAD_INPUT, "--save: %s: is a device or a pipe; expected a plain file or a folder",
                       o->save);
    if (exists && access(o->save, W_OK) != 0)
        return ht_fail(err, HT_BAD_INPUT, "--save: %s: cannot be written: %s", o->save, strerror(errno));
    status = ht_follow_links(o->save, err, target);
    if (status != HT_OK) return status;
    const char *slash = strrchr(target, '/');
    snprintf(folder, sizeof(folder), "%.*s", slash ? (int)(slash - target) : 1, slash ? target : ".");
    if (access(slash == target ? "/" : folder, W_OK | X_OK) != 0)
        return ht_fail(err, HT_BAD_INPUT, "--save: %s: cannot be written: %s", o->save, strerror(errno));
    return HT_OK;
}

/* Writes the shortest decimal, of 15 to 17 digits, that reads as the same number. */
static const char *exact(double x, char text[32])
{
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(text, 32, "%.*g", digits, x);
        if (strtod(text, NULL) == x) break;
    }
    return text;
}

/* Returns the size of all micro-batches, 0 when they differ. */
static int64_t micro_batch_of(const struct ht_schedule *g, int64_t batch)
{
    int64_t size = g->slices ? g->slices[0].count : batch / g->n_micro_batches;
    for (int32_t j = 1; j < g->n_micro_batches && g->slices; j++)
        if (g->slices[j].count != size) return 0;
    return size;
}

static uint64_t sum_order_of(const struct ht_job *job)
{
    const struct ht_scenario *s = &job->scenario;
    uint64_t order = ht_schedule_sum_order(job->schedule, &s->model, &s->numerics, s->batch);
    if (s->control.options.clip) order = ht_random(order, ht_schedule_norm_order(job->schedule));
    return job->platform.kind == HT_PLATFORM_GPU ? ht_mix64(order) : order;
}

/* Lists the settings that the steps depend on, beside the model. */
static void describe(const struct ht_training_options *o, const struct ht_job *job, const struct ht_tokens *tokens,
                     uint64_t sum_order, struct ht_checkpoint_setting settings[HT_PERSIST_SETTINGS])
{
    const struct ht_scenario *s = &job->scenario;
    char number[32];
    int n = 0;
#define SETTING(label, ...)                                                                                            \
    (settings[n].name = (label), snprintf(settings[n].value, sizeof(settings[n].value), __VA_ARGS__), n++)
    SETTING("--batch", "%lld", (long long)s->batch);
    int64_t size = micro_batch_of(job->schedule, s->batch);
    if (size)
        SETTING("--micro-batch", "%lld", (long long)size);
    else
        SETTING("--micro-batch", "of several sizes");
    settings[n - 1].may_change = true;
    SETTING("sum order", "%016llx", (unsigned long long)sum_order);
    settings[n - 1].may_change = settings[n - 1].may_lack = true;
    SETTING("--seq", "%lld", (long long)s->seq);
    SETTING("--numerics", "%s/%s/%s/%s", ht_dtype_name(s->numerics.param), ht_dtype_name(s->numerics.grad),
            ht_dtype_name(s->numerics.accumulate), ht_dtype_name(s->numerics.reduce));
    settings[n - 1].may_change = true;
    const struct ht_control_options *control = &s->control.options;
    SETTING("--clip", "%s", control->clip ? exact(control->clip, number) : "none");
    char growth[48] = ""; /* the default is left out, as in checkpoints from before there was a choice */
    if (control->growth_interval != ht_control_filled(&(struct ht_control_options){0}).growth_interval)
        snprintf(growth, sizeof(growth), ", growing every %lld", (long long)control->growth_interval);
    SETTING("--loss-scale", "%s%s%s", control->dynamic ? "dynamic from " : "", exact(control->loss_scale, number),
            growth);
    settings[n - 1].may_change = true;
    SETTING("--data-seed", "%lld", (long long)o->data_seed);
    SETTING("--data", "of %lld bytes with hash %016llx", (long long)ht_tokens_bytes(tokens),
            (unsigned long long)tokens->hash);
    SETTING("--lr", "%s", exact(o->adamw.lr, number));
    SETTING("--beta1", "%s", exact(o->adamw.beta1, number));
    SETTING("--beta2", "%s", exact(o->adamw.beta2, number));
    SETTING("--eps", "%s", exact(o->adamw.eps, number));
    SETTING("--weight-decay", "%s", exact(o->adamw.weight_decay, number));
#undef SETTING
    assert(n == HT_PERSIST_SETTINGS);
}

static enum ht_status check_options(const struct ht_state_options *o, struct ht_error *err)
{
    const char *alone = o->resume ? "--resume" : o->every ? "--every" : o->keep ? "--keep" : NULL;
    if (alone && !o->checkpoint && !o->store)
        return ht_fail(err, HT_BAD_INPUT, "%s: --checkpoint DIR is missing beside it", alone);
    return HT_OK;
}

static const struct ht_checkpoint_setting *setting(const struct ht_persist *p, const char *name)
{
    int i = 0;
    while (strcmp(p->settings[i].name, name) != 0) i++;
    return &p->settings[i];
}

/* Warns of other numerics than the checkpoint's. The state is FP32 in all, so a training may go on, but not to the same
   bits; the loss scale, which says little about other numerics, begins anew. */
static void warn_of_numerics(struct ht_persist *p, const char *where, bool speaks)
{
    static const char *const names[] = {"--numerics", "--loss-scale"};
    for (size_t i = 0; i < HT_COUNT(names); i++) {
        const struct ht_checkpoint_setting *s = setting(p, names[i]);
        char folder[512];
        if (!s->changed) continue;
        if (speaks)
            fprintf(stderr,
                    "%s was made with %s %s; going on with %s from its FP32 state, with the loss scale begun anew\n",
                    ht_shown(where, folder, sizeof(folder)), s->name, s->was, s->value);
        p->scaler_anew = true;
    }
}

/* Records whether gradients are added up as in the training that saved, for the report. */
static void compare_sums(struct ht_persist *p)
{
    const struct ht_checkpoint_setting *micro_batch = setting(p, "--micro-batch"), *order = setting(p, "sum order");
    bool unsaid = !strcmp(order->was, "unsaid");
    if (micro_batch->changed) snprintf(p->micro_batch_was, sizeof(p->micro_batch_was), "%s", micro_batch->was);
    p->sums = micro_batch->changed || order->changed ? HT_SUMS_OTHER : unsaid ? HT_SUMS_UNSAID : HT_SUMS_SAME;
}

/* Takes the losses of the steps before this process, for --losses. A checkpoint of an older version has none: then the
   file's count. A file of any other kind is refused: it was not meant to be overwritten. */
static enum ht_status take_losses(struct ht_persist *p, struct ht_error *err)
{
    const char *path = p->options->training.losses;
    struct ht_losses *known = &p->state->losses, there = {0}, all = {0};
    struct stat sb;
    enum ht_status status = HT_OK;
    if (path && stat(path, &sb) == 0 && S_ISREG(sb.st_mode)) status = ht_losses_read(path, err, &there);
    int64_t before = known->n ? known->rows[0].step : (int64_t)p->first_step + 1;
    for (int64_t i = 0; i < there.n && there.rows[i].step < before; i++)
        ht_losses_add(&all, there.rows[i].step, there.rows[i].loss);
    for (int64_t i = 0; i < known->n; i++) ht_losses_add(&all, known->rows[i].step, known->rows[i].loss);
    ht_losses_free(&there);
    ht_losses_free(known);
    *known = all;
    p->n_losses_before = all.n;
    return status;
}

static enum ht_status check_step(const struct ht_options *o, const char *where, int64_t step, struct ht_error *err)
{
    if (step <= o->training.steps) return HT_OK;
    return ht_fail(err, HT_BAD_INPUT, "--steps: %s is at step %lld already; expected at least that", where,
                   (long long)step);
}

enum ht_status ht_persist_resume(struct ht_persist *p, const char *where, int64_t step, bool speaks,
                                 struct ht_error *err)
{
    enum ht_status status = check_step(p->options, where, step, err);
    if (status != HT_OK) return status;
    p->first_step = (int32_t)step;
    p->resumed = true;
    p->scaler_anew = false;
    p->resumed_from = where;
    warn_of_numerics(p, where, speaks);
    compare_sums(p);
    return speaks ? take_losses(p, err) : HT_OK;
}

/* Opens the folder of checkpoints; with --resume goes on from the newest one. */
static enum ht_status open_checkpoints(struct ht_persist *p, struct ht_error *err)
{
    const struct ht_state_options *o = &p->options->state;
    int64_t step = 0;
    enum ht_status status = ht_checkpoints_open(o->checkpoint, o->keep ? o->keep : 2, err, &p->checkpoints);
    if (status != HT_OK) return status;
    int64_t latest = ht_checkpoints_latest(p->checkpoints);
    if (latest >= 0 && !o->resume)
        return ht_fail(err, HT_BAD_INPUT,
                       "--checkpoint: %s holds a training up to step %lld; --resume goes on with it, another folder "
                       "begins one",
                       o->checkpoint, (long long)latest);
    if (latest < 0) {
        char folder[512];
        ht_shown(o->checkpoint, folder, sizeof(folder));
        if (o->resume) fprintf(stderr, "%s holds no checkpoint: beginning with step 1\n", folder);
        return HT_OK;
    }
    status = check_step(p->options, o->checkpoint, latest, err);
    if (status == HT_OK)
        status = ht_checkpoints_load(p->checkpoints, p->settings, HT_PERSIST_SETTINGS, err, p->state, &step);
    return status == HT_OK ? ht_persist_resume(p, o->checkpoint, step, true, err) : status;
}

static bool keeps_state(const struct ht_state_options *o)
{
    return o->init || o->save || o->checkpoint || o->store;
}

enum ht_status ht_persist_open(const struct ht_options *options, const struct ht_job *job,
                               const struct ht_tokens *tokens, bool keeps_files, struct ht_error *err,
                               struct ht_persist *out)
{
    struct ht_persist p = {.options = options, .job = job};
    enum ht_status status = check_options(&options->state, err);
    if (keeps_state(&options->state)) p.state = ht_state_create(&job->scenario.model);
    p.sum_order = sum_order_of(job);
    describe(&options->training, job, tokens, p.sum_order, p.settings);
    if (status == HT_OK && keeps_files) status = check_save(&options->state, job, err, &p.save_dtype, &p.save_lock);
    if (status == HT_OK && keeps_files && options->state.checkpoint) status = open_checkpoints(&p, err);
    if (status == HT_OK && keeps_files && options->state.init && !p.resumed)
        status = ht_hf_open(options->state.init, err, p.state, &p.weights);
    if (status == HT_OK)
        *out = p;
    else
        ht_persist_close(&p);
    return status;
}

void ht_persist_close(struct ht_persist *p)
{
    ht_checkpoints_close(p->checkpoints);
    ht_hf_close(p->weights);
    if (p->save_lock) closedir(p->save_lock);
    ht_state_destroy(p->state);
    *p = (struct ht_persist){0};
}

struct ht_new_folders ht_persist_new_folders(const struct ht_state_options *options)
{
    const char *save = options->save, *checkpoint = options->checkpoint;
    return (struct ht_new_folders){.save = save && !ht_hf_is_file(save) && access(save, F_OK) != 0,
                                   .checkpoint = checkpoint && access(checkpoint, F_OK) != 0};
}

void ht_persist_remove_empty(const struct ht_state_options *options, struct ht_new_folders folders)
{
    if (folders.save) ht_model_folder_remove_empty(options->save);
    if (folders.checkpoint) ht_checkpoints_remove_empty(options->checkpoint);
}

/* Rank 0's message to the others. The steps by unit follow it. */
struct facts {
    int32_t first_step;
    bool resumed, scaler_anew;
    unsigned parts;
    int64_t good;
    double loss_scale;
};

enum ht_status ht_persist_share(struct ht_persist *p, const struct ht_ranks *ranks, struct ht_error *err)
{
    struct ht_state *state = p->state;
    if (!ranks->comm || !state) return HT_OK;
    struct facts f = {p->first_step, p->resumed, p->scaler_anew, state->values.parts, state->good, state->loss_scale};
    enum ht_status status = ht_ranks_broadcast(ranks, HT_TAG_STATE, &f, sizeof(f), err);
    if (status == HT_OK)
        status = ht_ranks_broadcast(ranks, HT_TAG_STATE, state->steps, state->n_units * (int64_t)sizeof(int64_t), err);
    if (status != HT_OK) return status;
    p->first_step = f.first_step;
    p->resumed = f.resumed;
    p->scaler_anew = f.scaler_anew;
    state->values.parts = f.parts;
    state->good = f.good;
    state->loss_scale = f.loss_scale;
    return HT_OK;
}

void ht_persist_begin(struct ht_persist *p, struct ht_source residents)
{
    if (!p->state) return;
    p->state->values = residents;
    ht_hf_close(p->weights);
    p->weights = NULL;
}

int32_t ht_persist_next(const struct ht_persist *p, int32_t step, int32_t last)
{
    if (!p->options || (!p->options->state.checkpoint && !p->options->state.store)) return last;
    int64_t every = p->options->state.every ? p->options->state.every : 100, next = (step / every + 1) * every;
    return next < last ? (int32_t)next : last;
}

enum ht_status ht_persist_reached(struct ht_persist *p, int32_t step, struct ht_error *err)
{
    double began_s = ht_now_s();
    enum ht_status status = ht_checkpoints_save(p->checkpoints, p->state, step, p->settings, HT_PERSIST_SETTINGS, err);
    p->n_saved++;
    p->saving_s += ht_now_s() - began_s;
    return status;
}

enum ht_status ht_persist_save(struct ht_persist *p, struct ht_error *err)
{
    const struct ht_state_options *o = &p->options->state;
    int64_t n_overflows = 0;
    char shown[512];
    if (!o->save) return HT_OK;
    enum ht_status status = ht_hf_save(o->save, p->state, p->save_dtype,
                                       o->save_shard_bytes ? o->save_shard_bytes : shard_bytes, &n_overflows, err);
    if (n_overflows) /* a warning, no refusal, after hours of training */
        fprintf(stderr,
                "hetbench: warning: %s: %lld weights are beyond F16 and became infinite; --save-dtype bf16 "
                "or f32 has room for them\n",
                ht_shown(o->save, shown, sizeof(shown)), (long long)n_overflows);
    if (status != HT_BAD_INPUT) return status;
    if (err) err->status = HT_FAILED; /* check_save has accepted the user's path */
    return HT_FAILED;
}
