#include "harness/cli/manual.h"

#include "harness/cli/help.h"
#include "harness/result/provenance.h"

#include <string.h>

/* Writes text as roff shows it: '-' as typed, '\' as itself, and no line that begins as a request does. */
static void put(const char *text, FILE *out)
{
    for (const char *c = text; *c; c++) {
        if ((*c == '.' || *c == '\'') && (c == text || c[-1] == '\n')) fputs("\\&", out);
        if (*c == '\\')
            fputs("\\e", out);
        else if (*c == '-')
            fputs("\\-", out);
        else if (*c == '\'')
            fputs("\\(aq", out);
        else
            putc(*c, out);
    }
}

static void put_heading(const char *name, FILE *out)
{
    fprintf(out, ".TH %s 1 \"\" \"hetbench %s\" \"User Commands\"\n", name, ht_version());
    fputs(".nh\n.ad l\n.SH NAME\n", out); /* options are not to be hyphenated */
}

/* Writes an example, which is not filled. */
static void put_example(const char *example, FILE *out)
{
    fputs(".PP\n.nf\n.RS\n", out);
    put(example, out);
    fputs("\n.RE\n.fi\n", out);
}

static void put_options(const struct ht_command *command, FILE *out)
{
    struct ht_option option;
    char name[80];
    fputs(".SH OPTIONS\n", out);
    for (size_t section = 0; ht_help_section(section); section++) {
        int n = 0;
        for (size_t at = 0; ht_help_next(command, section, &at, &option);) {
            if (!n++) fprintf(out, ".SS %s\n", ht_help_section(section));
            ht_help_name(&option, name, sizeof(name));
            fputs(".TP\n.B ", out);
            put(name, out);
            putc('\n', out);
            put(option.help, out);
            putc('\n', out);
        }
    }
}

void ht_manual_write_command(const struct ht_command *command, FILE *out)
{
    char summary[512];
    ht_help_summary(command, summary, sizeof(summary));
    put_heading("HETBENCH", out);
    fprintf(out, "hetbench\\-%s \\- ", command->name);
    put(summary, out);
    fprintf(out, "\n.SH SYNOPSIS\n.B hetbench %s\n", command->name);
    if (command->args && *command->args) put(command->args, out), putc('\n', out);
    fputs("[OPTIONS]\n", out);
    if (ht_help_more(command)) {
        fputs(".SH DESCRIPTION\n", out);
        put(ht_help_more(command), out);
        putc('\n', out);
    }
    put_options(command, out);
    if (command->example) {
        fputs(".SH EXAMPLE\n", out);
        put_example(command->example, out);
    }
    fputs(".SH SEE ALSO\n.BR hetbench (1)\n", out);
}

void ht_manual_write(const struct ht_command *const *commands, size_t n, FILE *out)
{
    char text[512];
    put_heading("HETBENCH", out);
    fputs("hetbench \\- ", out);
    put(HT_TAGLINE, out);
    fputs("\n.SH SYNOPSIS\n.B hetbench\nCOMMAND [ARGUMENTS] [OPTIONS]\n.SH COMMANDS\n"
          "Each has a page of its own:\n.BR hetbench\\-sim (1)\nand so on.\n",
          out);
    for (size_t i = 0; i < n; i++) {
        fprintf(out, ".TP\n.B %s", commands[i]->name);
        if (commands[i]->args && *commands[i]->args) putc(' ', out), put(commands[i]->args, out);
        putc('\n', out);
        ht_help_summary(commands[i], text, sizeof(text));
        put(text, out);
        putc('\n', out);
    }
    fputs(".SH EXIT STATUS\n", out);
    put(HT_EXIT_STATUS, out);
    fputs("\n.SH EXAMPLES\n", out);
    for (size_t i = 0; i < n; i++)
        if (commands[i]->example) put_example(commands[i]->example, out);
}
