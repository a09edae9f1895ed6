/*
 * Starts a program's ranks over several hosts: mpirun's own way, with what it prints turned into one line.
 *
 *     launcher  -- stderr --  mpirun  --  ssh, or a resource manager  --  ranks
 *
 * mpirun ends all ranks when one fails or a host is lost, and when the launcher dies. What ranks write to standard
 * error passes through; mpirun's own messages are held: blocks between lines of dashes, and lines that begin with
 * "[host:pid]". When all have ended, one line says why: the rank that was killed, the host that was lost, else what a
 * rank said, else what mpirun said.
 *
 * mpirun starts the hosts' daemons through guards (launch_guard.c), which say how far each host has come. A start that
 * does not go on for some seconds is ended, and the line names the host that it waited for.
 */
#include "common/base/array.h"
#include "common/base/clock.h"
#include "common/base/interrupt.h"
#include "common/comm/launch.h"
#include "common/comm/launch_command.h"
#include "common/comm/launch_message.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    TEXT = 8192,
    LINE = 2048,
    SAID = 900,
    MIN_DASHES = 10,
    GRACE_S = 5,
    NAME = 64,
    FEW = 3,
    SILENT_MS = 5000,
    LOOKS_MS = 500
};

/* Hosts that have come so far, in the order of their coming. */
struct names {
    char (*names)[NAME];
    size_t n, cap;
};

struct output {
    char line[LINE]; /* not ended yet */
    size_t n;
    bool late;                       /* the start did not go on */
    bool begun;                      /* the ranks have */
    int64_t silent_ms;               /* since when a host has not acknowledged an interrupt; 0: it has */
    char silent[256];                /* the host that was given up for that */
    struct names reached, connected; /* before that: hosts whose guard began, whose daemon has found mpirun */
    int64_t moved_ms;                /* when the start last went on */
    bool framed;                     /* inside a block of mpirun's */
    char mpirun[TEXT];               /* what it printed, as one line */
    size_t n_mpirun;
    char noted[SAID]; /* the first line that it signed */
    char said[SAID];  /* first error line of a rank, without "hetbench: " */
};

/* Adds mpirun's text, with single spaces between words. */
static void keep(struct output *o, const char *line)
{
    for (const char *p = line; *p && o->n_mpirun + 2 < TEXT; p++) {
        bool space = isspace((unsigned char)*p) || iscntrl((unsigned char)*p);
        if (!space)
            o->mpirun[o->n_mpirun++] = *p;
        else if (o->n_mpirun && o->mpirun[o->n_mpirun - 1] != ' ')
            o->mpirun[o->n_mpirun++] = ' ';
    }
    if (o->n_mpirun && o->mpirun[o->n_mpirun - 1] != ' ') o->mpirun[o->n_mpirun++] = ' ';
    o->mpirun[o->n_mpirun] = '\0';
}

/* Returns true if a line begins as mpirun's own do: "[host:00123] ". */
static bool is_signed(const char *line)
{
    const char *colon = strchr(line, ':'), *end = strchr(line, ']');
    return line[0] == '[' && colon && end && colon < end && isdigit((unsigned char)colon[1]);
}

/* Adds the host that a guard's line names. Returns false for other lines. */
static bool take_name(struct output *o, struct names *names, const char *prefix)
{
    if (strncmp(o->line, prefix, strlen(prefix))) return false;
    HT_RESERVE(names->names, names->cap, names->n + 1);
    snprintf(names->names[names->n++], NAME, "%.63s", o->line + strlen(prefix));
    o->moved_ms = ht_now_ms();
    return true;
}

static void take_line(struct output *o, char end)
{
    const char *prefix = "hetbench: ", *warning = "hetbench: warning: ";
    o->line[o->n] = '\0';
    o->n = 0;
    if (take_name(o, &o->reached, HT_LAUNCH_REACHED) || take_name(o, &o->connected, HT_LAUNCH_CONNECTED)) return;
    if (strspn(o->line, "-") >= MIN_DASHES)
        o->framed = !o->framed;
    else if (!strcmp(o->line, HT_LAUNCH_BEGUN_LINE))
        o->begun = true;
    else if (!strncmp(o->line, prefix, strlen(prefix)) && strncmp(o->line, warning, strlen(warning))) {
        if (!o->said[0]) snprintf(o->said, SAID, "%.890s", o->line + strlen(prefix));
    } else if (o->framed) {
        keep(o, o->line);
    } else if (is_signed(o->line)) {
        if (!o->noted[0]) snprintf(o->noted, SAID, "%.890s", o->line);
    } else {
        fprintf(stderr, "%s%c", o->line, end);
    }
}

