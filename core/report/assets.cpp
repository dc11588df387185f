#include "core/report/assets.hpp"

namespace trainyard::report {

const std::string_view style = R"(
:root { color-scheme: light dark; --back: #ffffff; --panel: #f5f6f8; --text: #1d232b; --faint: #5d6672; --line: #d8dce2; --bad: #c01f2e;
  --k0: #1f6fb4; --k1: #c2571a; --k2: #1b7f56; --k3: #b02a68; --k4: #6b48b0; --k5: #86690a; --k6: #0b7a85; --k7: #56606d; }
@media (prefers-color-scheme: dark) { :root { --back: #14181d; --panel: #1c2128; --text: #e4e8ed; --faint: #9aa5b1; --line: #38414b; --bad: #ff7b81;
  --k0: #6cb2f0; --k1: #f0965a; --k2: #5fd3a2; --k3: #f07fae; --k4: #b79cf2; --k5: #dcc04c; --k6: #4fcfd6; --k7: #aab4c0; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 1500px; padding: 12px; background: var(--back); color: var(--text); font: 15px/1.45 system-ui, sans-serif; }
h1 { font-size: 1.5em; margin: 0.2em 0; overflow-wrap: anywhere; }
h2 { font-size: 1.15em; margin: 1.6em 0 0.5em; }
p { margin: 0.4em 0; }
.faint, .note { color: var(--faint); font-size: 0.87em; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: 0.93em; }
caption { font-weight: 600; text-align: left; }
th, td { text-align: left; padding: 4px 12px 4px 0; border-bottom: 1px solid var(--line); vertical-align: top; }
th { font-weight: 600; }
tbody th { font-weight: 400; white-space: nowrap; }
.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.words { min-width: 14em; overflow-wrap: anywhere; }
code { font-family: ui-monospace, monospace; font-size: 0.93em; overflow-wrap: anywhere; }
.bad { color: var(--bad); }
.within th { padding-left: 1.4em; color: var(--faint); }
.swatch { display: inline-block; width: 14px; height: 4px; border-radius: 2px; margin: 0 6px 3px 0; background: var(--c); }
.swatch.dashed { background: repeating-linear-gradient(90deg, var(--c) 0 4px, transparent 4px 6px); }
.legend { position: sticky; top: 0; z-index: 4; display: flex; flex-wrap: wrap; gap: 2px 18px; padding: 6px 0; background: var(--back); }
.bar { height: 5px; min-width: 1px; border-radius: 2px; background: var(--c); }
.charts { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 430px), 1fr)); gap: 14px; }
.chart { margin: 0; padding: 10px 12px; background: var(--panel); border-radius: 8px; min-width: 0; }
figcaption { font-weight: 600; overflow-wrap: anywhere; }
.plot { position: relative; height: 220px; margin: 56px 12px 24px 62px; touch-action: pan-y; }
.plot svg { display: block; width: 100%; height: 100%; overflow: visible; }
path { fill: none; stroke-linecap: round; stroke-linejoin: round; vector-effect: non-scaling-stroke; }
.grid { stroke: var(--line); stroke-width: 1; }
.curve { stroke: var(--c); stroke-width: 1.6; }
.curve.dashed { stroke-dasharray: 6 3; }
.dots { stroke: var(--c); stroke-width: 5; }
.band { fill: var(--c); fill-opacity: 0.2; }
.mark { stroke: var(--c); stroke-width: 1; stroke-dasharray: 2 3; }
.broken { stroke: var(--bad); stroke-width: 2; stroke-linecap: butt; }
.value, .step { position: absolute; color: var(--faint); font-size: 12px; white-space: nowrap; font-variant-numeric: tabular-nums; }
.value { right: calc(100% + 6px); transform: translateY(-50%); }
.step { top: calc(100% + 4px); transform: translateX(-50%); }
.flag { position: absolute; z-index: 1; font-size: 11px; line-height: 15px; padding: 0 4px; border: 1px solid var(--c); border-radius: 4px; background: var(--back); white-space: nowrap; }
.flag b { font-weight: 400; }
.row0 { bottom: calc(100% + 2px); } .row1 { bottom: calc(100% + 19px); } .row2 { bottom: calc(100% + 36px); }
@media (max-width: 640px) { .flag b { display: none; } .plot { margin-left: 56px; } }
.c0 { --c: var(--k0); } .c1 { --c: var(--k1); } .c2 { --c: var(--k2); } .c3 { --c: var(--k3); } .c4 { --c: var(--k4); } .c5 { --c: var(--k5); } .c6 { --c: var(--k6); } .c7 { --c: var(--k7); }
.here { position: absolute; top: 0; bottom: 0; width: 1px; background: var(--faint); pointer-events: none; }
.tip { position: absolute; z-index: 3; top: 6px; padding: 4px 8px; border: 1px solid var(--line); border-radius: 6px; background: var(--back); font-size: 12px; pointer-events: none; white-space: nowrap; font-variant-numeric: tabular-nums; }
@media print { .legend { position: static; } }
)";

const std::string_view script = R"(
const labels = JSON.parse(document.getElementById('labels').textContent);
for (const figure of document.querySelectorAll('.chart')) {
  const plot = figure.querySelector('.plot');
  const data = JSON.parse(figure.querySelector('script').textContent);
  const here = document.createElement('div'), tip = document.createElement('div');
  here.className = 'here'; tip.className = 'tip';
  const nearest = (steps, step) => {
    let low = 0, high = steps.length - 1;
    while (high - low > 1) { const middle = (low + high) >> 1; if (steps[middle] < step) low = middle; else high = middle; }
    return Math.abs(steps[low] - step) <= Math.abs(steps[high] - step) ? low : high;
  };
  plot.addEventListener('pointermove', event => {
    const area = plot.getBoundingClientRect();
    const share = Math.min(1, Math.max(0, (event.clientX - area.left) / area.width));
    const step = data.from + share * (data.to - data.from);
    tip.replaceChildren();
    let closest = null;
    for (const series of data.series) {
      const at = nearest(series.x, step);
      if (closest === null || Math.abs(series.x[at] - step) < Math.abs(closest - step)) closest = series.x[at];
      const line = document.createElement('div'), swatch = document.createElement('span');
      swatch.className = 'swatch c' + series.g % 8;
      const value = series.y[at] === null ? 'not finite' : series.y[at] + (series.e ? ' \u00b1 ' + series.e[at].toPrecision(3) : '');
      line.append(swatch, labels[series.g] + ': ' + value + ' at ' + series.x[at]);
      tip.append(line);
    }
    const x = data.to > data.from ? (closest - data.from) / (data.to - data.from) : 0.5;
    here.style.left = 100 * x + '%';
    plot.append(here, tip);
    const left = x * area.width + (x < 0.5 ? 8 : -8 - tip.offsetWidth);
    tip.style.left = Math.min(Math.max(left, -50), area.width + 10 - tip.offsetWidth) + 'px';
  });
  plot.addEventListener('pointerleave', () => { here.remove(); tip.remove(); });
}
)";

}  // namespace trainyard::report
