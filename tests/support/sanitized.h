/*
 * With a sanitizer everything takes five to twenty times as long and takes the same paths through the code. So tests
 * that repeat something for the sake of the numbers repeat it less there.
 */
#ifndef TESTS_SUPPORT_SANITIZED_H
#define TESTS_SUPPORT_SANITIZED_H

#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
enum { SANITIZED = 1 };
#else
enum { SANITIZED = 0 };
#endif

/* Marks a test's own slow reference, which needs no sanitizer. */
#define UNSANITIZED __attribute__((no_sanitize("address"), no_sanitize("undefined")))

#endif
