/*
 * MPI. One progress thread a process owns it: it calls MPI_Init_thread, every other MPI function, and MPI_Finalize, so
 * MPI_THREAD_FUNNELED is enough. Nothing it calls blocks; while anything is under way it asks MPI_Testsome, at first at
 * once, giving its core away in between, then with naps that grow, since a peer may compute for long and its core may
 * be this one. With nothing under way it sleeps.
 */
#include "common/comm/comm.h"

#ifndef HT_HAVE_MPI

bool ht_comm_has_mpi(void)
{
    return false;
}

enum ht_status ht_comm_mpi(struct ht_error *err, struct ht_comm **out)
{
    *out = 0;
    return ht_fail(err, HT_INFEASIBLE,
                   "this build has no MPI, so there is one rank (Debian: openmpi-bin, libopenmpi-dev)");
}

#else

#include "common/base/array.h"
#include "common/comm/tags.h"

#include <mpi.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>

enum {
    LONGEST_PART = 1 << 30, /* MPI counts bytes in an int */
    YIELDS = 50,            /* looks without a nap */
    SHORTEST_NAP_NS = 5000,
    LONGEST_NAP_NS = 200000,
};

struct impl {
    struct ht_comm *comm;
    pthread_t thread;
    pthread_mutex_t lock; /* from here on */
    pthread_cond_t news;
    struct ht_message *first, *last; /* posted, not begun */
    ht_comm_listener listener;       /* this and its ctx change under both locks */
    void *listener_ctx;
    bool up, closing;
    struct ht_error error;   /* of the start */
    pthread_mutex_t hearing; /* taken before the lock; held while the listener is called */

    /* the progress thread's own */
    MPI_Request *requests;
    struct ht_message **owners; /* of each request */
    size_t n, requests_cap, owners_cap;
    int *ended;
    size_t ended_cap;
    bool listening;
    MPI_Request heard;
    char note[HT_COMM_NOTE_BYTES];
};

static enum ht_status mpi_failed(int rc, const char *what, struct ht_error *err)
{
    char text[MPI_MAX_ERROR_STRING] = "";
    int n = 0;
    MPI_Error_string(rc, text, &n);
    return ht_fail(err, HT_FAILED, "MPI: %s: %.*s", what, n, text);
}

/* ---- the progress thread ---------------------------------------------------------------------------------------- */

static void end_part(struct ht_message *m, bool ok)
{
    if (!ok) m->parts = -1; /* stays so: its other parts are lost with it */
    if (m->parts > 0 && --m->parts == 0)
        ht_message_end(m, true);
    else if (!ok)
        ht_message_end(m, false);
}

static void begin(struct impl *x, struct ht_message *m)
{
    int64_t parts = m->bytes ? (m->bytes + LONGEST_PART - 1) / LONGEST_PART : 1;
    m->parts = (int32_t)parts;
    for (int64_t i = 0; i < parts; i++) {
        char *data = (char *)m->data + i * LONGEST_PART;
        int n = (int)(m->bytes - i * LONGEST_PART < LONGEST_PART ? m->bytes - i * LONGEST_PART : LONGEST_PART);
        MPI_Request request;
        int rc = m->receive ? MPI_Irecv(data, n, MPI_BYTE, m->peer, m->tag, MPI_COMM_WORLD, &request)
                            : MPI_Isend(data, n, MPI_BYTE, m->peer, m->tag, MPI_COMM_WORLD, &request);
        if (rc) {
            end_part(m, false);
            return;
        }
        size_t owners = x->n;
        HT_PUSH(x->owners, owners, x->owners_cap, m);
        HT_PUSH(x->requests, x->n, x->requests_cap, request);
    }
}

