/*
 * Completion for bash and zsh. Values come from the option's table: "fp32|fp16|bf16" are words, FILE and DIR paths, and some
 * options name what `hetbench list` lists, which is built in and therefore written into the script.
 */
#include "common/base/array.h"
#include "common/hw/hw.h"
#include "harness/cli/commands.h"
#include "harness/cli/help.h"
#include "harness/cli/manual.h"

#include <ctype.h>
#include <string.h>

enum values { VALUES_NONE, VALUES_PATH, VALUES_WORDS, VALUES_NAMES };

/* Options whose values are names of a kind that `hetbench list` knows. */
static const struct {
    const char *option, *kind;
} named[] = {
    {"model", "models"},      {"models", "models"},     {"cluster", "clusters"}, {"clusters", "clusters"},
    {"systems", "systems"},   {"software", "software"}, {"gpus", "gpus"},        {"cpu", "cpus"},
    {"ssd", "ssds"},          {"link", "links"},        {"nvlink", "links"},     {"nic", "links"},
    {"policies", "policies"},
};

/* Arguments of commands that are such names, too. */
static const struct {
    const char *command, *kind;
} words[] = {
    {"plan", "systems"},    {"sim", "systems"},     {"verify", "systems"},         {"train", "systems"},
    {"elastic", "systems"}, {"maxsize", "systems"}, {"experiment", "experiments"},
};

static const char *kind_of(const char *option)
{
    for (size_t i = 0; i < HT_COUNT(named); i++)
        if (!strcmp(named[i].option, option)) return named[i].kind;
    return NULL;
}

static const char *kind_of_words(const char *command)
{
    for (size_t i = 0; i < HT_COUNT(words); i++)
        if (!strcmp(words[i].command, command)) return words[i].kind;
    return NULL;
}

/* Returns true for "fp32|fp16|bf16": words to choose from, and nothing that stands for another text. */
static bool is_choice(const char *arg)
{
    bool several = false;
    for (const char *c = arg; *c; c++) {
        if (*c == '|')
            several = true;
        else if (!islower((unsigned char)*c) && !isdigit((unsigned char)*c))
            return false;
    }
    return several;
}

static enum values values_of(const struct ht_option *o)
{
    if (!o->arg) return VALUES_NONE;
    if (kind_of(o->name)) return VALUES_NAMES;
    if (is_choice(o->arg)) return VALUES_WORDS;
    return strstr(o->arg, "FILE") || strstr(o->arg, "DIR") ? VALUES_PATH : VALUES_NONE;
}

/* Writes the words of a choice, with blanks between them. */
static void put_choice(const char *arg, FILE *out)
{
    for (; *arg; arg++) putc(*arg == '|' ? ' ' : *arg, out);
}

/* Writes an array of the shell for each kind that options or arguments name. */
static void put_names(FILE *out)
{
    static const char *const kinds[] = {"systems", "models",   "gpus",     "cpus",        "links",
                                        "ssds",    "clusters", "software", "experiments", "policies"};
    char name[HT_NAME_BYTES];
    for (size_t k = 0; k < HT_COUNT(kinds); k++) {
        fprintf(out, "_hetbench_%s='", kinds[k]);
        for (int64_t i = 0; ht_list_name(kinds[k], i, name); i++) fprintf(out, "%s%s", i ? " " : "", name);
        fputs("'\n", out);
    }
    fputs("_hetbench_kinds='", out);
    for (size_t k = 0; k < HT_COUNT(kinds); k++) fprintf(out, "%s ", kinds[k]);
    fputs("traces stores'\n", out);
}

/* ---- bash ------------------------------------------------------------------------------------------------------- */

/* Writes a case for each option of a command whose values are known. */
static void put_bash_values(const struct ht_command *command, FILE *out)
{
    struct ht_option o;
    for (size_t at = 0; ht_option_next(command, &at, &o);) {
        enum values values = values_of(&o);
        if (!o.arg) continue;
        fprintf(out, "        %s:--%s) ", command->name, o.name);
        if (values == VALUES_NAMES) fprintf(out, "names=$_hetbench_%s", kind_of(o.name));
        if (values == VALUES_WORDS) fputs("names='", out), put_choice(o.arg, out), putc('\'', out);
        if (values == VALUES_NONE) fputs("return", out);
        if (values == VALUES_NAMES && !strstr(o.arg, "FILE")) fputs(" paths=", out);
        if (values == VALUES_WORDS) fputs(" paths=", out);
        fputs(" ;;\n", out);
    }
}

