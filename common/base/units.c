#include "common/base/units.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "common/base/array.h"

/* A unit is worth num / den base units (bits are an eighth of a byte; a nanosecond is the base of time). */
struct ht_unit_name {
    enum ht_quantity kind;
    const char *name;
    int64_t num, den;
};

#define HT_K  INT64_C(1000)
#define HT_KI INT64_C(1024)

static const struct ht_unit_name ht_units[] = {
    {HT_BYTES, "B", 1, 1},
    {HT_BYTES, "kB", HT_K, 1},
    {HT_BYTES, "MB", HT_K *HT_K, 1},
    {HT_BYTES, "GB", HT_K *HT_K *HT_K, 1},
    {HT_BYTES, "TB", HT_K *HT_K *HT_K *HT_K, 1},
    {HT_BYTES, "PB", HT_K *HT_K *HT_K *HT_K *HT_K, 1},
    {HT_BYTES, "KiB", HT_KI, 1},
    {HT_BYTES, "MiB", HT_KI *HT_KI, 1},
    {HT_BYTES, "GiB", HT_KI *HT_KI *HT_KI, 1},
    {HT_BYTES, "TiB", HT_KI *HT_KI *HT_KI *HT_KI, 1},
    {HT_BYTES, "PiB", HT_KI *HT_KI *HT_KI *HT_KI *HT_KI, 1},
    {HT_BYTES_PER_S, "B/s", 1, 1},
    {HT_BYTES_PER_S, "kB/s", HT_K, 1},
    {HT_BYTES_PER_S, "MB/s", HT_K *HT_K, 1},
    {HT_BYTES_PER_S, "GB/s", HT_K *HT_K *HT_K, 1},
    {HT_BYTES_PER_S, "TB/s", HT_K *HT_K *HT_K *HT_K, 1},
    {HT_BYTES_PER_S, "KiB/s", HT_KI, 1},
    {HT_BYTES_PER_S, "MiB/s", HT_KI *HT_KI, 1},
    {HT_BYTES_PER_S, "GiB/s", HT_KI *HT_KI *HT_KI, 1},
    {HT_BYTES_PER_S, "TiB/s", HT_KI *HT_KI *HT_KI *HT_KI, 1},
    {HT_BYTES_PER_S, "bit/s", 1, 8},
    {HT_BYTES_PER_S, "kbit/s", HT_K, 8},
    {HT_BYTES_PER_S, "Mbit/s", HT_K *HT_K, 8},
    {HT_BYTES_PER_S, "Gbit/s", HT_K *HT_K *HT_K, 8},
    {HT_BYTES_PER_S, "Tbit/s", HT_K *HT_K *HT_K *HT_K, 8},
    {HT_FLOPS_PER_S, "FLOP/s", 1, 1},
    {HT_FLOPS_PER_S, "kFLOP/s", HT_K, 1},
    {HT_FLOPS_PER_S, "MFLOP/s", HT_K *HT_K, 1},
    {HT_FLOPS_PER_S, "GFLOP/s", HT_K *HT_K *HT_K, 1},
    {HT_FLOPS_PER_S, "TFLOP/s", HT_K *HT_K *HT_K *HT_K, 1},
    {HT_FLOPS_PER_S, "PFLOP/s", HT_K *HT_K *HT_K *HT_K *HT_K, 1},
    {HT_TIME, "ns", 1, 1},
    {HT_TIME, "us", HT_K, 1},
    {HT_TIME, "ms", HT_K *HT_K, 1},
    {HT_TIME, "s", HT_K *HT_K *HT_K, 1},
    {HT_TIME, "min", 60 * HT_K *HT_K *HT_K, 1},
    {HT_TIME, "h", 3600 * HT_K *HT_K *HT_K, 1},
};

const char *ht_quantity_example(enum ht_quantity kind)
{
    switch (kind) {
    case HT_COUNT_OF:
        return "a whole number such as '8'";
    case HT_REAL:
        return "a number such as '0.85'";
    case HT_BYTES:
        return "a size such as '40 GB' or '512 MiB'";
    case HT_BYTES_PER_S:
        return "a rate such as '25 GB/s' or '200 Gbit/s'";
    case HT_FLOPS_PER_S:
        return "a rate such as '312 TFLOP/s'";
    case HT_TIME:
        return "a time such as '10 us' or '1.5 ms'";
    }
    return "a quantity";
}

/* A number as written: digits * 10^exponent, and the text after it. */
struct ht_number {
    bool negative, has_exponent;
    __int128 digits;
    int exponent;
    const char *rest; /* the unit, without leading blanks */
    int rest_len;
};

static bool ht_is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static enum ht_status ht_wrong(enum ht_quantity kind, const char *text, size_t len, const char *what,
                               struct ht_error *err)
{
    /* A long value is cut; its position in the file identifies it. */
    return ht_fail(err, HT_BAD_INPUT, "'%.*s%s' %s; expected %s", (int)(len > 60 ? 60 : len), text,
                   len > 60 ? "..." : "", what, ht_quantity_example(kind));
}