/* Reads what there is. Returns false at the end. */
static bool read_output(struct output *o, int fd)
{
    char text[4096];
    ssize_t got = read(fd, text, sizeof(text));
    if (got < 0) return errno == EAGAIN || errno == EINTR;
    for (ssize_t i = 0; i < got; i++) {
        bool ends = text[i] == '\n' || text[i] == '\r';
        if (!ends) o->line[o->n++] = text[i];
        if (ends || o->n + 1 == LINE) take_line(o, text[i]);
    }
    return got > 0;
}

/* Copies the word behind `before`, if mpirun printed it. */
static bool word_after(const char *text, const char *before, char *out, size_t cap)
{
    const char *p = strstr(text, before);
    if (p) snprintf(out, cap, "%.*s", (int)strcspn(p + strlen(before), " ,;."), p + strlen(before));
    return p && *out;
}

/* Returns true if the first n characters of `name` are one of the names, or one up to its first dot. */
static bool has_name(const struct names *names, const char *name, size_t n)
{
    for (size_t i = 0; i < names->n; i++) {
        size_t whole = strlen(names->names[i]), part = strcspn(names->names[i], ".");
        if (!strncmp(names->names[i], name, n) && (n == whole || n == part)) return true;
        if (whole < n && name[whole] == '.' && !strncmp(names->names[i], name, whole)) return true;
    }
    return false;
}

/* Appends a host: "b", "b or c". */
static void add_host(char *out, size_t cap, const char *name, size_t n)
{
    size_t at = strlen(out);
    snprintf(out + at, cap - at, "%s%.*s", at ? " or " : "", (int)n, name);
}

/* Writes the hosts that the start waited for: those that were not reached; when all were, those whose daemons have not
   found mpirun. hosts: ht_host_slots'. Returns false if that says nothing: there are many, or hosts call themselves
   otherwise. */
static bool find_missing(const struct output *o, const char *hosts, char *out, size_t cap)
{
    size_t n_missing = 0, n_hosts = 0;
    out[0] = '\0';
    for (const char *p = hosts; *p; n_hosts++) {
        size_t n = strcspn(p, ":,");
        if (!has_name(&o->reached, p, n)) add_host(out, cap, p, n), n_missing++;
        p += strcspn(p, ",");
        if (*p) p++;
    }
    if (o->reached.n < n_hosts) return n_missing && n_missing <= FEW && o->reached.n + n_missing == n_hosts;
    out[0] = '\0';
    for (size_t i = 0; i < o->reached.n; i++) {
        const char *name = o->reached.names[i];
        if (!has_name(&o->connected, name, strlen(name))) add_host(out, cap, name, strlen(name));
    }
    return out[0] != '\0';
}

/* Returns true if something that was sent to the host is retransmitted again and again. */
static bool is_silent(const char *name)
{
    struct addrinfo hints = {.ai_family = AF_INET, .ai_socktype = SOCK_STREAM}, *found = NULL;
    char line[512];
    bool silent = false;
    FILE *f = getaddrinfo(name, NULL, &hints, &found) == 0 ? fopen("/proc/net/tcp", "re") : NULL;
    while (f && !silent && fgets(line, sizeof(line), f)) {
        unsigned address, retransmits;
        if (sscanf(line, " %*d: %*x:%*x %x:%*x %*x %*x:%*x %*x:%*x %x", &address, &retransmits) != 2) continue;
        for (const struct addrinfo *a = found; a; a = a->ai_next)
            silent |=
                retransmits >= 2 && ((const struct sockaddr_in *)(const void *)a->ai_addr)->sin_addr.s_addr == address;
    }
    if (f) fclose(f);
    if (found) freeaddrinfo(found);
    return silent;
}

