#include "common/model/hf_config.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/text.h"

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

/* Records arithmetic that the kernels lack: the model's shape is known, so it is planned and simulated, and training
   refuses it with this text. The first one counts. Returns HT_OK. */
__attribute__((format(printf, 3, 4))) static enum ht_status lack(struct ht_model *m, const struct ht_node *node,
                                                                 const char *fmt, ...)
{
    struct ht_error why = {0};
    char text[256];
    va_list ap;
    if (m->lacks[0]) return HT_OK;
    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    ht_node_error(node, &why, "%s", text);
    snprintf(m->lacks, sizeof(m->lacks), "%.*s", (int)sizeof(m->lacks) - 1, why.text);
    return HT_OK;
}

/* Checks an optional flag, which must have the value that the kernels implement. */
static enum ht_status want_flag(const struct ht_node *map, const char *key, bool want, struct ht_error *err,
                                struct ht_model *m)
{
    const struct ht_node *node = ht_node_find(map, key);
    bool value = want;
    enum ht_status status = node ? ht_node_bool(node, err, &value) : HT_OK;
    if (status == HT_OK && value != want)
        status = lack(m, node, "the kernels have nothing else; expected %s", want ? "true" : "false");
    return status;
}

/* Checks an optional key of another storage of weights: absent, null, or an empty map. */
static enum ht_status want_null(const struct ht_node *map, const char *key, const char *what, struct ht_error *err)
{
    const struct ht_node *node = ht_node_find(map, key);
    if (!node || is_null(node) || (node->kind == HT_NODE_MAP && !node->n_children)) return HT_OK;
    return ht_node_key_error(node, err, "%s is not supported; expected null", what);
}

/* Checks the keys that all models share. Dropout is ignored: the kernels have none. */
static enum ht_status check_common(const struct ht_node *map, struct ht_error *err, struct ht_model *m)
{
    enum ht_status status = want_null(map, "quantization_config", "a quantized model", err);
    if (status == HT_OK) status = want_null(map, "compression_config", "a compressed model", err);
    if (status == HT_OK) status = want_null(map, "pruned_heads", "a model without some of its heads", err);
    return status == HT_OK ? want_flag(map, "is_causal", !ht_arch_bidirectional(m->arch), err, m) : status;
}

/* Checks the activation and the constant of LayerNorm, under the keys and with the defaults of the model's type. */
static enum ht_status check_gelu_and_norm(const struct ht_node *map, const char *act_key, const char *activation,
                                          const char *eps_key, double epsilon, struct ht_error *err, struct ht_model *m)
{
    const struct ht_node *node = ht_node_find(map, act_key);
    bool known = !strcmp(activation, "gelu_new");
    enum ht_status status = node ? ht_node_string(node, err, &activation) : HT_OK;
    if (status != HT_OK) return status;
    if (!node && !known)
        lack(m, map, "without '%s' it is '%s', which has no kernel; expected gelu_new", act_key, activation);
    if (strcmp(activation, "gelu_new") != 0 && strcmp(activation, "gelu_pytorch_tanh") != 0)
        lack(m, node ? node : map, "'%.40s' has no kernel; expected gelu_new", activation);
    node = ht_node_find(map, eps_key);
    status = node ? ht_node_double(node, 0, 1, err, &epsilon) : HT_OK;
    if (status != HT_OK || fabs(epsilon - 1e-5) <= 1e-12) return status;
    if (!node) return lack(m, map, "without '%s' it is %g; the kernels have another: expected 1e-05", eps_key, epsilon);
    return lack(m, node, "the kernels have another; expected 1e-05");
}

static enum ht_status check_gpt2_arithmetic(const struct ht_node *map, struct ht_error *err, struct ht_model *m)
{
    enum ht_status status =
        check_gelu_and_norm(map, "activation_function", "gelu_new", "layer_norm_epsilon", 1e-5, err, m);
    if (status == HT_OK) status = want_flag(map, "scale_attn_weights", true, err, m);
    if (status == HT_OK) status = want_flag(map, "scale_attn_by_inverse_layer_idx", false, err, m);
    if (status == HT_OK) status = want_flag(map, "add_cross_attention", false, err, m);
    return status;
}

