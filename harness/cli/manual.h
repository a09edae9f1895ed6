/* Texts that an installation takes along, made from the tables of commands and options: manual pages, and completion for shells. */
#ifndef HT_HARNESS_CLI_MANUAL_H
#define HT_HARNESS_CLI_MANUAL_H

#include "harness/cli/command.h"

#include <stdio.h>

/* The text of the program as a whole, in its help and in its manual. */
#define HT_TAGLINE     "Heterogeneous LLM training: plan it, prove its memory, simulate it, train it."
#define HT_EXIT_STATUS "0 done, 1 failed while running, 2 bad input, 3 does not fit or is missing, 130 interrupted."

/* Writes hetbench(1), or of one command hetbench-COMMAND(1), for man, with the words of --help. */
void ht_manual_write(const struct ht_command *const *commands, size_t n, FILE *out);
void ht_manual_write_command(const struct ht_command *command, FILE *out);

/* Writes the completion for a shell, "bash" or "zsh": commands, options, their values where these are listed, and the names that are
   built in. Returns HT_BAD_INPUT for another shell. */
enum ht_status ht_completion_write(const char *shell, const struct ht_command *const *commands, size_t n, FILE *out,
                                   struct ht_error *err);

#endif
