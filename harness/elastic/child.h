/*
 * Processes of this program that a supervisor or a drill starts. Each is the first of a group of its own, so that a terminal's Ctrl-C
 * does not reach it, and the kernel kills it with the process that has started it.
 */
#ifndef HT_HARNESS_ELASTIC_CHILD_H
#define HT_HARNESS_ELASTIC_CHILD_H

#include <sys/types.h>

/* Starts this program with the words `argv` (NULL last), with `out` as its standard output and error and with the variable `name` set
   to `value`. Returns its id; -1, with errno, if there can be no process. */
pid_t ht_child_start(char *const *argv, int out, const char *name, const char *value);

#endif