/* Returns the name of the folder that holds the file, "b" for "a/b/config.json"; or that of a file which is called
   otherwise, "c" for "a/c.json". */
static void name_of(const char *path, char *name, size_t bytes)
{
    const char *slash = strrchr(path, '/'), *file = slash ? slash + 1 : path, *dot = strrchr(file, '.');
    const char *begin = slash, *end = slash;
    char text[256] = "model";
    if (!ht_hf_is_config(path)) {
        begin = file;
        end = dot && dot != file ? dot : file + strlen(file);
    }
    while (begin && begin != file && begin > path && begin[-1] != '/') begin--;
    if (end && begin != end) snprintf(text, sizeof(text), "%.*s", (int)(end - begin), begin);
    ht_shown(text, name, bytes);
}

static enum ht_status parse_gpt2(const struct ht_node *map, struct ht_error *err, struct ht_model *m)
{
    m->arch = HT_ARCH_GPT;
    m->tied = true;
    enum ht_status status = get_int(map, "n_layer", 10000, err, &m->layers);
    if (status == HT_OK) status = get_int(map, "n_embd", 1 << 17, err, &m->width);
    if (status == HT_OK) status = get_int(map, "n_head", 1 << 17, err, &m->heads);
    if (status == HT_OK) status = get_int(map, "n_positions", 1 << 20, err, &m->max_seq);
    if (status != HT_OK) return status;
    m->ffn = 4 * m->width;
    const struct ht_node *inner = ht_node_find(map, "n_inner");
    if (inner && !is_null(inner)) status = ht_node_int(inner, 1, 1 << 20, err, &m->ffn);
    return status == HT_OK ? check_gpt2_arithmetic(map, err, m) : status;
}

/* Reads the number of classes: that of id2label, which transformers writes, or num_labels, which it also reads; 2 without
   either. */
static enum ht_status get_classes(const struct ht_node *map, struct ht_error *err, int64_t *classes)
{
    const struct ht_node *labels = ht_node_find(map, "id2label"), *n = ht_node_find(map, "num_labels");
    enum ht_status status = HT_OK;
    *classes = 2;
    if (n) status = ht_node_int(n, 2, 1 << 22, err, classes);
    if (status == HT_OK && labels && labels->kind == HT_NODE_MAP) *classes = (int64_t)labels->n_children;
    if (status == HT_OK && *classes < 2) status = ht_node_error(labels, err, "has one class; expected at least 2");
    return status;
}

/* Reads BERT with a head that classifies sequences (BertForSequenceClassification). */
static enum ht_status parse_bert(const struct ht_node *map, struct ht_error *err, struct ht_model *m)
{
    int64_t types = 2;
    m->arch = HT_ARCH_BERT;
    enum ht_status status = get_int(map, "num_hidden_layers", 10000, err, &m->layers);
    if (status == HT_OK) status = get_int(map, "hidden_size", 1 << 17, err, &m->width);
    if (status == HT_OK) status = get_int(map, "num_attention_heads", 1 << 17, err, &m->heads);
    if (status == HT_OK) status = get_int(map, "intermediate_size", 1 << 20, err, &m->ffn);
    if (status == HT_OK) status = get_int(map, "max_position_embeddings", 1 << 20, err, &m->max_seq);
    if (status == HT_OK) status = get_classes(map, err, &m->classes);
    if (status == HT_OK && ht_node_find(map, "type_vocab_size"))
        status = get_int(map, "type_vocab_size", 2, err, &types);
    if (status == HT_OK && types != 2)
        status = ht_node_error(ht_node_find(map, "type_vocab_size"), err, "the kernels have two types; expected 2");
    if (status == HT_OK) status = check_gelu_and_norm(map, "hidden_act", "gelu", "layer_norm_eps", 1e-12, err, m);
    if (status == HT_OK) status = want_flag(map, "is_decoder", false, err, m);
    if (status == HT_OK) status = want_flag(map, "add_cross_attention", false, err, m);
    const struct ht_node *position = ht_node_find(map, "position_embedding_type");
    const char *kind = "absolute";
    if (status == HT_OK && position) status = ht_node_string(position, err, &kind);
    if (status == HT_OK && strcmp(kind, "absolute") != 0)
        status = lack(m, position, "'%.40s' has no kernel; expected absolute", kind);
    return status;
}

