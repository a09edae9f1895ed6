#include "harness/cli/commands.h"

#include "common/base/array.h"
#include "common/base/config.h"
#include "common/base/terminal.h"
#include "harness/cli/drawing.h"
#include "harness/cli/files.h"
#include "harness/cli/help.h"
#include "harness/cli/manual.h"
#include "harness/result/provenance.h"
#include "harness/run/registry.h"

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
    puts("Usage: hetbench COMMAND [ARGUMENTS] [OPTIONS]\n" HT_TAGLINE "\n");
    for (size_t i = 0; i < HT_COUNT(commands); i++) {
        char name[80], text[1024], summary[512];
        const struct ht_command *c = commands[i];
        snprintf(name, sizeof(name), "%s%s%s", c->name, c->args ? " " : "", c->args ? c->args : "");
        ht_help_summary(c, summary, sizeof(summary));
        snprintf(text, sizeof(text), "%s%s%s", summary, c->example ? "\n" : "", c->example ? c->example : "");
        ht_help_print_row(name, text);
    }
    puts("\nEvery command takes --help and --json. hetbench --version says which one this\n"
         "is; --man [COMMAND] prints a page for man, --completion bash|zsh a script for a\n"
         "shell.\n");
    ht_print_wrapped("Exit status: " HT_EXIT_STATUS, 0, "", "", 80, stdout);
}

static const char features[] = ""
#ifdef HT_HAVE_MPI
                               ", MPI"
#endif
#ifdef HT_HAVE_CUDA
                               ", CUDA"
#endif
#ifdef HT_HAVE_GLPK
                               ", GLPK"
#endif
#ifdef HT_HAVE_URING
                               ", io_uring"
#endif
    ;

static void print_version(void)
{
    printf("hetbench %s (commit %s)\n", ht_version(), ht_built_commit());
    printf("built with: %s\n", *features ? features + 2 : "no optional library");
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

static const struct ht_command *find(const char *name)
{
    for (size_t i = 0; i < HT_COUNT(commands); i++)
        if (!strcmp(commands[i]->name, name)) return commands[i];
    return NULL;
}

static enum ht_status unknown(const char *name, struct ht_error *err)
{
    const char *names[HT_COUNT(commands)];
    for (size_t i = 0; i < HT_COUNT(commands); i++) names[i] = commands[i]->name;
    const char *near = ht_nearest(name, names, HT_COUNT(commands));
    const struct ht_system *system;
    struct ht_error not_one;
    if (!ht_system_find(name, &not_one, &system))
        return ht_fail(err, HT_BAD_INPUT, "'%s' is a system; expected a command before it, such as 'hetbench sim %s'",
                       name, name);
    if (near) return ht_fail(err, HT_BAD_INPUT, "unknown command '%s'; expected '%s'?", name, near);
    return ht_fail(err, HT_BAD_INPUT, "unknown command '%s'; hetbench --help lists those there are", name);
}

/* hetbench --man [COMMAND] */
static enum ht_status manual(int argc, char **argv, struct ht_error *err)
{
    if (argc < 3) {
        ht_manual_write(commands, HT_COUNT(commands), stdout);
        return HT_OK;
    }
    const struct ht_command *command = find(argv[2]);
    if (!command) return unknown(argv[2], err);
    ht_manual_write_command(command, stdout);
    return HT_OK;
}

/* hetbench help [COMMAND] */
static enum ht_status help_about(int argc, char **argv, struct ht_error *err)
{
    struct ht_options ignored;
    if (argc < 3) return help(), HT_OK;
    const struct ht_command *command = find(argv[2]);
    if (!command) return unknown(argv[2], err);
    char flag[] = "--help", *asked[] = {argv[0], argv[2], flag, NULL};
    return ht_options_parse(command, 3, asked, err, &ignored);
}

/* Answers what is asked of the program as a whole. */
static enum ht_status about(int argc, char **argv, struct ht_error *err)
{
    const char *what = argv[1];
    if (!strcmp(what, "--help") || !strcmp(what, "-h") || !strcmp(what, "help")) return help_about(argc, argv, err);
    if (!strcmp(what, "--version")) return print_version(), HT_OK;
    if (!strcmp(what, "--man")) return manual(argc, argv, err);
    if (strcmp(what, "--completion") != 0) return unknown(what, err);
    if (argc < 3) return ht_fail(err, HT_BAD_INPUT, "--completion needs a shell: bash or zsh");
    return ht_completion_write(argv[2], commands, HT_COUNT(commands), stdout, err);
}

enum ht_status ht_hetbench(int argc, char **argv, struct ht_error *err)
{
    json_set_alloc_funcs(ht_alloc, free); /* or documents lack members when memory runs out */
    if (argc < 2) return ht_fail(err, HT_BAD_INPUT, "a command is missing; hetbench --help lists them");
    const struct ht_command *command = find(argv[1]);
    if (!command) return about(argc, argv, err);
    struct ht_options options;
    enum ht_status status = ht_options_parse(command, argc, argv, err, &options);
    if (status != HT_OK || options.help) return status;
    /* Checks the files before anything is computed, so that no result is lost for a file that cannot be written. */
    status = ht_files_check(command, &options, err);
    if (status == HT_OK) status = ht_plot_check(options.plot, err);
    return status == HT_OK ? run(command, &options, err) : status;
}
