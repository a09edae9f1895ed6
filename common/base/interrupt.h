/*
 * Ctrl-C, SIGTERM and SIGHUP. main() installs the handler, and long loops check ht_interrupted(). A second signal ends
 * the process at once. SIGHUP stays ignored when it is ignored at the start (nohup). SIGPIPE is ignored: a write to a
 * closed pipe fails, and the writer reports it.
 */
#ifndef HT_BASE_INTERRUPT_H
#define HT_BASE_INTERRUPT_H

#include <stdbool.h>

void ht_interrupt_install(void);
bool ht_interrupted(void);
/* Counts further signals instead of ending the process, for a process that has to end others first. */
void ht_interrupt_keep(void);
int ht_interrupt_count(void);
/* Pretends that the signal has come, or has not; for tests. */
void ht_interrupt_set(bool value);

#endif