/* Reads ViT with a head that classifies images (ViTForImageClassification). */
static enum ht_status parse_vit(const struct ht_node *map, struct ht_error *err, struct ht_model *m)
{
    m->arch = HT_ARCH_VIT;
    enum ht_status status = get_int(map, "num_hidden_layers", 10000, err, &m->layers);
    if (status == HT_OK) status = get_int(map, "hidden_size", 1 << 17, err, &m->width);
    if (status == HT_OK) status = get_int(map, "num_attention_heads", 1 << 17, err, &m->heads);
    if (status == HT_OK) status = get_int(map, "intermediate_size", 1 << 20, err, &m->ffn);
    if (status == HT_OK) status = get_int(map, "image_size", 1 << 13, err, &m->image);
    if (status == HT_OK) status = get_int(map, "patch_size", 1 << 10, err, &m->patch);
    if (status == HT_OK) status = get_int(map, "num_channels", 1 << 6, err, &m->channels);
    if (status == HT_OK) status = get_classes(map, err, &m->classes);
    if (status == HT_OK && m->image % m->patch)
        status = ht_node_error(ht_node_find(map, "patch_size"), err,
                               "%lld pixels do not divide the image's %lld; expected a divisor of them",
                               (long long)m->patch, (long long)m->image);
    if (status != HT_OK) return status;
    m->max_seq = ht_model_patches(m) + 1;
    if (m->max_seq > 1 << 20)
        return ht_node_error(ht_node_find(map, "patch_size"), err, "leaves %lld patches; expected fewer than %d",
                             (long long)ht_model_patches(m), 1 << 20);
    status = want_flag(map, "qkv_bias", true, err, m);
    return status == HT_OK ? check_gelu_and_norm(map, "hidden_act", "gelu", "layer_norm_eps", 1e-12, err, m) : status;
}

/* Sets the base of the rotary frequencies. Versions of transformers differ in which of two keys they read, so both must
   agree. */
static enum ht_status add_theta(const struct ht_node *node, struct ht_error *err, const struct ht_node **seen,
                                double *theta)
{
    double value = *theta;
    enum ht_status status = node ? ht_node_double(node, 1, 1e12, err, &value) : HT_OK;
    if (!node || status != HT_OK) return status;
    if (*seen && value != *theta)
        return ht_node_error(node, err, "%g differs from %g on line %u; expected the same", value, *theta,
                             (*seen)->line);
    *seen = node;
    *theta = value;
    return HT_OK;
}

/*
 * Checks rope_scaling (before transformers 5) or rope_parameters (since): null, or a map. Its type is called rope_type,
 * or type in older files; both are read. A map by kind of layer has maps in it. Only the unscaled embedding has a kernel.
 */
static enum ht_status check_rope(const struct ht_node *rope, struct ht_error *err, const struct ht_node **seen,
                                 struct ht_model *m)
{
    enum ht_status status = HT_OK;
    if (!rope || is_null(rope)) return HT_OK;
    if (rope->kind != HT_NODE_MAP)
        return ht_node_error(rope, err, "is not a map; expected null or a map with rope_type");
    HT_EACH_CHILD(rope, c)
    {
        const char *type = "default";
        double factor = 1;
        if (is_null(c)) continue;
        if (!strcmp(c->key, "rope_type") || !strcmp(c->key, "type")) {
            status = ht_node_string(c, err, &type);
            if (status == HT_OK && strcmp(type, "default") != 0)
                status = lack(m, c, "'%.40s' has no kernel; expected default", type);
        } else if (!strcmp(c->key, "rope_theta")) {
            status = add_theta(c, err, seen, &m->rope_theta);
        } else if (!strcmp(c->key, "partial_rotary_factor")) {
            status = ht_node_double(c, 0, 1, err, &factor);
            if (status == HT_OK && factor != 1) status = lack(m, c, "has no kernel; expected 1");
        } else {
            status = lack(m, c, "scaled rotary embeddings have no kernel; expected rope_type and rope_theta");
        }
        if (status != HT_OK) return status;
    }
    return HT_OK;
}

