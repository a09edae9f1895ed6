/* ViT's embedding, in the steps of common/kernels/patches.c. */
#include "common/kernels/cuda/unit.cuh"

enum { THREADS = 256 };
enum { WEIGHT, BIAS, CLASS, POSITIONS, N_PARTS };

/* Flattens patches: x (B,T,P) from images (B,c,S,S), zeros in the class tokens' rows; n elements from row `first` on. */
template <class T>
__global__ void flatten(const unsigned char *images, T *x, int64_t first, int64_t n, int64_t seq, int64_t channels,
                        int64_t S, int64_t p)
{
    int64_t P = channels * p * p, across = S / p;
    HT_EACH(i, n)
    {
        int64_t row = first + i / P, k = i % P, patch = row % seq - 1, channel = k / (p * p), y = k / p % p;
        float pixel = 0;
        if (patch >= 0) {
            const unsigned char *image = images + (row / seq * channels + channel) * S * S;
            pixel = ((float)image[(patch / across * p + y) * S + patch % across * p + k % p] - 127.5f) / 127.5f;
        }
        x[i] = ht_store<T>(pixel);
    }
}

/* Adds positions to y (B,T,C), n elements from row `first` on, and puts the class token in each sequence's first row. */
template <class T>
__global__ void place_patches(T *y, const T *cls, const T *wpe, int64_t first, int64_t n, int64_t seq, int64_t C)
{
    HT_EACH(i, n)
    {
        int64_t t = (first + i / C) % seq, c = i % C;
        y[i] = ht_store<T>(ht_load(t ? y[i] : cls[c]) + ht_load(wpe[t * C + c]));
    }
}

/* Sums the gradients of each position over the sequences, in order: sums (T,C), dwpe, and dcls of the first. */
template <class T>
__global__ void sum_positions(const T *dout, float *sums, struct ht_grad_type type, void *dcls, void *dwpe,
                              int64_t batch, int64_t seq, int64_t C)
{
    HT_EACH(i, seq * C)
    {
        float sum = 0;
        for (int64_t b = 0; b < batch; b++) sum += ht_load(dout[b * seq * C + i]);
        sums[i] = sum;
        ht_put_grad(type, dwpe, i, sum);
        if (i < C) ht_put_grad(type, dcls, i, sum);
    }
}

/* Makes n_rows rows of X from row `first` on. */
static void *patches_of(const struct ht_cuda_args *args, const unsigned char *images, int64_t first, int64_t n_rows,
                        void *workspace, bool backward, struct ht_cuda_workspace *w)
{
    const struct ht_model *m = args->model;
    ht_cuda_workspace_of(m, 0, args->batch, args->seq, args->dtype, backward, w);
    void *x = (char *)workspace + w->patches;
    int64_t n = n_rows * ht_model_patch_width(m);
    HT_WITH_TYPE(args->dtype, HT_LAUNCH(args->cuda, (flatten<T>), ht_grid_for(n, THREADS), THREADS, 0, images, (T *)x,
                                        first, n, args->seq, m->channels, m->image, m->patch))
    return x;
}

void ht_cuda_patches_forward(const struct ht_cuda_args *args, const unsigned char *images, const void *params,
                             void *out, void *workspace)
{
    const struct ht_model *m = args->model;
    struct ht_param_part parts[HT_MAX_PARAM_PARTS];
    struct ht_cuda_workspace w;
    const void *p[N_PARTS], *x;
    struct ht_cuda_args own = *args; /* of the part's rows, as sequences of one token */
    own.batch = ht_cuda_own_rows(args);
    own.seq = 1;
    int64_t first = ht_cuda_first_row(args), n = own.batch * m->width;
    x = patches_of(args, images, first, own.batch, workspace, false, &w);
    ht_unit_param_parts(m, 0, parts);
    for (int i = 0; i < N_PARTS; i++) p[i] = ht_offset(params, args->dtype, parts[i].offset);
    struct ht_cuda_linear linear = {p[WEIGHT], p[BIAS], ht_model_patch_width(m), m->width};
    ht_cuda_linear_forward(&own, &linear, x, NULL, out);
    HT_WITH_TYPE(args->dtype, HT_LAUNCH(args->cuda, (place_patches<T>), ht_grid_for(n, THREADS), THREADS, 0, (T *)out,
                                        (const T *)p[CLASS], (const T *)p[POSITIONS], first, n, args->seq, m->width))
}

void ht_cuda_patches_backward(const struct ht_cuda_args *args, const unsigned char *images, const void *dout,
                              void *grad, void *workspace)
{
    const struct ht_model *m = args->model;
    struct ht_param_part parts[HT_MAX_PARAM_PARTS];
    struct ht_cuda_workspace w;
    struct ht_grad_type type = {args->grad, args->grad_store};
    const void *x = patches_of(args, images, 0, args->batch * args->seq, workspace, true, &w);
    int64_t seq = args->seq, C = m->width;
    void *g[N_PARTS];
    ht_unit_param_parts(m, 0, parts);
    for (int i = 0; i < N_PARTS; i++) g[i] = ht_offset(grad, args->grad_store, parts[i].offset);
    float *sums = (float *)((char *)workspace + w.positions), *columns = (float *)((char *)workspace + w.columns);
    if (ht_model_cuts_rows(m)) {
        ht_cuda_gather_rows(args, dout, (char *)workspace + w.rows);
        dout = (char *)workspace + w.rows;
    }
    struct ht_cuda_linear linear = {NULL, NULL, ht_model_patch_width(m), C};
    ht_cuda_linear_grad(args, &linear, x, dout, C, g[WEIGHT], NULL, columns);
    HT_WITH_TYPE(args->dtype, HT_LAUNCH(args->cuda, (sum_positions<T>), ht_grid_for(seq * C, THREADS), THREADS, 0,
                                        (const T *)dout, sums, type, g[CLASS], g[POSITIONS], args->batch, seq, C))
    ht_cuda_column_sum(args->cuda, HT_F32, sums + C, seq - 1, C, args->grad, args->grad_store, g[BIAS], columns);
}
