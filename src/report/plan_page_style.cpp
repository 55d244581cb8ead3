#include "report/plan_page_style.h"

namespace klotski {

std::string_view plan_page_style() {
  return R"(
:root { color-scheme: light dark; --ink: #1c2226; --soft: #5b6770; --paper: #f3f5f6;
  --panel: #ffffff; --grid: #dfe3e6; --upper: #2f66a3; --link: #c0392b; --lower: #2f8050;
  --mark: #7a4a9c; --resident: #1f5fa8; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e4e8ea; --soft: #a3aeb5; --paper: #14181b; --panel: #1d2327; --grid: #353d43;
    --upper: #7db1ea; --link: #f0857a; --lower: #74c893; --mark: #cf9df0; --resident: #6db0ff; }
}
body { margin: 0; background: var(--paper); color: var(--ink);
  font: 15px/1.5 system-ui, sans-serif; }
main { max-width: 1240px; margin: 0 auto; padding: 16px 20px 40px; }
h1 { font-size: 24px; overflow-wrap: anywhere; }
h2 { font-size: 18px; margin: 32px 0 8px; }
h3 { font-size: 15px; margin: 16px 0 8px; overflow-wrap: anywhere; }
p { max-width: 75ch; margin: 4px 0 10px; color: var(--soft); }
.panel { background: var(--panel); border: 1px solid var(--grid); border-radius: 6px;
  padding: 10px; overflow-x: auto; }
.facts { font-size: 13px; overflow-wrap: anywhere; }
.conclusion { color: var(--ink); font-weight: 600; margin-top: 10px; overflow-wrap: anywhere; }
pre { margin: 0; font: 13px/1.45 ui-monospace, monospace; }
svg { display: block; max-width: 100%; height: auto; }
table { border-collapse: collapse; margin-top: 10px; font-size: 13px;
  font-variant-numeric: tabular-nums; }
th, td { padding: 3px 14px 3px 0; text-align: right; border-bottom: 1px solid var(--grid); }
th { color: var(--soft); font-weight: normal; vertical-align: bottom; }
th:first-child, td:first-child { text-align: left; overflow-wrap: anywhere; }
.drawing text { fill: var(--ink); font: 12px sans-serif; }
.drawing .soft { fill: var(--soft); }
.drawing .middle { text-anchor: middle; }
.drawing .end { text-anchor: end; }
.grid { stroke: var(--grid); }
.roof { stroke-width: 2.5; stroke-linecap: round; }
.upper { stroke: var(--upper); }
.link { stroke: var(--link); }
.lower { stroke: var(--lower); }
.turning { stroke: var(--soft); stroke-width: 1.2; stroke-dasharray: 6 4; }
.attains { stroke: var(--mark); stroke-width: 1.2; stroke-dasharray: 2 3; }
.dot { fill: var(--mark); stroke: var(--mark); stroke-width: 1.5; }
.ring { fill: var(--panel); stroke: var(--mark); stroke-width: 1.5; }
.drawing .mark-label { fill: var(--mark); stroke: var(--panel); stroke-width: 3px;
  paint-order: stroke; font-weight: bold; }
.share { fill: var(--resident); }
.s0 { fill: var(--soft); fill-opacity: .22; }
.s1 { fill-opacity: .16; }
.s2 { fill-opacity: .25; }
.s3 { fill-opacity: .34; }
.s4 { fill-opacity: .43; }
.s5 { fill-opacity: .52; }
.s6 { fill-opacity: .61; }
.s7 { fill-opacity: .70; }
.s8 { fill-opacity: .79; }
.s9 { fill-opacity: .88; }
@media (max-width: 700px) {  /* drawings keep the size of their letters and scroll in their panel */
  main { padding: 8px 10px 24px; }
  h1 { font-size: 20px; }
  .panel { padding: 6px; }
  svg { max-width: none; }
}
)";
}

}  // namespace klotski
