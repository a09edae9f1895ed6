/* The provenance of a number: the command that made it, the commit that the program was built from, and the machine. */
#ifndef HT_HARNESS_RESULT_PROVENANCE_H
#define HT_HARNESS_RESULT_PROVENANCE_H

#include <jansson.h>
#include <stddef.h>

/* Writes the command line as one could type it again, quoted for a shell. Returns buf. */
const char *ht_command_line(char *buf, size_t n);

/* Returns the text as a JSON string, never NULL: text that is not UTF-8 goes through ht_shown. */
json_t *ht_json_text(const char *text);

/* Returns the commit that the program was built from, as git describes it: with "-dirty" when the tree had changes,
   "unknown" without git or a repository, and in programs other than hetbench. */
const char *ht_built_commit(void);

/* Returns the version of hetbench, such as "0.5.0" (CMakeLists.txt). */
const char *ht_version(void);

/* Returns {"command": .., "version": .., "commit": .., "machine": ..}. version: ht_version. commit: ht_built_commit. machine:
   processor, cores, memory. */
json_t *ht_provenance_json(void);
void ht_provenance_add(json_t *root); /* adds the same */

#endif