/* Parses number = ["-"] digits ["." digits] [("e" | "E") ["+" | "-"] digits]. Takes at most 30 significant digits: far
   beyond any quantity, and no overflow of the 128-bit accumulator (30 digits < 2^100). */
static const char *ht_scan_number(const char *text, size_t len, struct ht_number *out)
{
    const char *p = text, *end = text + len;
    memset(out, 0, sizeof(*out));
    if (p < end && *p == '-') {
        out->negative = true;
        p++;
    }
    if (p == end || !ht_is_digit(*p)) return "is not a number";
    int significant = 0;
    for (; p < end && ht_is_digit(*p); p++) {
        if (significant > 0 || *p != '0') significant++;
        if (significant > 30) return "has too many digits";
        out->digits = out->digits * 10 + (*p - '0');
    }
    if (p < end && *p == '.') {
        p++;
        if (p == end || !ht_is_digit(*p)) return "has no digits after the point";
        for (; p < end && ht_is_digit(*p); p++) {
            if (significant > 0 || *p != '0') significant++;
            if (significant > 30 || out->exponent < -60) return "has too many digits";
            out->digits = out->digits * 10 + (*p - '0');
            out->exponent--;
        }
    }
    /* An 'e' is an exponent only if digits follow; no unit begins with e or E. */
    if (p < end && (*p == 'e' || *p == 'E')) {
        const char *q = p + 1;
        bool minus = q < end && *q == '-';
        if (q < end && (*q == '-' || *q == '+')) q++;
        if (q == end || !ht_is_digit(*q)) return "has an exponent without digits";
        int e = 0;
        for (; q < end && ht_is_digit(*q); q++) {
            e = e * 10 + (*q - '0');
            if (e > 400) return "has an exponent out of range";
        }
        out->exponent += minus ? -e : e;
        out->has_exponent = true;
        p = q;
    }
    while (p < end && *p == ' ') p++;
    out->rest = p;
    out->rest_len = (int)(end - p > 40 ? 40 : end - p);
    return NULL;
}

/* Returns true if text[len] names the unit. Sizes have no bits, so letters of any case and those before the B suffice:
   "40gb", "40G". */
static bool ht_is_unit(const struct ht_unit_name *u, const char *text, size_t len)
{
    size_t n = strlen(u->name);
    if (u->kind != HT_BYTES) return n == len && memcmp(u->name, text, n) == 0;
    return (n == len || (len > 0 && n == len + 1)) && strncasecmp(u->name, text, len) == 0;
}

/* Finds the unit after the number. A kind without units takes none. */
static enum ht_status ht_scan_unit(enum ht_quantity kind, const char *text, size_t len, const struct ht_number *n,
                                   struct ht_error *err, const struct ht_unit_name **out)
{
    char what[96];
    static const struct ht_unit_name none = {HT_COUNT_OF, "", 1, 1};
    if (kind == HT_COUNT_OF || kind == HT_REAL) {
        *out = &none;
        if (!n->rest_len) return HT_OK;
        snprintf(what, sizeof(what), "has '%.*s' after the number", n->rest_len, n->rest);
        return ht_wrong(kind, text, len, what, err);
    }
    if (!n->rest_len) return ht_wrong(kind, text, len, "has no unit", err);
    const struct ht_unit_name *other = NULL;
    for (size_t i = 0; i < HT_COUNT(ht_units); i++) {
        const struct ht_unit_name *u = &ht_units[i];
        if (!ht_is_unit(u, n->rest, (size_t)(text + len - n->rest))) continue;
        if (u->kind == kind) {
            *out = u;
            return HT_OK;
        }
        other = u;
    }
    snprintf(what, sizeof(what), "has the %s unit '%.*s'", other ? "wrong" : "unknown", n->rest_len, n->rest);
    return ht_wrong(kind, text, len, what, err);
}

enum ht_status ht_parse_whole(enum ht_quantity kind, const char *text, size_t len, struct ht_error *err, int64_t *out)
{
    struct ht_number n;
    const struct ht_unit_name *unit;
    const char *bad = ht_scan_number(text, len, &n);
    if (bad) return ht_wrong(kind, text, len, bad, err);
    enum ht_status st = ht_scan_unit(kind, text, len, &n, err, &unit);
    if (st) return st;
    if (n.has_exponent) return ht_wrong(kind, text, len, "is written with an exponent", err);
    if (n.negative && kind != HT_COUNT_OF) return ht_wrong(kind, text, len, "is negative", err);
    if (kind == HT_COUNT_OF && n.exponent < 0) return ht_wrong(kind, text, len, "is not a whole number", err);

    /* value = digits * num / 10^-exponent, in 128 bits. */
    __int128 digits = n.digits, scale = 1;
    for (int e = n.exponent; e < 0; e++) {
        if (digits % 10 == 0) {
            digits /= 10;
        } else if (scale < (__int128)1000000000000000000) {
            scale *= 10;
        } else {
            return ht_wrong(kind, text, len, "has too many digits", err);
        }
    }
    /* INT64_MAX * scale < 2^63 * 10^18 < 2^123, so neither side overflows. */
    if (digits > (__int128)INT64_MAX * scale / unit->num) return ht_wrong(kind, text, len, "is too large", err);
    digits *= unit->num;
    if (digits % scale != 0)
        return ht_wrong(kind, text, len,
                        kind == HT_TIME ? "is finer than a nanosecond" : "is not a whole number of bytes", err);
    digits /= scale;
    *out = n.negative ? -(int64_t)digits : (int64_t)digits;
    return HT_OK;
}

