#include "common/schedule/symbols.h"

#include "common/base/array.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

static size_t slot_of(const struct ht_symbols *t, const char *name)
{
    size_t i = XXH3_64bits(name, strlen(name)) & (t->n_slots - 1);
    while (t->slots[i].name && strcmp(t->slots[i].name, name) != 0) i = (i + 1) & (t->n_slots - 1);
    return i;
}

bool ht_symbols_add(struct ht_symbols *t, const char *name, int32_t value)
{
    if (2 * (t->n + 1) > t->n_slots) {
        struct ht_symbols grown = {.n_slots = t->n_slots ? 2 * t->n_slots : 64, .n = t->n};
        grown.slots = HT_NEW_ARRAY(struct ht_symbol, grown.n_slots);
        for (size_t i = 0; i < t->n_slots; i++)
            if (t->slots[i].name) grown.slots[slot_of(&grown, t->slots[i].name)] = t->slots[i];
        free(t->slots);
        *t = grown;
    }
    struct ht_symbol *s = &t->slots[slot_of(t, name)];
    if (s->name) {
        s->ambiguous = true;
        return false;
    }
    *s = (struct ht_symbol){.name = name, .value = value};
    t->n++;
    return true;
}

const struct ht_symbol *ht_symbols_find(const struct ht_symbols *t, const char *name)
{
    if (!t->n_slots) return NULL;
    const struct ht_symbol *s = &t->slots[slot_of(t, name)];
    return s->name ? s : NULL;
}

void ht_symbols_free(struct ht_symbols *t)
{
    free(t->slots);
    *t = (struct ht_symbols){0};
}

bool ht_all_digits(const char *text)
{
    if (!*text) return false;
    while (*text >= '0' && *text <= '9') text++;
    return !*text;
}

bool ht_printable(const char *text, size_t max)
{
    for (size_t i = 0; i < max && text[i]; i++)
        if (text[i] < ' ' || text[i] > '~') return false;
    return true;
}
