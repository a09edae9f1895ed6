#include "harness/result/provenance.h"

#include "common/base/text.h"
#include "common/base/units.h"

#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Appends a word, in single quotes when a shell would read it differently. */
static void append_word(char *buf, size_t n, const char *word)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=./,:@%";
    size_t at = strlen(buf);
    if (at && at + 1 < n) buf[at++] = ' ';
    bool quote = !*word || word[strspn(word, plain)];
    if (quote && at + 1 < n) buf[at++] = '\'';
    for (; *word && at + 6 < n; word++) {
        if (*word == '\'')
            at += (size_t)snprintf(buf + at, n - at, "'\\''");
        else
            buf[at++] = *word;
    }
    if (quote && at + 1 < n) buf[at++] = '\'';
    buf[at] = '\0';
}

const char *ht_command_line(char *buf, size_t n)
{
    static const char cmdline[] = "/proc/self/cmdline";
    char words[16384];
    buf[0] = '\0';
    FILE *in = fopen(cmdline, "r");
    size_t bytes = in ? fread(words, 1, sizeof(words) - 1, in) : 0;
    if (in) fclose(in);
    words[bytes] = '\0';
    for (size_t i = 0; i < bytes; i += strlen(words + i) + 1) append_word(buf, n, words + i);
    return buf;
}

/* Stands for the program's own, which hetbench alone is linked with (cmake/commit.cmake). */
__attribute__((weak)) const char *ht_built_commit(void)
{
    return "unknown";
}

const char *ht_version(void)
{
    return HT_VERSION;
}

static void machine(char *buf, size_t n)
{
    char line[512], model[256] = "unknown processor", memory[HT_QUANTITY_TEXT] = "";
    FILE *in = fopen("/proc/cpuinfo", "r");
    while (in && fgets(line, sizeof(line), in))
        if (sscanf(line, "model name : %255[^\n]", model) == 1) break;
    if (in) fclose(in);
    cpu_set_t cpus;
    int n_cpus = sched_getaffinity(0, sizeof(cpus), &cpus) == 0 ? CPU_COUNT(&cpus) : 1;
    double bytes = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGE_SIZE);
    snprintf(buf, n, "%s, %d cores, %s", model, n_cpus, ht_format_quantity(HT_BYTES, bytes, memory));
}

json_t *ht_json_text(const char *text)
{
    char shown[8192];
    json_t *string = json_string(text);
    return string ? string : json_string(ht_shown(text, shown, sizeof(shown)));
}

json_t *ht_provenance_json(void)
{
    char command[8192], where[512];
    machine(where, sizeof(where));
    return json_pack("{s:o,s:s,s:s,s:s}", "command", ht_json_text(ht_command_line(command, sizeof(command))), "version",
                     ht_version(), "commit", ht_built_commit(), "machine", where);
}

void ht_provenance_add(json_t *root)
{
    json_t *from = ht_provenance_json();
    json_object_update(root, from);
    json_decref(from);
}