enum ht_status ht_parse_real(enum ht_quantity kind, const char *text, size_t len, struct ht_error *err, double *out)
{
    struct ht_number n;
    const struct ht_unit_name *unit;
    const char *bad = ht_scan_number(text, len, &n);
    if (bad) return ht_wrong(kind, text, len, bad, err);
    enum ht_status st = ht_scan_unit(kind, text, len, &n, err, &unit);
    if (st) return st;
    if (n.negative && kind != HT_REAL) return ht_wrong(kind, text, len, "is negative", err);

    /* strtod rounds the decimal correctly. The number is written again, so that strtod sees no unit and no locale. */
    char buf[64], digits[40];
    int k = sizeof(digits) - 1;
    digits[k] = 0;
    __int128 d = n.digits;
    do {
        digits[--k] = (char)('0' + (int)(d % 10));
        d /= 10;
    } while (d);
    snprintf(buf, sizeof(buf), "%s%se%d", n.negative ? "-" : "", digits + k, n.exponent);
    double v = strtod(buf, NULL) * (double)unit->num / (double)unit->den;
    if (kind == HT_TIME) v /= 1e9;
    if (!isfinite(v)) return ht_wrong(kind, text, len, "is too large", err);
    *out = v;
    return HT_OK;
}

static enum ht_status ht_flag_error(const char *flag, struct ht_error *err)
{
    char text[900];
    snprintf(text, sizeof(text), "%.*s", (int)sizeof(text) - 1, err->text);
    return ht_fail(err, HT_BAD_INPUT, "%s: %s", flag, text);
}

enum ht_status ht_flag_bytes(const char *flag, const char *text, struct ht_error *err, int64_t *out)
{
    int64_t v = 0;
    if (ht_parse_whole(HT_BYTES, text, strlen(text), err, &v)) return ht_flag_error(flag, err);
    if (v < 1)
        return ht_fail(err, HT_BAD_INPUT, "%s: '%s' is zero; expected %s", flag, text, ht_quantity_example(HT_BYTES));
    *out = v;
    return HT_OK;
}

enum ht_status ht_flag_rate(const char *flag, const char *text, struct ht_error *err, double *out)
{
    double v = 0;
    if (ht_parse_real(HT_BYTES_PER_S, text, strlen(text), err, &v)) return ht_flag_error(flag, err);
    if (!(v >= 1e3 && v <= 17e12)) /* the simulator shares out at most 2^44 bytes/s */
        return ht_fail(err, HT_BAD_INPUT, "%s: '%s' is %s; expected %s", flag, text,
                       v < 1e3 ? "less than 1 kB/s" : "more than 17 TB/s", ht_quantity_example(HT_BYTES_PER_S));
    *out = v;
    return HT_OK;
}

enum ht_status ht_flag_count(const char *flag, const char *text, int64_t min, int64_t max, struct ht_error *err,
                             int64_t *out)
{
    int64_t v = 0;
    if (ht_parse_whole(HT_COUNT_OF, text, strlen(text), err, &v)) return ht_flag_error(flag, err);
    if (v < min || v > max)
        return ht_fail(err, HT_BAD_INPUT, "%s: %lld is out of range; expected %lld to %lld", flag, (long long)v,
                       (long long)min, (long long)max);
    *out = v;
    return HT_OK;
}

/* Writes value with so many digits, in the largest decimal unit that keeps it, rounded, at 1 or above: of four, 999.96 MB
   is "1 GB", not "1000 MB". */
static const char *format(enum ht_quantity kind, double value, int digits, char buf[HT_QUANTITY_TEXT])
{
    if (kind == HT_COUNT_OF) {
        snprintf(buf, HT_QUANTITY_TEXT, "%.0f", value);
        return buf;
    }
    double rounds_up = 1 - 0.5 * pow(10, -digits);
    const struct ht_unit_name *best = NULL;
    for (size_t i = 0; i < HT_COUNT(ht_units); i++) {
        const struct ht_unit_name *u = &ht_units[i];
        bool decimal = u->den == 1 && u->name[1] != 'i' && u->name[0] != 'h'; /* no KiB, no min, no h */
        if (u->kind != kind || !decimal) continue;
        if (!best || fabs(value) >= rounds_up * (double)u->num) best = u;
    }
    snprintf(buf, HT_QUANTITY_TEXT, "%.*g%s%s", digits, best ? value / (double)best->num : value, best ? " " : "",
             best ? best->name : "");
    return buf;
}

const char *ht_format_quantity(enum ht_quantity kind, double value, char buf[HT_QUANTITY_TEXT])
{
    return format(kind, value, 4, buf);
}

const char *ht_format_rounded(enum ht_quantity kind, double value, char buf[HT_QUANTITY_TEXT])
{
    return format(kind, value, 3, buf);
}
