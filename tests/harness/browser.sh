# Pages in a headless browser: sourced after support.sh by tests that open pages. Chromium's own window is never narrower than 500 pixels, so
# a page stands in a frame of the asked width.
# shellcheck shell=bash
# shellcheck disable=SC2154 # support.sh sets work and python

# in_browser WIDTH PAGE: runs the script on standard input in the page, which is so many pixels wide, and prints the array `say` that it sets.
# Status 77: no browser, or it does not start here.
in_browser() {
    command -v chromium >/dev/null || return 77
    "$python" -B - "$1" "$2" "$work" /dev/fd/3 3<&0 <<'PY'
import pathlib, sys

width, page, work, script = sys.argv[1:]
text = pathlib.Path(page).read_text(encoding="utf-8")
tell = "\nparent.postMessage(say.join(' '), '*');"
pathlib.Path(work, "inner.html").write_text(text.replace("</body>", f"<script>{open(script).read()}{tell}</script></body>"), encoding="utf-8")
pathlib.Path(work, "outer.html").write_text(
    "<!doctype html><body><script>addEventListener('message', e => document.body.setAttribute('data-say', e.data))</script>"
    f'<iframe src="inner.html" style="border:0;width:{width}px;height:900px"></iframe></body>', encoding="utf-8")
PY
    timeout 120 chromium --headless=new --no-sandbox --disable-gpu --user-data-dir="$work/chromium" --window-size=1400,1000 --virtual-time-budget=20000 \
        --dump-dom "file://$work/outer.html" >"$work/dom" 2>/dev/null || return 77
    sed -n 's/.*data-say="\([^"]*\)".*/\1/p' "$work/dom"
}
