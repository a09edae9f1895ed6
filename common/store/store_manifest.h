/* Between store.c and store_manifest.c. */
#ifndef HT_STORE_STORE_MANIFEST_H
#define HT_STORE_STORE_MANIFEST_H

#include "common/store/store.h"

/* Returns the text of a rank's manifest, allocated. */
char *ht_store_manifest_text(const struct ht_store_part *p, const struct ht_state *state,
                             const struct ht_checkpoint_setting *settings, int n_settings);

/* Reads a manifest's text, of a rank and version; `path` stands for it in errors. */
enum ht_status ht_store_parse_part(const char *text, size_t bytes, const char *path, struct ht_version v, int32_t rank,
                                   struct ht_error *err, struct ht_store_part *out);

/* Returns the text of a manifest for those of its files that `p` names, and the losses if it has them; allocated. `text` is
   sound. */
char *ht_store_manifest_of(const char *text, const struct ht_store_part *p);

#endif
