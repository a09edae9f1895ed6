/*
 * The op graph of one training iteration. It says for each op its rank and lane, the ops that it waits for, its
 * priority, the tensors that it touches in which memory tier, and how much of which shared resource it takes.
 *
 * A schedule is a template that is run again and again. It is append-only: an op's dependencies have smaller ids (this
 * iteration) or are any ids (the previous iteration), so ids are a topological order and a cycle cannot be written. It
 * never mentions CUDA, MPI or a duration: a profile has the cost of an op, under the key `struct ht_work`.
 *
 *     rank 0, lane "gpu"   F0 F1 F2 .. B2 B1 B0      ids grow along every FIFO lane
 *     rank 0, lane "d2h"        G2 G1 G0             a copy names one tensor in two tiers
 *     rank 0, lane "cpu"           O2 O1 O0 --.
 *     rank 0, lane "h2d"  P0 P1 P2 <----------' edges to the previous iteration
 *
 * Memory. A tensor is a row of a table. It may have several residencies at once. A residency is the tensor in a space,
 * which tier and rank select: the rank's own device, its node's host memory, its node's disk, or the one remote store.
 * An op's effects say what it does to a tensor in a space:
 *
 *     NEED      reads it
 *     PRODUCE   allocates it when the op's memory is granted, and writes it
 *     UPDATE    overwrites or modifies it in place
 *     RELEASE   frees it when the op ends (may be joined with any of the others; PRODUCE | RELEASE is scratch)
 *
 * A program may take more of a device than its tensors: freed blocks in pools of its streams, buffers of communicators
 * (`allocator`). That has to fit, too.
 *
 * A space has a capacity. A method may declare that it takes less (`limit_bytes`): the memory of its ops one at a time,
 * and of what it overlaps. Ops that run ahead stay within that.
 *
 * The tensors that are resident when an iteration starts are listed (`residents`) and must be resident again when it
 * ends (closure). Other tensors have a separate instance in every iteration, so that an iteration may begin while the
 * one before it still runs. At most two iterations are in flight.
 *
 * Groups. Ops that start and end together (the members of a collective, a send and its receive, one compute op spread
 * over tensor-parallel ranks) have the same `match` >= 0 and consecutive ids, and depend on nothing within the group.
 * So a group is one step of the topological order, and no deadlock can be written either. In a compute op spread over n
 * ranks member q computes with part q of n of the unit's parameters.
 *
 * Everything here is a plain array. Builders append; afterwards the schedule is read-only and threads may share it.
 */
#ifndef HT_SCHEDULE_SCHEDULE_H
#define HT_SCHEDULE_SCHEDULE_H

#include "common/base/granule.h"
#include "common/base/status.h"
#include "common/model/model.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum ht_tier { HT_DEVICE, HT_HOST, HT_DISK, HT_REMOTE, HT_N_TIERS };

enum ht_tensor_class {
    HT_PARAM,      /* compute copy of parameters (the papers' P16); in FP32 numerics also the master copy */
    HT_MASTER,     /* FP32 master parameters, only where the compute copy is 16-bit (P32) */
    HT_MOMENTUM,   /* FP32 */
    HT_VARIANCE,   /* FP32 */
    HT_GRAD,       /* parameter gradients */
    HT_ACTIVATION, /* what a unit's forward leaves for its backward */
    HT_CHECKPOINT, /* a unit's input (B,T,C): boundary activation */
    HT_ACT_GRAD,   /* gradient of a unit's input */
    HT_LOGITS,
    HT_WORKSPACE, /* scratch of one op */
    HT_STAGING,   /* pinned or bounce buffers; what another program keeps of a block beside its activations */
    HT_COMM,      /* communication buffers */
    HT_N_TENSOR_CLASSES,
};

