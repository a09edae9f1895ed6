/* Lists of text: a value with commas, cut; and the notes below a table. */
#ifndef HT_HARNESS_CLI_LISTS_H
#define HT_HARNESS_CLI_LISTS_H

#include "common/base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

struct ht_words {
    char *text; /* the words, cut at the commas */
    const char **list;
    size_t n, cap;
};

/* Cuts "A,B" into words. Empty ones are left out. */
void ht_words_split(const char *commas, struct ht_words *out);
void ht_words_free(struct ht_words *w);
bool ht_words_have(const struct ht_words *w, const char *word);
/* Cuts a list of systems, NULL for all (ablations only if wanted), and checks that it has some and that all exist. Free it
   also after an error. */
enum ht_status ht_words_of_systems(const char *commas, bool ablations, struct ht_error *err, struct ht_words *out);

/* Reasons of rows that do not run. Each is listed once, whole, below the table. */
struct ht_notes {
    char **list;
    size_t n, cap;
};

/* Returns the number of a reason, from 1. */
size_t ht_note_of(struct ht_notes *notes, const char *reason);
void ht_notes_print(const struct ht_notes *notes, FILE *out);
void ht_notes_free(struct ht_notes *notes);

#endif
