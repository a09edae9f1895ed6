/*
 * The supervisor's own state, in STORE/elastic/ or --state: killed at any moment and started again, it goes on. One supervisor at a time has
 * the folder.
 *
 *     state.json           what is below, written whole (common/ckpt/durable.h) at each change
 *     events-K.jsonl       what incarnation K did, log-K.txt: its command and what it printed; the newest few
 */
#ifndef HT_HARNESS_ELASTIC_JOURNAL_H
#define HT_HARNESS_ELASTIC_JOURNAL_H

#include "common/base/status.h"

#include <jansson.h>
#include <limits.h>
#include <stdint.h>

struct ht_journal {
    char folder[PATH_MAX];
    int lock;
    json_t *
        root; /* {"incarnation", "faults_met", "saved", "safe", "lost": {..}, "failures": {..}, "runs": [..], "recoveries": [..]} */
};

/* Opens the folder, which is made if there is none. HT_BAD_INPUT if another supervisor has it, or if it
   cannot be read. */
enum ht_status ht_journal_open(const char *folder, struct ht_error *err, struct ht_journal *out);
void ht_journal_close(struct ht_journal *j);
enum ht_status ht_journal_write(const struct ht_journal *j, struct ht_error *err);

/* Return and set a number of the root; -1: not there. */
int64_t ht_journal_number(const struct ht_journal *j, const char *key);
void ht_journal_set(struct ht_journal *j, const char *key, int64_t value);
/* Returns a list of the root, which is made if there is none; borrowed. */
json_t *ht_journal_list(const struct ht_journal *j, const char *key);

/* Records a failure at a step. Returns how many there were in a row with this error at this step; numbers in the error, such as a
   process's, do not count. */
int64_t ht_journal_fail(struct ht_journal *j, int64_t step, const char *error);

#endif