enum ht_op_kind {
    HT_OP_FORWARD,
    HT_OP_RECOMPUTE,
    HT_OP_BACKWARD,
    HT_OP_COPY,       /* copies every tensor NEEDed in one tier and PRODUCEd or UPDATEd in another */
    HT_OP_ACCUMULATE, /* gradient of one micro-batch added to the accumulator */
    HT_OP_OPTIMIZER_STEP,
    HT_OP_UNDO, /* bit-exact inverse of the optimizer step */
    HT_OP_ALL_GATHER,
    HT_OP_REDUCE_SCATTER,
    HT_OP_ALL_REDUCE,
    HT_OP_SEND,
    HT_OP_RECEIVE,
    HT_OP_VALIDATE,  /* writes the iteration's control scalar: ok or bad */
    HT_OP_RESTORE,   /* rounds parameters from their master again; recovery: reads a state tensor back */
    HT_OP_TRANSPOSE, /* rearranges a gradient as ranks of another tensor-parallel degree have it; simulation only */
    HT_N_OP_KINDS,
};

enum ht_lane_kind {
    HT_LANE_COMPUTE, /* device compute */
    HT_LANE_H2D,
    HT_LANE_D2H,
    HT_LANE_HOST, /* CPU optimizer and other host work */
    HT_LANE_DISK,
    HT_LANE_COLLECTIVE,
    HT_LANE_P2P, /* send and receive */
    HT_N_LANE_KINDS,
};

enum ht_lane_order { HT_FIFO, HT_PRIORITY };

enum ht_resource_kind {
    HT_RES_PCIE_H2D, /* one direction of a device's port (full duplex) */
    HT_RES_PCIE_D2H, /* the other direction */
    HT_RES_PCIE_SWITCH,
    HT_RES_STAGED, /* one direction of a device's messages through host memory */
    HT_RES_DRAM,
    HT_RES_CORES, /* processor cores: capacity in core-nanoseconds per second, 1e9 for each */
    HT_RES_NVLINK,
    HT_RES_NIC,
    HT_RES_SSD, /* of a node: its reads, its writes, or both if the array is simplex */
    HT_N_RESOURCE_KINDS,
};

enum ht_when { HT_ALWAYS, HT_WHEN_OK, HT_WHEN_BAD };

enum ht_effect_flags { HT_NEED = 1, HT_PRODUCE = 2, HT_UPDATE = 4, HT_RELEASE = 8 };

/* The unit and micro-batch that an op or a tensor is about. unit -1: no unit; micro_batch -1: no micro-batch. */
struct ht_label {
    int32_t unit;        /* first unit */
    int32_t n_units;     /* >= 1 when unit >= 0 */
    uint32_t sub_ops;    /* mask of enum ht_sub_op; HT_ALL_SUB_OPS for a whole unit */
    int32_t micro_batch; /* index over the whole iteration, all data-parallel ranks included */
};

struct ht_tensor {
    enum ht_tensor_class class;
    struct ht_label label;
    int64_t bytes; /* of this row, i.e. of the shard */
    /* Elements of the unit's flat parameter buffer; none if they are equal. Of a slice (ht_is_boundary_shard): bytes of the whole. */
    int64_t shard_begin, shard_end;
    /* Tensor parallelism: the row holds part `part` of `parts` of the unit, and a shard counts that part's elements.
       ht_add_tensor turns parts 0 into 1, the whole. */
    int32_t part, parts;
    int32_t rank; /* owner; distinguishes the replicas of a state */
    bool sharded; /* a shard, possibly empty; ht_add_tensor sets it if shard_end > 0 */
};

/* Sequences [first, first + count) of the batch. */
struct ht_slice {
    int64_t first, count;
};

struct ht_resident {
    int32_t tensor;
    enum ht_tier tier;
    int32_t rank; /* any rank of the space: its device, or a rank on its node */
};

struct ht_lane {
    char name[24]; /* unique within its rank: "gpu", "h2d", "cpu" ... */
    enum ht_lane_kind kind;
    enum ht_lane_order order;
    int32_t rank;
    int32_t index; /* among the lanes of its kind on its rank */
};

struct ht_resource {
    char name[32];
    enum ht_resource_kind kind;
    int32_t node;
    int64_t capacity_per_s; /* bytes per second; for HT_RES_CORES core-nanoseconds per second */
};

