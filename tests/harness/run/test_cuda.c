/*
 * Training on the CUDA backend, on a GPU of threads (tests/support/fake_cuda.h), whose kernels are the CPU's: every
 * system gives the losses of training in memory on the CPU, bit for bit, and the books of memory agree. And every way
 * in which CUDA can fail ends in one line, with nothing left behind.
 */
#include "common/base/array.h"
#include "common/base/interrupt.h"
#include "common/exec/sim.h"
#include "harness/cli/commands.h"
#include "harness/run/engine.h"
#include "harness/run/registry.h"
#include "tests/support/fake_cuda.h"
#include "tests/support/sampled.h"
#include "tests/support/sanitized.h"
#include "tests/support/training.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { STEPS = 3 };

/* Byte models: of 4 blocks of width 64 and 4 of 256. */
static const char *const gpt = SANITIZED ? "gpt-mini" : "gpt-tiny";

static struct ht_options options_of(const char *model, const char *numerics, bool cuda)
{
    struct ht_options o = training_options((struct ht_scenario_request){.model = model,
                                                                        .cluster = "local",
                                                                        .batch = 4,
                                                                        .micro_batch = 2,
                                                                        .seq = SANITIZED ? 8 : 32,
                                                                        .numerics = numerics},
                                           STEPS);
    o.platform.cuda_api = fake_cuda_api();
    if (cuda) o.platform.backend = "cuda";
    return o;
}

/* One training; the job is the caller's. */
static enum ht_status train(const struct ht_options *o, const char *system, struct ht_job *job, struct ht_error *err,
                            struct ht_training *out)
{
    struct ht_tokens tokens = {0};
    struct ht_persist persist = {0};
    struct ht_ranks one = {0};
    *out = (struct ht_training){0};
    enum ht_status status = ht_job_create(o, system, NULL, HT_JOB_TRAINABLE, err, job);
    if (status != HT_OK) return status;
    if (job->answer != HT_OK) return ht_fail(err, job->answer, "%.900s", job->reason);
    status =
        ht_tokens_open(o->training.data, HT_TOKENS_TEXT, job->scenario.model.vocab, job->scenario.seq, err, &tokens);
    if (status == HT_OK) status = ht_persist_open(o, job, &tokens, true, err, &persist);
    if (status == HT_OK) status = ht_train(o, job, &tokens, &persist, &one, err, out);
    if (status == HT_OK && persist.save_error.status) status = (*err = persist.save_error).status;
    ht_persist_close(&persist);
    ht_tokens_close(&tokens);
    return status;
}

static struct sampling sampling;

/* Draws one of two turns for each system, which takes part in every other comparison. */
static bool left_out(size_t system, int comparison)
{
    bool first = ht_random_below(sampling.seed, system, 2);
    return !sampling.full && ((size_t)comparison + first) % 2;
}

/* Memory in which the system's own plan has to be a tight one: what its safe sequence needs when there is plenty, less
   a quarter, if it can be done. */
