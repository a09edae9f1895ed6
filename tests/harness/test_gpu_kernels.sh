#!/usr/bin/env bash
# docs/gpu-kernels.md says for each kernel of common/kernels/cuda what has run where, and how many barriers its file has: of blocks, of
# warps, and waits for copies.
set -euo pipefail
# shellcheck source=tests/harness/support.sh
. "$(dirname "$0")/support.sh"
cd "$root"
"$python" - common/kernels/cuda docs/gpu-kernels.md <<'EOF' || fail "docs/gpu-kernels.md, What has run where"
import pathlib, re, sys

folder, page = map(pathlib.Path, sys.argv[1:])
table = page.read_text().split("## What has run where")[1].split("\n## ")[0]
rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines() if line.startswith("| `")]
wrong, kernels = [], 0
for file in sorted(folder.glob("*.cu*")):
    text = file.read_text()
    names = re.findall(r"__global__\s+void\s+(?:__launch_bounds__\([^()]*\)\s*)?(\w+)\(", text)
    barriers = len(re.findall(r"__syncthreads(?:_or)?\(|__syncwarp\(|ht_copy_wait<\d", text))
    row = next((r for r in rows if f"`{file.name}`" in r[0]), None)
    kernels += len(names)
    if len(names) != text.count("__global__"): wrong.append(f"{file}: {text.count('__global__')} kernels, found {names}")
    if row is None and names: wrong.append(f"{file}: has no row")
    if row is None: continue
    wrong += [f"{file}: {name} is not named" for name in names if not re.search(rf"\b{name}\b", row[0])]
    if names and int(re.match(r"\d*", row[2])[0] or -1) != barriers: wrong.append(f"{file}: {barriers} barriers, the table has {row[2]}")
print("\n".join(wrong) or f"{kernels} kernels")
sys.exit(bool(wrong) or not kernels)
EOF
finish
