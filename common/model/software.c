#include "common/model/software.h"

#include <stdio.h>

#include "common/base/builtin.h"

HT_EMBED(ht_software_yaml, "common/model/software.yaml");

static const struct ht_builtin software_file = {"builtin:software.yaml", ht_software_yaml, ht_software_yaml_end};

/* Bounds are far beyond any program, and small enough that no byte count overflows 64 bits. */
#define MAX_PASSES 1000
#define MAX_COPIES 100

#define NUMBER(t, m)                                                                                                   \
    {                                                                                                                  \
        .key = #m, .type = HT_FIELD_DOUBLE, .offset = offsetof(struct t, m), .fallback = "0", .max = MAX_PASSES        \
    }
#define COPIES(t, m)                                                                                                   \
    {                                                                                                                  \
        .key = #m, .type = HT_FIELD_INT, .offset = offsetof(struct t, m), .fallback = "0", .max = MAX_COPIES           \
    }
#define BYTES(t, m)                                                                                                    \
    {                                                                                                                  \
        .key = #m, .type = HT_FIELD_BYTES, .offset = offsetof(struct t, m), .fallback = "0 B", .max = 1e12             \
    }
#define SEGMENT(m)                                                                                                     \
    {                                                                                                                  \
        .key = #m, .type = HT_FIELD_BYTES, .offset = offsetof(struct ht_software_allocator, m), .required = true,      \
        .min = 1, .max = 1e12                                                                                          \
    }
#define SOURCE(t)                                                                                                      \
    {                                                                                                                  \
        .key = "source", .type = HT_FIELD_STRING, .offset = offsetof(struct t, source), .size = HT_SOFTWARE_SOURCE,    \
        .required = true                                                                                               \
    }
#define MAP(t, m, table, must)                                                                                         \
    {                                                                                                                  \
        .key = #m, .type = HT_FIELD_MAP, .offset = offsetof(struct t, m), .required = must, .fields = table            \
    }

static const struct ht_field passes_fields[] = {
    NUMBER(ht_passes, passes),
    NUMBER(ht_passes, casts),
    NUMBER(ht_passes, fp32),
    {0},
};

static const struct ht_field pointwise_fields[] = {
    MAP(ht_pointwise, forward, passes_fields, true),
    MAP(ht_pointwise, backward, passes_fields, true),
    COPIES(ht_pointwise, kept),
    COPIES(ht_pointwise, kept_casts),
    COPIES(ht_pointwise, scratch_forward),
    COPIES(ht_pointwise, scratch_backward),
    COPIES(ht_pointwise, scratch_casts_forward),
    COPIES(ht_pointwise, scratch_casts_backward),
    SOURCE(ht_pointwise),
    {0},
};

static const struct ht_field step_fields[] = {
    NUMBER(ht_step_passes, gradient_casts),   NUMBER(ht_step_passes, unscale), NUMBER(ht_step_passes, parameter_casts),
    NUMBER(ht_step_passes, parameter_passes), SOURCE(ht_step_passes),          {0},
};

static const struct ht_field memory_fields[] = {
    BYTES(ht_software_memory, context),
    BYTES(ht_software_memory, workspace),
    BYTES(ht_software_memory, nccl_buffers),
    COPIES(ht_software_memory, nccl_peers),
    SOURCE(ht_software_memory),
    {0},
};

static const struct ht_field allocator_fields[] = {
    SEGMENT(own),
    SEGMENT(round),
    SEGMENT(shared),
    {.key = "leaving",
     .type = HT_FIELD_BOOL,
     .offset = offsetof(struct ht_software_allocator, leaving),
     .fallback = "false"},
    SOURCE(ht_software_allocator),
    {0},
};

static const struct ht_field adam_fields[] = {
    {.key = "share", HT_FIELD_REAL(struct ht_software_adam, share), .fallback = "1", .min = 0.001, .max = 1},
    COPIES(ht_software_adam, threads),
    SOURCE(ht_software_adam),
    {0},
};

static const struct ht_field collectives_fields[] = {
    {.key = "uneven",
     HT_FIELD_REAL(struct ht_software_collectives, uneven),
     .fallback = "1",
     .min = 1,
     .max = MAX_PASSES},
    SOURCE(ht_software_collectives),
    {0},
};

#define FLAG(m)                                                                                                        \
    {                                                                                                                  \
        .key = #m, .type = HT_FIELD_BOOL, .offset = offsetof(struct ht_software, m), .fallback = "false"               \
    }
static const struct ht_field software_fields[] = {
    {.key = "name", HT_FIELD_TEXT(struct ht_software, name)},
    SOURCE(ht_software),
    MAP(ht_software, layer_norm, pointwise_fields, true),
    MAP(ht_software, rms_norm, pointwise_fields, true),
    MAP(ht_software, modulate, pointwise_fields, false),
    MAP(ht_software, residual, pointwise_fields, true),
    MAP(ht_software, gate, pointwise_fields, false),
    MAP(ht_software, rotary, pointwise_fields, true),
    MAP(ht_software, scores, pointwise_fields, true),
    MAP(ht_software, encoder_scores, pointwise_fields, false),
    MAP(ht_software, unfused_scores, pointwise_fields, false),
    COPIES(ht_software, fused_heads),
    MAP(ht_software, gelu, pointwise_fields, true),
    MAP(ht_software, encoder_gelu, pointwise_fields, false),
    MAP(ht_software, swiglu, pointwise_fields, true),
    MAP(ht_software, loss, pointwise_fields, true),
    MAP(ht_software, step, step_fields, false),
    MAP(ht_software, adam, adam_fields, false),
    FLAG(dropout),
    FLAG(half_logits),
    FLAG(frees),
    FLAG(by_matrix),
    FLAG(outputs),
    MAP(ht_software, memory, memory_fields, false),
    MAP(ht_software, allocator, allocator_fields, false),
    MAP(ht_software, collectives, collectives_fields, false),
    {0},
};

