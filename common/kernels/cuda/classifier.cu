/* The head of a model that classifies sequences, in the steps of common/kernels/classifier.c. */
#include "common/kernels/cuda/unit.cuh"

enum { THREADS = 256 };

/* Copies the first of each sequence's rows (B,T,C) to (B,C). */
template <class T> __global__ void take_first(const T *x, T *first, int64_t batch, int64_t seq, int64_t C)
{
    HT_EACH(i, batch * C) first[i] = x[i / C * seq * C + i % C];
}

/* Writes rows (B,C) to the first of each sequence's rows, and zeros to the others: n elements from row `begin` on. */
template <class T> __global__ void put_first(const T *first, T *x, int64_t begin, int64_t n, int64_t seq, int64_t C)
{
    HT_EACH(i, n)
    {
        int64_t row = begin + i / C;
        x[i] = row % seq ? ht_store<T>(0) : first[row / seq * C + i % C];
    }
}

template <class T> __global__ void tanh_in_place(T *y, int64_t n)
{
    HT_EACH(i, n) y[i] = ht_store<T>(tanhf(ht_load(y[i])));
}

/* Computes d = d (1 - y^2): the gradient of tanh's output in, of its input out. */
template <class T> __global__ void tanh_backward(const T *y, T *d, int64_t n)
{
    HT_EACH(i, n)
    {
        float v = ht_load(y[i]);
        d[i] = ht_store<T>(ht_load(d[i]) * (1 - v * v));
    }
}

template <class T>
__global__ void add_biases(float *logits, const T *bias, int64_t n_rows, int64_t classes, int64_t stride)
{
    HT_EACH(i, n_rows * classes) logits[i / classes * stride + i % classes] += ht_load(bias[i % classes]);
}

/* Sums the rows of the logits' gradient, in order. */
template <class T>
__global__ void sum_biases(const T *dlogits, struct ht_grad_type type, void *dbias, int64_t n_rows, int64_t classes,
                           int64_t stride)
{
    HT_EACH(c, classes)
    {
        float sum = 0;
        for (int64_t r = 0; r < n_rows; r++) sum += ht_load(dlogits[r * stride + c]);
        ht_put_grad(type, dbias, c, sum);
    }
}

/* Parts of the parameters, in order. */
enum { NORM_W, NORM_B, POOLER_W, POOLER_B, CLASSES_W, CLASSES_B, N_PARTS };
static const int part_of_bert[] = {0, 1, 2, 3, 4, 5}, part_of_vit[] = {0, 1, -1, -1, 2, 3};

struct classifier {
    struct ht_cuda_args args; /* of B rows, as sequences of one token */
    int64_t C, seq, stride;   /* stride: of the logits */
    const void *p[N_PARTS];
    void *grad[N_PARTS]; /* backward */
    struct ht_cuda_norm norm;
    struct ht_cuda_linear pooler, classes;
    bool pools;
    void *first, *norm_out, *pooled; /* without a pooler `pooled` is norm_out */
    float *stats;
};

static struct classifier classifier_of(const struct ht_cuda_args *args, const void *params, void *act, void *grad)
{
    const struct ht_model *m = args->model;
    struct ht_param_part parts[HT_MAX_PARAM_PARTS];
    struct ht_act_layout l;
    struct classifier h = {};
    ht_unit_param_parts(m, m->layers + 1, parts);
    ht_head_activations(m, args->batch, args->seq, args->dtype, &l);
    const int *part_of = m->arch == HT_ARCH_VIT ? part_of_vit : part_of_bert;
    for (int i = 0; i < N_PARTS; i++) {
        if (part_of[i] < 0) continue;
        h.p[i] = ht_offset(params, args->dtype, parts[part_of[i]].offset);
        if (grad) h.grad[i] = ht_offset(grad, args->grad_store, parts[part_of[i]].offset);
    }
    h.pools = h.p[POOLER_W] != NULL;
    h.args = *args;
    h.args.seq = 1;
    h.seq = args->seq;
    h.C = m->width;
    h.stride = ht_logits_stride(m);
    struct ht_cuda_norm norm = {args->dtype, args->batch, h.C, h.p[NORM_W], h.p[NORM_B], 0};
    struct ht_cuda_linear pooler = {h.p[POOLER_W], h.p[POOLER_B], h.C, h.C};
    struct ht_cuda_linear classes = {h.p[CLASSES_W], h.p[CLASSES_B], h.C, m->classes};
    h.norm = norm;
    h.pooler = pooler;
    h.classes = classes;
    h.first = (char *)act + l.first.offset;
    h.norm_out = (char *)act + l.norm1.offset;
    h.stats = (float *)((char *)act + l.norm1_stats.offset);
    h.pooled = h.pools ? (char *)act + l.pooled.offset : h.norm_out;
    return h;
}