static enum ht_status get_theta(const struct ht_node *map, struct ht_error *err, struct ht_model *m)
{
    const struct ht_node *seen = NULL;
    enum ht_status status = add_theta(ht_node_find(map, "rope_theta"), err, &seen, &m->rope_theta);
    if (status == HT_OK) status = check_rope(ht_node_find(map, "rope_scaling"), err, &seen, m);
    if (status == HT_OK) status = check_rope(ht_node_find(map, "rope_parameters"), err, &seen, m);
    return status;
}

/* Checks the width of an attention window: none, or one that a flag (Qwen2's) switches off. */
static enum ht_status check_window(const struct ht_node *map, struct ht_error *err, struct ht_model *m)
{
    const struct ht_node *window = ht_node_find(map, "sliding_window"), *flag = ht_node_find(map, "use_sliding_window");
    bool used = true;
    enum ht_status status = flag && !is_null(flag) ? ht_node_bool(flag, err, &used) : HT_OK;
    if (status != HT_OK || !window || is_null(window) || !used) return status;
    return lack(m, window, "attention to a window has no kernel; expected null");
}

static enum ht_status check_llama_arithmetic(const struct ht_node *map, struct ht_error *err, struct ht_model *m)
{
    const struct ht_node *node = ht_node_find(map, "hidden_act");
    const char *activation = "silu";
    double factor = 1;
    enum ht_status status = node ? ht_node_string(node, err, &activation) : HT_OK;
    if (status == HT_OK && strcmp(activation, "silu") != 0 && strcmp(activation, "swish") != 0)
        status = lack(m, node, "'%.40s' has no kernel; expected silu", activation);
    if (status == HT_OK) status = want_flag(map, "attention_bias", false, err, m);
    if (status == HT_OK) status = want_flag(map, "mlp_bias", false, err, m);
    if (status == HT_OK) status = check_window(map, err, m);
    node = ht_node_find(map, "partial_rotary_factor");
    if (status == HT_OK && node && !is_null(node)) status = ht_node_double(node, 0, 1, err, &factor);
    if (status == HT_OK && factor != 1) status = lack(m, node, "has no kernel; expected 1");
    return status;
}

static enum ht_status parse_llama(const struct ht_node *map, struct ht_error *err, struct ht_model *m)
{
    int64_t head_dim = 0;
    m->arch = HT_ARCH_LLAMA;
    m->rope_theta = 10000;
    m->norm_eps = 1e-6;
    enum ht_status status = get_int(map, "num_hidden_layers", 10000, err, &m->layers);
    if (status == HT_OK) status = get_int(map, "hidden_size", 1 << 17, err, &m->width);
    if (status == HT_OK) status = get_int(map, "num_attention_heads", 1 << 17, err, &m->heads);
    if (status == HT_OK) status = get_int(map, "intermediate_size", 1 << 20, err, &m->ffn);
    if (status == HT_OK) status = get_int(map, "max_position_embeddings", 1 << 20, err, &m->max_seq);
    m->kv_heads = m->heads;
    const struct ht_node *node = ht_node_find(map, "num_key_value_heads");
    if (status == HT_OK && node && !is_null(node)) status = ht_node_int(node, 1, 1 << 17, err, &m->kv_heads);
    if (status == HT_OK && m->heads % m->kv_heads != 0)
        status = ht_node_error(node, err, "%lld heads of keys do not divide the %lld heads; expected a divisor",
                               (long long)m->kv_heads, (long long)m->heads);
    node = ht_node_find(map, "head_dim");
    if (status == HT_OK && node && !is_null(node)) {
        status = ht_node_int(node, 1, 1 << 17, err, &head_dim);
        if (status == HT_OK && head_dim * m->heads != m->width)
            status = ht_node_error(node, err, "the kernels have no other; expected hidden_size / num_attention_heads");
    }
    node = ht_node_find(map, "rms_norm_eps");
    if (status == HT_OK && node) status = ht_node_double(node, 1e-12, 1, err, &m->norm_eps);
    if (status == HT_OK) status = get_theta(map, err, m);
    return status == HT_OK ? check_llama_arithmetic(map, err, m) : status;
}