static void compare(int nth, const char *model, const char *numerics, const char *control)
{
    struct ht_error err = {0};
    struct ht_job job;
    struct ht_training want, got;
    struct ht_options cpu = options_of(model, numerics, false), cuda = options_of(model, numerics, true);
    cpu.request.control = cuda.request.control = control;
    if (control) { /* clipped, and the gradients of the second step are bad */
        cpu.request.clip = cuda.request.clip = 2;
        cpu.training.faults[0] = cuda.training.faults[0] = "2:1";
        cpu.training.n_faults = cuda.training.n_faults = 1;
    }
    ck_assert_msg(train(&cpu, "in_memory", &job, &err, &want) == HT_OK, "%s", err.text);
    ht_job_free(&job);
    int n_run = 0, n_ahead = 0, n_checked = 0;
    const struct ht_system *system;
    for (size_t i = 0; (system = ht_system_at(i)) != NULL; i++) {
        if (left_out(i, nth)) continue;
        int64_t plenty = 0, reserve = 0;
        for (int tight = 0; tight < 2; tight++) {
            cuda.request.device_memory_bytes = tight ? plenty / 4 * 3 + reserve : 0;
            enum ht_status status = train(&cuda, system->name, &job, &err, &got);
            if (status == HT_INFEASIBLE && tight) {
                if (job.status) ht_job_free(&job);
                continue;
            }
            ck_assert_msg(status == HT_OK, "%s: %s", system->name, err.text);
            plenty = got.arena_peak_bytes[0];
            reserve = ht_cuda_reserve_bytes(&job.reserve);
            ck_assert_int_gt(reserve, 0);
            if (tight) ck_assert_int_le(job.schedule->capacity_bytes[0], cuda.request.device_memory_bytes - reserve);
            n_run++;
            ck_assert_int_eq(job.issue_ahead, 2);
            for (int k = 0; k < STEPS; k++)
                ck_assert_msg(memcmp(&got.losses[k], &want.losses[k], sizeof(double)) == 0,
                              "%s, step %d: loss %.17g, in memory %.17g", system->name, k, got.losses[k],
                              want.losses[k]);
            check_memory(&job, &got);
            for (int64_t e = 0; e < got.trace->n_events; e++) {
                const struct ht_trace_event *event = &got.trace->events[e];
                bool ahead = event->issue_ns < event->start_ns;
                n_ahead += ahead;
                n_checked += ahead && job.schedule->ops[ht_trace_op(got.trace, e)].kind == HT_OP_VALIDATE;
            }
            ht_training_free(&got);
            ht_job_free(&job);
            ck_assert_int_eq(fake_cuda_leaks(), 0);
        }
    }
    if (control) ck_assert(want.skipped == 1 && want.outcomes[0].clip_factor < 1 && n_checked > 0);
    ht_training_free(&want);
    printf("%s, %s, control %s: %d trainings, %d ops issued before they began\n", model, numerics,
           control ? control : "none", n_run, n_ahead);
    ck_assert_int_ge(n_run, 10);
    ck_assert_int_gt(n_ahead, 100);
}

START_TEST(test_every_system_in_fp32)
{
    compare(0, gpt, "fp32", NULL);
}
END_TEST

START_TEST(test_every_system_in_bf16)
{
    compare(1, gpt, "bf16", NULL);
}
END_TEST

START_TEST(test_every_system_of_llama)
{
    compare(2, "llama-tiny", "fp32", NULL);
}
END_TEST

START_TEST(test_every_system_with_a_gate)
{
    compare(3, gpt, "fp16", "gate");
}
END_TEST

START_TEST(test_every_system_with_rollback)
{
    compare(4, gpt, "fp32", "rollback");
}
END_TEST

/* The head in both passes: its recomputation reads targets and the loss scale, its forward pass leaves the loss. */
START_TEST(test_head_in_both_passes)
{
    static const char *const systems[] = {"mobius", "sysx"};
    struct ht_error err = {0};
    struct ht_job job;
    struct ht_training want, got;
    struct ht_options cpu = options_of("llama-tiny", "fp16", false), cuda = options_of("llama-tiny", "fp16", true);
    cpu.request.control = cuda.request.control = "rollback";
    cpu.training.faults[0] = cuda.training.faults[0] = "2:1";
    cpu.training.n_faults = cuda.training.n_faults = 1;
    cuda.plan.set[0] = "head=1";
    cuda.plan.n_set = 1;
    ck_assert_msg(train(&cpu, "in_memory", &job, &err, &want) == HT_OK, "%s", err.text);
    ht_job_free(&job);
    ck_assert_int_eq(want.skipped, 1);
    for (int i = 0; i < 2; i++) {
        ck_assert_msg(train(&cuda, systems[i], &job, &err, &got) == HT_OK, "%s: %s", systems[i], err.text);
        ck_assert_mem_eq(got.losses, want.losses, STEPS * sizeof(double));
        ck_assert_int_eq(got.skipped, 1);
        ht_training_free(&got);
        ht_job_free(&job);
    }
    ht_training_free(&want);
    ck_assert_int_eq(fake_cuda_leaks(), 0);
}
END_TEST

