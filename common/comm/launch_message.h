/*
 * Messages between a rank and its launcher's keeper, on a socket of type SOCK_SEQPACKET in the abstract namespace.
 *
 *     rank                                 keeper
 *     connects
 *     HT_LAUNCH_BEGUN                 ->
 *                                   <-     one byte: 1 when an interrupt has come before, else 0
 *     HT_LAUNCH_STREAMS               ->                                 (when MPI has started)
 *                                   <-     one byte and two file descriptors: standard output, standard error
 *     HT_LAUNCH_ENDED, status, text   ->                                 (last)
 *     the kernel closes its end, however it ended
 */
#ifndef HT_COMM_LAUNCH_MESSAGE_H
#define HT_COMM_LAUNCH_MESSAGE_H

#include "common/base/status.h"

#include <stdint.h>
#include <sys/socket.h>
#include <sys/un.h>

/* Set for ranks over several hosts, which have no such socket. Rank 0 then writes the line HT_LAUNCH_BEGUN_LINE to
   standard error when MPI has started on all of them. */
#define HT_AWAY_VARIABLE     "HETBENCH_AWAY"
#define HT_LAUNCH_BEGUN_LINE "hetbench: the ranks have begun"
/* Before that, each host's guard (launch_guard.c) writes these, and the host's name: when it begins, and when its
   daemon is connected to mpirun. */
#define HT_LAUNCH_REACHED   "hetbench: reached "
#define HT_LAUNCH_CONNECTED "hetbench: connected "

enum ht_launch_message_kind { HT_LAUNCH_BEGUN, HT_LAUNCH_STREAMS, HT_LAUNCH_ENDED };

struct ht_launch_message {
    int32_t kind, rank;
    struct ht_error error; /* of HT_LAUNCH_ENDED */
};

/* Set for ranks that ht_launch_local starts: the descriptor of a socket, on which the rank accepts connections of higher
   ranks. */
#define HT_LOCAL_VARIABLE "HETBENCH_LOCAL"

/* Fills in the address of the launcher `name`. Returns its length. */
socklen_t ht_launch_address(const char *name, struct sockaddr_un *out);
/* Fills in the address on which one of its ranks accepts the others, without mpirun. */
socklen_t ht_launch_local_address(const char *launcher, int32_t rank, struct sockaddr_un *out);

#endif
