/* The words of an mpirun command. Internal to common/comm/launch*.c. */
#ifndef HT_COMM_LAUNCH_COMMAND_H
#define HT_COMM_LAUNCH_COMMAND_H

#include <stddef.h>
#include <stdint.h>

struct ht_launch_command {
    char **words; /* ends with NULL once the program has been added */
    size_t n, cap;
};

/* Begins with mpirun and what any start needs: it may run as root, and ranks choose their cores themselves. */
void ht_launch_command_begin(struct ht_launch_command *c);
void ht_launch_command_add(struct ht_launch_command *c, const char *word);
/* Adds --mca NAME VALUE. */
void ht_launch_command_set(struct ht_launch_command *c, const char *name, const char *value);
/* Ends with this program in `ranks` processes, with the arguments argv[1], .. */
void ht_launch_command_end(struct ht_launch_command *c, int32_t ranks, char *const argv[]);
void ht_launch_command_free(struct ht_launch_command *c);

#endif
