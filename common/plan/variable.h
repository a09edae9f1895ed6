/*
 * Decision variables: what a planner decides and what --set forces. A variable is a number or a vector of numbers; its
 * knob says which, and in what range. The command line and reports write variables alike:
 *
 *     number     c=3         r=0.25
 *     by rank    m=4,2,1,1   m=4         one element per rank; a single element stands for every rank
 *     list       a=3,1,4                 any number of elements
 *     blocks     C=1-5,9     C=none      a set of transformer blocks, counted from 1
 *     ranks      place=4-7,0-3           any number of ranks, counted from 0, in any order
 *
 * "4 x 16" stands for sixteen elements 4. A decimal has at most nine digits after the point. It is kept as an integer,
 * in parts per billion, so that sums of shares are exact.
 */
#ifndef HT_PLAN_VARIABLE_H
#define HT_PLAN_VARIABLE_H

#include "common/base/status.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#define HT_PPB INT64_C(1000000000) /* parts per billion: the integer of the decimal 1 */

enum ht_variable_kind {
    HT_VARIABLE_NUMBER,
    HT_VARIABLE_BY_RANK,
    HT_VARIABLE_LIST,
    HT_VARIABLE_BLOCKS,
    HT_VARIABLE_RANKS,
    HT_N_VARIABLE_KINDS
};
extern const char *const ht_variable_kind_names[HT_N_VARIABLE_KINDS]; /* "number", "by rank", "list", .. */

enum { HT_VARIABLE_NAME = 24, HT_MAX_ELEMENTS = 1 << 16 };

struct ht_variable {
    char name[HT_VARIABLE_NAME]; /* the paper's */
    int64_t value;               /* of a number */
    enum ht_variable_kind kind;
    bool decimal;    /* value and values are in parts per billion */
    int32_t n;       /* elements of a vector, 0 or more */
    int64_t *values; /* [n], owned; blocks ascend */
};

/* A variable that --set may force. */
struct ht_knob {
    const char *name, *meaning;
    int64_t min, max; /* of the number or of each element, in whole numbers; max -1: the number of transformer blocks.
                         Unused for a set of blocks, whose elements are 1 .. that number, and for ranks */
    enum ht_variable_kind kind;
    bool decimal;
    bool planned; /* the planner compares several values where none is forced; else it takes one by rule */
};

/* Numbers of ranks and blocks of a scenario, which bound a knob's values. */
struct ht_knob_range {
    int64_t ranks, blocks;
};

/* Parses "4,2,1" as the knob says into *out, which the caller frees. HT_BAD_INPUT names the element that is wrong. */
enum ht_status ht_variable_parse(const struct ht_knob *knob, struct ht_knob_range range, const char *text,
                                 struct ht_error *err, struct ht_variable *out);
/* Writes the value on one line; ht_variable_parse reads it back. In a vector of more than HT_SHORT_VECTOR elements,
   equal neighbours are written as one: "4 x 16, 2 x 48". */
enum { HT_SHORT_VECTOR = 8 };
void ht_variable_print(const struct ht_variable *v, FILE *out);

/* Returns a copy with elements of its own. */
struct ht_variable ht_variable_copy(const struct ht_variable *v);
void ht_variable_free(struct ht_variable *v);

#endif
