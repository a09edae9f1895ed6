/*
 * The guard of a host's daemon. Open MPI's daemon, orted, waits for mpirun as long as TCP does: many minutes, when the
 * cable is out while it connects, or while something that it has sent is not acknowledged.
 *
 *     ssh  --  this program, as a guard  --  orted  --  ranks
 *
 * The guard ends orted if it finds no connection to mpirun for some seconds at first, or if that is silent or gone for
 * five. It ends with orted. Where orted makes a daemon of itself, so does the guard, which adopts it, and ssh ends as soon as the
 * daemon has found mpirun. Otherwise ssh stays.
 *
 * orted removes its files when it ends, but not when it is killed: the guard gives it a folder of its own, and removes that.
 *
 * A connection is silent if something that was sent has been sent three times. The kernel says so in /proc/net/tcp. If
 * nothing was sent, the kernel's keepalive finds out (launch_hosts.c sets it to 8 s).
 */
#include "common/comm/launch.h"

#include "common/base/array.h"
#include "common/base/clock.h"
#include "common/comm/launch_keeper.h"
#include "common/comm/launch_message.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MAX_PORTS = 8, ESTABLISHED = 1, FIRST_POLLS_NS = 50000000, POLLS_NS = 500000000, LOST_S = 5, FOLDER = 4096 };

/* Finds the ports that orted may connect to: those of each "tcp://ADDRESSES:PORT" or "tcp6://[ADDRESSES]:PORT" in its
   arguments, which stand in one word, such as "7.0;tcp://10.0.0.1:4711;tcp6://[fd00::1]:4712". Returns their number. */
static int find_ports(char *const *words, unsigned ports[MAX_PORTS])
{
    static const char *const schemes[] = {"tcp://", "tcp6://"};
    int n = 0;
    for (; *words; words++)
        for (size_t k = 0; k < HT_COUNT(schemes); k++)
            for (const char *uri = strstr(*words, schemes[k]); uri; uri = strstr(uri, schemes[k])) {
                uri += strlen(schemes[k]);
                const char *at = memrchr(uri, ':', strcspn(uri, ";"));
                for (char *end; at && (*at == ':' || *at == ',') && n < MAX_PORTS; at = end)
                    ports[n++] = (unsigned)strtoul(at + 1, &end, 10);
            }
    return n;
}

enum connection { NONE, SILENT, LIVES };

/* Returns the best connection to one of the ports. */
static enum connection find_connection(const char *file, const unsigned *ports, int n)
{
    FILE *f = fopen(file, "re");
    char line[512];
    enum connection best = NONE;
    while (f && fgets(line, sizeof(line), f)) {
        unsigned port, state, retransmits;
        if (sscanf(line, " %*d: %*[0-9A-Fa-f]:%*x %*[0-9A-Fa-f]:%x %x %*x:%*x %*x:%*x %x", &port, &state,
                   &retransmits) != 3)
            continue;
        enum connection found = state != ESTABLISHED ? NONE : retransmits < 2 ? LIVES : SILENT;
        for (int i = 0; i < n; i++)
            if (port == ports[i] && found > best) best = found;
    }
    if (f) fclose(f);
    return best;
}

/* Kills this process's children. */
static void kill_children(void)
{
    char path[64];
    long pid;
    snprintf(path, sizeof(path), "/proc/self/task/%d/children", (int)getpid());
    FILE *f = fopen(path, "re");
    while (f && fscanf(f, "%ld", &pid) == 1) kill((pid_t)pid, SIGKILL);
    if (f) fclose(f);
}

static void say(const char *what)
{
    struct utsname names;
    char line[256];
    if (uname(&names)) return;
    int n = snprintf(line, sizeof(line), "%s%.128s\n", what, names.nodename);
    if (write(STDERR_FILENO, line, (size_t)n) < 0) return; /* nobody listens */
}

/* Makes a folder for orted's files, and names it in the environment. */
static void make_folder(char folder[FOLDER])
{
    const char *base = getenv("TMPDIR");
    int n = snprintf(folder, FOLDER, "%s/hetbench-daemon-XXXXXX", base && *base ? base : "/tmp");
    if (n >= FOLDER || !mkdtemp(folder)) folder[0] = '\0'; /* orted finds a place, or says why not */
    if (folder[0]) setenv("OMPI_MCA_orte_tmpdir_base", folder, 0);
}

static void remove_folder(const char *folder)
{
    if (folder[0]) ht_keeper_remove(folder);
}

