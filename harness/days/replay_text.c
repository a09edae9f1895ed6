/* A replay's document as tables, and as CSV. */
#include "harness/days/replay.h"

#include "common/base/array.h"
#include "harness/result/rows.h"
#include "harness/result/table.h"

static const char *const parts[] = {"detect_s", "plan_s", "relaunch_s", "load_s", "stop_s", "stall_s"};
static const char *const sums[] = {"steps",  "lost_steps", "recoveries", "changes",  "saves",
                                   "step_s", "useful_s",   "lost_s",     "stalls_s", "other_s"};
static const char *const sides[] = {"measured", "simulated"};

static double number(const json_t *o, const char *key)
{
    return json_number_value(json_object_get(o, key));
}

static const char *text(const json_t *o, const char *key)
{
    return json_string_value(json_object_get(o, key));
}

static void print_policies(const json_t *replay, FILE *out)
{
    struct ht_table *t = ht_table_create(
        "<policy|>ETTR measured|>simulated|>points apart|>of own parts|>steps|>simulated|>lost|>simulated|"
        ">recoveries|>simulated|>changes|>simulated|>step|>simulated|<losses");
    const json_t *p;
    size_t i;
    json_array_foreach(json_object_get(replay, "policies"), i, p)
    {
        static const char *const pairs[] = {"steps", "lost_steps", "recoveries", "changes"};
        const json_t *equal = json_object_get(p, "losses_equal");
        ht_table_cell(t, "%s", text(p, "policy"));
        ht_table_cell(t, "%.3f", number(p, "ettr_measured"));
        ht_table_cell(t, "%.3f", number(p, "ettr_simulated"));
        ht_table_cell(t, "%+.1f", number(p, "difference_points"));
        ht_table_cell(t, "%.3f", number(p, "ettr_of_own_parts"));
        for (size_t k = 0; k < HT_COUNT(pairs); k++)
            for (size_t s = 0; s < HT_COUNT(sides); s++)
                ht_table_cell(t, "%.0f", number(json_object_get(p, sides[s]), pairs[k]));
        for (size_t s = 0; s < HT_COUNT(sides); s++)
            ht_table_cell(t, "%.1f s", number(json_object_get(p, sides[s]), "step_s"));
        ht_table_cell(t, "%s", json_is_true(equal) ? "bit-equal" : "not compared");
    }
    ht_table_print(t, "", out);
}

static void print_parts(const json_t *replay, FILE *out)
{
    struct ht_table *t = ht_table_create("<policy|<of|>detection|>planning|>relaunch|>loading|>stopping|>save");
    const json_t *p;
    size_t i;
    fputs("\nParts, modelled seconds: in the replay, and as simulated, from the drills.\n\n", out);
    json_array_foreach(json_object_get(replay, "policies"), i, p)
    {
        for (size_t s = 0; s < HT_COUNT(sides); s++) {
            const json_t *values = json_object_get(json_object_get(p, sides[s]), "parts");
            ht_table_cell(t, "%s", text(p, "policy"));
            ht_table_cell(t, "%s", sides[s]);
            for (size_t k = 0; k < HT_COUNT(parts); k++) ht_table_cell(t, "%.1f s", number(values, parts[k]));
        }
    }
    ht_table_print(t, "", out);
}

void ht_replay_print(const json_t *r, FILE *out)
{
    fprintf(out,
            "%s on %.0f nodes of %s, %s, batch %.0f: %.1f modelled hours, %.4g modelled seconds a second\n"
            "  local nodes there: %s; of %.0f moments after the first %.0f change them: %.0f joins, %.0f losses\n"
            "  a save every %.0f steps; measured under the emulated clock, with real kills; simulated with a drill's "
            "parts\n\n",
            text(r, "trace"), number(r, "local_nodes"), text(r, "cluster"), text(r, "model"), number(r, "batch"),
            number(r, "hours"), number(r, "speed"), text(r, "mapping"), number(r, "moments"), number(r, "changing"),
            number(r, "joins"), number(r, "losses"), number(r, "save_steps"));
    print_policies(r, out);
    print_parts(r, out);
}

static void csv_values(const json_t *o, const char *const *keys, size_t n, FILE *out)
{
    for (size_t k = 0; k < n; k++) {
        const json_t *value = json_object_get(o, keys[k]);
        if (json_is_number(value))
            fprintf(out, ",%.8g", json_number_value(value));
        else
            fputc(',', out);
    }
}

static void csv_header(FILE *out)
{
    fputs("trace,cluster,model,speed,local_nodes,changing,joins,losses,hours,seed,drill_seed,save_steps,remote_bytes_"
          "per_s,"
          "policy,keep_nodes,ettr_measured,ettr_simulated,difference_points,ettr_of_own_parts,losses_equal,checked_"
          "steps,incarnations,"
          "killed_processes,wall_s",
          out);
    for (size_t s = 0; s < HT_COUNT(sides); s++) {
        for (size_t k = 0; k < HT_COUNT(sums); k++) fprintf(out, ",%s_%s", sides[s], sums[k]);
        for (size_t k = 0; k < HT_COUNT(parts); k++) fprintf(out, ",%s_%s", sides[s], parts[k]);
    }
    fputs(",commit,command\n", out);
}

void ht_replay_csv(const json_t *r, FILE *out)
{
    static const char *const shared[] = {"speed", "local_nodes", "changing",   "joins",      "losses",
                                         "hours", "seed",        "drill_seed", "save_steps", "remote_bytes_per_s"};
    static const char *const own[] = {"keep_nodes", "ettr_measured", "ettr_simulated", "difference_points",
                                      "ettr_of_own_parts"};
    static const char *const rest[] = {"checked_steps", "incarnations", "killed_processes", "wall_s"};
    const json_t *p;
    size_t i;
    csv_header(out);
    json_array_foreach(json_object_get(r, "policies"), i, p)
    {
        ht_csv_text(text(r, "trace"), out);
        fprintf(out, ",%s,%s", text(r, "cluster"), text(r, "model"));
        csv_values(r, shared, HT_COUNT(shared), out);
        fprintf(out, ",%s", text(p, "policy"));
        csv_values(p, own, HT_COUNT(own), out);
        fprintf(out, ",%s", json_is_true(json_object_get(p, "losses_equal")) ? "yes" : "");
        csv_values(p, rest, HT_COUNT(rest), out);
        for (size_t s = 0; s < HT_COUNT(sides); s++) {
            const json_t *side = json_object_get(p, sides[s]);
            csv_values(side, sums, HT_COUNT(sums), out);
            csv_values(json_object_get(side, "parts"), parts, HT_COUNT(parts), out);
        }
        fprintf(out, ",%s,", text(r, "commit"));
        ht_csv_text(text(r, "command"), out);
        fputc('\n', out);
    }
}
