/* The commands of hetbench, one file each (cmd_*.c). */
#ifndef HT_HARNESS_CLI_COMMANDS_H
#define HT_HARNESS_CLI_COMMANDS_H

#include "common/hw/hw.h"
#include "harness/cli/command.h"

extern const struct ht_command ht_cmd_list, ht_cmd_plan, ht_cmd_sim, ht_cmd_compare, ht_cmd_verify, ht_cmd_profile,
    ht_cmd_train, ht_cmd_reproduce, ht_cmd_experiment, ht_cmd_report, ht_cmd_maxsize, ht_cmd_advise, ht_cmd_reshard,
    ht_cmd_new, ht_cmd_validate, ht_cmd_goodput, ht_cmd_elastic, ht_cmd_replay;

/* Writes the i-th name of a kind that hetbench list shows, such as "models". Returns false behind the last. */
bool ht_list_name(const char *kind, int64_t i, char name[HT_NAME_BYTES]);

/* Runs the whole program but for the signal handler: picks the command, parses, runs it. Returns the exit code, with
   the message in *err. */
enum ht_status ht_hetbench(int argc, char **argv, struct ht_error *err);

#endif
