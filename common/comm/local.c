/*
 * The local transport: ranks on one host without MPI, with a socket between each two (launch_local.c starts them).
 *
 *     receiver  -- WANT tag, bytes -->  sender        a receive was posted
 *               <-- DATA tag, bytes --                the oldest send of that tag, when it has been posted as well
 *
 * So bytes cross a socket only when their receive is posted, and are read straight into its memory. A notification
 * comes without a want. One progress thread sleeps in poll until a socket or a post has something for it.
 *
 * A rank that has died leaves its messages in flight for ever, as with MPI: its launcher ends all ranks and knows why.
 */
#include "common/base/array.h"
#include "common/comm/comm.h"
#include "common/comm/launch_message.h"
#include "common/comm/tags.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/uio.h>
#include <unistd.h>

enum kind { WANT, DATA, NOTE };
enum { DISAGREES = -1 }; /* DATA's bytes, when sender and receiver do not expect the same */

struct frame {
    int32_t kind, tag;
    int64_t bytes; /* of what is wanted, or of what follows */
};

/* A frame on its way out, with its message's data. */
struct out {
    struct frame frame;
    struct ht_message *m; /* NULL: a frame alone */
    int64_t sent;         /* bytes of both */
    struct out *next;
};

struct messages {
    struct ht_message *first, *last;
};

/* A notification that no listener was there for. */
struct note {
    int32_t from;
    int64_t bytes;
    char data[HT_COMM_NOTIFY_BYTES];
    struct note *next;
};

struct peer {
    int fd; /* -1: this rank itself, or one that has ended */
    struct out *first, *last;
    struct messages sends, receives; /* not wanted yet; without data yet */
    struct frame *wants;             /* without a send yet */
    size_t n_wants, cap_wants;
    struct frame in; /* being read, and its data: */
    int64_t got;     /* bytes of both */
    struct ht_message *into;
    char note[HT_COMM_NOTIFY_BYTES];
};

struct impl {
    struct ht_comm *comm;
    int wake; /* an eventfd */
    pthread_t thread;
    pthread_mutex_t lock; /* guards all down to `closing` */
    struct messages posted;
    ht_comm_listener listener; /* this and its ctx change under both locks */
    void *listener_ctx;
    bool closing;
    pthread_mutex_t listener_lock; /* taken before `lock`; held during a call of the listener */

    /* Only for the progress thread. */
    struct peer *peers;
    struct pollfd *poll;
    struct note *notes, **notes_end;
};

static void append(struct messages *list, struct ht_message *m)
{
    m->next = NULL;
    if (list->last)
        list->last->next = m;
    else
        list->first = m;
    list->last = m;
}

/* Takes the oldest message of a tag out of the list; NULL: it has none. */
static struct ht_message *take(struct messages *list, int32_t tag)
{
    struct ht_message *before = NULL, *m = list->first;
    while (m && m->tag != tag) before = m, m = m->next;
    if (!m) return NULL;
    if (before)
        before->next = m->next;
    else
        list->first = m->next;
    if (list->last == m) list->last = before;
    return m;
}

/* ---- sending ---------------------------------------------------------------------------------------------------- */

static void put(struct peer *p, enum kind kind, int32_t tag, int64_t bytes, struct ht_message *m)
{
    struct out *o = HT_NEW(struct out);
    *o = (struct out){.frame = {kind, tag, bytes}, .m = m};
    if (p->last)
        p->last->next = o;
    else
        p->first = o;
    p->last = o;
}

static void put_data(struct peer *p, struct ht_message *m, int64_t wanted)
{
    bool agree = m->bytes == wanted;
    put(p, DATA, m->tag, agree ? wanted : DISAGREES, agree ? m : NULL);
    if (!agree) ht_message_end(m, false);
}

static void begin(struct impl *x, struct ht_message *m)
{
    struct peer *p = &x->peers[m->peer];
    if (m->receive) {
        append(&p->receives, m);
        put(p, WANT, m->tag, m->bytes, NULL);
        return;
    }
    if (m->tag == HT_TAG_NOTIFY) {
        put(p, NOTE, m->tag, m->bytes, m);
        return;
    }
    for (size_t i = 0; i < p->n_wants; i++) {
        struct frame want = p->wants[i];
        if (want.tag != m->tag) continue;
        memmove(&p->wants[i], &p->wants[i + 1], (--p->n_wants - i) * sizeof(want));
        put_data(p, m, want.bytes);
        return;
    }
    append(&p->sends, m);
}

static void lose(struct peer *p)
{
    close(p->fd);
    p->fd = -1;
}

