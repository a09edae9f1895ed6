#include "common/base/interrupt.h"
#include "common/base/terminal.h"
#include "common/comm/launch.h"
#include "harness/cli/commands.h"
#include "harness/run/output.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Opens the standard streams that are closed, or the next file would get their numbers, and lines for people. Writing to them fails. */
static void fill_streams(void)
{
    int fd;
    while ((fd = open("/dev/null", O_RDONLY)) >= 0 && fd <= STDERR_FILENO) {
    }
    if (fd > STDERR_FILENO) close(fd);
}

/* Prints the error in one piece: what starts the ranks writes to the same stream. */
static void print_error(const struct ht_error *err)
{
    char *text = NULL;
    size_t n = 0;
    FILE *f = open_memstream(&text, &n);
    int at = fprintf(f, "hetbench: ");
    ht_print_wrapped(err->text[0] ? err->text : "failed without a reason", at, "  ", "", ht_terminal_columns(), f);
    fclose(f);
    fwrite(text, 1, n, stderr);
    free(text);
}

int main(int argc, char **argv)
{
    struct ht_error err = {0};
    fill_streams();
    if (argc > 3 && !strcmp(argv[1], HT_LAUNCH_GUARD)) return ht_launch_guard(argv + 2);
    if (argc > 3 && !strcmp(argv[1], HT_LAUNCH_LOCAL)) return ht_launch_local(argv + 2);
    ht_interrupt_install();
    enum ht_status status = ht_hetbench(argc, argv, &err);
    status = ht_flush_stdout(status, &err);
    if (status != HT_OK) print_error(&err);
    return (int)status;
}
