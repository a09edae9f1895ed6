#include "harness/persist.h"

#include "common/ckpt/hf.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum ht_status ht_persist_model(const struct ht_options *o, char path[4096], struct ht_error *err,
                                struct ht_scenario_request *request)
{
    struct stat sb;
    if (!o->init || request->model) return HT_OK;
    if (stat(o->init, &sb) != 0 || !S_ISDIR(sb.st_mode))
        return ht_fail(
            err, HT_BAD_INPUT,
            "--init %s: is no folder with a config.json; expected --model beside it to say the model's shape", o->init);
    if (snprintf(path, 4096, "%s/config.json", o->init) >= 4096)
        return ht_fail(err, HT_BAD_INPUT, "--init: the path is too long");
    request->model = path;
    return HT_OK;
}

/* What cannot be written is better said before the first step than after the last. */
static enum ht_status check_save(const char *dir, struct ht_error *err)
{
    if (mkdir(dir, 0777) != 0 && errno != EEXIST)
        return ht_fail(err, HT_BAD_INPUT, "--save: %s: cannot be made: %s", dir, strerror(errno));
    if (access(dir, W_OK | X_OK) != 0)
        return ht_fail(err, HT_BAD_INPUT, "--save: %s: cannot be written: %s", dir, strerror(errno));
    struct stat sb;
    if (stat(dir, &sb) != 0 || !S_ISDIR(sb.st_mode)) return ht_fail(err, HT_BAD_INPUT, "--save: %s: is no folder", dir);
    return HT_OK;
}

enum ht_status ht_persist_open(const struct ht_options *options, const struct ht_job *job, struct ht_error *err,
                               struct ht_persist *out)
{
    struct ht_persist p = {.options = options, .job = job};
    enum ht_status status = HT_OK;
    if (options->init || options->save) p.state = ht_state_create(&job->scenario.model);
    if (options->init) {
        status = ht_hf_load(options->init, err, p.state);
        p.loaded = true;
    }
    if (status == HT_OK && options->save) status = check_save(options->save, err);
    if (status == HT_OK)
        *out = p;
    else
        ht_persist_close(&p);
    return status;
}

void ht_persist_close(struct ht_persist *p)
{
    ht_state_destroy(p->state);
    *p = (struct ht_persist){0};
}

enum ht_status ht_persist_save(struct ht_persist *p, struct ht_error *err)
{
    return p->options->save ? ht_hf_save(p->options->save, p->state, HT_F32, err) : HT_OK;
}
