/* Names to numbers, for graph files. Internal. The names themselves belong to the caller and must outlive the table. */
#ifndef HT_SCHEDULE_SYMBOLS_H
#define HT_SCHEDULE_SYMBOLS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ht_symbol {
    const char *name; /* NULL: free slot */
    int32_t value;
    bool ambiguous; /* added more than once */
};

struct ht_symbols {
    struct ht_symbol *slots;
    size_t n_slots, n; /* n_slots: a power of two, at least twice n */
};

/* Adds a name; false if it was there (which keeps the first value and is ambiguous from now on). */
bool ht_symbols_add(struct ht_symbols *t, const char *name, int32_t value);
/* The entry, or NULL. */
const struct ht_symbol *ht_symbols_find(const struct ht_symbols *t, const char *name);
void ht_symbols_free(struct ht_symbols *t);

/* Is the text a number in a reference ("12") rather than a name? */
bool ht_all_digits(const char *text);
/* Printable ASCII only: what names are made of. */
bool ht_printable(const char *text, size_t max);

#endif
