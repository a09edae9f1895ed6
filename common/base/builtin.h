/*
 * The YAML files of the tree that the binary carries (common/hw, common/model), so that a name is enough and no file
 * has to be found at run time. Their errors name them "builtin:gpus.yaml".
 */
#ifndef HT_BASE_BUILTIN_H
#define HT_BASE_BUILTIN_H

#include "common/base/config.h"

struct ht_builtin {
    const char *name; /* "builtin:gpus.yaml" */
    const char *text;
    const char *end;
};

/* Parses one; failing to is a bug in the tree, reported like any other file. */
enum ht_status ht_builtin_open(const struct ht_builtin *file, struct ht_error *err, struct ht_doc **out);

#endif
