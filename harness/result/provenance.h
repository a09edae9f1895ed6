/* Where a number comes from: the command that made it, the commit of the sources, and the machine. */
#ifndef HT_HARNESS_RESULT_PROVENANCE_H
#define HT_HARNESS_RESULT_PROVENANCE_H

#include <jansson.h>
#include <stddef.h>

/* The command line as one could type it again, quoted for a shell; into buf. */
const char *ht_command_line(char *buf, size_t n);

/* A string that is in no case NULL: where it is not UTF-8, as ht_shown writes it. */
json_t *ht_json_text(const char *text);

/* {"command": .., "commit": .., "machine": ..}. commit: git's description of the source tree, with "-dirty" when it has
   changes; "unknown" where there is no git or no repository. machine: processor, cores, memory. */
json_t *ht_provenance_json(void);

#endif
