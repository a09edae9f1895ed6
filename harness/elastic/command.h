/* The command line of an incarnation: the supervisor's own, with the nodes that it uses now. */
#ifndef HT_HARNESS_ELASTIC_COMMAND_H
#define HT_HARNESS_ELASTIC_COMMAND_H

#include "harness/elastic/choose.h"
#include "harness/run/options.h"

struct ht_args {
    char **words; /* NULL last */
    size_t n, cap;
};

/* Adds a word, or an option with its value, as copies. */
void ht_args_add(struct ht_args *w, const char *word);
void ht_args_add_option(struct ht_args *w, const char *name, const char *value);
void ht_args_end(struct ht_args *w);
void ht_args_free(struct ht_args *w);

/* Writes "hetbench COMMAND SYSTEM .." with all options of the training that were given. own: the group of those that are the
   supervisor's alone. without: more that are left out, NULL last; or NULL. */
void ht_command_begin(struct ht_args *w, const char *command, const struct ht_options *o, unsigned own,
                      const char *const *without);
/* Adds what an incarnation has beside them: nodes, hosts, events. fault NULL: none. */
void ht_command_add_incarnation(struct ht_args *w, const struct ht_options *o, const struct ht_choice *choice,
                                const struct ht_members *members, const char *events, const char *fault);

#endif
