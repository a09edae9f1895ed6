#include "harness/run/platform.h"

#include "common/backend/cuda.h"
#include "common/base/array.h"
#include "common/base/units.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- which GPU ---- */

/* Matches "h200-141gb" with "NVIDIA H200": the part before the dash is one of the words. */
static bool is_called(const char *catalogue, const char *reported)
{
    size_t n = strcspn(catalogue, "-");
    for (const char *at = reported; *at; at++) {
        bool begins = at == reported || !isalnum((unsigned char)at[-1]);
        if (begins && strncasecmp(at, catalogue, n) == 0 && !isalnum((unsigned char)at[n])) return true;
    }
    return false;
}

/* Returns the catalogue's GPU of that name; of several (40 and 80 GB) the one whose memory is nearest. */
static bool find_in_catalogue(const struct ht_cuda_properties *p, struct ht_gpu *out)
{
    char name[HT_NAME_BYTES];
    bool found = false;
    for (int64_t i = 0; ht_hw_gpu_name(i, name); i++) {
        struct ht_gpu gpu;
        struct ht_error err = {0};
        if (!is_called(name, p->name) || ht_gpu_load(name, &err, &gpu) != HT_OK) continue;
        if (!found || llabs(gpu.memory_bytes - p->total_bytes) < llabs(out->memory_bytes - p->total_bytes)) *out = gpu;
        found = true;
    }
    return found;
}

/* Returns the dense 16-bit operations of a multiprocessor in a clock, with FP32 sums (NVIDIA's white papers). */
static double tensor_flops_per_clock(int major)
{
    if (major >= 10) return 8192;
    if (major == 9) return 4096;
    return major == 8 ? 2048 : 1024;
}

static void derive(const struct ht_cuda_properties *p, struct ht_gpu *out)
{
    double clocks_per_s = p->multiprocessors * (p->clock_hz > 0 ? p->clock_hz : 1e9);
    *out = (struct ht_gpu){.f32_flops_per_s = 2 * 128 * clocks_per_s,
                           .f16_flops_per_s = tensor_flops_per_clock(p->major) * clocks_per_s,
                           .bf16_flops_per_s = p->major >= 8 ? tensor_flops_per_clock(p->major) * clocks_per_s : 0,
                           .memory_bytes_per_s = p->memory_bytes_per_s > 0 ? p->memory_bytes_per_s : 5e11,
                           .gemm_efficiency = 0.8,
                           .memory_efficiency = 0.88,
                           .launch_ns = 3000};
    ht_gpu_complete(out);
    snprintf(out->name, sizeof(out->name), "%.60s", p->name);
    snprintf(out->source, sizeof(out->source), "peaks from what CUDA reports: %d multiprocessors, %.0f MHz",
             p->multiprocessors, p->clock_hz * 1e-6);
}

/* Describes the GPU of each of `n` ranks, with four fifths of its free memory: the rest is for holes between tensors and
   for CUDA. With several ranks it is of all its memory, for they must come to one number while others already take
   some. */
static enum ht_status find_gpus(int64_t n, struct ht_error *err, struct ht_platform *p)
{
    enum ht_status status = ht_cuda_count(p->cuda_api, err, &p->n_visible);
    p->gpus = HT_NEW_ARRAY(struct ht_gpu, n);
    p->n_gpus = n;
    for (int32_t i = 0; i < n && status == HT_OK; i++) {
        struct ht_cuda_properties found;
        int64_t sharing = (n + p->n_visible - 1) / p->n_visible;
        status = ht_cuda_find(p->cuda_api, i ? ht_platform_device(p, i) : p->device, err, &found);
        if (status) break;
        if (!find_in_catalogue(&found, &p->gpus[i])) derive(&found, &p->gpus[i]);
        p->gpus[i].memory_bytes = (n > 1 ? found.total_bytes / sharing : found.free_bytes) / 5 * 4;
    }
    return status;
}

int ht_platform_device(const struct ht_platform *p, int32_t local)
{
    return p->n_visible ? (p->device + local) % p->n_visible : p->device;
}

/* ---- options --------------------------------------------------------------------------------------------------- */

static enum ht_status read_scale(const char *text, struct ht_error *err, struct ht_platform *out)
{
    struct ht_error why;
    double *scale = &out->emu_scale;
    out->unheld = text && !strcmp(text, "none");
    if (!text || !strcmp(text, "auto") || out->unheld) return HT_OK;
    if (ht_parse_real(HT_REAL, text, strlen(text), &why, scale) != HT_OK)
        return ht_fail(err, HT_BAD_INPUT, "--emu-scale: %.900s", why.text);
    if (!isfinite(*scale) || *scale < 1e-3 || *scale > 1e9)
        return ht_fail(err, HT_BAD_INPUT, "--emu-scale: %s is out of range; expected 0.001 to 1e9, auto or none", text);
    return HT_OK;
}

static enum ht_status read_kind(const struct ht_platform_options *o, const char *command, struct ht_error *err,
                                enum ht_platform_kind *out)
{
    const char *backend = o->backend ? o->backend : "cpu", *clock = o->clock ? o->clock : "run";
    bool emulated = !strcmp(clock, "emu"), gpu = !strcmp(backend, "cuda"), cpu = !strcmp(backend, "cpu");
    *out = emulated ? HT_PLATFORM_EMULATED : gpu ? HT_PLATFORM_GPU : HT_PLATFORM_CPU;
    if (!emulated && strcmp(clock, "run") != 0)
        return ht_fail(err, HT_BAD_INPUT, "%s: --clock '%s' is not known; expected run or emu", command, clock);
    if (o->emu_scale && !emulated) return ht_fail(err, HT_BAD_INPUT, "%s: --emu-scale needs --clock emu", command);
    if (emulated && !cpu)
        return ht_fail(err, HT_BAD_INPUT, "%s: --clock emu holds the ops of the CPU backend; expected no --backend %s",
                       command, backend);
    if (o->device && !gpu) return ht_fail(err, HT_BAD_INPUT, "%s: --device needs --backend cuda", command);
    if (gpu || cpu) return HT_OK;
    return ht_fail(err, HT_BAD_INPUT, "%s: --backend '%s' is not known; expected cpu or cuda", command, backend);
}

enum ht_status ht_platform_read(const struct ht_options *options, const char *command, struct ht_error *err,
                                struct ht_platform *out)
{
    const struct ht_platform_options *o = &options->platform;
    *out = (struct ht_platform){.device = (int)o->device, .cuda_api = o->cuda_api};
    enum ht_status status = read_kind(o, command, err, &out->kind);
    if (status == HT_OK) status = read_scale(o->emu_scale, err, out);
    if (status == HT_OK && out->kind == HT_PLATFORM_GPU)
        status = find_gpus(options->request.ranks ? options->request.ranks : 1, err, out);
    if (status == HT_OK) status = ht_disks_read(o, err, &out->disks);
    if (status) ht_platform_free(out);
    return status;
}

void ht_platform_free(struct ht_platform *p)
{
    free(p->gpus);
    p->gpus = NULL;
    p->n_gpus = 0;
    ht_disks_free(&p->disks);
}