/* Writes the hosts that do not acknowledge what they are sent. Returns false if there are none, or many. */
static bool find_silent(const char *hosts, char *out, size_t cap)
{
    size_t n_silent = 0;
    char name[256];
    out[0] = '\0';
    for (const char *p = hosts; *p && n_silent <= FEW;) {
        snprintf(name, sizeof(name), "%.*s", (int)strcspn(p, ":,"), p);
        if (is_silent(name)) add_host(out, cap, name, strlen(name)), n_silent++;
        p += strcspn(p, ",");
        if (*p) p++;
    }
    return n_silent && n_silent <= FEW;
}

/* Copies the host that mpirun gives the rank to: each of "a:2,b:2" takes as many as it has slots. Returns false if a
   host's are not known. */
static bool find_host_of(const char *hosts, long rank, char *out, size_t cap)
{
    for (const char *p = hosts; *p;) {
        size_t n = strcspn(p, ":,");
        long slots = p[n] == ':' ? strtol(p + n + 1, NULL, 10) : 0;
        if (slots < 1) return false;
        snprintf(out, cap, "%.*s", (int)n, p);
        if ((rank -= slots) < 0) return true;
        p += strcspn(p, ",");
        if (*p) p++;
    }
    return false;
}

static void lose(struct ht_launch_loss *loss, int32_t rank, const char *host)
{
    loss->rank = rank;
    snprintf(loss->host, sizeof(loss->host), "%s", host);
}

/* Describes a rank that died before MPI knew it: mpirun then says its number and 128 plus the signal, and no host. */
static bool died_early(const struct output *o, const char *hosts, struct ht_launch_loss *loss, struct ht_error *err)
{
    const char *name = strstr(o->mpirun, "Process name: [["), *end = name ? strstr(name, "],") : NULL,
               *code = name ? strstr(name, "Exit code: ") : NULL;
    char host[256];
    long signal = code ? strtol(code + strlen("Exit code: "), NULL, 10) - 128 : 0;
    if (!end || signal <= 0 || !find_host_of(hosts, strtol(end + 2, NULL, 10), host, sizeof(host))) return false;
    lose(loss, (int32_t)strtol(end + 2, NULL, 10), host);
    ht_fail(err, HT_FAILED, "rank %ld on host %s was killed by signal %ld, which ends all of them",
            strtol(end + 2, NULL, 10), host, signal);
    return true;
}

/* Returns why the job ended, from mpirun's exit status and what was printed. */
static enum ht_status outcome(const struct output *o, int waited, const char *hosts, int64_t start_s,
                              struct ht_launch_loss *loss, struct ht_error *err)
{
    int code = WIFEXITED(waited) ? WEXITSTATUS(waited) : -1;
    char rank[32], host[256], signal[32];
    const char *noticed = strstr(o->mpirun, "mpirun noticed that process rank"),
               *lost = strstr(o->mpirun, "lost communication with a remote daemon");
    if (code == 0) return HT_OK;
    if (o->silent[0]) {
        if (!strstr(o->silent, " or ")) lose(loss, -1, o->silent);
        return ht_fail(err, HT_FAILED, "host %s was lost, which ends all ranks", o->silent);
    }
    if (code == 127) return ht_fail(err, HT_INFEASIBLE, "mpirun is not installed (Debian: openmpi-bin)");
    if (lost && (lost = strstr(lost, "Remote daemon")) && word_after(lost, "on node ", host, sizeof(host)))
        return lose(loss, -1, host), ht_fail(err, HT_FAILED, "host %s was lost, which ends all ranks", host);
    if (noticed && word_after(noticed, "process rank ", rank, sizeof(rank)) &&
        word_after(noticed, "on node ", host, sizeof(host)) &&
        word_after(noticed, "exited on signal ", signal, sizeof(signal)))
        return lose(loss, (int32_t)strtol(rank, NULL, 10), host),
               ht_fail(err, HT_FAILED, "rank %s on host %s was killed by signal %s, which ends all of them", rank, host,
                       signal);
    bool known = code == HT_FAILED || code == HT_BAD_INPUT || code == HT_INFEASIBLE || code == HT_INTERRUPTED;
    if (ht_interrupt_count()) return ht_fail(err, HT_INTERRUPTED, "%s", o->said[0] ? o->said : "interrupted");
    if (o->said[0]) return ht_fail(err, known ? (enum ht_status)code : HT_FAILED, "%s", o->said);
    bool names_it = !o->begun && (find_missing(o, hosts, host, sizeof(host)) || find_silent(hosts, host, sizeof(host)));
    if (names_it && !strstr(host, " or ")) lose(loss, -1, host);
    if (strstr(o->mpirun, "unable to reliably start"))
        return ht_fail(
            err, HT_FAILED,
            "mpirun cannot start its daemon on %s%s: expected ssh to each without a password, and Open MPI and "
            "this program under the same paths there",
            names_it ? "host " : "a host", names_it ? host : "");
    if (o->late && names_it)
        return ht_fail(err, HT_FAILED, "host %s was lost, or did not start within %lld s (--start-timeout)", host,
                       (long long)start_s);
    if (o->late)
        return ht_fail(err, HT_FAILED,
                       "the ranks' start did not go on for %lld s: a host may have been lost (--start-timeout)",
                       (long long)start_s);
    if (died_early(o, hosts, loss, err)) return HT_FAILED;
    const char *why = o->n_mpirun ? o->mpirun : o->noted;
    if (code < 0)
        return ht_fail(err, HT_FAILED, "mpirun was killed by signal %d, which ends all ranks", WTERMSIG(waited));
    return ht_fail(err, HT_FAILED, "mpirun ended with status %d%s%.800s", code, *why ? ": " : "", why);
}

