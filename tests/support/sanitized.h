/*
 * With a sanitizer everything takes five to twenty times as long and goes the same ways through the code: what a
 * release build repeats for its numbers' sake is repeated less there.
 */
#ifndef TESTS_SUPPORT_SANITIZED_H
#define TESTS_SUPPORT_SANITIZED_H

#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
enum { SANITIZED = 1 };
#else
enum { SANITIZED = 0 };
#endif

/* A test's own slow reference, which is not what is tested. */
#define UNSANITIZED __attribute__((no_sanitize("address"), no_sanitize("undefined")))

#endif
