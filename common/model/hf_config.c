#include "common/model/hf_config.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- reading ---- */

static bool is_null(const struct ht_node *node)
{
    return node && node->kind == HT_NODE_SCALAR && !node->quoted && !strcmp(node->text, "null");
}

static enum ht_status get_int(const struct ht_node *map, const char *key, int64_t max, struct ht_error *err,
                              int64_t *out)
{
    const struct ht_node *node = NULL;
    enum ht_status status = ht_node_get(map, key, err, &node);
    return status == HT_OK ? ht_node_int(node, 1, max, err, out) : status;
}

/* An optional flag, which must have the value that the kernels have. */
static enum ht_status want_flag(const struct ht_node *map, const char *key, bool want, struct ht_error *err)
{
    const struct ht_node *node = ht_node_find(map, key);
    bool value = want;
    enum ht_status status = node ? ht_node_bool(node, err, &value) : HT_OK;
    if (status == HT_OK && value != want)
        status = ht_node_error(node, err, "the kernels have nothing else; expected %s", want ? "true" : "false");
    return status;
}

static enum ht_status check_arithmetic(const struct ht_node *map, struct ht_error *err)
{
    const struct ht_node *node = ht_node_find(map, "activation_function");
    const char *activation = "gelu_new";
    double epsilon = 1e-5;
    enum ht_status status = node ? ht_node_string(node, err, &activation) : HT_OK;
    if (status != HT_OK) return status;
    if (strcmp(activation, "gelu_new") != 0 && strcmp(activation, "gelu_pytorch_tanh") != 0)
        return ht_node_error(node, err, "'%.40s' has no kernel; expected gelu_new", activation);
    node = ht_node_find(map, "layer_norm_epsilon");
    status = node ? ht_node_double(node, 0, 1, err, &epsilon) : HT_OK;
    if (status == HT_OK && fabs(epsilon - 1e-5) > 1e-12)
        status = ht_node_error(node, err, "the kernels have another; expected 1e-05");
    if (status == HT_OK) status = want_flag(map, "scale_attn_weights", true, err);
    if (status == HT_OK) status = want_flag(map, "scale_attn_by_inverse_layer_idx", false, err);
    if (status == HT_OK) status = want_flag(map, "add_cross_attention", false, err);
    return status;
}

/* "a/b/config.json" -> "b". */
static void name_of(const char *path, char *name, size_t bytes)
{
    const char *end = strrchr(path, '/');
    const char *begin = end;
    while (begin && begin > path && begin[-1] != '/') begin--;
    if (!end || begin == end)
        snprintf(name, bytes, "model");
    else
        snprintf(name, bytes, "%.*s", (int)(end - begin), begin);
    for (char *p = name; *p; p++)
        if ((unsigned char)*p < ' ') *p = '?';
}

enum ht_status ht_hf_config_parse(const struct ht_doc *doc, struct ht_error *err, struct ht_model *out)
{
    const struct ht_node *map = ht_doc_root(doc), *node = NULL;
    struct ht_model m = {.arch = HT_ARCH_GPT, .tied = true};
    const char *type = NULL;
    enum ht_status status = ht_node_want(map, HT_NODE_MAP, err);
    if (status == HT_OK) status = ht_node_get(map, "model_type", err, &node);
    if (status == HT_OK) status = ht_node_string(node, err, &type);
    if (status == HT_OK && strcmp(type, "gpt2") != 0)
        status = ht_node_error(node, err, "'%.40s' is not known here; expected gpt2", type);
    if (status == HT_OK) status = get_int(map, "n_layer", 10000, err, &m.layers);
    if (status == HT_OK) status = get_int(map, "n_embd", 1 << 17, err, &m.width);
    if (status == HT_OK) status = get_int(map, "n_head", 1 << 17, err, &m.heads);
    if (status == HT_OK) status = get_int(map, "vocab_size", 1 << 22, err, &m.vocab);
    if (status == HT_OK) status = get_int(map, "n_positions", 1 << 20, err, &m.max_seq);
    if (status != HT_OK) return status;
    if (m.vocab < 2) return ht_node_error(ht_node_find(map, "vocab_size"), err, "is too small; expected at least 2");
    if (m.width % m.heads != 0)
        return ht_node_error(ht_node_find(map, "n_head"), err,
                             "%lld heads do not divide the width %lld; expected a divisor of n_embd",
                             (long long)m.heads, (long long)m.width);
    m.ffn = 4 * m.width;
    node = ht_node_find(map, "n_inner");
    if (node && !is_null(node)) status = ht_node_int(node, 1, 1 << 20, err, &m.ffn);
    node = ht_node_find(map, "tie_word_embeddings");
    if (status == HT_OK && node) status = ht_node_bool(node, err, &m.tied);
    if (status == HT_OK) status = check_arithmetic(map, err);
    if (status != HT_OK) return status;
    name_of(ht_doc_name(doc), m.name, sizeof(m.name));
    *out = m;
    return HT_OK;
}

bool ht_hf_is_config(const char *path)
{
    const char *slash = strrchr(path, '/');
    return !strcmp(slash ? slash + 1 : path, "config.json");
}

enum ht_status ht_hf_config_load(const char *path, struct ht_error *err, struct ht_model *out)
{
    struct ht_doc *doc = NULL;
    enum ht_status status = ht_doc_open(path, err, &doc);
    if (status == HT_OK) status = ht_hf_config_parse(doc, err, out);
    ht_doc_destroy(doc);
    return status;
}

/* ---- writing ---- */

enum ht_status ht_hf_config_text(const struct ht_model *m, enum ht_dtype dtype, struct ht_error *err, char *text,
                                 size_t bytes)
{
    static const char *const dtypes[] = {[HT_F32] = "float32", [HT_F16] = "float16", [HT_BF16] = "bfloat16"};
    if (m->arch != HT_ARCH_GPT)
        return ht_fail(err, HT_INFEASIBLE, "model '%s': only GPT models are written with Hugging Face's names",
                       m->name);
    int n = snprintf(text, bytes,
                     "{\n"
                     "  \"architectures\": [\"GPT2LMHeadModel\"],\n"
                     "  \"model_type\": \"gpt2\",\n"
                     "  \"n_layer\": %lld,\n"
                     "  \"n_embd\": %lld,\n"
                     "  \"n_head\": %lld,\n"
                     "  \"n_inner\": %lld,\n"
                     "  \"n_positions\": %lld,\n"
                     "  \"vocab_size\": %lld,\n"
                     "  \"tie_word_embeddings\": %s,\n"
                     "  \"activation_function\": \"gelu_new\",\n"
                     "  \"layer_norm_epsilon\": 1e-05,\n"
                     "  \"attn_pdrop\": 0.0,\n"
                     "  \"embd_pdrop\": 0.0,\n"
                     "  \"resid_pdrop\": 0.0,\n"
                     "  \"bos_token_id\": null,\n"
                     "  \"eos_token_id\": null,\n"
                     "  \"torch_dtype\": \"%s\"\n"
                     "}\n",
                     (long long)m->layers, (long long)m->width, (long long)m->heads, (long long)m->ffn,
                     (long long)m->max_seq, (long long)m->vocab, m->tied ? "true" : "false", dtypes[dtype]);
    if (n < 0 || (size_t)n >= bytes) return ht_fail(err, HT_FAILED, "config.json does not fit its buffer");
    return HT_OK;
}
