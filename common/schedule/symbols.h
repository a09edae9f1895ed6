/* A table from names to numbers, for graph files. Internal. The names belong to the caller and must outlive the
   table. */
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

/* Adds a name. Returns false if it existed; it then keeps its first value and becomes ambiguous. */
bool ht_symbols_add(struct ht_symbols *t, const char *name, int32_t value);
/* Returns the entry, or NULL. */
const struct ht_symbol *ht_symbols_find(const struct ht_symbols *t, const char *name);
void ht_symbols_free(struct ht_symbols *t);

/* Returns true if the text of a reference is a number ("12"), not a name. */
bool ht_all_digits(const char *text);
/* Returns true if the text is printable ASCII, as names must be. */
bool ht_printable(const char *text, size_t max);

#endif
