/* A block's activations in pieces, one for each sub-op, each by itself between guards. */
#ifndef HT_TESTS_PARTS_H
#define HT_TESTS_PARTS_H

#include "common/kernels/unit.h"
#include "common/model/halves.h"
#include "tests/common/kernels/guarded.h"

struct parts {
    struct guarded guards[HT_N_SUB_OPS];
    struct ht_block_acts act;
    int64_t bytes[HT_N_SUB_OPS];
};

static inline void parts_new(struct parts *p, const struct ht_unit_args *a)
{
    for (int s = 0; s < HT_N_SUB_OPS; s++) {
        p->bytes[s] = ht_sub_ops_activation_bytes(a->model, 1u << s, a->batch, a->seq, a->dtype);
        p->act.of[s] = guarded_new(&p->guards[s], p->bytes[s], 0xff);
    }
}

static inline void parts_free(struct parts *p)
{
    for (int s = 0; s < HT_N_SUB_OPS; s++) guarded_free(&p->guards[s]);
}

/* Checks that the pieces, one after the other, are the bytes of `whole`. */
static inline void parts_are(const struct parts *p, const unsigned char *whole)
{
    for (int s = 0; s < HT_N_SUB_OPS; whole += p->bytes[s++])
        ck_assert_msg(!memcmp(p->act.of[s], whole, (size_t)p->bytes[s]), "%s differs",
                      ht_sub_op_name((enum ht_sub_op)s));
}

/* Wipes and recomputes every `every`-th subset of sub-ops, with FC2 the output too: all bytes come back. The call gets
   only the activations that ht_sub_ops_read names. */
static inline void parts_recomputed(struct parts *p, const struct ht_unit_args *a, const void *params, const void *x,
                                    void *out, void *workspace, const unsigned char *whole, unsigned every)
{
    size_t out_bytes = (size_t)ht_unit_input_bytes(a->model, 1, a->batch, a->seq, a->dtype);
    void *first_out = memcpy(malloc(out_bytes), out, out_bytes);
    for (unsigned sub_ops = 0; sub_ops <= HT_ALL_SUB_OPS; sub_ops += every) {
        bool makes_out = sub_ops >> HT_SUB_FC2 & 1;
        struct ht_sub_op_reads reads = ht_sub_ops_read(a->model->arch, sub_ops);
        struct ht_block_acts act = {0};
        ck_assert_uint_eq(reads.sub_ops & sub_ops, 0);
        for (int s = 0; s < HT_N_SUB_OPS; s++) {
            if (sub_ops >> s & 1) memset(p->act.of[s], 0xff, (size_t)p->bytes[s]);
            if ((sub_ops | reads.sub_ops) >> s & 1) act.of[s] = p->act.of[s];
        }
        if (makes_out) memset(out, 0xff, out_bytes);
        ht_block_forward(a, sub_ops, params, reads.input ? x : NULL, &act, makes_out ? out : NULL,
                         sub_ops >> HT_SUB_ATTENTION & 1 ? workspace : NULL);
        parts_are(p, whole);
        ck_assert_mem_eq(out, first_out, out_bytes);
    }
    free(first_out);
}

/* Runs both passes in halves, the first of which is the front. Each call gets only what it reads and makes, and a workspace
   of its own size. */
static inline void parts_in_halves(struct parts *p, const struct ht_unit_args *a, const void *params, const void *x,
                                   const void *dout, void *out, void *dx, void *grad, unsigned front)
{
    const unsigned back = HT_ALL_SUB_OPS & ~front, halves[] = {front, back, back, front}, handed = ht_handed(front);
    int64_t rows = a->batch * a->seq, e = ht_dtype_bytes(a->dtype);
    struct guarded guard, guards[2];
    void *given[2] = {NULL, NULL}; /* what the front hands, and its gradient */
    for (int i = 0; i < 2 && handed; i++)
        given[i] = guarded_new(&guards[i], rows * ht_handed_width(a->model, handed) * e, 0xff);
    for (int i = 0; i < 4; i++) {
        bool returns = i >= 2, ends = halves[i] == back;
        struct ht_sub_op_reads reads =
            returns ? ht_sub_ops_backward_read(false, halves[i]) : ht_sub_ops_read(a->model->arch, halves[i]);
        struct ht_block_acts act = {0};
        int64_t bytes = ht_block_workspace_bytes(a->model, halves[i], a->batch, a->seq, a->dtype, returns);
        void *workspace = guarded_new(&guard, bytes, 0xff);
        for (int s = 0; s < HT_N_SUB_OPS; s++)
            if ((reads.sub_ops | (returns ? 0 : halves[i])) >> s & 1)
                act.of[s] = ends && handed >> s & 1 ? given[0] : p->act.of[s];
        if (returns || !ends) act.handed = given[returns];
        const void *in = reads.input ? x : NULL;
        if (returns)
            ht_block_backward(a, halves[i], params, in, &act, ends ? dout : NULL, dx, grad, workspace);
        else
            ht_block_forward(a, halves[i], params, in, &act, ends ? out : NULL, workspace);
        guarded_free(&guard);
    }
    for (int i = 0; i < 2 && handed; i++) guarded_free(&guards[i]);
}

/* Returns true if the kernels cut a block of an architecture behind this front. */
static inline bool parts_can_cut(enum ht_arch arch, unsigned front)
{
    return front == HT_ATTENTION_HALF || !ht_arch_post_norm(arch);
}

#endif
