/* The platform is decided once, from all options that bear on it; what does not go together is one line. */
#include "common/base/array.h"
#include "harness/run/platform.h"
#include "tests/support/fake_cuda.h"
#include "tests/support/suite.h"

#include <string.h>

START_TEST(kinds)
{
    static const struct {
        const char *backend, *clock, *scale;
        int64_t device;
        enum ht_platform_kind kind;
        double emu_scale;
        const char *why; /* NULL: it is sound */
    } rows[] = {
        {NULL, NULL, NULL, 0, HT_PLATFORM_CPU, 0, NULL},
        {"cpu", "run", NULL, 0, HT_PLATFORM_CPU, 0, NULL},
        {"cuda", NULL, NULL, 0, HT_PLATFORM_GPU, 0, NULL},
        {NULL, "emu", NULL, 0, HT_PLATFORM_EMULATED, 0, NULL},
        {"cpu", "emu", "auto", 0, HT_PLATFORM_EMULATED, 0, NULL},
        {NULL, "emu", "2.5", 0, HT_PLATFORM_EMULATED, 2.5, NULL},
        {"gpu", NULL, NULL, 0, 0, 0, "train: --backend 'gpu' is not known; expected cpu or cuda"},
        {NULL, "wall", NULL, 0, 0, 0, "train: --clock 'wall' is not known; expected run or emu"},
        {NULL, NULL, NULL, 1, 0, 0, "train: --device needs --backend cuda"},
        {NULL, "emu", NULL, 1, 0, 0, "train: --device needs --backend cuda"},
        {NULL, NULL, "3", 0, 0, 0, "train: --emu-scale needs --clock emu"},
        {"cuda", "emu", NULL, 0, 0, 0,
         "train: --clock emu holds the ops of the CPU backend; expected no --backend cuda"},
        {NULL, "emu", "1e-4", 0, 0, 0, "--emu-scale: 1e-4 is out of range; expected 0.001 to 1e9, auto or none"},
    };
    for (size_t i = 0; i < HT_COUNT(rows); i++) {
        struct ht_options o = {.platform = {.backend = rows[i].backend,
                                            .clock = rows[i].clock,
                                            .emu_scale = rows[i].scale,
                                            .device = rows[i].device,
                                            .cuda_api = fake_cuda_api()}};
        struct ht_error err = {0};
        struct ht_platform p;
        enum ht_status status = ht_platform_read(&o, "train", &err, &p);
        ck_assert_int_eq(status, rows[i].why ? HT_BAD_INPUT : HT_OK);
        if (rows[i].why) ck_assert_str_eq(err.text, rows[i].why);
        if (rows[i].why) continue;
        ck_assert_int_eq(p.kind, rows[i].kind);
        ck_assert_double_eq(p.emu_scale, rows[i].emu_scale);
        ck_assert(p.disks.options.checksums && !p.disks.options.n_dirs);
        ck_assert_int_eq(p.n_gpus, p.kind == HT_PLATFORM_GPU);
        ck_assert(!p.n_gpus || p.gpus[0].memory_bytes > 0);
        ht_platform_free(&p);
    }
}
END_TEST

/* A drill counts the requests of its own training: the second write fails, in each of two. */
START_TEST(drills)
{
    struct ht_options o = {.platform = {.disk = "/tmp,/tmp",
                                        .disk_io = "threads",
                                        .disk_checksums = "off",
                                        .disk_faults = {"write:eio:2", "read:short:1"},
                                        .n_disk_faults = 2}};
    struct ht_error err = {0};
    struct ht_platform p;
    char data[8] = {0};
    ck_assert_msg(ht_platform_read(&o, "train", &err, &p) == HT_OK, "%s", err.text);
    ck_assert(p.disks.options.n_dirs == 2 && p.disks.options.path == HT_DISK_THREADS && !p.disks.options.checksums);
    for (int training = 0; training < 2; training++) {
        struct ht_disk_drill drill;
        struct ht_disk_options options = ht_disk_drill_begin(&drill, &p.disks);
        const struct ht_disk_shim *shim = options.shim;
        ck_assert_ptr_nonnull(shim);
        ck_assert_int_eq(shim->result(shim->ctx, true, 0, data, 8, 8), 8);
        ck_assert(!ht_disk_drill_met(&drill, 0));
        ck_assert_int_lt(shim->result(shim->ctx, true, 0, data, 8, 8), 0);
        ck_assert(ht_disk_drill_met(&drill, 0) && !ht_disk_drill_met(&drill, 1));
        ck_assert_int_eq(shim->result(shim->ctx, false, 0, data, 8, 8), 0);
        ck_assert(ht_disk_drill_met(&drill, 1));
    }
    p.disks.n_faults = 0;
    struct ht_disk_drill none;
    ck_assert_ptr_null(ht_disk_drill_begin(&none, &p.disks).shim);
    ht_platform_free(&p);
    o.platform.disk = NULL;
    ck_assert_int_eq(ht_platform_read(&o, "train", &err, &p), HT_BAD_INPUT);
    ck_assert_str_eq(err.text, "--disk-io, --disk-checksums and --inject-disk need --disk DIR");
}
END_TEST

static void add(TCase *t)
{
    tcase_add_test(t, kinds);
    tcase_add_test(t, drills);
}

int main(void)
{
    return run_suite("platform", add);
}
