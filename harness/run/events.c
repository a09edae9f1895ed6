#include "harness/run/events.h"

#include "common/base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum ht_status ht_events_open(const char *path, struct ht_error *err, int *fd)
{
    *fd = -1;
    if (!path) return HT_OK;
    *fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
    if (*fd < 0) return ht_fail(err, HT_BAD_INPUT, "--events: %s: cannot be written: %s", path, strerror(errno));
    return HT_OK;
}

void ht_events_close(int fd)
{
    if (fd >= 0) close(fd);
}

void ht_events_say(int fd, const char *event, const char *members, ...)
{
    char line[512];
    va_list args;
    if (fd < 0) return;
    int n = snprintf(line, sizeof(line),
                     "{\"schema\": {\"name\": \"event\", \"version\": 1}, \"at_ns\": %lld, \"event\": \"%s\"",
                     (long long)ht_realtime_ns(), event);
    if (members && *members) {
        n += snprintf(line + n, sizeof(line) - (size_t)n, ", ");
        va_start(args, members);
        n += vsnprintf(line + n, sizeof(line) - (size_t)n, members, args);
        va_end(args);
    }
    if (n > (int)sizeof(line) - 3) n = (int)sizeof(line) - 3;
    line[n++] = '}';
    line[n++] = '\n';
    if (write(fd, line, (size_t)n) != n) return; /* whoever reads it misses a line; the training goes on */
}
