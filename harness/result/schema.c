#include "harness/result/schema.h"

json_t *ht_schema_put(json_t *document, const char *name)
{
    json_t *root = json_pack("{s:{s:s,s:i}}", "schema", "name", name, "version", HT_SCHEMA_VERSION);
    json_object_update_missing(root, document);
    json_decref(document);
    return root;
}