void ht_cuda_classifier_forward(const struct ht_cuda_args *args, const void *params, const void *x, void *act,
                                float *logits, const int32_t *targets, float scale, double *loss_sum, void *workspace)
{
    struct classifier h = classifier_of(args, params, act, NULL);
    struct ht_cuda *cuda = args->cuda;
    struct ht_cuda_workspace w;
    int64_t B = args->batch, n = B * h.C, K = h.classes.out;
    ht_cuda_workspace_of(args->model, args->model->layers + 1, B, args->seq, args->dtype, false, &w);
    double *row_loss = (double *)((char *)workspace + w.row_loss);
    if (ht_model_cuts_rows(args->model)) {
        ht_cuda_gather_rows(args, x, (char *)workspace + w.rows);
        x = (char *)workspace + w.rows;
    }
    HT_WITH_TYPE(args->dtype, HT_LAUNCH(cuda, (take_first<T>), ht_grid_for(n, THREADS), THREADS, 0, (const T *)x,
                                        (T *)h.first, B, h.seq, h.C))
    ht_cuda_norm_forward(cuda, &h.norm, h.first, h.norm_out, h.stats);
    if (h.pools) {
        ht_cuda_linear_forward(&h.args, &h.pooler, h.norm_out, NULL, h.pooled);
        HT_WITH_TYPE(args->dtype,
                     HT_LAUNCH(cuda, (tanh_in_place<T>), ht_grid_for(n, THREADS), THREADS, 0, (T *)h.pooled, n))
    }
    struct ht_cuda_product p = {};
    p.in = args->dtype;
    p.out = HT_F32;
    p.m = B;
    p.n = K;
    p.k = h.C;
    p.a = h.pooled;
    p.a_stride = h.C;
    p.b = h.classes.weight;
    p.b_stride = h.C;
    p.b_transposed = true;
    p.c = logits;
    p.c_stride = h.stride;
    ht_cuda_multiply(cuda, &p);
    HT_WITH_TYPE(args->dtype, HT_LAUNCH(cuda, (add_biases<T>), ht_grid_for(B * K, THREADS), THREADS, 0, logits,
                                        (const T *)h.classes.bias, B, K, h.stride))
    ht_cuda_cross_entropy(cuda, args->dtype, logits, targets, B, K, h.stride, scale, row_loss);
    ht_cuda_sum(cuda, row_loss, B, loss_sum);
}

void ht_cuda_classifier_backward(const struct ht_cuda_args *args, const void *params, const void *act,
                                 const float *dlogits, void *dx, void *grad, void *workspace)
{
    struct classifier h = classifier_of(args, params, (void *)act, grad); /* act is only read */
    struct ht_cuda *cuda = args->cuda;
    struct ht_cuda_workspace w;
    struct ht_grad_type type = {args->grad, args->grad_store};
    int64_t B = args->batch, n = B * h.C, K = h.classes.out;
    int64_t stride = args->dtype == HT_F32 ? h.stride : 2 * h.stride; /* ht_cuda_cross_entropy */
    int64_t n_own = ht_cuda_own_rows(args) * h.C;
    ht_cuda_workspace_of(args->model, args->model->layers + 1, B, args->seq, args->dtype, true, &w);
    void *dnorm = (char *)workspace + w.narrow, *dpooled = h.pools ? (char *)workspace + w.pooled : dnorm;
    void *dfirst = (char *)workspace + w.first;
    float *columns = (float *)((char *)workspace + w.columns);
    ht_cuda_linear_backward(&h.args, &h.classes, dlogits, stride, NULL, dpooled, h.C);
    if (h.pools) {
        HT_WITH_TYPE(args->dtype, HT_LAUNCH(cuda, (tanh_backward<T>), ht_grid_for(n, THREADS), THREADS, 0,
                                            (const T *)h.pooled, (T *)dpooled, n))
        ht_cuda_linear_backward(&h.args, &h.pooler, dpooled, h.C, NULL, dnorm, h.C);
    }
    struct ht_cuda_norm_grad g = {args->grad, args->grad_store, h.grad[NORM_W], h.grad[NORM_B], columns};
    ht_cuda_norm_backward(cuda, &h.norm, h.first, dnorm, h.stats, NULL, dfirst, &g);
    HT_WITH_TYPE(args->dtype, HT_LAUNCH(cuda, (put_first<T>), ht_grid_for(n_own, THREADS), THREADS, 0,
                                        (const T *)dfirst, (T *)dx, ht_cuda_first_row(args), n_own, h.seq, h.C))
    ht_cuda_linear_grad(&h.args, &h.classes, h.pooled, dlogits, stride, h.grad[CLASSES_W], NULL, columns);
    HT_WITH_TYPE(args->dtype, HT_LAUNCH(cuda, (sum_biases<T>), ht_grid_for(K, THREADS), THREADS, 0, (const T *)dlogits,
                                        type, h.grad[CLASSES_B], B, K, stride))
    if (h.pools)
        ht_cuda_linear_grad(&h.args, &h.pooler, h.norm_out, dpooled, h.C, h.grad[POOLER_W], h.grad[POOLER_B], columns);
}