/* The shape of a piece of work. With the op's kind and lane kind it is the key under which a profile has the cost. */
struct ht_work {
    enum ht_op_kind kind;
    enum ht_lane_kind where;
    enum ht_unit_kind unit;
    enum ht_arch arch;
    int32_t n_units;
    uint32_t sub_ops;
    int64_t batch, seq; /* of the micro-batch */
    /* The model's. vocab counts tokens; in a classifier's head classes, in DiT's head outputs, in ViT's and DiT's
       embedding elements of a patch. */
    int64_t width, heads, ffn, vocab;
    int64_t kv_heads; /* LLaMA: Hkv, 0 stands for heads; GPT: 0 */
    bool tied, flash, dropout;
    bool sequence;       /* parts cut rows, too (struct ht_model) */
    enum ht_dtype dtype; /* of activations and compute parameters */
    enum ht_dtype grad_dtype;
    int32_t tp;         /* tensor-parallel degree, 1 when none */
    int32_t ranks;      /* of the communicator, 1 when none */
    int64_t params;     /* elements: optimizer, undo, accumulate */
    int64_t bytes;      /* copies and collectives: moved by this op */
    int64_t even_bytes; /* collectives of uneven shards: moved if they were even; 0: they are */
    bool free;          /* bookkeeping that costs nothing */
    bool write;         /* of a copy on a disk lane: to the disk, not from it */
    char custom[32];    /* not empty: a name that stands for the whole key (hand-written graphs) */
};

struct ht_effect {
    int32_t tensor;
    uint8_t tier;  /* enum ht_tier; in the space of the op's rank */
    uint8_t flags; /* enum ht_effect_flags */
};

struct ht_use {
    int32_t resource;
    /* Bytes; for HT_RES_CORES the cores that it keeps busy while it runs (a profile has the time). */
    int64_t amount;
};

struct ht_op {
    uint8_t kind; /* enum ht_op_kind */
    uint8_t when; /* enum ht_when */
    /* In a draft: 1 + the part of the replica whose draft has the other member of a message (common/schedule/merge.h); else 0. */
    int16_t across;
    int32_t lane;
    int32_t work;     /* row of works */
    int32_t priority; /* on PRIORITY lanes: the smallest of the ready runs first, then the smallest id */
    int32_t match;    /* group, or -1 */
    struct ht_label label;
    char name[16]; /* optional, for people: "F3"; may be empty */
};

/*
 * How a program's allocator takes device memory for tensors: PyTorch's, from the software profile. All 0: exactly the
 * bytes of live tensors, as the arena of this project does (common/schedule/pools.h).
 */
struct ht_allocator {
    int64_t own_bytes;    /* a tensor of at least so many has a segment of its own; 0: there is no such allocator */
    int64_t round_bytes;  /* whose size is a multiple of this */
    int64_t shared_bytes; /* size of the segments in which smaller tensors lie */
    bool leaving;         /* what another lane frees stays until the next op on the compute lane has its memory */
};

struct ht_schedule {
    char name[64];
    int32_t n_ranks, n_nodes;
    int32_t *rank_node;      /* [n_ranks] */
    int64_t *capacity_bytes; /* [ht_n_spaces]: device of each rank, host of each node, disk of each node, remote */
    int64_t *limit_bytes;    /* [ht_n_spaces]: what the method takes of a space at most; INT64_MAX: not declared */
    struct ht_allocator allocator;
    int64_t *communicator_bytes; /* [n_ranks]: buffers of each communicator of a rank's device but the first */
    int32_t n_units;             /* 0: hand-written fragment, coverage of units is not checked */
    int32_t n_micro_batches;
    struct ht_slice *slices; /* [n_micro_batches]: the sequences of each; NULL: equally many, in order */

    struct ht_lane *lanes;
    int32_t n_lanes;
    size_t lanes_cap;
    struct ht_resource *resources;
    int32_t n_resources;
    size_t resources_cap;
    struct ht_tensor *tensors;
    int32_t n_tensors;
    size_t tensors_cap;
    struct ht_resident *residents;
    int32_t n_residents;
    size_t residents_cap;
    struct ht_work *works;
    int32_t n_works;
    size_t works_cap;
    struct ht_op *ops;
    int32_t n_ops;
    size_t ops_cap;