/* The reserve is that of the plan's micro-batches, whatever the scenario's are: smaller or larger ones. */
START_TEST(test_reserve_of_the_plan)
{
    static const struct {
        const char *system, *set;
        int64_t micro_batch; /* of the plan */
    } cases[] = {{"ddp", "m=1", 1}, {"fsdp_ga", "l=4", 1}, {"fsdp", "m=4", 4}};
    struct ht_error err = {0};
    struct ht_job job;
    struct ht_training want, got;
    for (size_t i = 0; i < HT_COUNT(cases); i++) {
        struct ht_options cpu = options_of(gpt, "fp32", false), cuda = options_of(gpt, "fp32", true);
        cpu.request.micro_batch = cases[i].micro_batch;
        cuda.plan.set[0] = cases[i].set;
        cuda.plan.n_set = 1;
        ck_assert_msg(train(&cpu, "in_memory", &job, &err, &want) == HT_OK, "%s", err.text);
        ht_job_free(&job);
        ck_assert_msg(train(&cuda, cases[i].system, &job, &err, &got) == HT_OK, "%s: %s", cases[i].system, err.text);
        ck_assert_mem_eq(got.losses, want.losses, STEPS * sizeof(double));
        check_memory(&job, &got);
        ht_training_free(&got);
        ht_training_free(&want);
        ht_job_free(&job);
    }
    ck_assert_int_eq(fake_cuda_leaks(), 0);
}
END_TEST

/* Returns how often a training waits, as `count` counts: for whole streams, or asleep for an event. */
static int64_t waits(struct ht_options *o, const char *system, int64_t steps, int64_t (*count)(void))
{
    struct ht_error err = {0};
    struct ht_job job;
    struct ht_training t;
    o->training.steps = steps;
    (void)count();
    ck_assert_msg(train(o, system, &job, &err, &t) == HT_OK, "%s: %s", system, err.text);
    ht_training_free(&t);
    ht_job_free(&job);
    return count();
}

/* No step waits for a stream: neither for losses nor for gradient checks nor for logged steps. */
START_TEST(test_no_step_waits_for_a_stream)
{
    static const char *const controls[] = {NULL, "gate", "rollback"};
    const struct ht_system *system;
    struct ht_options o = options_of("gpt-mini", "bf16", true); /* waits are the same for any width */
    o.request.control = controls[_i];
    for (size_t i = 0; (system = ht_system_at(i)) != NULL; i++)
        if (!left_out(i, _i))
            ck_assert_msg(waits(&o, system->name, 2, fake_cuda_stream_waits) ==
                              waits(&o, system->name, 5, fake_cuda_stream_waits),
                          "%s", system->name);
}
END_TEST

/* The state comes off the device and back to it: one system begins, another goes on, as if it had never stopped. */
/* An op that ends while its lane asks for it is not slept for; one that takes longer is. */
START_TEST(test_ends_are_polled)
{
    struct ht_options o = options_of(gpt, "bf16", true);
    o.request.control = "gate";
    fake_cuda_answer(FAKE_CUDA_SOON);
    int64_t begin = waits(&o, "zero_offload", 2, fake_cuda_event_waits);
    ck_assert_int_le(waits(&o, "zero_offload", 3, fake_cuda_event_waits), begin + 1); /* 1: a new base of the clock */
    fake_cuda_answer(FAKE_CUDA_NEVER);
    int64_t asleep = waits(&o, "zero_offload", 2, fake_cuda_event_waits);
    ck_assert_int_gt(waits(&o, "zero_offload", 3, fake_cuda_event_waits), asleep + 10);
    fake_cuda_answer(FAKE_CUDA_TRUE);
}
END_TEST

START_TEST(test_resumes)
{
    struct ht_error err = {0};
    struct ht_job job;
    struct ht_training whole, half;
    struct ht_options o = options_of(gpt, "bf16", true);
    char folder[] = "/tmp/ht-cuda-checkpoint-XXXXXX", remove[64];
    ck_assert_ptr_nonnull(mkdtemp(folder));
    o.training.steps = 4;
    ck_assert_msg(train(&o, "in_memory", &job, &err, &whole) == HT_OK, "%s", err.text);
    ht_job_free(&job);
    o.state.checkpoint = folder;
    o.state.every = 2;
    o.state.keep = 2;
    o.training.steps = 2;
    ck_assert_msg(train(&o, "zero_offload", &job, &err, &half) == HT_OK, "%s", err.text);
    ht_training_free(&half);
    ht_job_free(&job);
    o.training.steps = 4;
    o.state.resume = true;
    ck_assert_msg(train(&o, "autohete", &job, &err, &half) == HT_OK, "%s", err.text);
    ck_assert_int_eq(half.first_step, 2);
    for (int k = 0; k < 2; k++) ck_assert_mem_eq(&half.losses[k], &whole.losses[2 + k], sizeof(double));
    ht_training_free(&half);
    ht_training_free(&whole);
    ht_job_free(&job);
    ck_assert_int_eq(fake_cuda_leaks(), 0);
    snprintf(remove, sizeof(remove), "rm -rf %s", folder);
    ck_assert_int_eq(system(remove), 0);
}
END_TEST

