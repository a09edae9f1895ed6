#include "harness/cli/commands.h"

#include "common/base/array.h"
#include "common/base/config.h"
#include "harness/cli/files.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct ht_command *const commands[] = {
    &ht_cmd_list,    &ht_cmd_plan,    &ht_cmd_sim,     &ht_cmd_compare,   &ht_cmd_verify,
    &ht_cmd_profile, &ht_cmd_train,   &ht_cmd_elastic, &ht_cmd_reproduce, &ht_cmd_experiment,
    &ht_cmd_report,  &ht_cmd_maxsize, &ht_cmd_advise,  &ht_cmd_reshard,   &ht_cmd_new,
};

static void help(FILE *out)
{
    fputs("Usage: hetbench COMMAND [ARGUMENTS] [OPTIONS]\n"
          "Heterogeneous LLM training: plan it, prove its memory, simulate it, train it.\n\nCommands:\n",
          out);
    for (size_t i = 0; i < HT_COUNT(commands); i++) {
        const char *text = commands[i]->help;
        fprintf(out, "  %-10s %-29s %.*s\n", commands[i]->name, commands[i]->args ? commands[i]->args : "",
                (int)strcspn(text, "\v"), text);
    }
    fputs("\nEvery command takes --help and --json.\n\nExamples:\n"
          "  hetbench advise --model llama-7b --gpus rtx4090:2 --ram 128GB\n"
          "  hetbench list systems\n"
          "  hetbench sim zero_offload --model autohete-4b --cluster autohete-1gpu --batch 8\n"
          "  hetbench compare --models autohete-2b,autohete-4b --cluster autohete-1gpu\n"
          "  hetbench train in_memory --model gpt-tiny --data FILE --steps 50\n"
          "\nExit status: 0 done, 1 failed while running, 2 bad input, 3 does not fit or is missing, 130 "
          "interrupted.\n",
          out);
}

enum ht_status ht_hetbench(int argc, char **argv, struct ht_error *err)
{
    json_set_alloc_funcs(ht_alloc, free); /* or documents lack members when memory runs out */
    if (argc < 2) return ht_fail(err, HT_BAD_INPUT, "a command is missing; hetbench --help lists them");
    const char *names[HT_COUNT(commands)];
    for (size_t i = 0; i < HT_COUNT(commands); i++) names[i] = commands[i]->name;
    for (size_t i = 0; i < HT_COUNT(commands); i++) {
        if (strcmp(argv[1], names[i]) != 0) continue;
        struct ht_options options;
        enum ht_status status = ht_options_parse(commands[i], argc, argv, err, &options);
        if (status != HT_OK || options.help) return status;
        /* Checks the files before anything is computed, so that no result is lost for a file that cannot be written. */
        status = ht_files_check(commands[i], &options, err);
        return status == HT_OK ? commands[i]->run(&options, err) : status;
    }
    if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h") || !strcmp(argv[1], "help")) {
        help(stdout);
        return HT_OK;
    }
    const char *near = ht_nearest(argv[1], names, HT_COUNT(commands));
    if (near) return ht_fail(err, HT_BAD_INPUT, "unknown command '%s'; expected '%s'?", argv[1], near);
    return ht_fail(err, HT_BAD_INPUT, "unknown command '%s'; hetbench --help lists those there are", argv[1]);
}
