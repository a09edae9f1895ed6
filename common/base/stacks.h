/* Stacks of this process's threads, for a process that hangs: who supervises it sends SIGUSR2 to each thread. */
#ifndef HT_BASE_STACKS_H
#define HT_BASE_STACKS_H

/* Writes the stack of the thread that gets SIGUSR2 to standard error, from now on: a line "stack of NAME:", then one for each return address,
   as FILE(+OFFSET), which addr2line reads. Nothing else of the process changes. */
void ht_stacks_on_signal(void);

#endif