/* Whichever call fails, it is said, and nothing stays behind. */
START_TEST(test_failures)
{
    struct ht_error err = {0};
    struct ht_job job;
    struct ht_training t;
    struct ht_options o = options_of(gpt, "fp32", true);
    fake_cuda_fail_at(0);
    ck_assert_msg(train(&o, "zero_offload", &job, &err, &t) == HT_OK, "%s", err.text);
    int64_t calls = fake_cuda_calls();
    ht_training_free(&t);
    ht_job_free(&job);
    ck_assert_int_gt(calls, 50);
    for (int64_t at = 1; at <= calls; at += 1 + calls / 17) {
        fake_cuda_fail_at(at);
        ck_assert_int_eq(train(&o, "zero_offload", &job, &err, &t), HT_FAILED);
        ck_assert_msg(strstr(err.text, "cuda: schedule 'zero_offload': op ") && strstr(err.text, "as told"), "%s",
                      err.text);
        ck_assert_ptr_null(strchr(err.text, '\n'));
        ht_job_free(&job);
        ck_assert_int_eq(fake_cuda_leaks(), 0);
    }
    fake_cuda_fail_at(0);
}
END_TEST

/* Ctrl-C, whenever it comes: what was done has the losses of a run that was let alone, and nothing stays behind. */
START_TEST(test_interrupts)
{
    struct ht_error err = {0};
    struct ht_job job;
    struct ht_training whole, t;
    struct ht_options o = options_of(gpt, "bf16", true);
    int64_t some = 0;
    o.request.control = "rollback";
    o.training.steps = 4;
    (void)fake_cuda_calls();
    ck_assert_msg(train(&o, "in_memory", &job, &err, &whole) == HT_OK, "%s", err.text);
    ht_job_free(&job);
    int64_t calls = fake_cuda_calls();
    for (int64_t at = 1; at <= calls; at += 1 + calls / 23) {
        fake_cuda_interrupt_at(at);
        enum ht_status status = train(&o, "in_memory", &job, &err, &t);
        ht_interrupt_set(false);
        fake_cuda_interrupt_at(0);
        ck_assert_msg(status == HT_INTERRUPTED || (status == HT_OK && t.steps == 4), "%d: %s", status, err.text);
        for (int32_t k = 0; k < t.steps; k++) ck_assert_mem_eq(&t.losses[k], &whole.losses[k], sizeof(double));
        some += t.steps > 0 && t.steps < 4;
        ht_training_free(&t);
        ht_job_free(&job);
        ck_assert_int_eq(fake_cuda_leaks(), 0);
    }
    ck_assert_int_gt(some, 3);
    ht_training_free(&whole);
}
END_TEST

static const char *no_cublaslt(void *stream, void *products, void **context)
{
    return products ? "cuBLASLt is not here (libcublasLt.so.13: cannot open shared object file)"
                    : fake_cuda_api()->context_create(stream, products, context);
}

/* Too little memory is HT_INFEASIBLE in one line, before anything runs. */
START_TEST(test_lacks)
{
    struct ht_error err = {0};
    struct ht_job job;
    struct ht_training t;
    struct ht_options o = options_of(gpt, "fp32", true);
    o.request.device_memory_bytes = 16 << 10;
    ck_assert_int_eq(train(&o, "in_memory", &job, &err, &t), HT_INFEASIBLE);
    ck_assert_msg(strstr(err.text, "reserve") && !strchr(err.text, '\n'), "%s", err.text);
    o.request.device_memory_bytes = 0;
    for (int64_t bytes = 1 << 10; bytes <= 1 << 20; bytes <<= 5) {
        fake_cuda_largest(bytes); /* too small for the reserve; for the arena */
        ck_assert_int_eq(train(&o, "in_memory", &job, &err, &t), HT_INFEASIBLE);
        ck_assert_msg(strstr(err.text, "cudaErrorMemoryAllocation") && !strchr(err.text, '\n'), "%s", err.text);
        ht_job_free(&job);
        ck_assert_int_eq(fake_cuda_leaks(), 0);
    }
    fake_cuda_largest(0);
    struct ht_cuda_api lacking = *fake_cuda_api();
    lacking.context_create = no_cublaslt;
    o.platform.cuda_api = &lacking;
    ck_assert_int_eq(train(&o, "in_memory", &job, &err, &t), HT_INFEASIBLE);
    ck_assert_msg(strstr(err.text, "cuBLASLt is not here") && !strchr(err.text, '\n'), "%s", err.text);
    ht_job_free(&job);
    ck_assert_int_eq(fake_cuda_leaks(), 0);
    o.platform.cuda_api = fake_cuda_api();
    o.platform.device = 1;
    ck_assert_int_eq(train(&o, "in_memory", &job, &err, &t), HT_INFEASIBLE);
    ck_assert_msg(strstr(err.text, "no GPU 1") && strstr(err.text, "CUDA_VISIBLE_DEVICES"), "%s", err.text);
}
END_TEST

