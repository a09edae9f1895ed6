#include "common/comm/host_slots.h"

#include "common/base/array.h"

#include <ctype.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define BLANKS " \t\r\f\v"

enum { MOST_BYTES = 256 << 10, MOST_HOSTS = 4096, MOST_SLOTS = 4096, NAME_BYTES = 256, FROM_CORES = -1 };

struct host {
    char name[NAME_BYTES];
    int64_t slots; /* FROM_CORES: a line without slots */
    bool given;    /* by slots=N */
};

struct hosts {
    struct host *list;
    size_t n, cap;
};

/* Returns true if n characters can be a host's name: never an option of ssh. */
static bool is_name(const char *p, size_t n)
{
    bool ok = n > 0 && n < NAME_BYTES && isalnum((unsigned char)p[0]);
    for (size_t i = 1; i < n && ok; i++) ok = isalnum((unsigned char)p[i]) || (p[i] && strchr("._-", p[i]));
    return ok;
}

enum ht_status ht_host_slots_parse(const char *list, struct ht_error *err, struct ht_host_slots *out)
{
    int64_t slots = 0;
    for (const char *p = list, *end; *p || p == list; p = end + (*end == ',')) {
        end = p + strcspn(p, ",");
        size_t name = strcspn(p, ":,");
        char *rest = (char *)p + name;
        long n = *rest == ':' ? strtol(rest + 1, &rest, 10) : 1;
        if (rest != end || n < 1 || n > MOST_SLOTS || !is_name(p, name) || (*end == ',' && !end[1]))
            return ht_fail(err, HT_BAD_INPUT, "--hosts: '%s': expected names and slots, such as a:2,b:2", list);
        slots += n;
    }
    *out = (struct ht_host_slots){.list = ht_strdup(list), .slots = slots};
    return HT_OK;
}

/* ---- host files ------------------------------------------------------------------------------------------------- */

/* Reads the whole file into *text, with a zero behind it. The caller frees it, also after an error. */
static enum ht_status read_text(const char *path, struct ht_error *err, char **text, size_t *n)
{
    static const char expected[] = "expected a host file, with lines such as 'a slots=2'";
    struct stat sb;
    FILE *f = NULL;
    enum ht_status status = HT_OK;
    *text = HT_NEW_ARRAY(char, MOST_BYTES + 2);
    if (stat(path, &sb) == 0) {
        if (!S_ISREG(sb.st_mode) && !S_ISFIFO(sb.st_mode))
            return ht_fail(err, HT_BAD_INPUT, "%s: is neither a file nor a pipe; %s", path, expected);
        f = fopen(path, "re");
    }
    if (!f) return ht_fail(err, HT_BAD_INPUT, "%s: cannot be read: %s; %s", path, strerror(errno), expected);
    *n = fread(*text, 1, MOST_BYTES + 1, f);
    if (ferror(f))
        status = ht_fail(err, HT_BAD_INPUT, "%s: cannot be read: %s; %s", path, strerror(errno), expected);
    else if (*n > MOST_BYTES)
        status = ht_fail(err, HT_BAD_INPUT, "%s: is larger than %d kB; %s", path, MOST_BYTES >> 10, expected);
    fclose(f);
    return status;
}

/* Returns the host of this name, new ones with slots 0; NULL when there are too many. */
static struct host *find_host(struct hosts *hosts, const char *name, size_t n)
{
    for (size_t i = 0; i < hosts->n; i++)
        if (!strncmp(hosts->list[i].name, name, n) && !hosts->list[i].name[n]) return &hosts->list[i];
    if (hosts->n == MOST_HOSTS) return NULL;
    struct host host = {0};
    memcpy(host.name, name, n);
    HT_PUSH(hosts->list, hosts->n, hosts->cap, host);
    return &hosts->list[hosts->n - 1];
}

/* Reads "slots = 2". Returns what follows, or NULL. */
static const char *read_value(const char *p, size_t key, long *value)
{
    char *end = NULL;
    p += key + strspn(p + key, BLANKS);
    if (*p++ != '=') return NULL;
    p += strspn(p, BLANKS);
    if (!isdigit((unsigned char)*p)) return NULL;
    *value = strtol(p, &end, 10);
    return *value >= 1 && *value <= MOST_SLOTS && (!*end || strchr(BLANKS, *end)) ? end : NULL;
}

