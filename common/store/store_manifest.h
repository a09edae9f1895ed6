/* Between store.c and store_manifest.c. */
#ifndef HT_STORE_STORE_MANIFEST_H
#define HT_STORE_STORE_MANIFEST_H

#include "common/store/store.h"

/* Returns the text of a rank's manifest, allocated. */
char *ht_store_manifest_text(const struct ht_store_part *p, const struct ht_state *state,
                             const struct ht_checkpoint_setting *settings, int n_settings);

#endif