static const char *volta(int device, struct ht_cuda_properties *out)
{
    const char *why = fake_cuda_api()->properties(device, out);
    out->major = 7;
    return why;
}

/* A GPU of that age that the catalogue does not know has BF16 at the FP32 rate, not at none. */
START_TEST(test_no_bf16_units)
{
    struct ht_error err = {0};
    struct ht_job job;
    struct ht_cuda_api old = *fake_cuda_api();
    struct ht_options o = options_of(gpt, "bf16", true);
    old.properties = volta;
    o.platform.cuda_api = &old;
    ck_assert_msg(ht_job_create(&o, "in_memory", NULL, HT_JOB_TRAINABLE, &err, &job) == HT_OK, "%s", err.text);
    const struct ht_gpu *gpu = &job.platform.gpus[0];
    ck_assert(gpu->lacks_bf16 && !gpu->lacks_f16);
    ck_assert_double_eq(gpu->bf16_flops_per_s, gpu->f32_flops_per_s);
    ht_job_free(&job);
}
END_TEST

/* Memory that cannot be pinned is used as it is. */
START_TEST(test_not_pinned)
{
    struct ht_error err = {0};
    struct ht_job job;
    struct ht_training want, got;
    struct ht_options o = options_of(gpt, "fp32", true);
    ck_assert_msg(train(&o, "zero_offload", &job, &err, &want) == HT_OK, "%s", err.text);
    ht_job_free(&job);
    fake_cuda_refuse_pinning(true);
    ck_assert_msg(train(&o, "zero_offload", &job, &err, &got) == HT_OK, "%s", err.text);
    fake_cuda_refuse_pinning(false);
    ht_job_free(&job);
    ck_assert_mem_eq(got.losses, want.losses, STEPS * sizeof(double));
    ht_training_free(&want);
    ht_training_free(&got);
    ck_assert_int_eq(fake_cuda_leaks(), 0);
}
END_TEST

static const char *no_driver(int *n)
{
    *n = 0;
    return "cudaErrorNoDevice: no CUDA-capable device is detected";
}

START_TEST(test_no_gpu)
{
    struct ht_cuda_api none = *fake_cuda_api();
    struct ht_options o = options_of(gpt, "fp32", true);
    struct ht_error err = {0};
    struct ht_platform found;
    none.count = no_driver;
    o.platform.cuda_api = &none;
    ck_assert_int_eq(ht_platform_read(&o, "train", &err, &found), HT_INFEASIBLE);
    ck_assert_msg(strstr(err.text, "no GPU") && strstr(err.text, "cudaErrorNoDevice") && !strchr(err.text, '\n'), "%s",
                  err.text);
}
END_TEST