/* Sets what a user may set otherwise, in the environment or in Open MPI's own files of parameters. */
static void set_defaults(int64_t start_s)
{
    static const char *const defaults[][2] = {
        {"OMPI_MCA_pml", "ob1"},                              /* others have too few tags */
        {"OMPI_MCA_btl_vader_single_copy_mechanism", "none"}, /* needs no right to read other processes */
        {"OMPI_MCA_mpi_yield_when_idle", "1"},
        {"OMPI_MCA_plm_rsh_num_concurrent", "4096"}, /* a guard holds its ssh until its daemon is connected */
        {"SLURM_OVERLAP", "1"}, /* a step that lost a node keeps the others busy until Slurm has missed it */
        {"OMPI_MCA_oob_tcp_keepalive_time", "5"}, /* a host without power is missed after 8 s, not after 8 minutes */
        {"OMPI_MCA_oob_tcp_keepalive_intvl", "1"},
        {"OMPI_MCA_oob_tcp_keepalive_probes", "3"}};
    for (size_t i = 0; i < HT_COUNT(defaults); i++) setenv(defaults[i][0], defaults[i][1], 0);
    char self[4096], agent[4200];
    ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
    self[n > 0 ? n : 0] = '\0';
    snprintf(agent, sizeof(agent), "%s " HT_LAUNCH_GUARD " %lld orted", self, (long long)start_s);
    bool plain = n > 0; /* a shell reads it, and splits it at spaces */
    for (const char *p = self; *p; p++) plain = plain && (isalnum((unsigned char)*p) || strchr("/._-+,@", *p));
    if (plain) setenv("OMPI_MCA_orte_launch_agent", agent, 0);
#ifdef __SANITIZE_ADDRESS__
    setenv("LSAN_OPTIONS", "detect_leaks=0", 0); /* MPI never frees its memory */
#endif
}

static _Noreturn void become_mpirun(char **words, int output, pid_t launcher, int64_t start_s)
{
    const int signals[] = {SIGINT, SIGTERM, SIGHUP, SIGPIPE};
    for (size_t i = 0; i < HT_COUNT(signals); i++) signal(signals[i], SIG_DFL);
    setsid(); /* a terminal's Ctrl-C reaches the launcher alone, which passes it on */
    prctl(PR_SET_PDEATHSIG, (unsigned long)SIGTERM);
    if (getppid() != launcher) _exit(HT_FAILED);
    set_defaults(start_s);
    int null = open("/dev/null", O_RDONLY);
    if (null >= 0) dup2(null, STDIN_FILENO);
    dup2(output, STDERR_FILENO);
    execvp(words[0], words);
    _exit(errno == ENOENT ? 127 : 126);
}

/* Kills what mpirun has left of its session: ssh to a host that is lost may wait for it for hours. */
static void end_session(pid_t mpirun)
{
    DIR *proc = opendir("/proc");
    for (struct dirent *d; proc && (d = readdir(proc)) != NULL;) {
        pid_t pid = (pid_t)strtol(d->d_name, NULL, 10);
        if (pid > 0 && getsid(pid) == mpirun) kill(pid, SIGKILL);
    }
    if (proc) closedir(proc);
}

