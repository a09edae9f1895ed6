/* The provenance of a number: the command that made it, the commit of the sources, and the machine. */
#ifndef HT_HARNESS_RESULT_PROVENANCE_H
#define HT_HARNESS_RESULT_PROVENANCE_H

#include <jansson.h>
#include <stddef.h>

/* Writes the command line as one could type it again, quoted for a shell. Returns buf. */
const char *ht_command_line(char *buf, size_t n);

/* Returns the text as a JSON string, never NULL: text that is not UTF-8 goes through ht_shown. */
json_t *ht_json_text(const char *text);

/* Returns {"command": .., "commit": .., "machine": ..}. commit: git's description of the source tree, with "-dirty"
   when it has changes; "unknown" where there is no git or no repository. machine: processor, cores, memory. */
json_t *ht_provenance_json(void);

#endif
