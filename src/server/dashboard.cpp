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
svg { width: 100%; height: 90px; background: var(--card); border-radius: 8px; }
polyline { fill: none; stroke: var(--bar); stroke-width: 2; vector-effect: non-scaling-stroke; }
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
<h2>Memory against its limits</h2><div id="memories"></div>
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
const speeds = [];
let key = sessionStorage.getItem("key") || "";
function draw(s) {
  show("model", s.model);
  show("state", (s.ready ? "ready" : "not ready") + ", up for " + Math.round(s.uptime_seconds) + " s, process " +
    size(s.resident_bytes));
  show("speed", s.tokens_per_second.toFixed(1));
  show("running", s.running);
  show("queue", s.queue);
  show("experts", s.experts_asked ? (100 * s.experts_found / s.experts_asked).toFixed(1) + " %" : "-");
  show("tokens", s.generated_tokens);
  show("connections", s.connections);
  speeds.push(s.tokens_per_second);
  if (speeds.length > 120) speeds.shift();
  const most = Math.max(1, ...speeds);
  document.getElementById("curve").setAttribute("points",
    speeds.map((v, i) => i + 120 - speeds.length + "," + (98 - 94 * v / most)).join(" "));
  document.getElementById("memories").replaceChildren(...s.memories.map(m =>
    line(m.name, size(m.used_bytes) + " of " + size(m.limit_bytes), m.used_bytes / m.limit_bytes)));
  document.getElementById("lanes").replaceChildren(...s.lanes.map(l => line(l.name, size(l.bytes))));
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