    /* Lists of op i are [begin[i], begin[i+1]) of the flat arrays. begin arrays have n_ops + 1 entries. */
    int32_t *deps;
    int64_t *deps_begin;
    size_t deps_cap, deps_begin_cap;
    int32_t *prev;
    int64_t *prev_begin;
    size_t prev_cap, prev_begin_cap;
    struct ht_effect *effects;
    int64_t *effects_begin;
    size_t effects_cap, effects_begin_cap;
    struct ht_use *uses;
    int64_t *uses_begin;
    size_t uses_cap, uses_begin_cap;

    struct ht_fold *fold;   /* replicas that the graph leaves out (common/schedule/fold.h); NULL: it has all */
    const char *not_folded; /* why it has all, where the scenario lets replicas be left out; else NULL */

    void *work_index; /* builders only: hash of works */
};

/* ---- building -------------------------------------------------------------------------------------------------- */

/* Creates a schedule. rank_node may be NULL (all ranks on node 0). Capacities and limits start at INT64_MAX: none. */
struct ht_schedule *ht_schedule_create(const char *name, int32_t n_ranks, int32_t n_nodes, const int32_t *rank_node);
void ht_schedule_destroy(struct ht_schedule *s);
void ht_schedule_set_capacity(struct ht_schedule *s, enum ht_tier tier, int32_t rank, int64_t bytes);
void ht_schedule_set_limit(struct ht_schedule *s, enum ht_tier tier, int32_t rank, int64_t bytes);

/* Copies what a schedule says of spaces to one with the same ranks and nodes: capacities and the allocator. */
void ht_schedule_copy_spaces(struct ht_schedule *to, const struct ht_schedule *from);

int32_t ht_add_lane(struct ht_schedule *s, const char *name, enum ht_lane_kind kind, int32_t rank,
                    enum ht_lane_order order);
int32_t ht_add_resource(struct ht_schedule *s, const char *name, enum ht_resource_kind kind, int32_t node,
                        int64_t capacity_per_s);
/* Sets the number of micro-batches and their slices: [n], copied, or NULL. */
void ht_schedule_set_micro_batches(struct ht_schedule *s, int32_t n, const struct ht_slice *slices);
int32_t ht_add_tensor(struct ht_schedule *s, struct ht_tensor tensor);
void ht_add_resident(struct ht_schedule *s, int32_t tensor, enum ht_tier tier, int32_t rank);
/* Adds a work and returns its row. Equal works share a row. */
int32_t ht_add_work(struct ht_schedule *s, const struct ht_work *work);

