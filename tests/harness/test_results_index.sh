#!/usr/bin/env bash
# The index of experiments is that of the results in the tree, and all that it points to is there.
set -euo pipefail
# shellcheck source=tests/harness/support.sh
. "$(dirname "$0")/support.sh"
cd "$work"
mkdir -p tree/scripts
cp "$root/scripts/results-index" tree/scripts/
ln -s "$root/harness" tree/harness
cp -r "$root/results" tree/results
chmod -R u+w tree/results
index=("$python" -B tree/scripts/results-index)
"${index[@]}" --check || fail "the index is stale"

"$python" -B - tree/results "$hetbench" <<'PY' || fail "the index does not hold together"
import pathlib, re, subprocess, sys

results, known = pathlib.Path(sys.argv[1]), subprocess.run([sys.argv[2], "list", "experiments"], capture_output=True, text=True, check=True).stdout
page, readme = ((results / n).read_text() for n in ("index.html", "README.md"))
links = set(re.findall(r'(?:href|src)="([^"#:]+)"', page)) | {l for l in re.findall(r'\]\(([^)#:]+)\)', readme)}
missing = [l for l in links if not (results / l).exists() and not l.startswith("../")]
assert links and not missing, missing
shown = {p.name for p in (results / "figures").iterdir()} - {l.removeprefix("figures/") for l in links}
assert not shown, f"pictures without an entry: {shown}"
for folder in sorted(p.parent.name for p in results.glob("*/results.csv") if f"\n{p.parent.name} " in known):
    assert f"<h3>{folder}</h3>" in page and f"[`{folder}`]" in readme, folder
PY

# Other results are another index.
sed -i '2s/"ok",[0-9.]*/"ok",1000/' tree/results/autohete-fig4/results.csv
rm -r tree/results/sysx-fig9
"${index[@]}" --check 2>why && fail "an experiment that is gone is still listed"
grep -q "^stale: results/README.md, results/index.html;" why || fail "$(cat why)"
"${index[@]}"
"${index[@]}" --check || fail "written anew, the index is stale"
grep -q "<h3>sysx-fig9</h3>" tree/results/index.html && fail "an experiment that is gone is listed"
finish
