#include "harness/elastic/members.h"

#include "common/base/array.h"
#include "common/base/clock.h"
#include "common/base/text.h"
#include "common/base/units.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* ---- lists ---- */

int32_t ht_list_count(const char *list)
{
    int32_t n = *list != '\0';
    for (; *list; list++) n += *list == ',';
    return n;
}

int32_t ht_list_at(const char *list, int32_t i)
{
    for (; *list && i > 0; i--) {
        list += strcspn(list, ",");
        if (*list) list++;
    }
    return *list ? (int32_t)strtol(list, NULL, 10) : -1;
}

bool ht_list_has(const char *list, int32_t node)
{
    for (int32_t i = 0, n = ht_list_count(list); i < n; i++)
        if (ht_list_at(list, i) == node) return true;
    return false;
}

void ht_list_add(char list[HT_MEMBER_LIST], int32_t node)
{
    size_t at = strlen(list);
    snprintf(list + at, HT_MEMBER_LIST - at, "%s%d", at ? "," : "", node);
}

/* ---- members ---- */

enum { ANSWER_S = 10 };

void ht_members_init(struct ht_members *m, const struct ht_cluster *cluster, const char *source, double rejoin_s)
{
    *m = (struct ht_members){
        .source = source, .answer_s = ANSWER_S, .rejoin_s = rejoin_s, .n = (int32_t)cluster->n_nodes};
    m->nodes = HT_NEW_ARRAY(struct ht_member, m->n);
    for (int32_t i = 0; i < m->n; i++) {
        m->nodes[i] = (struct ht_member){
            .kind = cluster->nodes[i].group, .slots = (int32_t)cluster->nodes[i].n_gpus, .listed = !source};
        if (!source) snprintf(m->nodes[i].host, HT_MEMBER_HOST, "localhost");
    }
}

void ht_members_free(struct ht_members *m)
{
    free(m->nodes);
    *m = (struct ht_members){0};
}

/* A line of the source. */
struct line {
    char where[512]; /* "--hosts: FILE:3" */
    char host[HT_MEMBER_HOST];
    int64_t slots, kind, node; /* slots 0, node -1: not said */
};

static enum ht_status read_word(const char *word, struct line *out, struct ht_error *err)
{
    static const char *const keys[] = {"slots=", "kind=", "node="};
    int64_t *const values[] = {&out->slots, &out->kind, &out->node};
    for (size_t i = 0; i < HT_COUNT(keys); i++)
        if (!strncmp(word, keys[i], strlen(keys[i])))
            return ht_flag_count(out->where, word + strlen(keys[i]), i == 0, 1 << 20, err, values[i]);
    if (out->host[0] || strlen(word) >= HT_MEMBER_HOST || !ht_is_text(word) || strpbrk(word, "=:,"))
        return ht_fail(err, HT_BAD_INPUT, "%s: '%.60s' was not expected: a host's name, slots=N, kind=K, node=I",
                       out->where, word);
    snprintf(out->host, HT_MEMBER_HOST, "%s", word);
    return HT_OK;
}

/* Reads a line. out->host stays empty for one without a host. */
static enum ht_status read_line(char *text, struct line *out, struct ht_error *err)
{
    enum ht_status status = HT_OK;
    char *rest = NULL;
    text[strcspn(text, "#\n")] = '\0';
    for (char *word = strtok_r(text, " \t\r", &rest); word && status == HT_OK; word = strtok_r(NULL, " \t\r", &rest))
        status = read_word(word, out, err);
    return status;
}

/* Returns the number of a line's node; -1: none. Pinned lines and hosts that were there before come first (known), then the others get
   what is free of their kind: nodes that no host had before others. */
static int32_t number_of(const struct ht_members *m, const struct line *l, bool known, const bool *named)
{
    if (l->node >= 0) return l->node < m->n && !named[l->node] ? (int32_t)l->node : -1;
    for (int pass = 0; pass < 2; pass++)
        for (int32_t i = 0; i < m->n; i++) {
            const struct ht_member *x = &m->nodes[i];
            bool fits = known ? !strcmp(x->host, l->host) : pass == 1 || !x->listed;
            if (!named[i] && x->kind == l->kind && fits) return i;
        }
    return -1;
}