/* Returns true if a host has not acknowledged for too long what mpirun sent to it. The kernel's keepalive does not find that: it is for
   connections on which nothing was sent. */
static bool has_fallen_silent(const char *hosts, struct output *o)
{
    char name[256];
    int64_t now = ht_now_ms();
    bool any = find_silent(hosts, name, sizeof(name));
    if (!any || !o->silent_ms) o->silent_ms = any ? now : 0;
    if (!any || now - o->silent_ms < SILENT_MS) return false;
    snprintf(o->silent, sizeof(o->silent), "%s", name);
    return true;
}

/* Passes on what mpirun prints, and interrupts to it, until it has ended. The first is for the ranks, once they have begun: mpirun
   passes SIGUSR1 on and waits, so that they have the time for a save. Kills it, and sets o->late, when the start
   does not go on, when a host does not hear of the interrupt, or when it has not ended some seconds after a second one. */
static int follow(pid_t mpirun, int output, const struct ht_launch_where *where, struct output *o)
{
    int waited = 0;
    bool open = true;
    int64_t second_ms = -1, looked_ms = 0;
    o->moved_ms = ht_now_ms();
    for (int n_sent = 0;;) {
        struct pollfd p = {.fd = output, .events = POLLIN};
        if (open) poll(&p, 1, 100);
        for (; n_sent < ht_interrupt_count(); n_sent++) kill(mpirun, o->begun && n_sent == 0 ? SIGUSR1 : SIGINT);
        if (open && p.revents) open = read_output(o, output);
        if (n_sent > 1 && second_ms < 0) second_ms = ht_now_ms();
        bool late = !o->begun && ht_now_ms() - o->moved_ms > 1000 * where->start_s, silent = false;
        if (o->begun && n_sent && ht_now_ms() - looked_ms > LOOKS_MS) {
            looked_ms = ht_now_ms();
            silent = has_fallen_silent(where->hosts, o);
        }
        if (late || silent || (second_ms >= 0 && ht_now_ms() - second_ms > 1000 * GRACE_S))
            kill(mpirun, SIGKILL), o->late |= late;
        pid_t ended = waitpid(mpirun, &waited, open ? WNOHANG : 0);
        if (ended < 0 && errno == EINTR) continue;
        if (ended != 0) break;
    }
    end_session(mpirun);
    for (struct pollfd p = {.fd = output, .events = POLLIN}; open && poll(&p, 1, 1000 * GRACE_S) > 0;)
        open = read_output(o, output);
    if (o->n) take_line(o, '\n');
    return waited;
}

enum ht_status ht_launch_hosts(int32_t ranks, const struct ht_launch_where *where, char *const argv[],
                               struct ht_launch_loss *loss, struct ht_error *err)
{
    *loss = (struct ht_launch_loss){.rank = -1};
    struct ht_launch_command c;
    int ends[2];
    if (pipe2(ends, O_CLOEXEC)) return ht_fail(err, HT_FAILED, "cannot start mpirun: %s", strerror(errno));
    ht_launch_command_begin(&c);
    ht_launch_command_add(&c, "--host");
    ht_launch_command_add(&c, where->hosts);
    ht_launch_command_add(&c, "-x");
    ht_launch_command_add(&c, HT_AWAY_VARIABLE "=1");
#ifdef __SANITIZE_ADDRESS__
    ht_launch_command_add(&c, "-x");
    ht_launch_command_add(&c, "LSAN_OPTIONS");
#endif
    ht_launch_command_end(&c, ranks, argv);
    fflush(NULL);
    signal(SIGCHLD, SIG_DFL); /* if it is ignored, waitpid cannot say how mpirun ended */
    ht_interrupt_keep();
    pid_t launcher = getpid(), mpirun = fork();
    if (mpirun == 0) become_mpirun(c.words, ends[1], launcher, where->start_s);
    close(ends[1]);
    enum ht_status status;
    if (mpirun < 0) {
        status = ht_fail(err, HT_FAILED, "cannot start mpirun: %s", strerror(errno));
    } else {
        struct output *o = HT_NEW(struct output);
        int waited = follow(mpirun, ends[0], where, o);
        status = outcome(o, waited, where->hosts, where->start_s, loss, err);
        free(o->reached.names);
        free(o->connected.names);
        free(o);
    }
    close(ends[0]);
    ht_launch_command_free(&c);
    return status;
}