enum ht_status ht_hf_config_parse(const struct ht_doc *doc, struct ht_error *err, struct ht_model *out)
{
    const struct ht_node *map = ht_doc_root(doc), *node = NULL;
    struct ht_model m = {0};
    const char *type = NULL;
    enum ht_status status = ht_node_want(map, HT_NODE_MAP, err);
    if (status == HT_OK) status = ht_node_get(map, "model_type", err, &node);
    if (status == HT_OK) status = ht_node_string(node, err, &type);
    if (status != HT_OK) return status;
    bool biased = !strcmp(type, "qwen2"); /* its q, k and v: 0.002% of the parameters, not counted */
    if (biased) lack(&m, node, "'qwen2' has biases of q, k and v, which have no kernel; expected llama or mistral");
    if (!strcmp(type, "gpt2"))
        status = parse_gpt2(map, err, &m);
    else if (!strcmp(type, "llama") || !strcmp(type, "mistral") || biased)
        status = parse_llama(map, err, &m);
    else if (!strcmp(type, "bert"))
        status = parse_bert(map, err, &m);
    else if (!strcmp(type, "vit"))
        status = parse_vit(map, err, &m);
    else
        status = ht_node_error(node, err,
                               "'%.40s' is not known here; expected gpt2, llama, mistral, qwen2, bert or vit", type);
    if (status == HT_OK) status = check_common(map, err, &m);
    if (status == HT_OK && m.arch != HT_ARCH_VIT) status = get_int(map, "vocab_size", 1 << 22, err, &m.vocab);
    node = ht_node_find(map, "tie_word_embeddings");
    if (status == HT_OK && node && !m.classes)
        status = ht_node_bool(node, err, &m.tied); /* a classifier has no table */
    if (status != HT_OK) return status;
    if (m.vocab < 2 && m.arch != HT_ARCH_VIT)
        return ht_node_error(ht_node_find(map, "vocab_size"), err, "is too small; expected at least 2");
    node = ht_node_find(map, m.arch == HT_ARCH_GPT ? "n_head" : "num_attention_heads");
    if (m.width % m.heads != 0)
        return ht_node_error(node, err, "%lld heads do not divide the width %lld; expected a divisor",
                             (long long)m.heads, (long long)m.width);
    if (m.arch == HT_ARCH_LLAMA && m.width / m.heads % 2 != 0)
        return ht_node_error(node, err, "leaves heads of width %lld; expected an even one, for the rotary embedding",
                             (long long)(m.width / m.heads));
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

/* ---- writing: the type under its name of before transformers 5, and of since ---- */

static int gpt2_text(const struct ht_model *m, const char *dtype, char *text, size_t bytes)
{
    return snprintf(text, bytes,
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
                    "  \"dtype\": \"%s\",\n"
                    "  \"torch_dtype\": \"%s\"\n"
                    "}\n",
                    (long long)m->layers, (long long)m->width, (long long)m->heads, (long long)m->ffn,
                    (long long)m->max_seq, (long long)m->vocab, m->tied ? "true" : "false", dtype, dtype);
}

static int bert_text(const struct ht_model *m, const char *dtype, char *text, size_t bytes)
{
    return snprintf(text, bytes,
                    "{\n"
                    "  \"architectures\": [\"BertForSequenceClassification\"],\n"
                    "  \"model_type\": \"bert\",\n"
                    "  \"num_hidden_layers\": %lld,\n"
                    "  \"hidden_size\": %lld,\n"
                    "  \"num_attention_heads\": %lld,\n"
                    "  \"intermediate_size\": %lld,\n"
                    "  \"max_position_embeddings\": %lld,\n"
                    "  \"type_vocab_size\": 2,\n"
                    "  \"vocab_size\": %lld,\n"
                    "  \"num_labels\": %lld,\n"
                    "  \"problem_type\": \"single_label_classification\",\n"
                    "  \"hidden_act\": \"gelu_new\",\n"
                    "  \"layer_norm_eps\": 1e-05,\n"
                    "  \"hidden_dropout_prob\": 0.0,\n"
                    "  \"attention_probs_dropout_prob\": 0.0,\n"
                    "  \"dtype\": \"%s\",\n"
                    "  \"torch_dtype\": \"%s\"\n"
                    "}\n",
                    (long long)m->layers, (long long)m->width, (long long)m->heads, (long long)m->ffn,
                    (long long)m->max_seq, (long long)m->vocab, (long long)m->classes, dtype, dtype);
}

static int vit_text(const struct ht_model *m, const char *dtype, char *text, size_t bytes)
{
    return snprintf(text, bytes,
                    "{\n"
                    "  \"architectures\": [\"ViTForImageClassification\"],\n"
                    "  \"model_type\": \"vit\",\n"
                    "  \"num_hidden_layers\": %lld,\n"
                    "  \"hidden_size\": %lld,\n"
                    "  \"num_attention_heads\": %lld,\n"
                    "  \"intermediate_size\": %lld,\n"
                    "  \"image_size\": %lld,\n"
                    "  \"patch_size\": %lld,\n"
                    "  \"num_channels\": %lld,\n"
                    "  \"num_labels\": %lld,\n"
                    "  \"problem_type\": \"single_label_classification\",\n"
                    "  \"qkv_bias\": true,\n"
                    "  \"hidden_act\": \"gelu_new\",\n"
                    "  \"layer_norm_eps\": 1e-05,\n"
                    "  \"hidden_dropout_prob\": 0.0,\n"
                    "  \"attention_probs_dropout_prob\": 0.0,\n"
                    "  \"dtype\": \"%s\",\n"
                    "  \"torch_dtype\": \"%s\"\n"
                    "}\n",
                    (long long)m->layers, (long long)m->width, (long long)m->heads, (long long)m->ffn,
                    (long long)m->image, (long long)m->patch, (long long)m->channels, (long long)m->classes, dtype,
                    dtype);
}

static int llama_text(const struct ht_model *m, const char *dtype, char *text, size_t bytes)
{
    return snprintf(text, bytes,
                    "{\n"
                    "  \"architectures\": [\"LlamaForCausalLM\"],\n"
                    "  \"model_type\": \"llama\",\n"
                    "  \"num_hidden_layers\": %lld,\n"
                    "  \"hidden_size\": %lld,\n"
                    "  \"num_attention_heads\": %lld,\n"
                    "  \"num_key_value_heads\": %lld,\n"
                    "  \"intermediate_size\": %lld,\n"
                    "  \"max_position_embeddings\": %lld,\n"
                    "  \"vocab_size\": %lld,\n"
                    "  \"tie_word_embeddings\": %s,\n"
                    "  \"hidden_act\": \"silu\",\n"
                    "  \"rms_norm_eps\": %.17g,\n"
                    "  \"rope_theta\": %.17g,\n"
                    "  \"attention_bias\": false,\n"
                    "  \"mlp_bias\": false,\n"
                    "  \"attention_dropout\": 0.0,\n"
                    "  \"bos_token_id\": null,\n"
                    "  \"eos_token_id\": null,\n"
                    "  \"dtype\": \"%s\",\n"
                    "  \"torch_dtype\": \"%s\"\n"
                    "}\n",
                    (long long)m->layers, (long long)m->width, (long long)m->heads, (long long)ht_model_kv_heads(m),
                    (long long)m->ffn, (long long)m->max_seq, (long long)m->vocab, m->tied ? "true" : "false",
                    m->norm_eps, m->rope_theta, dtype, dtype);
}

enum ht_status ht_hf_config_text(const struct ht_model *m, enum ht_dtype dtype, struct ht_error *err, char *text,
                                 size_t bytes)
{
    static const char *const dtypes[] = {[HT_F32] = "float32", [HT_F16] = "float16", [HT_BF16] = "bfloat16"};
    int n = m->arch == HT_ARCH_LLAMA  ? llama_text(m, dtypes[dtype], text, bytes)
            : m->arch == HT_ARCH_BERT ? bert_text(m, dtypes[dtype], text, bytes)
            : m->arch == HT_ARCH_VIT  ? vit_text(m, dtypes[dtype], text, bytes)
                                      : gpt2_text(m, dtypes[dtype], text, bytes);
    if (n < 0 || (size_t)n >= bytes) return ht_fail(err, HT_FAILED, "config.json does not fit its buffer");
    return HT_OK;
}
