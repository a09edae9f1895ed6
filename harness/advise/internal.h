/* Shared by the files of the search. */
#ifndef HT_HARNESS_ADVISE_INTERNAL_H
#define HT_HARNESS_ADVISE_INTERNAL_H

#include "harness/advise/advise.h"

/* Leaves of a search that has not run only the ways on all cards, and on all of these kinds. */
void ht_search_take_cards(struct ht_search *s, uint64_t kinds);

/* Computes the ceilings of all cards and numerics, before any way is tried. */
enum ht_status ht_search_find_ceilings(struct ht_search *s, struct ht_error *err);

/* Tries a way, unless another one stands for it. */
enum ht_status ht_search_try(struct ht_search *s, size_t way, bool exhaustive, struct ht_error *err);

/* Tries a way's micro-batches and keeps the fastest. A system's bad input is its answer, not an error. */
enum ht_status ht_way_try(struct ht_search *s, struct ht_way *way, bool exhaustive, struct ht_error *err);

/* Returns the options for some cards and numerics, with the batch, which is 64 where none is given. */
struct ht_options ht_search_options(const struct ht_search *s, size_t cards, const char *numerics);

/* Computes a ceiling; INFINITY where the costs are from files. */
enum ht_status ht_ceiling_compute(const struct ht_options *options, struct ht_error *err, struct ht_ceiling *out);

/* Returns the ceiling of a system's rate at a micro-batch; 0: as the system plans it. */
double ht_ceiling_of(const struct ht_ceiling *c, enum ht_division division, int64_t micro_batch);

#endif