/* Starts orted. Returns -1 on failure. */
static pid_t start(char *const *words)
{
    pid_t guard = getpid(), orted = fork();
    if (orted != 0) return orted;
    prctl(PR_SET_PDEATHSIG, (unsigned long)SIGTERM); /* a daemon of its own clears that */
    if (getppid() == guard) execvp(words[0], words);
    fprintf(stderr, "%s: %s\n", words[0], strerror(errno));
    _exit(127);
}

/* Watches this process's children until none is left. connected: called once when they have found mpirun. Returns
   orted's exit code. */
static int watch(pid_t orted, int64_t patience_s, const unsigned *ports, int n_ports, void (*connected)(void))
{
    struct timespec nap = {.tv_nsec = FIRST_POLLS_NS};
    int64_t lived_ms = ht_now_ms();
    int waited, code = HT_FAILED;
    bool found = false;
    for (;; nanosleep(&nap, NULL)) {
        pid_t ended;
        while ((ended = waitpid(-1, &waited, WNOHANG)) > 0)
            if (ended == orted && WIFEXITED(waited)) code = WEXITSTATUS(waited);
        if (ended < 0 && errno == ECHILD) return code;
        if (n_ports == 0) continue; /* nothing is known to watch */
        enum connection v4 = find_connection("/proc/net/tcp", ports, n_ports),
                        v6 = find_connection("/proc/net/tcp6", ports, n_ports), best = v4 > v6 ? v4 : v6;
        bool lost = best == SILENT || found;
        int64_t patience_ms = 1000 * (lost && patience_s > LOST_S ? LOST_S : patience_s);
        if (best == LIVES) {
            lived_ms = ht_now_ms();
            if (found) continue;
            found = true;
            nap.tv_nsec = POLLS_NS;
            say(HT_LAUNCH_CONNECTED);
            if (connected) connected();
        } else if (ht_now_ms() - lived_ms >= patience_ms) {
            kill_children();
        }
    }
}

/* Lets ssh end. */
static void let_go(void)
{
    int null = open("/dev/null", O_RDWR);
    if (null >= 0) dup2(null, STDIN_FILENO), dup2(null, STDOUT_FILENO), dup2(null, STDERR_FILENO), close(null);
}

/* Starts orted, which leaves a daemon behind, tells `report` how that ended, and watches the daemon. */
static _Noreturn void guard_daemon(char *const *words, int64_t patience_s, int report)
{
    unsigned ports[MAX_PORTS];
    int n_ports = find_ports(words, ports), waited = 0;
    unsigned char code = HT_FAILED;
    char folder[FOLDER];
    setsid();
    make_folder(folder);
    prctl(PR_SET_CHILD_SUBREAPER, 1UL);
    pid_t orted = start(words);
    signal(SIGPIPE, SIG_IGN); /* ssh may be gone */
    while (orted > 0 && waitpid(orted, &waited, 0) < 0 && errno == EINTR) continue;
    if (orted > 0 && WIFEXITED(waited)) code = (unsigned char)WEXITSTATUS(waited);
    if (write(report, &code, 1) < 0 || code) kill_children();
    close(report);
    int status = watch(orted, patience_s, ports, n_ports, let_go);
    remove_folder(folder);
    _exit(status);
}

/* Returns true if orted leaves a daemon behind. mpirun asks for that not with ssh itself, only with other agents. */
static bool daemonizes(char *const *words)
{
    for (; *words; words++)
        if (!strcmp(*words, "--daemonize")) return true;
    return false;
}

int ht_launch_guard(char *const *words)
{
    unsigned ports[MAX_PORTS];
    int report[2], n_ports = find_ports(words + 1, ports);
    unsigned char code = HT_FAILED;
    int64_t patience_s = strtoll(words[0], NULL, 10);
    if (patience_s < 1) patience_s = 1;
    say(HT_LAUNCH_REACHED);
    if (!daemonizes(words)) {
        char folder[FOLDER];
        make_folder(folder);
        pid_t orted = start(words + 1);
        signal(SIGPIPE, SIG_IGN);
        int status = orted < 0 ? HT_FAILED : watch(orted, patience_s, ports, n_ports, NULL);
        remove_folder(folder);
        return status;
    }
    if (pipe2(report, O_CLOEXEC)) return HT_FAILED;
    pid_t pid = fork();
    if (pid == 0) close(report[0]), guard_daemon(words + 1, patience_s, report[1]);
    close(report[1]);
    ssize_t got = pid < 0 ? 0 : read(report[0], &code, 1);
    return got == 1 ? code : HT_FAILED;
}