/* Appends an op and returns its id; the calls below then describe this last op. */
int32_t ht_add_op(struct ht_schedule *s, enum ht_op_kind kind, int32_t lane, struct ht_label label, int32_t work);
void ht_op_name(struct ht_schedule *s, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Names the last op by letters, a number >= 0 and a micro-batch (-1: none): "F3.1". */
void ht_op_number(struct ht_schedule *s, const char *letters, int32_t number, int32_t micro_batch);
void ht_op_after(struct ht_schedule *s, int32_t op); /* same iteration; < 0 is ignored; repeats are ignored */
/* Adds an edge to an op of the previous iteration, whose id may be still to come, or to a mark. */
void ht_op_after_prev(struct ht_schedule *s, int32_t op);
void ht_op_effect(struct ht_schedule *s, int32_t tensor, enum ht_tier tier, unsigned flags);
void ht_op_use(struct ht_schedule *s, int32_t resource, int64_t amount);
void ht_op_priority(struct ht_schedule *s, int32_t key);
void ht_op_when(struct ht_schedule *s, enum ht_when when);
void ht_op_match(struct ht_schedule *s, int32_t match);
void ht_op_across(struct ht_schedule *s, int32_t part); /* see struct ht_op; -1: none */

/*
 * A mark stands for an op whose id is not known yet. ht_op_after_prev takes it in place of the id. ht_mark_set makes it
 * stand for the last op; a later call replaces an earlier one. ht_schedule_link replaces marks by ids; ht_marks_resolve
 * does so earlier, for code that reads an unlinked graph. A mark that was never set adds no edge.
 */
int32_t ht_mark_create(struct ht_schedule *s); /* < -1 */
void ht_mark_set(struct ht_schedule *s, int32_t mark);
void ht_marks_resolve(struct ht_schedule *s);

/*
 * Adds the edges that the effects demand and the lanes do not already give: a reader after its producer, a release or
 * overwrite after the readers, a producer after the release, within the iteration and across its boundary. Builders
 * call it once at the end. Edges that they add themselves are only those that the method demands beyond the data.
 */
void ht_schedule_link(struct ht_schedule *s);

/* ---- reading --------------------------------------------------------------------------------------------------- */

static inline int32_t ht_n_spaces(const struct ht_schedule *s)
{
    return s->n_ranks + 2 * s->n_nodes + 1;
}

/* Returns the index of a space: device of each rank, then host of each node, disk of each node, remote. */
static inline int32_t ht_space(const struct ht_schedule *s, enum ht_tier tier, int32_t rank)
{
    switch (tier) {
    case HT_DEVICE:
        return rank;
    case HT_HOST:
        return s->n_ranks + s->rank_node[rank];
    case HT_DISK:
        return s->n_ranks + s->n_nodes + s->rank_node[rank];
    default:
        return s->n_ranks + 2 * s->n_nodes;
    }
}
/* Returns the tier of a space. */
static inline enum ht_tier ht_space_tier(const struct ht_schedule *s, int32_t space)
{
    int32_t hosts = s->n_ranks, disks = hosts + s->n_nodes, remote = disks + s->n_nodes;
    return space < hosts ? HT_DEVICE : space < disks ? HT_HOST : space < remote ? HT_DISK : HT_REMOTE;
}
/* Returns the most bytes that may be live in a space: its capacity, or what the method declares if that is less. */
static inline int64_t ht_space_bytes(const struct ht_schedule *s, int32_t space)
{
    return s->limit_bytes[space] < s->capacity_bytes[space] ? s->limit_bytes[space] : s->capacity_bytes[space];
}
/* Writes "device 0", "host 1", ... into buf and returns it. */
const char *ht_space_name(const struct ht_schedule *s, int32_t space, char *buf, size_t n);

static inline int32_t ht_op_rank(const struct ht_schedule *s, int32_t op)
{
    return s->lanes[s->ops[op].lane].rank;
}

/* Returns the bytes that a tensor takes in memory: rounded up to 512. See ht_tier_bytes for disks. */
static inline int64_t ht_live_bytes(int64_t bytes)
{
    return ht_round_up(bytes, HT_MEMORY_GRANULE);
}
/* Returns the bytes that a tensor takes in a tier. On disk they are rounded up to 4096, so that no two tensors share a
   block. */
static inline int64_t ht_tier_bytes(enum ht_tier tier, int64_t bytes)
{
    return tier == HT_DISK ? ht_round_up(bytes, HT_DISK_GRANULE) : ht_round_up(bytes, HT_MEMORY_GRANULE);
}
/* Return the bytes that the tensor of an effect, or of a resident, takes there. */
static inline int64_t ht_effect_bytes(const struct ht_schedule *s, const struct ht_effect *e)
{
    return ht_tier_bytes((enum ht_tier)e->tier, s->tensors[e->tensor].bytes);
}
static inline int64_t ht_resident_bytes(const struct ht_schedule *s, const struct ht_resident *r)
{
    return ht_tier_bytes((enum ht_tier)r->tier, s->tensors[r->tensor].bytes);
}

/* Returns the model whose unit a tensor holds elements of: the whole model, or the tensor's part of it. */
static inline struct ht_model ht_tensor_model(const struct ht_tensor *t, const struct ht_model *whole)
{
    return t->parts > 1 ? ht_model_part(whole, t->part, t->parts) : *whole;
}

/* Returns true if a tensor is a slice: a part of a unit's input, of its gradient or of activations, on its way between ranks. */
static inline bool ht_is_boundary_shard(const struct ht_tensor *t)
{
    return t->sharded && (t->class == HT_CHECKPOINT || t->class == HT_ACT_GRAD || t->class == HT_ACTIVATION);
}

/* Returns true if an op joins slices: if it is an all-gather about a micro-batch, over the parts of one stage. */
static inline bool ht_joins_boundary(const struct ht_op *op)
{
    return op->kind == HT_OP_ALL_GATHER && op->label.micro_batch >= 0;
}

/* Returns true if the op multiplies by the loss scale: if it is a pass that makes logits and keeps them for a
   gradient. */
bool ht_op_scales(const struct ht_schedule *s, int32_t op);

const char *ht_tier_name(enum ht_tier t);                   /* "device" ... */
const char *ht_tensor_class_name(enum ht_tensor_class c);   /* "param" ... */
const char *ht_tensor_class_plural(enum ht_tensor_class c); /* for sentences: "parameters" ... */
const char *ht_op_kind_name(enum ht_op_kind k);             /* "forward" ... */
const char *ht_lane_kind_name(enum ht_lane_kind k);         /* "compute" ... */
const char *ht_resource_kind_name(enum ht_resource_kind k); /* "pcie_h2d" ... */

/* Returns the op's name, or a label made of kind, unit and micro-batch: "F3", "B3.1", "h2d param 3"; uses buf. */
const char *ht_op_label(const struct ht_schedule *s, int32_t op, char *buf, size_t n);
/* Describes the op in words, for sentences: "backward of block 17, micro-batch 2", "optimizer step of embedding"; in
   buf. */
const char *ht_op_description(const struct ht_schedule *s, int32_t op, char *buf, size_t n);

/* Writes the canonical key of a work: one line, "forward block batch=8 seq=1024 width=4096 ...", or the custom name. */
const char *ht_work_key(const struct ht_work *w, char *buf, size_t n);
enum { HT_WORK_KEY_MAX = 256 };

/*
 * Returns what a pass over n > 1 tensor-parallel parts sends: all-reduces inside the op, one after another (Shoeybi et
 * al. 2019, Sec. 3). Each is a ring's, 2 (n - 1) / n of its elements from every member:
 *
 *     block       forward    after the projection, after fc2          (B,T,C) each
 *                 backward   after fc1, after query, key, value       (B,T,C) each
 *     embedding   forward    of the tokens' rows                      (B,T,C)
 *     head        forward    log-sum-exp and target's logit           (B,T,2), FP32, of each part: all-gathered
 *                 backward   of the gradient of its input             (B,T,C)
 *
 * With sequence parallelism each of (B,T,C) is a reduce-scatter and an all-gather, half an all-reduce each. A backward
 * pass of a block gathers both norms' outputs once more, that of the head its norm's, and that of the embedding its
 * output's gradient. The sums of the norms' gradients, 2 C each, are left out: Megatron-LM adds them up once an iteration.
 */
struct ht_part_sums {
    int32_t n;        /* all-reduces */
    int64_t bytes;    /* sent in each */
    int32_t n_halves; /* reduce-scatters and all-gathers of (B,T,C) */
    int64_t half_bytes;
};
struct ht_part_sums ht_work_part_sums(const struct ht_work *w);

/* Returns a hash over everything that executors read. Ranks compare it before they start. */
uint64_t ht_schedule_hash(const struct ht_schedule *s);

/* Parts of a graph's hash. Edges are those to earlier ops and to the iteration before. Names are those of the schedule,
   lanes, resources and ops. */
enum ht_schedule_part {
    HT_PART_HEADER, /* ranks, nodes, capacities, numbers of units and micro-batches */
    HT_PART_LANES,
    HT_PART_RESOURCES,
    HT_PART_TENSORS,
    HT_PART_RESIDENTS,
    HT_PART_WORKS,
    HT_PART_OPS, /* kind, condition, lane, work, priority, label */
    HT_PART_GROUPS,
    HT_PART_EDGES,
    HT_PART_EFFECTS,
    HT_PART_USES,
    HT_PART_NAMES,
    HT_N_SCHEDULE_PARTS,
};

extern const char *const ht_schedule_part_names[HT_N_SCHEDULE_PARTS];

/* Computes a hash of each part. Rows count by position: renumbering a table changes the digests of parts that refer to
   it. */
void ht_schedule_digests(const struct ht_schedule *s, uint64_t digests[HT_N_SCHEDULE_PARTS]);

#endif