/* Gives a line's host its node. A host that comes anew is not the one that was lost. */
static enum ht_status take_line(struct ht_members *m, const struct line *l, int32_t i, bool *named,
                                struct ht_error *err)
{
    struct ht_member *node = &m->nodes[i];
    if (l->slots && l->slots < node->slots)
        return ht_fail(err, HT_BAD_INPUT, "%s: host '%s' has %lld slots; node %d has %d devices", l->where, l->host,
                       (long long)l->slots, i, node->slots);
    if (strcmp(node->host, l->host) != 0 || !node->listed) node->lost_s = 0, node->noticed = false;
    snprintf(node->host, HT_MEMBER_HOST, "%s", l->host);
    named[i] = true;
    return HT_OK;
}

static enum ht_status no_node(const struct line *l, struct ht_error *err)
{
    return ht_fail(err, HT_BAD_INPUT, "%s: host '%s': the cluster has no free node %s%lld for it", l->where, l->host,
                   l->node >= 0 ? "with number " : "of kind ", (long long)(l->node >= 0 ? l->node : l->kind));
}

/* Gives all lines' hosts their nodes. */
static enum ht_status take_lines(struct ht_members *m, const struct line *lines, size_t n, bool *named,
                                 struct ht_error *err)
{
    bool *taken = HT_NEW_ARRAY(bool, n);
    enum ht_status status = HT_OK;
    for (int known = 1; known >= 0; known--)
        for (size_t i = 0; i < n && status == HT_OK; i++) {
            int32_t node = taken[i] ? -1 : number_of(m, &lines[i], known, named);
            bool last = !taken[i] && (!known || lines[i].node >= 0);
            if (node < 0 && last) status = no_node(&lines[i], err);
            if (node >= 0) status = take_line(m, &lines[i], node, named, err), taken[i] = true;
        }
    free(taken);
    return status;
}

static enum ht_status read_source(struct ht_members *m, FILE *f, bool *named, struct ht_error *err)
{
    struct line *lines = NULL;
    size_t n = 0, cap = 0;
    enum ht_status status = HT_OK;
    char text[1024], shown[400];
    ht_shown(m->source, shown, sizeof(shown));
    for (int number = 1; status == HT_OK && fgets(text, sizeof(text), f); number++) {
        struct line l = {.node = -1};
        snprintf(l.where, sizeof(l.where), "--hosts: %s:%d", shown, number);
        status = read_line(text, &l, err);
        if (status == HT_OK && l.host[0]) HT_PUSH(lines, n, cap, l);
    }
    if (status == HT_OK && ferror(f)) /* half a list would lose the other hosts */
        status = ht_fail(err, HT_BAD_INPUT, "--hosts: %s: %s", shown, strerror(errno));
    if (status == HT_OK) status = take_lines(m, lines, n, named, err);
    free(lines);
    return status;
}

/* ---- commands ---- */

static _Noreturn void become_shell(const char *command, int out)
{
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, (unsigned long)SIGKILL);
    dup2(out, STDOUT_FILENO);
    execl("/bin/sh", "sh", "-c", command, (char *)NULL);
    _exit(127);
}

/* Reads what a command prints, until it closes its output or the time is over. Returns false if it is. */
static bool read_answer(int fd, double until_s, char **text, size_t *n)
{
    size_t cap = 0;
    for (*text = NULL, *n = 0;;) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        double left_s = until_s - ht_now_s();
        int ready = left_s > 0 ? poll(&p, 1, (int)(left_s * 1000) + 1) : 0;
        if (ready == 0) return false;
        if (ready < 0 && errno != EINTR) return false;
        HT_RESERVE(*text, cap, *n + 4096);
        ssize_t got = ready < 0 ? -1 : read(fd, *text + *n, 4096);
        if (got == 0) return true;
        if (got > 0) *n += (size_t)got;
    }
}

