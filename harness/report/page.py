"""Writes one self-contained HTML page: headings, figures embedded as base64, tables. No scripts, no network."""

import base64
import html

STYLE = """
:root{--bg:#fbfbfa;--fg:#1d2125;--soft:#5c6670;--line:#d9dcdf;--card:#fff;--accent:#0b5c97;--warn:#8a3b00;--warnbg:#fdf0e2;
--good:#e3f3ea;--mid:#fbf3d5;--bad:#fbe3dc}
@media (prefers-color-scheme:dark){:root{--bg:#16191c;--fg:#e3e6e8;--soft:#9aa5af;--line:#353b41;--card:#1f2428;
--accent:#7cc0f2;--warn:#ffc48f;--warnbg:#3a2a1a;--good:#1d3a2b;--mid:#3d3719;--bad:#46261c}}
*{box-sizing:border-box}
body{margin:0;background:var(--bg);color:var(--fg);font:15px/1.5 system-ui,-apple-system,"Segoe UI",sans-serif}
main{max-width:1180px;margin:0 auto;padding:1.2rem 1.4rem 4rem}
h1{font-size:1.65rem;margin:.6rem 0 .2rem}
h2{font-size:1.25rem;margin:2.6rem 0 .4rem;padding-top:.6rem;border-top:1px solid var(--line)}
h3{font-size:1.02rem;margin:1.5rem 0 .3rem}
p{margin:.35rem 0 .7rem;max-width:52rem}
a{color:var(--accent)}
nav{position:sticky;top:0;background:var(--bg);border-bottom:1px solid var(--line);padding:.5rem 0;font-size:.9rem;z-index:1}
nav{display:flex;flex-wrap:wrap;gap:.1rem 1.1rem}nav a{text-decoration:none;white-space:nowrap}
section{scroll-margin-top:3.2rem}
.soft{color:var(--soft)}
.tag{display:inline-block;border:1px solid var(--line);border-radius:1em;padding:0 .65em;font-size:.8rem;color:var(--soft)}
.warn{background:var(--warnbg);color:var(--warn);padding:.4rem .8rem;border-radius:6px;max-width:none}
figure{margin:.6rem 0 1rem;background:#fff;border:1px solid var(--line);border-radius:8px;padding:.5rem}
figure img{display:block;width:100%;height:auto}
@media (max-width:56rem){figure{overflow-x:auto}figure img{min-width:52rem}}
.scroll{overflow-x:auto;margin:.5rem 0 1rem}
table{border-collapse:collapse;font-size:.87rem;background:var(--card);font-variant-numeric:tabular-nums}
th,td{border:1px solid var(--line);padding:.28rem .6rem;text-align:left;vertical-align:top}
th{font-weight:600;white-space:nowrap}
td.n{text-align:right;white-space:nowrap}
td.good{background:var(--good)}td.mid{background:var(--mid)}td.bad{background:var(--bad)}
td small{color:var(--soft);display:block;line-height:1.25}
pre{margin:.4rem 0}
details{margin:.6rem 0}summary{cursor:pointer;color:var(--accent)}
code,pre{font-family:ui-monospace,"DejaVu Sans Mono",monospace;font-size:.84rem}
code{overflow-wrap:anywhere}
"""


class Page:
    def __init__(self, title):
        self.title, self.parts, self.sections = title, [], []

    def section(self, name, heading, text=""):
        """Opens a section; text is HTML. The page's index lists it by its name."""
        if self.sections:
            self.parts.append("</section>")
        self.sections.append(name)
        self.parts.append(f'<section id="{name}"><h2>{html.escape(heading)}</h2>')
        if text:
            self.text(text)

    def text(self, markup):
        self.parts.append(f"<p>{markup}</p>")

    def warning(self, text):
        self.parts.append(f'<p class="warn">{html.escape(text)}</p>')

    def heading(self, text):
        self.parts.append(f"<h3>{html.escape(text)}</h3>")

    def figure(self, path, alt):
        data = base64.b64encode(path.read_bytes()).decode()
        self.parts.append(f'<figure><img alt="{html.escape(alt)}" src="data:image/png;base64,{data}"></figure>')

    def table(self, header, rows, summary=None):
        """Adds a table. A cell is text, (text, class) or (text, class, small text). With a summary the table can be folded."""
        out = ["<div class=scroll><table><tr>"] + [f"<th>{html.escape(h)}</th>" for h in header] + ["</tr>"]
        for row in rows:
            out.append("<tr>")
            for cell in row:
                text, kind, small = (*cell, "", "")[:3] if isinstance(cell, tuple) else (cell, "", "")
                note = f"<small>{html.escape(small)}</small>" if small else ""
                out.append(f"<td{f' class={chr(34)}{kind}{chr(34)}' if kind else ''}>{html.escape(text)}{note}</td>")
            out.append("</tr>")
        out.append("</table></div>")
        table = "".join(out)
        if summary:
            table = f"<details><summary>{html.escape(summary)}</summary>{table}</details>"
        self.parts.append(table)

    def html(self, intro):
        """Returns the page. intro: HTML below the title."""
        links = "".join(f'<a href="#{n}">{html.escape(n.replace("-", " "))}</a>' for n in self.sections)
        close = "</section>" if self.sections else ""
        return (f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
                f'<meta name="viewport" content="width=device-width,initial-scale=1">'
                f'<meta name="color-scheme" content="light dark"><title>{html.escape(self.title)}</title>'
                f"<style>{STYLE}</style></head><body><main><h1>{html.escape(self.title)}</h1>{intro}"
                f"<nav>{links}</nav>" + "\n".join(self.parts) + f"{close}</main></body></html>\n")
