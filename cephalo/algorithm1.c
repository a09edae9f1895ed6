/*
 * The paper's dynamic program (eq. 4; Supplementary A.1, Algorithm 1), for comparison with the planner.
 *
 *     D[i][j][k] = min over m, l of max(D[i-1][j - l m][k - m], T_i(m, l))
 *
 * D is the least max T of the first i GPUs if they take j samples and their micro-batch sizes add up to k. k stands for
 * memory: sum M_i = sum a_i + c k.
 *
 * Mended, in the order of Algorithm 1 as printed:
 *
 *     M(m, l)                        memory does not depend on l (Sec. 2.3); Table 6 has M(m)
 *     M without a GPU's index        k stands for memory if all GPUs have one slope c; a_i may differ
 *     "continue with the next m"     is inside the loop over l; here the m is skipped before that loop
 *     minimumLatency <- 0            nothing is less than 0; here it starts at infinity
 *     the last loop                  takes any k; Sec. 2.4 means those that satisfy constraint (III)
 *     Table 6                        calls N layers, B GPUs and RS RG; Algorithm 1 has N GPUs and a batch of B
 *
 * Kept: each GPU switches to uneven collectives by itself, while Sec. 2.4 switches all GPUs at once, and the maximum is
 * over the sum of both passes (optimize.h). Beyond the paper: idle GPUs (m = l = 0) and a largest l.
 */
#include "cephalo/optimize.h"

#include "common/base/array.h"

#include <stdlib.h>

#define NEVER INT64_MAX

/* The part that a state's last GPU takes; steps are followed back from the last state. */
struct step {
    int16_t m, l;
};

/* Finds c of M_i(m) = a_i + c m. Returns false if it is not the same everywhere. */
static bool find_slope(const struct cephalo_problem *p, int64_t *c)
{
    bool found = false;
    *c = 0;
    for (int32_t k = 0; k < p->n_kinds; k++)
        for (int32_t m = !p->may_idle; m < p->kinds[k].max_micro_batch; m++) {
            int64_t slope = p->kinds[k].compute_bytes[m + 1] - p->kinds[k].compute_bytes[m];
            if (found && slope != *c) return false;
            *c = slope;
            found = true;
        }
    return true;
}

/* Returns T_i(m, l), or NEVER if l micro-batches of m are not allowed. */
static int64_t time_of(const struct cephalo_problem *p, int32_t gpu, int32_t m, int32_t l)
{
    int32_t kind = p->kind_of[gpu];
    const struct cephalo_kind *k = &p->kinds[kind];
    bool uneven = cephalo_overflows(p, kind, k->compute_bytes[m]);
    const struct cephalo_collectives *c = uneven ? &p->uneven : &p->even;
    if (k->compute_bytes[m] > k->capacity_bytes || (uneven && p->even_only)) return NEVER;
    if (p->max_count && l > p->max_count) return NEVER;
    int64_t forward_ns = l ? l * k->forward_ns[m] : 0, backward_ns = l ? l * k->backward_ns[m] : 0;
    int64_t gather_ns = c->all_gather_ns, both_ns = c->all_gather_ns + c->reduce_scatter_ns;
    return (forward_ns > gather_ns ? forward_ns : gather_ns) + (backward_ns > both_ns ? backward_ns : both_ns);
}

/* Runs the loops of Algorithm 1 over j, k, m, l for one GPU. from, to: D without and with the GPU, [B+1][B+1]. */
static void add_gpu(const struct cephalo_problem *p, int32_t gpu, const int64_t *from, int64_t *to, struct step *steps)
{
    int32_t B = p->batch, m_end = p->kinds[p->kind_of[gpu]].max_micro_batch;
    int64_t *t = HT_NEW_ARRAY(int64_t, (size_t)(B + 1) * (size_t)(B + 1)); /* T(m, l) */
    for (int32_t m = 1; m <= B && m <= m_end; m++)
        for (int32_t l = 1; l <= B / m; l++) t[m * (B + 1) + l] = time_of(p, gpu, m, l);
    int64_t idle_ns = p->may_idle ? time_of(p, gpu, 0, 0) : NEVER;
    for (int32_t j = 0; j <= B; j++)
        for (int32_t k = 0; k <= j; k++) {
            int64_t best = NEVER, before = from[j * (B + 1) + k];
            struct step step = {0, 0};
            if (idle_ns < NEVER && before < NEVER) best = before > idle_ns ? before : idle_ns;
            for (int32_t m = 1; m <= k && m <= m_end; m++)
                for (int32_t l = 1; l <= j / m; l++) {
                    int64_t here = t[m * (B + 1) + l], r = from[(j - l * m) * (B + 1) + k - m];
                    r = r > here ? r : here;
                    if (r >= best) continue;
                    best = r;
                    step = (struct step){(int16_t)m, (int16_t)l};
                }
            to[j * (B + 1) + k] = best;
            steps[j * (B + 1) + k] = step;
        }
    free(t);
}

enum ht_status cephalo_optimize_dp(const struct cephalo_problem *p, struct ht_error *err, struct cephalo_part *parts)
{
    enum ht_status status = cephalo_check(p, err);
    if (status) return status;
    int64_t c;
    if (!find_slope(p, &c))
        return ht_fail(err, HT_BAD_INPUT, "Algorithm 1 needs compute memory a + c m with one c for all GPUs");
    int32_t B = p->batch, N = p->n_gpus, best_k = -1;
    int64_t states = (int64_t)(B + 1) * (B + 1);
    int64_t *from = HT_NEW_ARRAY(int64_t, states), *to = HT_NEW_ARRAY(int64_t, states);
    struct step *steps = HT_NEW_ARRAY(struct step, N * states);
    for (int64_t i = 0; i < states; i++) from[i] = to[i] = NEVER; /* k > j stays so */
    from[0] = 0;
    __int128 bytes = p->state_bytes, room = 0; /* S + sum a_i, sum cap */
    for (int32_t i = 0; i < N; i++) {
        const struct cephalo_kind *kind = &p->kinds[p->kind_of[i]];
        add_gpu(p, i, from, to, steps + i * states);
        int64_t *t = from;
        from = to;
        to = t;
        bytes += kind->max_micro_batch ? kind->compute_bytes[1] - c : kind->compute_bytes[0];
        room += kind->capacity_bytes;
    }
    int64_t best = NEVER;
    for (int32_t k = 0; k <= B; k++) {
        int64_t t = from[B * (B + 1) + k];
        if (bytes + (__int128)c * k > room || t >= best) continue;
        best = t;
        best_k = k;
    }
    for (int32_t i = N - 1, j = B, k = best_k; best < NEVER && i >= 0; i--) {
        struct step s = steps[i * states + j * (B + 1) + k];
        parts[i] = (struct cephalo_part){s.m, s.l};
        j -= s.m * s.l;
        k -= s.m;
    }
    free(from);
    free(to);
    free(steps);
    return best < NEVER ? HT_OK : cephalo_explain(p, err);
}
