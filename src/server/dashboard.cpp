#include "server/dashboard.h"

namespace klotski {

namespace {

constexpr std::string_view kPage = R"HTML(<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Klotski</title>
<style>
:root { color-scheme: light dark; --back: #fff; --text: #1d2433; --soft: #667085; --card: #f4f6fa; --bar: #2f6fde; }
@media (prefers-color-scheme: dark) {
  :root { --back: #12151c; --text: #e8ebf2; --soft: #98a2b3; --card: #1d222d; --bar: #6ea0f7; }
}
body { margin: 0 auto; padding: 16px; max-width: 880px; background: var(--back); color: var(--text);
  font: 16px/1.4 system-ui, sans-serif; }
h1 { font-size: 20px; margin: 0 0 4px; overflow-wrap: anywhere; }
h2 { font-size: 15px; margin: 24px 0 8px; }
p { margin: 0 0 16px; color: var(--soft); }
.cards { display: grid; gap: 12px; grid-template-columns: repeat(auto-fit, minmax(140px, 1fr)); }
.card { background: var(--card); border-radius: 8px; padding: 12px; }
.card b { display: block; font-size: 26px; font-variant-numeric: tabular-nums; }
.card span, .line span { color: var(--soft); font-size: 14px; }
.line { margin-bottom: 10px; }
.track { height: 8px; border-radius: 4px; background: var(--card); overflow: hidden; }
.track i { display: block; height: 100%; background: var(--bar); }
svg { display: block; width: 100%; height: 90px; background: var(--card); border-radius: 8px; }
polyline { fill: none; stroke: var(--bar); stroke-width: 2; vector-effect: non-scaling-stroke; }
.line svg { height: 22px; border-radius: 4px; }
.attention { fill: #2f6fde; background: #2f6fde; }
.gate { fill: #b77900; background: #b77900; }
.expert { fill: #12875f; background: #12875f; }
.combine { fill: #8a4fd3; background: #8a4fd3; }
.other { fill: #7b8494; background: #7b8494; }
.legend { margin-bottom: 8px; }
.legend span { white-space: nowrap; margin-right: 8px; }
.legend i { display: inline-block; width: 12px; height: 12px; border-radius: 3px; margin-right: 4px; }
table { width: 100%; border-collapse: collapse; font-size: 15px; }
td { padding: 5px 0; border-top: 1px solid var(--card); vertical-align: top; }
td:last-child { text-align: right; font-variant-numeric: tabular-nums; padding-left: 12px; }
</style>
<h1 id="model">Klotski</h1>
<p id="state">asking the server ...</p>
<div class="cards">
  <div class="card"><b id="speed">-</b><span>tokens a second</span></div>
  <div class="card"><b id="running">-</b><span>running</span></div>
  <div class="card"><b id="queue">-</b><span>waiting</span></div>
  <div class="card"><b id="experts">-</b><span>of experts found in memory</span></div>
  <div class="card"><b id="tokens">-</b><span>tokens generated</span></div>
  <div class="card"><b id="connections">-</b><span>connections</span></div>
</div>
<h2>Tokens a second, last two minutes</h2>
<svg viewBox="0 0 120 100" preserveAspectRatio="none"><polyline id="curve" points=""/></svg>
<h2>Lanes: <span id="window">the latest work</span></h2>
<p class="legend"><span><i class="attention"></i>attention</span> <span><i class="gate"></i>gate</span>
  <span><i class="expert"></i>expert</span> <span><i class="combine"></i>combine</span>
  <span><i class="other"></i>other</span></p>
<div id="timeline"></div>
<h2>Memory against its limits</h2><div id="memories"></div>
<h2>Expert cache</h2><table id="cache"></table>
<h2>Predictor: <span id="predictor">-</span></h2><table id="prediction"></table>
<h2>Keys and values</h2><table id="keys"></table>
<h2>Bytes moved</h2><div id="lanes"></div>
<script>
"use strict";
const show = (id, text) => { document.getElementById(id).textContent = text; };
const size = bytes => {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  for (; bytes >= 1024 && unit < 4; ++unit) bytes /= 1024;
  return bytes.toFixed(unit ? 1 : 0) + " " + units[unit];
};
const line = (name, value, share) => {
  const row = document.createElement("div");
  row.className = "line";
  row.append(name + " ");
  const figure = document.createElement("span");
  figure.textContent = value;
  row.append(figure);
  if (share !== undefined) {
    const track = document.createElement("div");
    track.className = "track";
    const bar = document.createElement("i");
    bar.style.width = Math.min(100, 100 * share) + "%";
    track.append(bar);
    row.append(track);
  }
  return row;
};
const count = number => Number(number).toLocaleString("en");
const percent = (part, whole) => whole ? (100 * part / whole).toFixed(1) + " %" : "-";
const fill = (id, rows) => document.getElementById(id).replaceChildren(...rows.map(cells => {
  const row = document.createElement("tr");
  row.append(...cells.map(text => {
    const cell = document.createElement("td");
    cell.textContent = text;
    return cell;
  }));
  return row;
}));
const svg = (name, attributes) => {
  const element = document.createElementNS(document.querySelector("svg").namespaceURI, name);
  for (const key in attributes) element.setAttribute(key, attributes[key]);
  return element;
};
const kinds = ["attention", "gate", "expert", "combine"];
const kind = work => kinds.find(one => work.includes(one)) || "other";
// One strip a lane: the spans that ran last, to scale.
function strips(lanes, spans) {
  const end = Math.max(1, ...spans.map(s => s[3]));
  show("window", spans.length ? "the last " + (end / 1000).toFixed(1) + " ms of work" : "nothing ran yet");
  return lanes.map((lane, index) => {
    const own = spans.filter(s => s[0] === index);
    const busy = own.reduce((sum, s) => sum + s[3] - s[2], 0);
    const row = line(lane.name, "busy " + percent(Math.min(busy, end), end) + " of it, " +
      lane.busy_seconds.toFixed(1) + " s in all");
    const strip = svg("svg", { viewBox: "0 0 1000 10", preserveAspectRatio: "none", role: "img",
      "aria-label": "spans of " + lane.name });
    strip.append(...own.map(s => svg("rect", { x: 1000 * s[2] / end, y: 0, height: 10,
      width: Math.max(1, 1000 * (s[3] - s[2]) / end), class: kind(s[1]) })));
    row.append(strip);
    return row;
  });
}
const speeds = [];
let key = sessionStorage.getItem("key") || "";
function draw(s) {
  show("model", s.model);
  show("state", (s.ready ? "ready" : "not ready") + ", up for " + Math.round(s.uptime_seconds) + " s, process " +
    size(s.resident_bytes));
  show("speed", s.tokens_per_second.toFixed(1));
  show("running", s.running);
  show("queue", s.queue);
  show("experts", percent(s.experts_found, s.experts_asked));
  show("tokens", count(s.generated_tokens));
  show("connections", s.connections);
  speeds.push(s.tokens_per_second);
  if (speeds.length > 120) speeds.shift();
  const most = Math.max(1, ...speeds);
  document.getElementById("curve").setAttribute("points",
    speeds.map((v, i) => i + 120 - speeds.length + "," + (98 - 94 * v / most)).join(" "));
  document.getElementById("timeline").replaceChildren(...strips(s.lanes, s.spans));
  document.getElementById("memories").replaceChildren(...s.memories.map(m =>
    line(m.name, size(m.used_bytes) + " of " + size(m.limit_bytes) + ": " +
      m.uses.filter(u => u.bytes).map(u => u.kind + " " + size(u.bytes)).join(", "),
      m.used_bytes / m.limit_bytes)));
  fill("cache", [
    ["experts asked for by passes", count(s.experts_asked)],
    ["found in memory", count(s.experts_found)],
    ["evicted for others", count(s.experts_evicted)],
    ["brought ahead and used in time", size(s.prefetch.useful_bytes)],
    ["brought ahead, but late", size(s.prefetch.late_bytes)],
    ["brought ahead for nothing", size(s.prefetch.wasted_bytes)],
    ["computing waited for transfers", (100 * s.waited_share).toFixed(1) + " % of the time"]]);
  show("predictor", s.predictor.name || "-");
  fill("prediction", [
    ["experts foretold", count(s.predictor.foretold)],
    ["of these chosen by a token", percent(s.predictor.participated, s.predictor.foretold)],
    ["passes in which it was judged", count(s.predictor.judged_passes)],
    ["passes that followed it", count(s.predictor.followed_passes)],
    ["time that following it saves", (100 * s.predictor.gain).toFixed(1) + " %"]]);
  fill("keys", [
    ["in use, of " + size(s.kv.limit_bytes), size(s.kv.used_bytes)],
    ["pages kept for common beginnings", size(s.kv.kept_bytes)],
    ["requests that found their beginning", count(s.prefix.hits)],
    ["tokens that were not computed anew", count(s.prefix.tokens)],
    ["sequences preempted for lack of pages", count(s.preemptions)],
    ["drafted tokens that were accepted", percent(s.drafts.accepted, s.drafts.drafted)]]);
  document.getElementById("lanes").replaceChildren(...s.lanes.filter(l => l.bytes).map(l =>
    line(l.name, size(l.bytes))));
}
async function ask() {
  try {
    const answer = await fetch("/stats", key ? { headers: { Authorization: "Bearer " + key } } : {});
    if (answer.status === 401) {
      key = prompt("This server asks for a key") || "";
      sessionStorage.setItem("key", key);
    } else {
      draw(await answer.json());
    }
  } catch (error) {
    show("state", "no answer from the server");
  }
  setTimeout(ask, 1000);
}
ask();
</script>
</html>
)HTML";

}  // namespace

std::string_view dashboard_page() { return kPage; }

}  // namespace klotski
