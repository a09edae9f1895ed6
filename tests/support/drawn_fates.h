/* Scenarios with SSDs and fates of activations, drawn ones too, for systems that place activations by policies. */
#ifndef HT_TESTS_SUPPORT_DRAWN_FATES_H
#define HT_TESTS_SUPPORT_DRAWN_FATES_H

#include "policies/fates.h"
#include "tests/support/draw.h"
#include "tests/support/scenario.h"

#include <stdio.h>
#include <string.h>

#define SSDS HT_SOURCE_DIR "/tests/data/ssd-1gpu.yaml"

/* Returns a scenario on one GPU with SSDs. 0 blocks, batch or micro-batch: the default. */
static inline struct ht_scenario on_ssds(const char *model, int64_t blocks, int64_t batch, int64_t micro_batch,
                                         const char *numerics)
{
    struct ht_scenario_request r = {.model = model,
                                    .cluster = SSDS,
                                    .blocks = blocks,
                                    .batch = batch,
                                    .micro_batch = micro_batch,
                                    .numerics = numerics};
    return scenario_from(&r);
}

/* Draws a small model of 1 to 4 blocks on one GPU with SSDs, its micro-batches of a batch of 4, numerics and control. */
static inline struct ht_scenario_request draw_request(struct draw *d)
{
    static const char *const models[] = {"gpt-mini", "llama-tiny", "bert-tiny", "dit-s-2"};
    static const char *const numerics[] = {"fp32", "fp16", "bf16"}, *const controls[] = {"none", "gate", "rollback"};
    struct ht_scenario_request r = {.model = models[d->seed % 4], .cluster = SSDS, .batch = 4};
    r.seq = d->seed % 4 < 3 ? 16 : 0; /* 0: a diffusion model's own */
    r.blocks = 1 + below(d, 4);
    r.micro_batch = 1 << below(d, 3);
    r.numerics = numerics[below(d, 3)];
    r.control = controls[below(d, 3)];
    return r;
}

/* Appends a vector with numbers from `least` to `end` - 1, " qkv=0,2,1", for a model of n blocks. */
static inline void draw_list(struct draw *d, const char *name, int least, int end, int64_t n, char *text, size_t size)
{
    size_t used = strlen(text);
    used += (size_t)snprintf(text + used, size - used, " %s=", name);
    for (int64_t i = 0; i < n; i++)
        used += (size_t)snprintf(text + used, size - used, "%s%d", i ? "," : "", least + below(d, end - least));
}

/* Appends the fates of most parts, by block. Without SSDs activations are kept instead. */
static inline void draw_fates(struct draw *d, bool ssds, int64_t blocks, char *text, size_t size)
{
    for (int part = 0; part < HT_N_PARTS; part++) {
        char list[64] = "";
        if (!below(d, 4)) continue;
        draw_list(d, ht_part_names[part], part == HT_PART_INPUT, HT_N_FATES, blocks, list, sizeof list);
        for (char *c = strchr(list, '='); *c && !ssds; c++)
            if (*c == '0' + HT_FATE_SSD) *c = '0' + HT_FATE_KEPT;
        snprintf(text + strlen(text), size - strlen(text), "%s", list);
    }
}

#endif