/* Writes as much as the socket takes. */
static void write_out(struct peer *p)
{
    while (p->first && p->fd >= 0) {
        struct out *o = p->first;
        int64_t head = (int64_t)sizeof(o->frame), data = o->m ? o->m->bytes : 0, at = o->sent - head;
        struct iovec parts[2] = {{.iov_base = (char *)&o->frame + o->sent, .iov_len = at < 0 ? (size_t)-at : 0},
                                 {.iov_base = o->m ? (char *)o->m->data + (at < 0 ? 0 : at) : NULL,
                                  .iov_len = (size_t)(data - (at < 0 ? 0 : at))}};
        struct msghdr m = {.msg_iov = parts + (at >= 0), .msg_iovlen = at >= 0 ? 1 : 2};
        ssize_t n = sendmsg(p->fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
        if (n < 0) {
            lose(p);
            return;
        }
        o->sent += n;
        if (o->sent < head + data) continue;
        p->first = o->next;
        if (!p->first) p->last = NULL;
        if (o->m) ht_message_end(o->m, true);
        free(o);
    }
}

/* ---- receiving -------------------------------------------------------------------------------------------------- */

static void take_note(struct impl *x, int32_t from, const struct peer *p)
{
    struct note *n = HT_NEW(struct note);
    *n = (struct note){.from = from, .bytes = p->in.bytes};
    memcpy(n->data, p->note, (size_t)n->bytes);
    *x->notes_end = n;
    x->notes_end = &n->next;
}

/* Hands notifications to the listener, in their order. */
static void give_notes(struct impl *x)
{
    pthread_mutex_lock(&x->listener_lock);
    for (struct note *n; x->listener && (n = x->notes);) {
        x->notes = n->next;
        if (!n->next) x->notes_end = &x->notes;
        x->listener(x->listener_ctx, n->from, n->data, n->bytes);
        free(n);
    }
    pthread_mutex_unlock(&x->listener_lock);
}

/* Handles a frame whose head has been read. */
static void open_frame(struct peer *p)
{
    struct frame f = p->in;
    if (f.kind != DATA) return;
    p->into = take(&p->receives, f.tag); /* its want went before */
    if (f.bytes != DISAGREES) return;
    ht_message_end(p->into, false);
    p->into = NULL;
}

/* Handles a frame that has been read as a whole. */
static void end_frame(struct impl *x, int32_t from, struct peer *p)
{
    struct frame f = p->in;
    struct ht_message *m = f.kind == WANT ? take(&p->sends, f.tag) : NULL;
    if (m)
        put_data(p, m, f.bytes);
    else if (f.kind == WANT)
        HT_PUSH(p->wants, p->n_wants, p->cap_wants, f);
    else if (f.kind == NOTE)
        take_note(x, from, p);
    else if (p->into)
        ht_message_end(p->into, true);
    p->into = NULL;
    p->got = 0;
}

static void read_in(struct impl *x, int32_t from)
{
    const int64_t head = sizeof(struct frame);
    struct peer *p = &x->peers[from];
    while (p->fd >= 0) {
        bool in_head = p->got < head;
        int64_t data = in_head || p->in.kind == WANT || p->in.bytes < 0 ? 0 : p->in.bytes;
        char *to = in_head ? (char *)&p->in + p->got : (p->into ? (char *)p->into->data : p->note) + (p->got - head);
        ssize_t n = recv(p->fd, to, (size_t)((in_head ? head : head + data) - p->got), MSG_DONTWAIT);
        if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
        if (n <= 0) {
            lose(p);
            return;
        }
        p->got += n;
        if (in_head && p->got == head) {
            open_frame(p);
            data = p->in.kind == WANT || p->in.bytes < 0 ? 0 : p->in.bytes;
        }
        if (p->got >= head && p->got == head + data) end_frame(x, from, p);
    }
}

/* ---- the progress thread ---------------------------------------------------------------------------------------- */

static bool in_flight(const struct impl *x)
{
    for (int32_t i = 0; i < x->comm->size; i++) {
        const struct peer *p = &x->peers[i];
        if (p->fd >= 0 && (p->first || p->sends.first || p->receives.first || p->into)) return true;
    }
    return false;
}

/* Begins what was posted. Returns true once the transport is closing and all is done. */
static bool begin_posted(struct impl *x)
{
    pthread_mutex_lock(&x->lock);
    struct ht_message *posted = x->posted.first;
    x->posted = (struct messages){0};
    bool closing = x->closing;
    pthread_mutex_unlock(&x->lock);
    for (struct ht_message *m = posted, *next; m; m = next) {
        next = m->next;
        begin(x, m);
    }
    return closing && !in_flight(x);
}

static void *thread_main(void *arg)
{
    struct impl *x = arg;
    int32_t n = x->comm->size;
    uint64_t count;
    while (!begin_posted(x)) {
        for (int32_t i = 0; i < n; i++) {
            struct peer *p = &x->peers[i];
            write_out(p);
            x->poll[i] = (struct pollfd){.fd = p->fd, .events = (short)(POLLIN | (p->first ? POLLOUT : 0))};
        }
        x->poll[n] = (struct pollfd){.fd = x->wake, .events = POLLIN};
        poll(x->poll, (nfds_t)n + 1, -1);
        (void)!read(x->wake, &count, sizeof(count));
        for (int32_t i = 0; i < n; i++)
            if (x->poll[i].revents) read_in(x, i);
        give_notes(x);
    }
    return NULL;
}

/* ---- the table -------------------------------------------------------------------------------------------------- */

static void wake(struct impl *x)
{
    (void)!write(x->wake, &(uint64_t){1}, sizeof(uint64_t));
}

static void local_post(struct ht_comm *c, struct ht_message *m)
{
    struct impl *x = c->impl;
    pthread_mutex_lock(&x->lock);
    append(&x->posted, m);
    pthread_mutex_unlock(&x->lock);
    wake(x);
}

static void local_listen(struct ht_comm *c, ht_comm_listener fn, void *ctx)
{
    struct impl *x = c->impl;
    pthread_mutex_lock(&x->listener_lock);
    x->listener = fn;
    x->listener_ctx = ctx;
    pthread_mutex_unlock(&x->listener_lock);
    wake(x);
}

static void release(struct impl *x)
{
    for (int32_t i = 0; i < x->comm->size; i++) {
        if (x->peers[i].fd >= 0) close(x->peers[i].fd);
        free(x->peers[i].wants);
    }
    for (struct note *n = x->notes, *next; n; n = next) {
        next = n->next;
        free(n);
    }
    if (x->wake >= 0) close(x->wake);
    pthread_mutex_destroy(&x->lock);
    pthread_mutex_destroy(&x->listener_lock);
    free(x->peers);
    free(x->poll);
    free(x);
}

static void local_close(struct ht_comm *c, bool clean, int code)
{
    struct impl *x = c->impl;
    if (!clean) _exit(code); /* the launcher ends the others */
    pthread_mutex_lock(&x->lock);
    x->closing = true;
    pthread_mutex_unlock(&x->lock);
    wake(x);
    pthread_join(x->thread, NULL);
    release(x);
}

static const struct ht_comm_ops local_ops = {
    .name = "local", .post = local_post, .listen = local_listen, .close = local_close};

/* ---- connecting ------------------------------------------------------------------------------------------------- */

/* Returns a socket to a lower rank, which learns this one's number. */
static int dial(const char *launcher, int32_t to, int32_t me)
{
    struct sockaddr_un address;
    socklen_t n = ht_launch_local_address(launcher, to, &address);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd >= 0 && !connect(fd, (struct sockaddr *)&address, n) && write(fd, &me, sizeof(me)) == sizeof(me)) return fd;
    if (fd >= 0) close(fd);
    return -1;
}

