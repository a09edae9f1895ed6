/*
 * Checks the files that a command reads and writes before it does: no output may be another output, or an input.
 */
#ifndef HT_HARNESS_CLI_FILES_H
#define HT_HARNESS_CLI_FILES_H

#include "harness/cli/command.h"

/*
 * Returns HT_BAD_INPUT, with one line, when an output cannot be written, when two options write to one file, when one
 * writes what another reads (but --save over --init: a model may be trained in place), or when the report would go into
 * an output. Files are the same by inode (links, ./, hard links) or, before they exist, by folder and name. /dev/null
 * may be given any number of times. Writes nothing.
 */
enum ht_status ht_files_check(const struct ht_command *command, const struct ht_options *options, struct ht_error *err);

#endif
