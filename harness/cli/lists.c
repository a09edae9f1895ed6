#include "harness/cli/lists.h"

#include "common/base/array.h"
#include "common/base/text.h"
#include "harness/run/registry.h"

#include <stdlib.h>
#include <string.h>

void ht_words_split(const char *commas, struct ht_words *out)
{
    *out = (struct ht_words){.text = ht_strdup(commas)};
    char *save = NULL;
    for (char *w = strtok_r(out->text, ",", &save); w; w = strtok_r(NULL, ",", &save))
        HT_PUSH(out->list, out->n, out->cap, w);
}

void ht_words_free(struct ht_words *w)
{
    free(w->list);
    free(w->text);
}

bool ht_words_have(const struct ht_words *w, const char *word)
{
    return ht_index_of(word, w->list, w->n) < w->n;
}

enum ht_status ht_words_of_systems(const char *commas, bool ablations, struct ht_error *err, struct ht_words *out)
{
    const struct ht_system *s;
    enum ht_status status = HT_OK;
    ht_words_split(commas ? commas : "", out);
    for (size_t i = 0; !commas && (s = ht_system_at(i)); i++)
        if (ablations || !ht_system_is_ablation(s)) HT_PUSH(out->list, out->n, out->cap, s->name);
    if (!out->n) return ht_fail(err, HT_BAD_INPUT, "the list of systems is empty; expected A,B or none for all");
    for (size_t i = 0; i < out->n && status == HT_OK; i++) status = ht_system_find(out->list[i], err, &s);
    return status;
}

size_t ht_note_of(struct ht_notes *notes, const char *reason)
{
    for (size_t i = 0; i < notes->n; i++)
        if (!strcmp(notes->list[i], reason)) return i + 1;
    HT_PUSH(notes->list, notes->n, notes->cap, ht_strdup(reason));
    return notes->n;
}

void ht_notes_print(const struct ht_notes *notes, FILE *out)
{
    for (size_t i = 0; i < notes->n; i++) fprintf(out, "%s[%zu] %s\n", i ? "" : "\n", i + 1, notes->list[i]);
}

void ht_notes_free(struct ht_notes *notes)
{
    for (size_t i = 0; i < notes->n; i++) free(notes->list[i]);
    free(notes->list);
}
