#include "common/base/interrupt.h"
#include "harness/cli/commands.h"
#include "harness/run/output.h"

#include <stdio.h>

int main(int argc, char **argv)
{
    struct ht_error err = {0};
    ht_interrupt_install();
    enum ht_status status = ht_hetbench(argc, argv, &err);
    status = ht_flush_stdout(status, &err);
    if (status != HT_OK) fprintf(stderr, "hetbench: %s\n", err.text[0] ? err.text : "failed without a reason");
    return (int)status;
}
