#include "harness/cli/commands.h"

#include "common/base/array.h"
#include "common/base/config.h"
#include "common/base/terminal.h"
#include "harness/cli/files.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* In the order of use: what to do, what there is, what one system does, training, and the papers. */
static const struct ht_command *const commands[] = {
    &ht_cmd_advise,  &ht_cmd_list,    &ht_cmd_new,     &ht_cmd_plan,      &ht_cmd_sim,        &ht_cmd_compare,
    &ht_cmd_maxsize, &ht_cmd_verify,  &ht_cmd_profile, &ht_cmd_train,     &ht_cmd_elastic,    &ht_cmd_reshard,
    &ht_cmd_report,  &ht_cmd_goodput, &ht_cmd_replay,  &ht_cmd_reproduce, &ht_cmd_experiment, &ht_cmd_validate,
};

static void help(void)
{
    puts("Usage: hetbench COMMAND [ARGUMENTS] [OPTIONS]\n"
         "Heterogeneous LLM training: plan it, prove its memory, simulate it, train it.\n");
    for (size_t i = 0; i < HT_COUNT(commands); i++) {
        char name[80], text[1024];
        const struct ht_command *c = commands[i];
        snprintf(name, sizeof(name), "%s%s%s", c->name, c->args ? " " : "", c->args ? c->args : "");
        snprintf(text, sizeof(text), "%.*s%s%s", (int)strcspn(c->help, "\v"), c->help, c->example ? "\n" : "",
                 c->example ? c->example : "");
        ht_help_print_row(name, text);
    }
    puts("\nEvery command takes --help and --json.\n"
         "Exit status: 0 done, 1 failed while running, 2 bad input, 3 does not fit or is\n"
         "missing, 130 interrupted.");
}

/* Runs a command. Text for people is broken to fit the terminal. */
static enum ht_status run(const struct ht_command *command, const struct ht_options *options, struct ht_error *err)
{
    FILE *standard = stdout, *wrapped = NULL;
    int columns = options->json || command->whole_lines ? 0 : ht_terminal_columns();
    if (columns) wrapped = ht_wrap_open(standard, columns);
    if (wrapped) stdout = wrapped;
    enum ht_status status = command->run(options, err);
    stdout = standard;
    if (wrapped && fclose(wrapped) != 0 && status == HT_OK)
        return ht_fail(err, HT_FAILED, "standard output cannot be written");
    return status;
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
        return status == HT_OK ? run(commands[i], &options, err) : status;
    }
    if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h") || !strcmp(argv[1], "help")) {
        help();
        return HT_OK;
    }
    const char *near = ht_nearest(argv[1], names, HT_COUNT(commands));
    if (near) return ht_fail(err, HT_BAD_INPUT, "unknown command '%s'; expected '%s'?", argv[1], near);
    return ht_fail(err, HT_BAD_INPUT, "unknown command '%s'; hetbench --help lists those there are", argv[1]);
}
