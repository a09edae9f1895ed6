/*
 * Extents: the elements of the training state that a file or a rank holds. A layout cuts the state three times, and an
 * extent is what is left: stages take units, tensor parallelism takes a part of each matrix, ZeRO takes a range.
 *
 *     unit 3, momentum, part 1 of 2     | 0 ........................... n |     the part's flat buffer
 *                                       |      | begin .... end |         |     of ht_unit_param_parts
 *
 * Extents of different cuts meet in the whole matrix. There a part's elements are boxes: groups of equal length, and
 * the same interval of each group. Two boxes of one matrix intersect in a box, whatever the numbers of parts are, so
 * the least-common-multiple blocks of two cuts need no code of their own.
 *
 *     cut               groups                   an interval of a group
 *     none, outputs     1                        elements of the matrix
 *     outputs of 3      3: query, key, value     elements of one of them
 *     inputs            rows                     columns
 *     tokens            1                        rows of the token table, times its width
 */
#ifndef HT_STORE_EXTENT_H
#define HT_STORE_EXTENT_H

#include "common/ckpt/state.h"

struct ht_extent {
    int64_t unit;
    enum ht_state_part part;
    int32_t tp_part, tp_parts;
    int64_t begin, end; /* elements of the part's flat buffer */
};

/* Groups [group, group_end) of a matrix or vector of a unit, and elements [begin, end) of each of them. */
struct ht_box {
    int32_t tensor; /* index in ht_unit_param_parts */
    int64_t group, group_end;
    int64_t begin, end;
};

/* Returns the extent of all elements that part tp_part of tp_parts of a unit has. */
struct ht_extent ht_extent_of_part(const struct ht_model *m, int64_t unit, enum ht_state_part part, int32_t tp_part,
                                   int32_t tp_parts);
bool ht_extent_is_whole(const struct ht_model *m, const struct ht_extent *e);
bool ht_extent_equal(const struct ht_extent *a, const struct ht_extent *b);
/* Orders extents by unit, state part, number of parts, part and range; as qsort's function. */
int ht_extent_compare(const void *a, const void *b);
/* Returns true if the model has such a unit and such parts, and the part such elements. */
bool ht_extent_is_sound(const struct ht_model *m, const struct ht_extent *e);

int64_t ht_box_elements(const struct ht_box *b);
/* Writes the boxes of an extent's elements in one tensor, at most 3: a range may begin and end within groups. Returns
   their number. */
int ht_extent_boxes(const struct ht_model *m, const struct ht_extent *e, int32_t tensor, struct ht_box out[3]);
/* Sets *out to the intersection. Returns false if there is none. */
bool ht_box_intersect(const struct ht_box *a, const struct ht_box *b, struct ht_box *out);
/* Writes what is left of `a` without `b`, which lies within it, as at most 4 boxes. Returns their number. */
int ht_box_subtract(const struct ht_box *a, const struct ht_box *b, struct ht_box out[4]);

/* The elements of a box in an extent that holds it: group g of the box begins at first + (g - box.group) * pitch,
   counted from the extent's first element. */
struct ht_box_place {
    int64_t first, pitch;
};
struct ht_box_place ht_extent_place(const struct ht_model *m, const struct ht_extent *e, const struct ht_box *b);

#endif
