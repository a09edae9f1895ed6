/*
 * Mixed-integer linear programs, small ones: a few variables and rows, solved in milliseconds by GLPK.
 *
 *     minimise   objective 1, then objective 2 among the optima of 1, then 3, ...
 *     subject to lower <= sum of coefficient x variable <= upper   for each row
 *                lower <= variable <= upper, some variables integer
 *
 * The order of objectives is the tie-break: without one, which of several optima comes out depends on the solver and
 * its version. It is carried out by re-solving: after each objective a row is added that keeps it at its optimum,
 * within a tolerance.
 *
 * GLPK ends the process when it is called wrongly, so a problem is kept in tables of our own and checked before GLPK
 * sees any of it. Without GLPK at configure time, ht_milp_available() is false and solving is HT_INFEASIBLE; callers
 * have a search of their own for that (it is also what tests hold the solver against).
 *
 * Scale so that coefficients and values lie within some 1e-4 .. 1e6 (GiB and ms, not bytes and ns): GLPK's tolerances
 * are relative to about 1.
 */
#ifndef HT_SOLVE_MILP_H
#define HT_SOLVE_MILP_H

#include "common/base/status.h"

#include <math.h>
#include <stdbool.h>

struct ht_milp;

enum ht_milp_kind { HT_MILP_REAL, HT_MILP_INTEGER };

bool ht_milp_available(void); /* was the solver there at configure time? */

struct ht_milp *ht_milp_create(const char *name);
void ht_milp_destroy(struct ht_milp *m);

/* Returns the variable's index: 0, 1, ... Bounds may be -INFINITY, INFINITY. `name` is copied and is for errors. */
int ht_milp_variable(struct ht_milp *m, const char *name, enum ht_milp_kind kind, double lower, double upper);
/* Returns the row's index. */
int ht_milp_row(struct ht_milp *m, const char *name, double lower, double upper);
/* Adds a term to a row; terms of the same variable add up. */
void ht_milp_term(struct ht_milp *m, int row, int variable, double coefficient);
/* Appends an objective to be minimised after those before it; returns its index. slack >= 0: how far above its optimum
   the objectives after it may leave it. */
int ht_milp_objective(struct ht_milp *m, const char *name, double slack);
void ht_milp_objective_term(struct ht_milp *m, int objective, int variable, double coefficient);

enum { HT_MILP_TIME_LIMIT_MS = 10000 };

/*
 * Solves. values: [number of variables], unchanged on error; integer variables come out as exact integers.
 * HT_BAD_INPUT: a bound or coefficient is not a number, or lower > upper (the text names it). HT_INFEASIBLE: no point
 * satisfies the rows, or there is no solver. HT_FAILED: unbounded, out of time, or GLPK complained (its words are
 * given).
 */
enum ht_status ht_milp_solve(const struct ht_milp *m, struct ht_error *err, double *values);

#endif