/* Waits for a command that has closed its output; kills its processes when the time is over. Returns waitpid's status. */
static int wait_for(pid_t pid, double until_s, bool *whole)
{
    const struct timespec nap = {.tv_nsec = 5000000};
    int waited = 0;
    for (pid_t got; (got = waitpid(pid, &waited, WNOHANG)) == 0 || (got < 0 && errno == EINTR); nanosleep(&nap, NULL)) {
        *whole &= ht_now_s() < until_s;
        if (!*whole) kill(-pid, SIGKILL), kill(pid, SIGKILL);
    }
    return waited;
}

/* Runs a command. *text is what it printed; allocated. */
static enum ht_status run_command(const char *command, double answer_s, struct ht_error *err, char **text, size_t *n)
{
    int ends[2], waited = 0;
    double until_s = ht_now_s() + answer_s;
    *text = NULL;
    if (pipe2(ends, O_CLOEXEC)) return ht_fail(err, HT_FAILED, "--hosts: %.400s: %s", command, strerror(errno));
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) become_shell(command, ends[1]);
    close(ends[1]);
    bool whole = pid > 0 && read_answer(ends[0], until_s, text, n);
    close(ends[0]);
    if (pid > 0) waited = wait_for(pid, until_s, &whole);
    if (pid < 0) return ht_fail(err, HT_FAILED, "--hosts: %.400s: %s", command, strerror(errno));
    if (!whole) return ht_fail(err, HT_FAILED, "--hosts: %.400s: no answer within %.3g s", command, answer_s);
    return waited ? ht_fail(err, HT_FAILED, "--hosts: %.400s: the command failed", command) : HT_OK;
}

enum ht_status ht_members_ask(struct ht_members *m, struct ht_error *err)
{
    if (!m->source) return HT_OK;
    char *text = NULL;
    size_t n_text = 0;
    bool command = m->source[0] == '!', *named = HT_NEW_ARRAY(bool, m->n);
    struct ht_member *before = HT_NEW_ARRAY(struct ht_member, m->n);
    memcpy(before, m->nodes, sizeof(*before) * (size_t)m->n);
    enum ht_status status = command ? run_command(m->source + 1, m->answer_s, err, &text, &n_text) : HT_OK;
    FILE *f = status != HT_OK ? NULL : !command ? fopen(m->source, "re") : fmemopen(text, n_text, "r");
    if (status == HT_OK && !f && !(command && !n_text))
        status = ht_fail(err, HT_BAD_INPUT, "--hosts: %.400s: %s", m->source, strerror(errno));
    if (status == HT_OK && f) status = read_source(m, f, named, err);
    if (f) fclose(f);
    free(text);
    if (status != HT_OK) memcpy(m->nodes, before, sizeof(*before) * (size_t)m->n);
    for (int32_t i = 0; status == HT_OK && i < m->n; i++) m->nodes[i].listed = named[i];
    free(before);
    free(named);
    return status;
}

bool ht_member_is_usable(const struct ht_members *m, int32_t node, double now_s)
{
    const struct ht_member *x = &m->nodes[node];
    bool out = x->lost_s > 0 && now_s - x->lost_s < m->rejoin_s;
    return x->listed && !x->noticed && !out;
}

int32_t ht_members_list(const struct ht_members *m, double now_s, char list[HT_MEMBER_LIST])
{
    int32_t n = 0;
    list[0] = '\0';
    for (int32_t i = 0; i < m->n; i++)
        if (ht_member_is_usable(m, i, now_s)) ht_list_add(list, i), n++;
    return n;
}

int32_t ht_members_readmit(struct ht_members *m)
{
    int32_t n = 0;
    for (int32_t i = 0; i < m->n; i++) {
        bool back = m->nodes[i].listed && m->nodes[i].lost_s > 0;
        if (back) m->nodes[i].lost_s = 0, n++;
    }
    return n;
}

int32_t ht_members_node_of(const struct ht_members *m, const char *host)
{
    for (int32_t i = 0; i < m->n; i++) {
        size_t n = strcspn(m->nodes[i].host, ".");
        bool same = !strcmp(m->nodes[i].host, host) || (strlen(host) == n && !strncmp(m->nodes[i].host, host, n));
        if (m->nodes[i].host[0] && same) return i;
    }
    return -1;
}
