/*
 * Ctrl-C, SIGTERM and SIGHUP. main() installs the handler; long loops ask. A second signal ends the process at once.
 * SIGHUP stays ignored when it is at the start (nohup). SIGPIPE is ignored: a write to a closed pipe fails, and the
 * writer says so.
 */
#ifndef HT_BASE_INTERRUPT_H
#define HT_BASE_INTERRUPT_H

#include <stdbool.h>

void ht_interrupt_install(void);
bool ht_interrupted(void);
/* For a process that has others to end first: from here on further signals are counted instead. */
void ht_interrupt_keep(void);
int ht_interrupt_count(void);
/* For tests: as if the signal had come, or as if it had not. */
void ht_interrupt_set(bool value);

#endif
