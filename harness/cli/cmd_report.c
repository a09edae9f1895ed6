/* hetbench report: figures and one self-contained page from the results of experiments. A Python script draws them
   (harness/report/report.py, matplotlib). */
#include "harness/cli/commands.h"
#include "harness/cli/drawing.h"
#include "harness/run/progress.h"

static enum ht_status run(const struct ht_options *options, struct ht_error *err)
{
    const char *dir = options->words[0], *out = options->out ? options->out : dir;
    const char *args[] = {
        "--out", out, options->json ? "--json" : "--", options->json ? "--" : dir, options->json ? dir : NULL, NULL};
    struct ht_progress progress = ht_progress_begin("report");
    ht_progress_beat(&progress, "drawing");
    enum ht_status status = ht_python_run("report", "report.py", args, err);
    ht_progress_end(&progress);
    return status;
}

const struct ht_command ht_cmd_report = {
    .name = "report",
    .args = "DIR",
    .help =
        "draw what experiments left in DIR: figures and one HTML page\v"
        "DIR holds results.json or results.csv of hetbench experiment, compare.json of hetbench compare --out, or "
        "folders with one each. Writes report.html, which needs nothing beside it, and the figures as PNG in figures/.",
    .example = "hetbench report results/autohete-fig3a",
    .groups = HT_OPT_REPORT,
    .min_words = 1,
    .max_words = 1,
    .run = run,
};