/* Ends what has ended; true if anything has. */
static bool look(struct impl *x)
{
    int n = 0;
    if (!x->n) return false;
    HT_RESERVE(x->ended, x->ended_cap, x->n);
    int rc = MPI_Testsome((int)x->n, x->requests, &n, x->ended, MPI_STATUSES_IGNORE);
    if (rc) {
        for (size_t i = 0; i < x->n; i++) end_part(x->owners[i], false);
        x->n = 0;
        return true;
    }
    if (n == MPI_UNDEFINED || n == 0) return false;
    for (int i = 0; i < n; i++) end_part(x->owners[x->ended[i]], true);
    size_t kept = 0;
    for (size_t i = 0; i < x->n; i++) {
        if (x->requests[i] == MPI_REQUEST_NULL) continue;
        x->requests[kept] = x->requests[i];
        x->owners[kept++] = x->owners[i];
    }
    x->n = kept;
    return true;
}

static bool hear_note(struct impl *x)
{
    MPI_Status status;
    int is_there = 0, bytes = 0;
    if (!x->listener) return false;
    if (!x->listening)
        MPI_Irecv(x->note, sizeof(x->note), MPI_BYTE, MPI_ANY_SOURCE, HT_TAG_NOTES, MPI_COMM_WORLD, &x->heard);
    x->listening = true;
    if (MPI_Test(&x->heard, &is_there, &status) || !is_there) return false;
    MPI_Get_count(&status, MPI_BYTE, &bytes);
    x->listening = false;
    x->listener(x->listener_ctx, status.MPI_SOURCE, x->note, bytes);
    return true;
}

static bool hear(struct impl *x)
{
    pthread_mutex_lock(&x->hearing);
    bool heard = hear_note(x);
    pthread_mutex_unlock(&x->hearing);
    return heard;
}

/* Under the lock: waits for news, but not long while something is under way. */
static void nap(struct impl *x, int quiet)
{
    if (x->first || x->closing) return;
    if (!x->n && !x->listener) {
        pthread_cond_wait(&x->news, &x->lock);
        return;
    }
    if (quiet < YIELDS) {
        pthread_mutex_unlock(&x->lock);
        sched_yield();
        pthread_mutex_lock(&x->lock);
        return;
    }
    int64_t ns = (int64_t)SHORTEST_NAP_NS * (quiet - YIELDS + 1);
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += ns < LONGEST_NAP_NS ? ns : LONGEST_NAP_NS;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    pthread_cond_timedwait(&x->news, &x->lock, &until);
}

static void progress(struct impl *x)
{
    int quiet = 0;
    pthread_mutex_lock(&x->lock);
    while (!x->closing || x->first || x->n) {
        struct ht_message *posted = x->first;
        x->first = x->last = NULL;
        pthread_mutex_unlock(&x->lock);
        quiet = posted ? 0 : quiet + 1;
        for (struct ht_message *m = posted, *next; m; m = next) {
            next = m->next;
            begin(x, m);
        }
        if (look(x)) quiet = 0;
        if (hear(x)) quiet = 0;
        pthread_mutex_lock(&x->lock);
        nap(x, quiet);
    }
    pthread_mutex_unlock(&x->lock);
}

static enum ht_status start(struct impl *x, struct ht_error *err)
{
    int provided = 0, has_most = 0, *most, rc = MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &provided);
    if (rc) return ht_fail(err, HT_FAILED, "MPI cannot start (MPI_Init_thread said %d)", rc);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    if (provided < MPI_THREAD_FUNNELED)
        return ht_fail(err, HT_INFEASIBLE, "this MPI cannot be used by a program with threads");
    if ((rc = MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &most, &has_most)))
        return mpi_failed(rc, "MPI_Comm_get_attr", err);
    if (!has_most || *most < HT_TAG_NOTES)
        return ht_fail(err, HT_INFEASIBLE, "this MPI has tags up to %d; expected %d or more (Open MPI: --mca pml ob1)",
                       has_most ? *most : 0, HT_TAG_NOTES);
    if ((rc = MPI_Comm_rank(MPI_COMM_WORLD, &x->comm->rank))) return mpi_failed(rc, "MPI_Comm_rank", err);
    if ((rc = MPI_Comm_size(MPI_COMM_WORLD, &x->comm->size))) return mpi_failed(rc, "MPI_Comm_size", err);
    return HT_OK;
}