/* Reads what follows the name: slots=N, max_slots=N. 0: not given. */
static enum ht_status read_slots(const char *where, const char *p, struct ht_error *err, long *slots, long *most)
{
    *slots = *most = 0;
    for (p += strspn(p, BLANKS); *p; p += strspn(p, BLANKS)) {
        size_t n = strcspn(p, BLANKS "=");
        bool is_most = n == 9 && (!strncmp(p, "max_slots", n) || !strncmp(p, "max-slots", n));
        long *value = is_most ? most : n == 5 && !strncmp(p, "slots", n) ? slots : NULL;
        const char *end = value ? read_value(p, n, value) : NULL;
        if (!end)
            return ht_fail(err, HT_BAD_INPUT,
                           "%s: '%.100s' is not understood; expected slots=N or max_slots=N, N 1 to %d", where, p,
                           MOST_SLOTS);
        p = end;
    }
    if (*most && !*slots)
        return ht_fail(err, HT_BAD_INPUT, "%s: max_slots without slots; expected slots=N beside it", where);
    if (*most && *most < *slots)
        return ht_fail(err, HT_BAD_INPUT, "%s: max_slots %ld is less than slots %ld; expected at least as many", where,
                       *most, *slots);
    return HT_OK;
}

/* Reads a line, whose comment is cut off. */
static enum ht_status read_line(const char *where, const char *line, struct ht_error *err, struct hosts *hosts)
{
    const char *name = line + strspn(line, BLANKS);
    size_t n = strcspn(name, BLANKS);
    long slots, most;
    if (!*name) return HT_OK;
    if (!is_name(name, n))
        return ht_fail(err, HT_BAD_INPUT,
                       "%s: '%.*s' is not a host's name; expected lines such as 'a slots=2' (users are ssh's to know: "
                       "~/.ssh/config)",
                       where, (int)(n < 100 ? n : 100), name);
    enum ht_status status = read_slots(where, name + n, err, &slots, &most);
    struct host *h = status ? NULL : find_host(hosts, name, n);
    if (status) return status;
    if (!h) return ht_fail(err, HT_BAD_INPUT, "%s: more than %d hosts; expected fewer", where, MOST_HOSTS);
    bool again = h->slots != 0;
    if (again && (h->given || slots))
        return ht_fail(err, HT_BAD_INPUT, "%s: host %s is listed again; expected one line with its slots", where,
                       h->name);
    h->given = slots != 0;
    h->slots = slots ? slots : !again ? FROM_CORES : h->slots == FROM_CORES ? 2 : h->slots + 1;
    return HT_OK;
}

/* Writes the hosts as mpirun takes them. */
static struct ht_host_slots list_of(const struct hosts *hosts)
{
    struct ht_host_slots out = {0};
    size_t n = 0, cap = 0;
    for (size_t i = 0; i < hosts->n; i++) {
        const struct host *h = &hosts->list[i];
        HT_RESERVE(out.list, cap, n + NAME_BYTES + 32);
        n += (size_t)snprintf(out.list + n, cap - n, "%s%s:", i ? "," : "", h->name);
        if (h->slots == FROM_CORES)
            n += (size_t)snprintf(out.list + n, cap - n, "auto");
        else
            n += (size_t)snprintf(out.list + n, cap - n, "%lld", (long long)h->slots);
        out.slots = out.slots < 0 || h->slots < 0 ? -1 : out.slots + h->slots;
    }
    return out;
}

enum ht_status ht_host_slots_read(const char *path, struct ht_error *err, struct ht_host_slots *out)
{
    struct hosts hosts = {0};
    char *text, where[4200];
    size_t n = 0, line = 1;
    enum ht_status status = read_text(path, err, &text, &n);
    for (char *p = text, *end; status == HT_OK && p < text + n; p = end + 1, line++) {
        end = memchr(p, '\n', (size_t)(text + n - p));
        if (!end) end = text + n;
        *end = '\0';
        snprintf(where, sizeof(where), "%.4096s:%zu", path, line);
        if (strlen(p) < (size_t)(end - p))
            status = ht_fail(err, HT_BAD_INPUT, "%s: has a zero byte; expected text", where);
        p[strcspn(p, "#")] = '\0';
        if (status == HT_OK) status = read_line(where, p, err, &hosts);
    }
    if (status == HT_OK && !hosts.n)
        status = ht_fail(err, HT_BAD_INPUT, "%s: names no host; expected lines such as 'a slots=2'", path);
    if (status == HT_OK) *out = list_of(&hosts);
    free(hosts.list);
    free(text);
    return status;
}

void ht_host_slots_free(struct ht_host_slots *h)
{
    free(h->list);
    *h = (struct ht_host_slots){0};
}
