/* Lists of models, as users write them. */
#ifndef HT_MODEL_LIST_H
#define HT_MODEL_LIST_H

#include "common/model/zoo.h"

#include <stddef.h>

struct ht_listed_model {
    char *name; /* for ht_model_load */
    struct ht_model model;
};

struct ht_model_list {
    struct ht_listed_model *list; /* [n] in the words' order, each once */
    size_t n, cap;
};

/* Loads the models of words: what ht_model_load takes, and patterns such as "lohan-*" over the built-in names.
   HT_BAD_INPUT for a model that is unknown or a pattern that matches nothing. *out needs no freeing after an error. */
enum ht_status ht_model_list_create(const char *const *words, size_t n, struct ht_error *err,
                                    struct ht_model_list *out);
void ht_model_list_free(struct ht_model_list *l);

#endif
