/*
 * YAML files of the source tree that the binary carries (common/hw, common/model), so that a name is enough and no file
 * has to be found at run time. Error messages name them "builtin:gpus.yaml".
 *
 *     HT_EMBED(ht_gpus_yaml, "common/hw/gpus.yaml");
 *     static const struct ht_builtin files[] = {{"builtin:gpus.yaml", ht_gpus_yaml, ht_gpus_yaml_end}};
 *
 * Each file is a map from names to entries. Every source of a folder depends on the folder's YAML files (see ht_module
 * in CMakeLists.txt), so a change to one rebuilds it.
 */
#ifndef HT_BASE_BUILTIN_H
#define HT_BASE_BUILTIN_H

#include "common/base/config.h"

struct ht_builtin {
    const char *name; /* "builtin:gpus.yaml" */
    const char *text;
    const char *end;
};

/* Embeds the file (path from the root of the tree) as read-only data between two symbols. */
#define HT_EMBED(symbol, path)                                                                                         \
    __asm__(".pushsection .rodata\n"                                                                                   \
            ".balign 16\n" #symbol ":\n"                                                                               \
            ".incbin \"" HT_EMBED_ROOT "/" path "\"\n" #symbol "_end:\n"                                               \
            ".byte 0\n"                                                                                                \
            ".popsection\n");                                                                                          \
    extern const char symbol[] __attribute__((visibility("hidden")));                                                  \
    extern const char symbol##_end[] __attribute__((visibility("hidden")))

/* Parses an embedded file, once in a process: the document is everybody's, and destroying it does nothing. A syntax error
   is a bug in the tree, reported like any other file's. */
enum ht_status ht_builtin_open(const struct ht_builtin *file, struct ht_error *err, struct ht_doc **out);

/* Finds the entry called `name` in the first file that has it, and its document (see ht_builtin_open). The error
   for an unknown name suggests the nearest: "unknown model 'gtp-tiny'; expected 'gpt-tiny'?". `what` is the kind of
   thing. */
enum ht_status ht_builtin_find(const struct ht_builtin *files, size_t n_files, const char *what, const char *name,
                               struct ht_error *err, struct ht_doc **doc, const struct ht_node **entry);

/* Writes the index-th name over all files, in the order written, to buf. Returns false past the end. */
bool ht_builtin_name(const struct ht_builtin *files, size_t n_files, int64_t index, char *buf, size_t bytes);

/* Returns true when a user's word is a path and not a built-in name: it has a '/' or ends in .yaml, .yml or .json. */
bool ht_is_path(const char *word);

#endif