static void put_bash(const struct ht_command *const *commands, size_t n, FILE *out)
{
    fputs("# Completion of hetbench for bash, made by hetbench --completion bash: source it.\n", out);
    put_names(out);
    fputs("_hetbench() {\n"
          "    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]} names= paths=yes prefix=\n"
          "    COMPREPLY=()\n"
          "    if [ \"$COMP_CWORD\" = 1 ]; then\n        mapfile -t COMPREPLY < <(compgen -W '",
          out);
    for (size_t i = 0; i < n; i++) fprintf(out, "%s ", commands[i]->name);
    fputs("--help --version' -- \"$word\")\n        return\n    fi\n", out);
    fputs("    if [[ $word == -* ]]; then\n        case ${COMP_WORDS[1]} in\n", out);
    for (size_t i = 0; i < n; i++) {
        struct ht_option o;
        fprintf(out, "        %s) names='", commands[i]->name);
        for (size_t at = 0; ht_option_next(commands[i], &at, &o);) fprintf(out, "--%s ", o.name);
        fputs("' ;;\n", out);
    }
    fputs("        esac\n        mapfile -t COMPREPLY < <(compgen -W \"$names\" -- \"$word\")\n        return\n    fi\n"
          "    case ${COMP_WORDS[1]}:$before in\n",
          out);
    for (size_t i = 0; i < n; i++) put_bash_values(commands[i], out);
    fputs("        list:list) names=$_hetbench_kinds paths= ;;\n        new:new) names='cluster model experiment' "
          "paths= ;;\n",
          out);
    for (size_t i = 0; i < n; i++)
        if (kind_of_words(commands[i]->name))
            fprintf(out, "        %s:*) names=$_hetbench_%s%s ;;\n", commands[i]->name,
                    kind_of_words(commands[i]->name), strstr(commands[i]->args, "FILE") ? "" : " paths=");
    fputs("    esac\n"
          "    if [[ $names && $word == *,* ]]; then prefix=${word%,*},; fi\n"
          "    mapfile -t COMPREPLY < <(compgen -W \"$names\" -P \"$prefix\" -- \"${word##*,}\")\n"
          "    if [[ $paths && ${#COMPREPLY[@]} = 0 ]]; then\n"
          "        compopt -o filenames 2>/dev/null # a folder gets a slash, and a name none\n"
          "        mapfile -t COMPREPLY < <(compgen -f -- \"$word\")\n"
          "    fi\n"
          "}\ncomplete -F _hetbench hetbench\n",
          out);
}

/* ---- zsh -------------------------------------------------------------------------------------------------------- */

/* Writes text inside '..' and [..] of an argument of _arguments. */
static void put_quoted(const char *text, FILE *out)
{
    for (; *text; text++) {
        if (strchr("[]:\\", *text)) putc('\\', out);
        fputs(*text == '\'' ? "'\\''" : (char[]){*text, '\0'}, out);
    }
}

static void put_zsh_option(const struct ht_option *o, FILE *out)
{
    enum values values = values_of(o);
    fprintf(out, " \\\n        '*--%s%s[", o->name, o->arg ? "=" : "");
    put_quoted(o->help, out);
    putc(']', out);
    if (o->arg) {
        putc(':', out);
        put_quoted(o->arg, out);
        putc(':', out);
    }
    if (values == VALUES_NAMES) fprintf(out, "_hetbench_names %s", kind_of(o->name));
    if (values == VALUES_WORDS) putc('(', out), put_choice(o->arg, out), putc(')', out);
    if (values == VALUES_PATH) fputs("_files", out);
    putc('\'', out);
}

static void put_zsh_command(const struct ht_command *command, FILE *out)
{
    struct ht_option o;
    const char *kind = kind_of_words(command->name);
    fprintf(out, "    %s) _arguments", command->name);
    for (size_t at = 0; ht_option_next(command, &at, &o);) put_zsh_option(&o, out);
    if (kind)
        fprintf(out, " \\\n        '*:%s:_hetbench_names %s'", kind, kind);
    else if (!strcmp(command->name, "list"))
        fputs(" \\\n        '1:kind:_hetbench_names kinds' '*:file:_files'", out);
    else if (!strcmp(command->name, "new"))
        fputs(" \\\n        '1:kind:(cluster model experiment)'", out);
    else
        fputs(" \\\n        '*:file:_files'", out);
    fputs(" ;;\n", out);
}

static void put_zsh(const struct ht_command *const *commands, size_t n, FILE *out)
{
    fputs("#compdef hetbench\n# Completion of hetbench for zsh, made by hetbench --completion zsh: put it on the fpath "
          "as "
          "_hetbench.\n",
          out);
    put_names(out);
    fputs("_hetbench_names() {\n"
          "    local list=_hetbench_${@[-1]}\n"
          "    local -a names=(${=${(P)list}})\n"
          "    _sequence compadd \"${@[1,-2]}\" - $names || _files\n}\n"
          "_hetbench() {\n    local -a commands=(\n",
          out);
    for (size_t i = 0; i < n; i++) {
        char summary[512];
        ht_help_summary(commands[i], summary, sizeof(summary));
        fprintf(out, "        '%s:", commands[i]->name);
        put_quoted(summary, out);
        fputs("'\n", out);
    }
    fputs("    )\n    if ((CURRENT == 2)); then\n        _describe command commands\n        return\n    fi\n"
          "    local command=$words[2]\n    words=(\"hetbench $command\" \"${(@)words[3,-1]}\")\n    ((CURRENT--))\n"
          "    case $command in\n",
          out);
    for (size_t i = 0; i < n; i++) put_zsh_command(commands[i], out);
    fputs("    esac\n}\nif [[ $funcstack[1] == _hetbench ]]; then _hetbench \"$@\"; else compdef _hetbench hetbench; "
          "fi\n",
          out);
}

enum ht_status ht_completion_write(const char *shell, const struct ht_command *const *commands, size_t n, FILE *out,
                                   struct ht_error *err)
{
    if (!strcmp(shell, "bash"))
        put_bash(commands, n, out);
    else if (!strcmp(shell, "zsh"))
        put_zsh(commands, n, out);
    else
        return ht_fail(err, HT_BAD_INPUT, "--completion: unknown shell '%s'; expected bash or zsh", shell);
    return HT_OK;
}