/* Waits for a higher rank. Others than this user's processes are sent away. */
static int answer(int listener, int32_t *from)
{
    for (;;) {
        struct ucred who;
        socklen_t n = sizeof(who);
        int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
        if (fd < 0 && errno == EINTR) continue;
        if (fd < 0) return -1;
        if (!getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &n) && who.uid == geteuid() &&
            recv(fd, from, sizeof(*from), MSG_WAITALL) == sizeof(*from))
            return fd;
        close(fd);
    }
}

static enum ht_status connect_ranks(struct impl *x, struct ht_error *err)
{
    struct ht_comm *c = x->comm;
    const char *launcher = getenv(HT_LAUNCHER_VARIABLE), *listener = getenv(HT_LOCAL_VARIABLE);
    int32_t from = -1;
    if (!launcher || !listener) return ht_fail(err, HT_FAILED, "no launcher started this rank");
    for (int32_t i = 0; i < c->rank; i++) {
        x->peers[i].fd = dial(launcher, i, c->rank);
        if (x->peers[i].fd < 0) return ht_fail(err, HT_FAILED, "cannot connect to rank %d: %s", i, strerror(errno));
    }
    for (int32_t left = c->size - 1 - c->rank; left > 0; left--) {
        int fd = answer((int)strtol(listener, NULL, 10), &from);
        if (fd < 0 || from <= c->rank || from >= c->size || x->peers[from].fd >= 0)
            return ht_fail(err, HT_FAILED, "a rank cannot connect: %s", strerror(errno));
        x->peers[from].fd = fd;
    }
    close((int)strtol(listener, NULL, 10));
    return HT_OK;
}

enum ht_status ht_comm_local(int32_t rank, int32_t size, struct ht_error *err, struct ht_comm **out)
{
    struct ht_comm *c = HT_NEW(struct ht_comm);
    struct impl *x = HT_NEW(struct impl);
    *out = NULL;
    *c = (struct ht_comm){.ops = &local_ops, .rank = rank, .size = size, .impl = x};
    *x = (struct impl){.comm = c, .wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), .notes_end = &x->notes};
    x->peers = HT_NEW_ARRAY(struct peer, size);
    x->poll = HT_NEW_ARRAY(struct pollfd, size + 1);
    for (int32_t i = 0; i < size; i++) x->peers[i].fd = -1;
    pthread_mutex_init(&x->lock, NULL);
    pthread_mutex_init(&x->listener_lock, NULL);
    enum ht_status status = x->wake < 0 ? ht_fail(err, HT_FAILED, "eventfd: %s", strerror(errno)) : HT_OK;
    if (!status) status = connect_ranks(x, err);
    int rc = status ? 0 : pthread_create(&x->thread, NULL, thread_main, x);
    if (rc) status = ht_fail(err, HT_INFEASIBLE, "cannot start the progress thread: %s", strerror(rc));
    if (status) {
        release(x);
        free(c);
        return status;
    }
    *out = c;
    return HT_OK;
}
