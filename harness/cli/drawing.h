/* Pictures are drawn by Python with matplotlib (harness/report/). This finds interpreter and script, and hands what is drawn over. */
#ifndef HT_HARNESS_CLI_DRAWING_H
#define HT_HARNESS_CLI_DRAWING_H

#include "harness/result/result.h"

/* Runs a script of harness/report/ with arguments, up to a NULL. Its exit code 2 or 3 is returned as status, with the last
   line that it wrote to standard error; `of` names the command in our own messages. */
enum ht_status ht_python_run(const char *of, const char *script, const char *const *args, struct ht_error *err);

/* Draws the pipelines of a result's plan (harness/report/groups.py) to a PNG or SVG: which devices have which layers, who reduces
   with whom, memory and, of a simulation, idle shares and the schedule. HT_BAD_INPUT if the plan has no pipelines.
   Nothing happens without a path. */
enum ht_status ht_draw_plan(const struct ht_result *r, const char *path, struct ht_error *err);

/* Checks before a command begins that --plot names a file of a known kind and that it can be drawn. NULL: fine. */
enum ht_status ht_plot_check(const char *path, struct ht_error *err);

/* Draws a report (harness/report/plot.py), which is what the command prints with --json; trace: NULL, or that of the report. Nothing
   happens without a path. */
enum ht_status ht_plot(const json_t *report, const struct ht_trace *trace, const char *path, struct ht_error *err);

/* The same for a result and its trace. */
enum ht_status ht_plot_result(const struct ht_result *r, const char *path, struct ht_error *err);

#endif
