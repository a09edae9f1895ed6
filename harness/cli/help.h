/* The help of a command: its text by parts, which the manual has, too, and as --help prints it. */
#ifndef HT_HARNESS_CLI_HELP_H
#define HT_HARNESS_CLI_HELP_H

#include "harness/cli/command.h"

/* Returns the heading of a group of options, such as "Scenario:"; NULL behind the last. */
const char *ht_help_section(size_t section);

/* Takes the command's next option under a heading; *at is 0 before the first. Returns false behind the last. */
bool ht_help_next(const struct ht_command *command, size_t section, size_t *at, struct ht_option *out);

/* Writes an option as the help names it: "-h, --help", "--seq N". */
void ht_help_name(const struct ht_option *option, char *buf, size_t n);

/* Writes the command's summary, one line. */
void ht_help_summary(const struct ht_command *command, char *buf, size_t n);

/* Returns the text below the options; NULL: there is none. */
const char *ht_help_more(const struct ht_command *command);

/* Prints the whole help at the width of the terminal. */
void ht_help_print(const struct ht_command *command);

/* Prints a command's or option's name and text beside it, at the width of the terminal. */
void ht_help_print_row(const char *name, const char *text);

#endif
