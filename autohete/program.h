/* The integer linear program over c, p, o, to which struct autohete_model adds rows. Internal to solve.c and period.c. */
#ifndef AUTOHETE_PROGRAM_H
#define AUTOHETE_PROGRAM_H

#include "autohete/autohete.h"
#include "common/solve/milp.h"

struct autohete_program {
    struct ht_milp *m;
    double ns, bytes;  /* scales: divide times and bytes by these */
    int c, p, o, v, z; /* variables; v is the caller's (autohete_add_overlapped) */
};

/* Adds a row: lower <= sum of c, p, o with these factors <= upper, all divided by `scale`. Returns its index. */
int autohete_add_row(struct autohete_program *q, const char *name, double lower, double upper, double c, double p,
                     double o, double scale);
/* Adds the rows of v <= max(0, min(p, c - less - (L - o))). */
void autohete_add_overlapped(struct autohete_program *q, const struct autohete_profile *f, int64_t less);
/* Adds T_fwd + T_bwd of every micro-batch to the objective. */
void autohete_add_passes(struct autohete_program *q, const struct autohete_profile *f, int objective);

#endif
