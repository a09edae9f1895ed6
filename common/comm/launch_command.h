/* The words of an mpirun command. Internal to common/comm/. */
#ifndef HT_COMM_LAUNCH_COMMAND_H
#define HT_COMM_LAUNCH_COMMAND_H

#include <stddef.h>
#include <stdint.h>

/* Open MPI's component for shared memory. To see whether it works, the one called "posix" makes a file in /dev/shm and
   removes it, even if another is chosen; a process that is killed between the two leaves the file. */
#define HT_MPI_SHMEM "mmap"

struct ht_launch_command {
    char **words; /* ends with NULL once the program has been added */
    size_t n, cap;
};

/* Begins with mpirun and what any start needs: it may run as root, ranks choose their cores themselves, and nothing is
   put into /dev/shm to try it. */
void ht_launch_command_begin(struct ht_launch_command *c);
void ht_launch_command_add(struct ht_launch_command *c, const char *word);
/* Adds --mca NAME VALUE. */
void ht_launch_command_set(struct ht_launch_command *c, const char *name, const char *value);
/* Ends with this program in `ranks` processes, with the arguments argv[1], .. */
void ht_launch_command_end(struct ht_launch_command *c, int32_t ranks, char *const argv[]);
void ht_launch_command_free(struct ht_launch_command *c);

#endif
