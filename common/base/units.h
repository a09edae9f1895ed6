/*
 * Quantities as people write them: "40 GB", "25 GB/s", "312 TFLOP/s", "10 us". YAML files and the command line share
 * one grammar. Wrong input is refused with what was expected, never guessed at.
 *
 *     quantity = number [" "] unit          a unit is always written; a count has none
 *     number   = digits ["." digits]        rates, times and reals also take an exponent: 3.12e2
 *
 *     bytes        B, kB MB GB TB PB (powers of 1000), KiB MiB GiB TiB PiB (powers of 1024); letters of any case, and
 *                  without their B: "40gb" and "40G" are 40 GB
 *     bytes/s      the above with "/s", and bit/s kbit/s Mbit/s Gbit/s Tbit/s
 *     flops/s      FLOP/s with k M G T P
 *     time         ns us ms s min h
 */
#ifndef HT_BASE_UNITS_H
#define HT_BASE_UNITS_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"

enum ht_quantity {
    HT_COUNT_OF,    /* "8": a whole number without a unit */
    HT_REAL,        /* "0.85": a number without a unit */
    HT_BYTES,       /* "40 GB": whole bytes */
    HT_BYTES_PER_S, /* "25 GB/s" */
    HT_FLOPS_PER_S, /* "312 TFLOP/s" */
    HT_TIME,        /* "10 us": whole nanoseconds as an integer, seconds as a real */
};

/*
 * Parses all of `text` (len bytes) as a quantity of the given kind, in its base unit: count, bytes or nanoseconds.
 * HT_COUNT_OF, HT_BYTES and HT_TIME only. Decimal fractions are exact: "1.5 kB" is 1500, "1.5 B" is an error, and so is
 * a time finer than a nanosecond. A count may be negative ("-1"), the others not. On error err->text says what is wrong
 * and what was expected ("'40 XB' has the unknown unit 'XB'; expected ...") and *out is unchanged.
 */
enum ht_status ht_parse_whole(enum ht_quantity kind, const char *text, size_t len, struct ht_error *err, int64_t *out);

/* Parses HT_REAL, a rate (base units: 1, bytes/s, flops/s), or HT_TIME in seconds, like ht_parse_whole. The result is
   finite; only HT_REAL may be negative. */
enum ht_status ht_parse_real(enum ht_quantity kind, const char *text, size_t len, struct ht_error *err, double *out);

/* Parse the value of a command-line flag: bytes (>= 1), or a count in [min, max]. The error names `flag`:
   "--device-memory: '40' has no unit; expected ...". */
enum ht_status ht_flag_bytes(const char *flag, const char *text, struct ht_error *err, int64_t *out);
enum ht_status ht_flag_rate(const char *flag, const char *text, struct ht_error *err, double *out); /* bytes/s */
enum ht_status ht_flag_count(const char *flag, const char *text, int64_t min, int64_t max, struct ht_error *err,
                             int64_t *out);

/* Formats a quantity for people: about four digits and the largest decimal unit that keeps the number at 1 or above:
   "39.06 GB", "1.215 ms", "312 TFLOP/s", "8". `value` is in the base unit (time: nanoseconds). Returns buf. */
enum { HT_QUANTITY_TEXT = 32 };
const char *ht_format_quantity(enum ht_quantity kind, double value, char buf[HT_QUANTITY_TEXT]);
/* The same with three digits, "39.1 GB". */
const char *ht_format_rounded(enum ht_quantity kind, double value, char buf[HT_QUANTITY_TEXT]);

/* Returns an example of the kind for messages: "a size such as '40 GB' or '512 MiB'". */
const char *ht_quantity_example(enum ht_quantity kind);

#endif
