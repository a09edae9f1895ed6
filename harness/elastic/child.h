/* hetbench as a process of its own, for drills and replays. */
#ifndef HT_HARNESS_ELASTIC_CHILD_H
#define HT_HARNESS_ELASTIC_CHILD_H

#include <sys/types.h>

/* Starts this program with `words` (NULL last) in a process group of its own, which the kernel kills with the caller. TMPDIR is DIR/tmp;
   what it prints is appended to DIR/out. Returns -1 if no process can be started. */
pid_t ht_child_start(char *const *words, const char *dir, const char *out);

#endif
