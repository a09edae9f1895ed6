// The interactive timeline of one or two iterations: zoom, hover, what an op waited for, the critical path, memory.
// `data` (timeline_page.py): lanes [{name, computes, busy}], groups [{name, colour}], ops [[lane, start, duration, group, name, iteration own?,
// critical?, bytes, index of the op it waited for or -1]], spaces [{name, capacity, classes, colours, times, values}], begin, length; seconds.
"use strict";

const NS = "http://www.w3.org/2000/svg";
const svg = document.getElementById("timeline"), tip = document.getElementById("tip");
const dim = document.getElementById("dim");
const ROW = data.lanes.length > 16 ? 15 : 26, GAP = ROW > 20 ? 6 : 3, MEMORY = 74, AXIS = 26;
const LANE = 0, START = 1, DURATION = 2, GROUP = 3, NAME = 4, OWN = 5, CRITICAL = 6, BYTES = 7, CAUSE = 8;
let from = data.begin, to = data.begin + data.length, pinned = -1, hovered = -1, drag = null;
const whole = [Math.min(data.begin, ...data.ops.map(o => o[START])), Math.max(...data.ops.map(o => o[START] + o[DURATION]))];

const escape = text => String(text).replace(/[&<>"]/g, c => ({"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;"})[c]);
function unit(value, name, steps) {
    for (const [factor, prefix] of steps)
        if (Math.abs(value) >= factor) return `${Number((value / factor).toPrecision(3))} ${prefix}${name}`;
    return `${Number(value.toPrecision(3))} ${name}`;
}
const seconds = s => unit(s, "s", [[1, ""], [1e-3, "m"], [1e-6, "µ"], [1e-9, "n"]]);
const bytes = b => unit(b, "B", [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]]);

const width = () => Math.max(300, svg.parentNode.clientWidth);
const left = () => (width() < 600 ? 84 : 140), right = () => (width() < 600 ? 34 : 44);
const x = t => left() + (t - from) / (to - from) * (width() - left() - right());
const time = px => from + (px - left()) / (width() - left() - right()) * (to - from);
const laneY = i => 8 + i * (ROW + GAP);
const memoryY = i => laneY(data.lanes.length) + AXIS + 8 + i * (MEMORY + 22);
const height = () => memoryY(data.spaces.length) + 4;
const clip = t => Math.min(Math.max(t, from), to);
const short = name => (width() < 600 ? name.replace(/^rank /, "") : name);

// ---- drawing -----------------------------------------------------------------------------------------------------

function ticks() {
    const step0 = (to - from) / (width() < 600 ? 4 : 9), power = 10 ** Math.floor(Math.log10(step0));
    const step = power * [1, 2, 5, 10].find(m => m * power >= step0), out = [], y = laneY(data.lanes.length);
    const [factor, name] = [[1, "s"], [1e-3, "ms"], [1e-6, "µs"], [1e-9, "ns"]].find(([f]) => step >= f * 0.999) || [1e-9, "ns"];
    for (let t = Math.ceil((from - data.begin) / step) * step; t <= to - data.begin + step * 1e-6; t += step) {
        const at = x(data.begin + t);
        out.push(`<line class="grid" x1="${at}" x2="${at}" y1="4" y2="${y}"/>`);
        out.push(`<text class="tick" x="${at}" y="${y + 14}" text-anchor="middle">${Number((t / factor).toPrecision(6))} ${name}</text>`);
    }
    return out;
}

function opMarkup(i, o, merged) {
    const x0 = x(clip(o[START])), x1 = x(clip(merged || o[START] + o[DURATION])), w = Math.max(x1 - x0, 0.6), y = laneY(o[LANE]);
    const lit = o[CRITICAL] && !merged, faded = !o[OWN] ? 0.3 : dim.checked && !o[CRITICAL] ? 0.22 : 1;
    const out = [`<rect data-op="${i}" x="${x0.toFixed(2)}" y="${y}" width="${w.toFixed(2)}" height="${ROW}" fill="${data.groups[o[GROUP]].colour}" ` +
        `opacity="${faded}"${lit && w > 6 ? ' class="critical"' : ""}/>`];
    if (lit) out.push(`<rect class="lit" x="${x0.toFixed(2)}" y="${y + ROW - 1}" width="${w.toFixed(2)}" height="3.5"/>`);
    if (!merged && w > 7 * o[NAME].length + 4)
        out.push(`<text class="name" x="${(x0 + x1) / 2}" y="${y + ROW / 2 + 3.5}" text-anchor="middle">${escape(o[NAME])}</text>`);
    return out.join("");
}

// Ops that are narrower than a pixel are merged with their neighbours of one colour.
function lanes() {
    const out = [], pixel = (to - from) / (width() - left() - right());
    for (const [i, lane] of data.lanes.entries()) {
        const y = laneY(i);
        if (lane.computes)
            out.push(`<rect class="idle" x="${x(clip(data.begin))}" y="${y}" width="${Math.max(0, x(clip(data.begin + data.length)) - x(clip(data.begin)))}" height="${ROW}"/>`);
        else out.push(`<line class="grid" x1="${left()}" x2="${width() - right()}" y1="${y + ROW / 2}" y2="${y + ROW / 2}"/>`);
        out.push(`<text class="label" x="${left() - 6}" y="${y + ROW / 2 + 4}" text-anchor="end">${escape(short(lane.name))}</text>`);
        out.push(`<text class="tick" x="${width() - right() + 5}" y="${y + ROW / 2 + 4}">${Math.round(100 * lane.busy)}%</text>`);
    }
    const pending = new Map();
    const flush = lane => {
        const p = pending.get(lane);
        if (p) out.push(opMarkup(p.i, p.o, p.many ? p.end : 0));
        pending.delete(lane);
    };
    data.ops.forEach((o, i) => {
        const end = o[START] + o[DURATION];
        if (end < from || o[START] > to || !o[DURATION]) return;
        const p = pending.get(o[LANE]), tiny = o[DURATION] < pixel && !o[CRITICAL];
        if (p && tiny && p.o[GROUP] === o[GROUP] && o[START] - p.end < pixel && p.tiny) {
            p.end = end;
            p.many = true;
            return;
        }
        flush(o[LANE]);
        if (tiny) pending.set(o[LANE], {i, o, end, tiny, many: false});
        else out.push(opMarkup(i, o, 0));
    });
    for (const lane of [...pending.keys()]) flush(lane);
    return out;
}

function area(space, k, y, top) {
    const upper = [], lower = [];
    const px = space.times.map(t => x(clip(t)));
    for (let i = 0; i < space.times.length; i++) {
        const next = i + 1 < space.times.length ? space.times[i + 1] : to;
        if (next < from || space.times[i] > to) continue;
        let below = 0;
        for (let c = 0; c < k; c++) below += space.values[c][i];
        const a = px[i].toFixed(1), b = x(clip(next)).toFixed(1);
        const y0 = (y + MEMORY * (1 - below / top)).toFixed(1), y1 = (y + MEMORY * (1 - (below + space.values[k][i]) / top)).toFixed(1);
        upper.push(`${a},${y1} ${b},${y1}`);
        lower.push(`${b},${y0} ${a},${y0}`);
    }
    return upper.length ? `<polygon points="${upper.join(" ")} ${lower.reverse().join(" ")}" fill="${space.colours[k]}"/>` : "";
}

function memory() {
    const out = [];
    for (const [i, space] of data.spaces.entries()) {
        const y = memoryY(i), limit = space.capacity && space.capacity < 1.5 * space.peak ? space.capacity : 0, top = 1.05 * Math.max(space.peak, limit);
        for (let k = 0; k < space.classes.length; k++) out.push(area(space, k, y, top));
        out.push(`<line class="axis" x1="${left()}" x2="${width() - right()}" y1="${y + MEMORY}" y2="${y + MEMORY}"/>`);
        out.push(`<text class="label" x="${left() - 6}" y="${y + 12}" text-anchor="end">${escape(space.name)}</text>`);
        out.push(`<text class="tick" x="${left() - 6}" y="${y + 27}" text-anchor="end">peak ${bytes(space.peak)}</text>`);
        if (space.capacity) out.push(`<text class="tick" x="${left() - 6}" y="${y + 41}" text-anchor="end">of ${bytes(space.capacity)}</text>`);
        if (limit) out.push(`<line class="capacity" x1="${left()}" x2="${width() - right()}" y1="${y + MEMORY * (1 - limit / top)}" y2="${y + MEMORY * (1 - limit / top)}"/>`);
        out.push(`<rect data-space="${i}" x="${left()}" y="${y}" width="${width() - left() - right()}" height="${MEMORY}" fill="transparent"/>`);
    }
    return out;
}

// The chain of ops that an op waited for, back to the window's edge.
function chain(i) {
    const out = [];
    for (let at = i; at >= 0 && out.length < 40; at = data.ops[at][CAUSE]) out.push(at);
    return out;
}

function arrows() {
    const at = hovered >= 0 ? hovered : pinned;
    if (at < 0) return "";
    const path = pinned >= 0 && hovered < 0 ? chain(pinned) : chain(at).slice(0, 2), out = [];
    for (let k = 0; k < path.length; k++) {
        const o = data.ops[path[k]], x0 = x(clip(o[START])), x1 = x(clip(o[START] + o[DURATION]));
        if (o[START] <= to && o[START] + o[DURATION] >= from)
            out.push(`<rect class="${k ? "cause" : "picked"}" x="${x0}" y="${laneY(o[LANE])}" width="${Math.max(1, x1 - x0)}" height="${ROW}"/>`);
        if (k + 1 < path.length) {
            const c = data.ops[path[k + 1]];
            out.push(`<line class="wait" x1="${x(clip(c[START] + c[DURATION]))}" y1="${laneY(c[LANE]) + ROW / 2}" x2="${x0}" y2="${laneY(o[LANE]) + ROW / 2}"/>`);
        }
    }
    return out.join("");
}

function draw() {
    svg.setAttribute("width", width());
    svg.setAttribute("height", height());
    const edges = [data.begin, data.begin + data.length].filter(t => t >= from && t <= to)
        .map(t => `<line class="edge" x1="${x(t)}" x2="${x(t)}" y1="2" y2="${height() - 4}"/>`);
    svg.innerHTML = `<defs><pattern id="hatch" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">` +
        `<rect width="6" height="6" fill="#f4f4f4"/><line x1="0" x2="0" y1="0" y2="6" stroke="#c4c4c4" stroke-width="1.6"/></pattern></defs>` +
        [...ticks(), ...lanes(), ...memory(), ...edges].join("") + `<g id="arrows">${arrows()}</g>`;
}

// ---- words -------------------------------------------------------------------------------------------------------

function opText(i) {
    const o = data.ops[i], cause = data.ops[o[CAUSE]], start = o[START] - data.begin;
    const lines = [`<b>${escape(o[NAME])}</b> ${escape(data.groups[o[GROUP]].name)}${o[CRITICAL] ? ", <b>on the critical path</b>" : ""}`,
        `${escape(data.lanes[o[LANE]].name)}; ${seconds(o[DURATION])}, from ${seconds(start)}`];
    if (o[BYTES]) lines.push(`${bytes(o[BYTES])}${o[DURATION] ? `, ${bytes(o[BYTES] / o[DURATION])}/s` : ""}`);
    if (cause) {
        const gap = o[START] - cause[START] - cause[DURATION];
        lines.push(`waited for ${escape(cause[NAME])} on ${escape(data.lanes[cause[LANE]].name)}${gap > 1e-9 ? `, started ${seconds(gap)} after its end` : ""}`);
    } else lines.push("what it waited for is before this window");
    return lines.join("<br>");
}

function memoryText(space, t) {
    let i = space.times.findIndex(v => v > t);
    i = (i < 0 ? space.times.length : i) - 1;
    if (i < 0) return "";
    const rows = space.classes.map((c, k) => [c, space.values[k][i], space.colours[k]]).filter(r => r[1]).reverse();
    const all = rows.reduce((sum, r) => sum + r[1], 0);
    return `<b>${escape(space.name)}</b> at ${seconds(t - data.begin)}: ${bytes(all)}<br>` +
        rows.map(([c, v, colour]) => `<i style="background:${colour}"></i>${escape(c)} ${bytes(v)}`).join("<br>");
}

function show(text, event) {
    tip.innerHTML = text;
    tip.hidden = !text;
    const room = document.documentElement.clientWidth;
    tip.style.left = `${Math.max(4, Math.min(event.clientX + 14, room - tip.offsetWidth - 8))}px`;
    tip.style.top = `${event.clientY + 18 + tip.offsetHeight > window.innerHeight ? event.clientY - tip.offsetHeight - 10 : event.clientY + 18}px`;
}

// ---- hands -------------------------------------------------------------------------------------------------------

function zoom(factor, at) {
    const least = (whole[1] - whole[0]) / 1e5, most = whole[1] - whole[0];
    const size = Math.min(most, Math.max(least, (to - from) * factor)), share = (at - from) / (to - from);
    move(at - share * size, size);
}

function move(begin, size) {
    from = Math.min(Math.max(begin, whole[0]), whole[1] - size);
    to = from + size;
    draw();
}

const reset = () => move(data.begin, Math.min(data.length, whole[1] - whole[0]));
const inside = event => event.clientX - svg.getBoundingClientRect().left;
svg.addEventListener("wheel", event => {
    event.preventDefault();
    if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) move(from + event.deltaX / width() * (to - from), to - from);
    else zoom(event.deltaY > 0 ? 1.2 : 1 / 1.2, time(inside(event)));
}, {passive: false});
const touches = new Map();
svg.addEventListener("pointerdown", event => {
    touches.set(event.pointerId, event.clientX);
    drag = {at: event.clientX, from, moved: false};
    svg.setPointerCapture(event.pointerId);
});
svg.addEventListener("pointermove", event => {
    if (touches.size === 2 && touches.has(event.pointerId)) {
        const before = [...touches.values()], gap = Math.abs(before[0] - before[1]);
        touches.set(event.pointerId, event.clientX);
        const now = [...touches.values()];
        if (gap > 4) zoom(gap / Math.max(4, Math.abs(now[0] - now[1])), time((now[0] + now[1]) / 2 - svg.getBoundingClientRect().left));
        return;
    }
    if (drag && Math.abs(event.clientX - drag.at) > 3) {
        drag.moved = true;
        tip.hidden = true;
        move(drag.from - (event.clientX - drag.at) / (width() - left() - right()) * (to - from), to - from);
        return;
    }
    const under = document.elementFromPoint(event.clientX, event.clientY), op = under && under.dataset.op;
    const space = under && under.dataset.space;
    const was = hovered;
    hovered = op === undefined || op === null ? -1 : Number(op);
    if (hovered !== was) document.getElementById("arrows").innerHTML = arrows();
    show(hovered >= 0 ? opText(hovered) : space ? memoryText(data.spaces[Number(space)], time(inside(event))) : "", event);
});
const lift = event => {
    touches.delete(event.pointerId);
    if (drag && !drag.moved && event.type === "pointerup") {
        pinned = hovered === pinned ? -1 : hovered;
        document.getElementById("pinned").innerHTML = pinned < 0 ? "" : `${opText(pinned)}<br>chain: ` +
            chain(pinned).slice(0, 12).map(i => escape(data.ops[i][NAME])).join(" ← ") + (chain(pinned).length > 12 ? " ← …" : "");
    }
    drag = null;
};
svg.addEventListener("pointerup", lift);
svg.addEventListener("pointercancel", lift);
svg.addEventListener("pointerleave", () => { tip.hidden = true; hovered = -1; if (document.getElementById("arrows")) document.getElementById("arrows").innerHTML = arrows(); });
svg.addEventListener("dblclick", reset);
document.getElementById("in").addEventListener("click", () => zoom(1 / 1.6, (from + to) / 2));
document.getElementById("out").addEventListener("click", () => zoom(1.6, (from + to) / 2));
document.getElementById("reset").addEventListener("click", reset);
dim.addEventListener("change", draw);
document.addEventListener("keydown", event => {
    const keys = {"+": () => zoom(1 / 1.4, (from + to) / 2), "-": () => zoom(1.4, (from + to) / 2), "0": reset,
        ArrowLeft: () => move(from - (to - from) / 8, to - from), ArrowRight: () => move(from + (to - from) / 8, to - from)};
    if (keys[event.key] && !event.ctrlKey && !event.metaKey) { event.preventDefault(); keys[event.key](); }
});
window.addEventListener("resize", draw);
draw();
