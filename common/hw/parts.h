/* Parts of a cluster, from the catalogue or a file. Internal to common/hw. */
#ifndef HT_HW_PARTS_H
#define HT_HW_PARTS_H

#include "common/hw/hw.h"

#define HT_MAX_USD  1e9 /* of a part or a node */
#define HT_MIN_RATE 1e3 /* bytes or FLOP per second; a slower rate is a typing error */
#define HT_MAX_RATE 1e18

/* Read a part of a cluster file: a catalogue name, or a map like the catalogue's entries with a name of its own. */
enum ht_status ht_part_gpu(const struct ht_node *node, struct ht_error *err, struct ht_gpu *out);
enum ht_status ht_part_cpu(const struct ht_node *node, struct ht_error *err, struct ht_cpu *out);
enum ht_status ht_part_link(const struct ht_node *node, struct ht_error *err, struct ht_link *out);
enum ht_status ht_part_ssd(const struct ht_node *node, struct ht_error *err, struct ht_ssd *out);

/* Reads a cluster's list of links between groups of its nodes, of which there are n_groups (between.c). */
enum ht_status ht_between_read(const struct ht_node *list, int32_t n_groups, struct ht_error *err,
                               struct ht_cluster *cluster);

#endif
