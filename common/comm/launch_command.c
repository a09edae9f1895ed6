#include "common/comm/launch_command.h"

#include "common/base/array.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/types.h>
#include <unistd.h>

void ht_launch_command_add(struct ht_launch_command *c, const char *word)
{
    HT_PUSH(c->words, c->n, c->cap, word ? ht_strdup(word) : NULL);
}

void ht_launch_command_set(struct ht_launch_command *c, const char *name, const char *value)
{
    ht_launch_command_add(c, "--mca");
    ht_launch_command_add(c, name);
    ht_launch_command_add(c, value);
}

void ht_launch_command_begin(struct ht_launch_command *c)
{
    *c = (struct ht_launch_command){0};
    ht_launch_command_add(c, "mpirun");
    if (geteuid() == 0) ht_launch_command_add(c, "--allow-run-as-root"); /* a container's only user */
    ht_launch_command_add(c, "--bind-to");                               /* ranks choose their cores themselves */
    ht_launch_command_add(c, "none");
    ht_launch_command_set(c, "shmem", HT_MPI_SHMEM); /* of mpirun, its daemons and the ranks */
}

void ht_launch_command_end(struct ht_launch_command *c, int32_t ranks, char *const argv[])
{
    char text[32], program[4096];
    ssize_t n = readlink("/proc/self/exe", program, sizeof(program) - 1);
    program[n > 0 ? n : 0] = '\0';
    snprintf(text, sizeof(text), "%d", ranks);
    ht_launch_command_add(c, "-n");
    ht_launch_command_add(c, text);
    ht_launch_command_add(c, n > 0 ? program : argv[0]);
    for (int i = 1; argv[i]; i++) ht_launch_command_add(c, argv[i]);
    ht_launch_command_add(c, NULL);
}

void ht_launch_command_free(struct ht_launch_command *c)
{
    for (size_t i = 0; i < c->n; i++) free(c->words[i]);
    free(c->words);
}
