/* Images of drafts: the same ops on other ranks. Internal. */
#ifndef HT_SCHEDULE_IMAGE_H
#define HT_SCHEDULE_IMAGE_H

#include "common/schedule/schedule.h"

struct ht_image {
    const int32_t *rank_of; /* [n_ranks] the image of a rank that the draft has */
    int32_t part;           /* that the image has of divided tensors */
    int32_t micro_batches;  /* by which the image's are later */
    /* Returns the resource that an image takes in place of one that an op of a rank takes. */
    int32_t (*resource_of)(const void *context, int32_t rank, int32_t resource);
    const void *context;
};

/* Returns the image of a draft, whose marks are resolved. It is linked if the draft is. */
struct ht_schedule *ht_schedule_image(const struct ht_schedule *s, const struct ht_image *image);

#endif
