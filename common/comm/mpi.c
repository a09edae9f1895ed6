/*
 * The MPI transport. One progress thread in each process calls all of MPI, from MPI_Init_thread to MPI_Finalize, so
 * MPI_THREAD_FUNNELED is enough. No call blocks. While a message is in flight the thread polls MPI_Testsome: at first
 * it yields its core in between, then it takes naps that grow, since a peer may compute for long and may need this
 * core. With nothing in flight it sleeps.
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
                   "this build has no MPI, so all ranks are on one host (Debian: openmpi-bin, libopenmpi-dev)");
}

#else

#include "common/base/array.h"
#include "common/comm/launch_command.h"
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
    YIELDS = 50,            /* polls without a nap */
    SHORTEST_NAP_NS = 5000,
    LONGEST_NAP_NS = 200000,
};

struct impl {
    struct ht_comm *comm;
    pthread_t thread;
    pthread_mutex_t lock; /* guards all down to `error` */
    pthread_cond_t changed;
    struct ht_message *first, *last; /* posted, not begun */
    ht_comm_listener listener;       /* this and its ctx change under both locks */
    void *listener_ctx;
    bool started, closing;
    struct ht_error error;         /* of start() */
    pthread_mutex_t listener_lock; /* taken before `lock`; held during a call of the listener */

    /* Only for the progress thread. */
    MPI_Request *requests;
    struct ht_message **owners; /* of each request */
    size_t n, requests_cap, owners_cap;
    int *ended;
    size_t ended_cap;
    bool receiving;
    MPI_Request notify_request;
    char notification[HT_COMM_NOTIFY_BYTES];
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
    if (!ok) m->parts = -1; /* stays -1 while its other parts end */
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

/* Ends the messages that are done. Returns true if there are any. */
static bool poll_requests(struct impl *x)
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

static bool receive_notification(struct impl *x)
{
    MPI_Status status;
    int arrived = 0, bytes = 0;
    if (!x->listener) return false;
    if (!x->receiving)
        MPI_Irecv(x->notification, sizeof(x->notification), MPI_BYTE, MPI_ANY_SOURCE, HT_TAG_NOTIFY, MPI_COMM_WORLD,
                  &x->notify_request);
    x->receiving = true;
    if (MPI_Test(&x->notify_request, &arrived, &status) || !arrived) return false;
    MPI_Get_count(&status, MPI_BYTE, &bytes);
    x->receiving = false;
    x->listener(x->listener_ctx, status.MPI_SOURCE, x->notification, bytes);
    return true;
}

static bool poll_notification(struct impl *x)
{
    pthread_mutex_lock(&x->listener_lock);
    bool any = receive_notification(x);
    pthread_mutex_unlock(&x->listener_lock);
    return any;
}

/* Waits for a post; only for a short time while anything is in flight. Locked. */
static void nap(struct impl *x, int idle)
{
    if (x->first || x->closing) return;
    if (!x->n && !x->listener) {
        pthread_cond_wait(&x->changed, &x->lock);
        return;
    }
    if (idle < YIELDS) {
        pthread_mutex_unlock(&x->lock);
        sched_yield();
        pthread_mutex_lock(&x->lock);
        return;
    }
    int64_t ns = (int64_t)SHORTEST_NAP_NS * (idle - YIELDS + 1);
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += ns < LONGEST_NAP_NS ? ns : LONGEST_NAP_NS;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    pthread_cond_timedwait(&x->changed, &x->lock, &until);
}

static void progress(struct impl *x)
{
    int idle = 0;
    pthread_mutex_lock(&x->lock);
    while (!x->closing || x->first || x->n) {
        struct ht_message *posted = x->first;
        x->first = x->last = NULL;
        pthread_mutex_unlock(&x->lock);
        idle = posted ? 0 : idle + 1;
        for (struct ht_message *m = posted, *next; m; m = next) {
            next = m->next;
            begin(x, m);
        }
        if (poll_requests(x)) idle = 0;
        if (poll_notification(x)) idle = 0;
        pthread_mutex_lock(&x->lock);
        nap(x, idle);
    }
    pthread_mutex_unlock(&x->lock);
}

static enum ht_status start(struct impl *x, struct ht_error *err)
{
    int provided = 0, has_most = 0, *most, rc = MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &provided);
    if (rc) return ht_fail(err, HT_FAILED, "MPI cannot start (MPI_Init_thread returned %d)", rc);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    if (provided < MPI_THREAD_FUNNELED)
        return ht_fail(err, HT_INFEASIBLE, "this MPI cannot be used by a program with threads");
    if ((rc = MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &most, &has_most)))
        return mpi_failed(rc, "MPI_Comm_get_attr", err);
    if (!has_most || *most < HT_TAG_NOTIFY)
        return ht_fail(err, HT_INFEASIBLE, "this MPI has tags up to %d; expected %d or more (Open MPI: --mca pml ob1)",
                       has_most ? *most : 0, HT_TAG_NOTIFY);
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
    x->started = true;
    pthread_cond_broadcast(&x->changed);
    pthread_mutex_unlock(&x->lock);
    if (status) return NULL;
    progress(x);
    if (x->receiving) {
        MPI_Cancel(&x->notify_request);
        MPI_Wait(&x->notify_request, MPI_STATUS_IGNORE); /* returns at once after a cancel */
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
    pthread_cond_signal(&x->changed);
    pthread_mutex_unlock(&x->lock);
}

static void mpi_listen(struct ht_comm *c, ht_comm_listener fn, void *ctx)
{
    struct impl *x = c->impl;
    pthread_mutex_lock(&x->listener_lock);
    pthread_mutex_lock(&x->lock);
    x->listener = fn;
    x->listener_ctx = ctx;
    pthread_cond_signal(&x->changed);
    pthread_mutex_unlock(&x->lock);
    pthread_mutex_unlock(&x->listener_lock);
}

static void mpi_close(struct ht_comm *c, bool clean, int code)
{
    struct impl *x = c->impl;
    if (!clean) MPI_Abort(MPI_COMM_WORLD, code); /* the one call from another thread, and the last */
    pthread_mutex_lock(&x->lock);
    x->closing = true;
    pthread_cond_signal(&x->changed);
    pthread_mutex_unlock(&x->lock);
    pthread_join(x->thread, NULL);
    pthread_mutex_destroy(&x->lock);
    pthread_mutex_destroy(&x->listener_lock);
    pthread_cond_destroy(&x->changed);
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
    setenv("OMPI_MCA_shmem", HT_MPI_SHMEM, 0); /* of ranks that a user's mpirun or srun started */
    c->ops = &mpi_ops;
    c->impl = x;
    x->comm = c;
    pthread_mutex_init(&x->lock, NULL);
    pthread_mutex_init(&x->listener_lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&x->changed, &attr);
    pthread_condattr_destroy(&attr);
    enum ht_status status = HT_OK;
    int rc = pthread_create(&x->thread, NULL, thread_main, x);
    if (rc) status = ht_fail(err, HT_INFEASIBLE, "cannot start the progress thread: %s", strerror(rc));
    pthread_mutex_lock(&x->lock);
    while (!status && !x->started) pthread_cond_wait(&x->changed, &x->lock);
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
