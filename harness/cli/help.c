#include "harness/cli/help.h"

#include "common/base/array.h"
#include "common/base/terminal.h"

#include <stdio.h>
#include <string.h>

/* The headings of the help, in their order. A row is under the first that names a group of both row and command. */
static const struct {
    unsigned groups;
    const char *title;
} sections[] = {
    {HT_OPT_MODEL | HT_OPT_LOAD | HT_OPT_SCENARIO | HT_OPT_SHAPE | HT_OPT_PARTS, "Scenario:"},
    {HT_OPT_SIM | HT_OPT_REPLAY, "Simulation:"},
    {HT_OPT_COMPARE | HT_OPT_ADVISE, "Comparison:"},
    {HT_OPT_MAXSIZE, "Sizes:"},
    {HT_OPT_TRAIN | HT_OPT_LAUNCH, "Training:"},
    {HT_OPT_ELASTIC, "Nodes:"},
    {HT_OPT_RESHARD | HT_OPT_CHECK, "Stores:"},
    {HT_OPT_PROFILE, "Measuring:"},
    {HT_OPT_DAY | HT_OPT_SPOT, "The day:"},
    {HT_OPT_ANY, "Output:"},
};

enum { HELP_WIDTH = 80, HELP_NAMES = 26 };

static int help_width(void)
{
    int columns = ht_terminal_columns();
    return columns ? columns : HELP_WIDTH;
}

static size_t section_of(const struct ht_option *option, const struct ht_command *command)
{
    size_t section = 0;
    if (option->groups == HT_OPT_ANY) return HT_COUNT(sections) - 1;
    while (!(sections[section].groups & option->groups & command->groups)) section++;
    return section;
}

const char *ht_help_section(size_t section)
{
    return section < HT_COUNT(sections) ? sections[section].title : NULL;
}

bool ht_help_next(const struct ht_command *command, size_t section, size_t *at, struct ht_option *out)
{
    while (ht_option_next(command, at, out))
        if (section_of(out, command) == section) return true;
    return false;
}

void ht_help_name(const struct ht_option *option, char *buf, size_t n)
{
    snprintf(buf, n, "%s--%s%s%s", strcmp(option->name, "help") ? "" : "-h, ", option->name, option->arg ? " " : "",
             option->arg ? option->arg : "");
}

const char *ht_help_more(const struct ht_command *command)
{
    const char *more = strchr(command->help, '\v');
    return more ? more + 1 : NULL;
}

void ht_help_summary(const struct ht_command *command, char *buf, size_t n)
{
    snprintf(buf, n, "%.*s", (int)strcspn(command->help, "\v"), command->help);
}

void ht_help_print_row(const char *name, const char *text)
{
    char indent[HELP_NAMES + 1];
    int used = printf("  %-*s", HELP_NAMES - 4, name);
    snprintf(indent, sizeof(indent), "%*s", HELP_NAMES, "");
    if (used > HELP_NAMES - 2) putchar('\n'), used = 0;
    printf("%*s", HELP_NAMES - used, "");
    ht_print_wrapped(text, HELP_NAMES, indent, "", help_width(), stdout);
}

static void print_section(const struct ht_command *command, size_t section)
{
    struct ht_option option;
    char name[80];
    int n = 0;
    for (size_t at = 0; ht_help_next(command, section, &at, &option);) {
        if (!n++) printf("\n %s\n", sections[section].title);
        ht_help_name(&option, name, sizeof(name));
        ht_help_print_row(name, option.help);
    }
}

void ht_help_print(const struct ht_command *command)
{
    const char *more = ht_help_more(command);
    char summary[512];
    ht_help_summary(command, summary, sizeof(summary));
    printf("Usage: hetbench %s %s%s[OPTIONS]\n", command->name, command->args ? command->args : "",
           command->args ? " " : "");
    ht_print_wrapped(summary, 0, "", "", help_width(), stdout);
    if (command->example) {
        printf("\nExample:\n  ");
        ht_print_wrapped(command->example, 2, "    ", " \\", help_width(), stdout);
    }
    for (size_t section = 0; section < HT_COUNT(sections); section++) print_section(command, section);
    if (!more) return;
    putchar('\n');
    ht_print_wrapped(more, 0, "", "", help_width(), stdout);
}