/* Reads a map whose name is given, or among its keys. */
static enum ht_status read_software(const struct ht_node *map, const char *name, struct ht_error *err,
                                    struct ht_software *out)
{
    struct ht_software s = {0};
    enum ht_status status = ht_config_load(map, software_fields, err, &s);
    if (status != HT_OK) return status;
    if (!ht_node_find(map, "encoder_scores")) s.encoder_scores = s.scores;
    if ((s.fused_heads > 0) != (ht_node_find(map, "unfused_scores") != NULL))
        return ht_node_error(map, err, "expected fused_heads and unfused_scores, or neither");
    if (!ht_node_find(map, "encoder_gelu")) s.encoder_gelu = s.gelu;
    if (name) snprintf(s.name, sizeof(s.name), "%s", name);
    if (s.collectives.uneven < 1) s.collectives.uneven = 1; /* the file has no map */
    if (s.adam.share == 0) s.adam.share = 1;                /* nor of this */
    if (!s.name[0]) return ht_node_error(map, err, "the key 'name' is missing; expected 'name: ...'");
    *out = s;
    return HT_OK;
}

enum ht_status ht_software_parse(const struct ht_doc *doc, struct ht_error *err, struct ht_software *out)
{
    return read_software(ht_doc_root(doc), NULL, err, out);
}

enum ht_status ht_software_load(const char *name_or_path, struct ht_error *err, struct ht_software *out)
{
    struct ht_doc *doc = NULL;
    const struct ht_node *entry = NULL;
    enum ht_status status;
    if (ht_is_path(name_or_path)) {
        status = ht_doc_open(name_or_path, err, &doc);
        if (status == HT_OK) status = ht_software_parse(doc, err, out);
    } else {
        status = ht_builtin_find(&software_file, 1, "software", name_or_path, err, &doc, &entry);
        if (status == HT_OK) status = read_software(entry, entry->key, err, out);
    }
    ht_doc_destroy(doc);
    return status;
}

bool ht_software_name(int64_t index, char buf[64])
{
    return ht_builtin_name(&software_file, 1, index, buf, 64);
}

void ht_software_apply(const struct ht_software *s, struct ht_model *m)
{
    bool llama = m->arch == HT_ARCH_LLAMA;
    bool encoder = ht_arch_bidirectional(m->arch);
    const struct ht_pointwise *gelu = encoder ? &s->encoder_gelu : &s->gelu;
    const struct ht_pointwise *scores = encoder ? &s->encoder_scores : &s->scores;
    const struct ht_pointwise *norm = llama ? &s->rms_norm : &s->layer_norm, *ffn = llama ? &s->swiglu : gelu;
    if (m->arch == HT_ARCH_GPT || m->arch == HT_ARCH_BERT) m->dropout |= s->dropout;
    int64_t modulate = ht_arch_gated(m->arch) ? s->modulate.kept : 0;
    m->held = (struct ht_held){.norm = norm->kept + modulate,
                               .norm_casts = norm->kept_casts,
                               .ffn = ffn->kept,
                               .ffn_backward = ffn->scratch_backward,
                               .scores_forward = scores->scratch_forward,
                               .scores_backward = scores->scratch_backward,
                               .frees = s->frees,
                               .by_matrix = s->by_matrix,
                               .outputs = s->outputs,
                               .logits = s->loss.kept,
                               .logits_forward = s->loss.scratch_forward,
                               .logits_backward = s->loss.scratch_backward,
                               .half_logits_forward = s->loss.scratch_casts_forward,
                               .half_logits_backward = s->loss.scratch_casts_backward};
}

double ht_passes_bytes(const struct ht_passes *p, enum ht_dtype dtype)
{
    double e = (double)ht_dtype_bytes(dtype);
    return p->passes * e + p->fp32 * 4 + (dtype == HT_F32 ? 0 : p->casts * (e + 4));
}

double ht_step_beside_bytes(const struct ht_step_passes *s, enum ht_dtype param, enum ht_dtype grad)
{
    if (param == HT_F32) return 0;
    /* g + 4 for a cast, and Adam reads 4 instead of g; 4 + e for a cast, and Adam does not write e. */
    double gradient = grad == HT_F32 ? 0 : s->gradient_casts * 8;
    return gradient + s->unscale * 4 + s->parameter_casts * 4 + s->parameter_passes * (double)ht_dtype_bytes(param);
}

int64_t ht_software_communicator_bytes(const struct ht_software *s, int64_t channels)
{
    return channels * s->memory.nccl_peers * s->memory.nccl_buffers;
}

int64_t ht_software_reserve_bytes(const struct ht_software *s, int64_t channels)
{
    return s->memory.context + s->memory.workspace + ht_software_communicator_bytes(s, channels);
}
