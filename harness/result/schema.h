/* Names and versions of JSON documents, which docs/outputs.md describes. */
#ifndef HT_HARNESS_RESULT_SCHEMA_H
#define HT_HARNESS_RESULT_SCHEMA_H

#include <jansson.h>

/* The version of every document. A new member leaves it; a member that goes, or gets another meaning or unit, counts it up. */
enum { HT_SCHEMA_VERSION = 1 };

/* Returns {"schema": {"name": name, "version": HT_SCHEMA_VERSION}} with the members of `document` behind it, whose reference it takes. */
json_t *ht_schema_put(json_t *document, const char *name);

#endif
