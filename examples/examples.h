/* Example systems. docs/write-your-own-system.md explains them line by line. */
#ifndef HT_EXAMPLES_EXAMPLES_H
#define HT_EXAMPLES_EXAMPLES_H

#include "common/plan/system.h"

extern const struct ht_system ht_example_stream, ht_example_by_speed;

#endif
