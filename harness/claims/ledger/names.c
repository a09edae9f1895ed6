/* Names of a ledger's metrics, kinds, comparisons, axes and units, as its file has them. */
#include "common/base/array.h"
#include "harness/claims/ledger/ledger.h"

const char *const ht_claim_metric_names[] = {"throughput",        "fits",
                                             "device_peak",       "device_peak_share",
                                             "device_need",       "device_states",
                                             "host_need",         "model_bytes",
                                             "states_per_copy",   "copied_bytes",
                                             "compute_time",      "plan",
                                             "plan_time",         "plan_time_error",
                                             "plan_memory_error", "lanes_end_in_order",
                                             "compute_hidden",    "collectives",
                                             "peak_at_turn",      "need_at_turn",
                                             "backward_span",     "head_start",
                                             "iteration_time",    "gpu_time",
                                             "cpu_time",          "gpu_share",
                                             "bubble_ratio",      "remote_checkpoints",
                                             "fetched_bytes",     "device_activations",
                                             "device_gradients",  "host_params",
                                             "optimizer_overlap", "backward_per_forward",
                                             "turn_idle",         "optimizers",
                                             "parameters",        "step_per_backward",
                                             "bad_time",          "bad_overhead",
                                             "loss_difference"};
const char *const ht_claim_kind_names[] = {"value",     "average", "max",     "min",    "largest",
                                           "smallest",  "steps",   "spread",  "halves", "difference",
                                           "increment", "bend",    "positive"};
const char *const ht_claim_compare_names[] = {"about", "at-least", "at-most", "above", "below"};
const char *const ht_claim_axis_names[] = {"models", "batches", "memory", "settings", "seq", "micro_batch", "systems"};
const char *const ht_claim_unit_names[] = {"one", "params", "block_params", "block_activations", "block_forward"};
_Static_assert(HT_COUNT(ht_claim_metric_names) == HT_N_CLAIM_METRICS, "a name for each metric");
_Static_assert(HT_COUNT(ht_claim_axis_names) == HT_N_CLAIM_AXES, "a name for each axis");
_Static_assert(HT_COUNT(ht_claim_kind_names) == HT_N_CLAIM_KINDS, "a name for each kind");