static void *thread_main(void *arg)
{
    struct impl *x = arg;
    prctl(PR_SET_TIMERSLACK, 1000UL); /* naps are shorter than the default slack */
    enum ht_status status = start(x, &x->error);
    pthread_mutex_lock(&x->lock);
    x->error.status = status;
    x->up = true;
    pthread_cond_broadcast(&x->news);
    pthread_mutex_unlock(&x->lock);
    if (status) return NULL;
    progress(x);
    if (x->listening) {
        MPI_Cancel(&x->heard);
        MPI_Wait(&x->heard, MPI_STATUS_IGNORE); /* of a cancelled receive: at once */
    }
    MPI_Finalize();
    return NULL;
}

/* ---- the table -------------------------------------------------------------------------------------------------- */

static void mpi_post(struct ht_comm *c, struct ht_message *m)
{
    struct impl *x = c->impl;
    pthread_mutex_lock(&x->lock);
    if (x->last)
        x->last->next = m;
    else
        x->first = m;
    x->last = m;
    pthread_cond_signal(&x->news);
    pthread_mutex_unlock(&x->lock);
}

static void mpi_listen(struct ht_comm *c, ht_comm_listener fn, void *ctx)
{
    struct impl *x = c->impl;
    pthread_mutex_lock(&x->hearing);
    pthread_mutex_lock(&x->lock);
    x->listener = fn;
    x->listener_ctx = ctx;
    pthread_cond_signal(&x->news);
    pthread_mutex_unlock(&x->lock);
    pthread_mutex_unlock(&x->hearing);
}

static void mpi_close(struct ht_comm *c, bool clean, int code)
{
    struct impl *x = c->impl;
    if (!clean) MPI_Abort(MPI_COMM_WORLD, code); /* the one call from another thread: it is the last */
    pthread_mutex_lock(&x->lock);
    x->closing = true;
    pthread_cond_signal(&x->news);
    pthread_mutex_unlock(&x->lock);
    pthread_join(x->thread, NULL);
    pthread_mutex_destroy(&x->lock);
    pthread_mutex_destroy(&x->hearing);
    pthread_cond_destroy(&x->news);
    free(x->requests);
    free(x->owners);
    free(x->ended);
    free(x);
}

static const struct ht_comm_ops mpi_ops = {.name = "mpi", .post = mpi_post, .listen = mpi_listen, .close = mpi_close};

bool ht_comm_has_mpi(void)
{
    return true;
}

enum ht_status ht_comm_mpi(struct ht_error *err, struct ht_comm **out)
{
    struct ht_comm *c = HT_NEW(struct ht_comm);
    struct impl *x = HT_NEW(struct impl);
    pthread_condattr_t attr;
    *out = NULL;
    c->ops = &mpi_ops;
    c->impl = x;
    x->comm = c;
    pthread_mutex_init(&x->lock, NULL);
    pthread_mutex_init(&x->hearing, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&x->news, &attr);
    pthread_condattr_destroy(&attr);
    enum ht_status status = HT_OK;
    int rc = pthread_create(&x->thread, NULL, thread_main, x);
    if (rc) status = ht_fail(err, HT_INFEASIBLE, "cannot start the progress thread: %s", strerror(rc));
    pthread_mutex_lock(&x->lock);
    while (!status && !x->up) pthread_cond_wait(&x->news, &x->lock);
    pthread_mutex_unlock(&x->lock);
    if (!status && (status = x->error.status)) {
        pthread_join(x->thread, NULL);
        if (err) *err = x->error;
    }
    if (status) {
        free(x);
        free(c);
        return status;
    }
    *out = c;
    return HT_OK;
}

#endif
