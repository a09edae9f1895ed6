/*
 * Status codes and error text.
 *
 * A function that can fail returns an enum ht_status and fills in the struct ht_error that it was given; its results go
 * through its last pointer. The codes are the process's exit codes, so main() returns the library's status.
 */
#ifndef HT_BASE_STATUS_H
#define HT_BASE_STATUS_H

#include <stdarg.h>

enum ht_status {
    HT_OK = 0,
    HT_FAILED = 1,        /* something broke while running: I/O, a process */
    HT_BAD_INPUT = 2,     /* the user's input is wrong; the text says where and what was expected */
    HT_INFEASIBLE = 3,    /* does not fit, memory included, or is not available: an answer, not a fault */
    HT_INTERRUPTED = 130, /* Ctrl-C */
};

/* One line for a person, without control characters. `text` is empty after success. */
struct ht_error {
    enum ht_status status;
    int lacks; /* of HT_INFEASIBLE for want of memory: 1 + its enum ht_tier; 0: for another reason */
    char text[1024];
};

/* Fills *err (which may be NULL) with printf-formatted text. Returns `status`, so that `return ht_fail(...)` reads
   well. */
enum ht_status ht_fail(struct ht_error *err, enum ht_status status, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
enum ht_status ht_vfail(struct ht_error *err, enum ht_status status, const char *fmt, va_list ap)
    __attribute__((format(printf, 3, 0)));

/* The same for HT_INFEASIBLE because memory of a tier (enum ht_tier) does not suffice. */
enum ht_status ht_fail_memory(struct ht_error *err, int tier, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

#endif