/* The device's events tell the costs, and a planner takes the file. */
START_TEST(test_profile)
{
    struct ht_options o = options_of("gpt-mini", "fp32", false);
    struct ht_error err = {0};
    struct ht_profile *profile = NULL;
    struct ht_job job;
    char path[] = "/tmp/ht-cuda-profile-XXXXXX";
    close(mkstemp(path));
    o.platform.backend = "cuda";
    o.out = path;
    o.measure.repeat = 2;
    ck_assert_msg(ht_cmd_profile.run(&o, &err) == HT_OK, "%s", err.text);
    ck_assert_int_eq(fake_cuda_leaks(), 0);
    ck_assert_msg(ht_profile_load(path, &err, &profile) == HT_OK, "%s", err.text);
    ht_profile_destroy(profile);
    struct ht_options planned = options_of("gpt-mini", "fp32", true);
    planned.plan.profiles[planned.plan.n_profiles++] = path;
    const char *systems[] = {"in_memory", "zero_offload_ckpt", "autohete"};
    for (size_t i = 0; i < HT_COUNT(systems); i++) {
        ck_assert_msg(ht_job_create(&planned, systems[i], NULL, HT_JOB_TRAINABLE, &err, &job) == HT_OK, "%s", err.text);
        for (int32_t op = 0; op < job.schedule->n_ops; op++)
            if (!job.schedule->works[job.schedule->ops[op].work].free) ck_assert_int_gt(job.cost_ns[op], 0);
        ht_job_free(&job);
    }
    unlink(path);
}
END_TEST

static int64_t n_told;

static void slow_shape(void *context, void (*each)(void *ctx, const char *shape, int64_t products), void *ctx)
{
    ck_assert_ptr_nonnull(context);
    n_told++;
    each(ctx, "(5,7) = (5,3) (3,7)", 2);
}

/* Products that cuBLASLt has no algorithm for are in the report, those of all contexts together. */
START_TEST(test_slow_shapes)
{
    struct ht_error err = {0};
    struct ht_cuda_api slow = *fake_cuda_api();
    struct ht_options o = options_of(gpt, "fp32", true);
    char path[] = "/tmp/ht-cuda-slow-XXXXXX", line[256], json[64] = "", expected[64];
    int found = 0;
    close(mkstemp(path));
    slow.each_slow_shape = slow_shape;
    o.platform.cuda_api = &slow;
    o.words[o.n_words++] = "in_memory";
    ck_assert_ptr_nonnull(freopen(path, "w", stdout));
    ck_assert_msg(ht_cmd_train.run(&o, &err) == HT_OK, "%s", err.text);
    int64_t told = n_told;
    o.json = true;
    ck_assert_msg(ht_cmd_train.run(&o, &err) == HT_OK, "%s", err.text);
    fflush(stdout);
    /* All contexts but that for copies, which the device keeps until it ends. */
    ck_assert_int_gt(told, 1);
    snprintf(json, sizeof(json), "\"products\": %lld", (long long)(2 * (told - 1)));
    snprintf(expected, sizeof(expected), "%lld of (5,7) = (5,3) (3,7)", (long long)(2 * (told - 1)));
    FILE *f = fopen(path, "r");
    while (f && fgets(line, sizeof(line), f)) {
        if (strstr(line, "no algorithm for 1 shape,")) found |= 1;
        if (strstr(line, expected)) found |= 2;
        if (strstr(line, "\"slow_products\"")) found |= 4;
        if (strstr(line, json)) found |= 8;
    }
    if (f) fclose(f);
    unlink(path);
    ck_assert_int_eq(found, 15);
    ck_assert_int_eq(fake_cuda_leaks(), 0);
}
END_TEST

int main(void)
{
    sampling = sampling_begin();
    Suite *s = suite_create("cuda");
    TCase *tc = tcase_create("cuda");
    tcase_set_timeout(tc, 600);
    if (!SANITIZED) tcase_add_test(tc, test_every_system_in_fp32);
    tcase_add_test(tc, test_every_system_in_bf16);
    tcase_add_test(tc, test_every_system_of_llama);
    if (!SANITIZED) tcase_add_test(tc, test_every_system_with_a_gate);
    tcase_add_test(tc, test_every_system_with_rollback);
    tcase_add_test(tc, test_head_in_both_passes);
    tcase_add_test(tc, test_reserve_of_the_plan);
    tcase_add_loop_test(tc, test_no_step_waits_for_a_stream, 0, 3);
    tcase_add_test(tc, test_ends_are_polled);
    tcase_add_test(tc, test_profile);
    tcase_add_test(tc, test_resumes);
    tcase_add_test(tc, test_failures);
    tcase_add_test(tc, test_interrupts);
    tcase_add_test(tc, test_lacks);
    tcase_add_test(tc, test_no_bf16_units);
    tcase_add_test(tc, test_not_pinned);
    tcase_add_test(tc, test_no_gpu);
    tcase_add_test(tc, test_slow_shapes);
    suite_add_tcase(s, tc);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
