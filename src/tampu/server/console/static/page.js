// What the pages do with a script: local times, charts, questions in a dialog, and staying up to date. Everything else
// works without it. The server renders and escapes all HTML; htmx fetches a page again and changes what is different.

const root = new URL(document.documentElement.dataset.root || "./", location.href);
const main = document.getElementById("main");
const live = document.getElementById("live");
const { queue } = main.dataset;
const QUIET_MS = 60000; // a page is fetched again after this long without a change, so that its charts move on
const SLOWEST_MS = 30000;

// -- times in the reader's own zone, and how long ago they were

const clock = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });
const UNITS = [["d", 86400], ["h", 3600], ["min", 60]];

function ago(date) {
  const seconds = Math.abs(Date.now() - date.getTime()) / 1000;
  for (const [unit, size] of UNITS) {
    if (seconds >= size) return `${(seconds / size).toFixed(seconds >= 10 * size ? 0 : 1)} ${unit}`;
  }
  return `${Math.floor(seconds)} s`;
}

function showTimes(part) {
  for (const time of part.querySelectorAll("time[datetime]")) {
    const date = new Date(time.dateTime);
    time.textContent = "ago" in time.dataset ? ago(date) : clock.format(date);
    time.title = "ago" in time.dataset ? clock.format(date) : time.dateTime;
  }
}

// -- charts: the values are in the attribute data-chart

const charts = new Map(); // element → uPlot
const dark = matchMedia("(prefers-color-scheme: dark)");
const UNIT = {
  count: (v) => (v >= 10000 ? `${Math.round(v / 1000)}k` : `${+v.toFixed(1)}`),
  seconds: (v) => (v === 0 ? "0" : v < 1 ? `${Math.round(v * 1000)} ms` : v < 90 ? `${+v.toFixed(1)} s` : v < 5400 ? `${+(v / 60).toFixed(1)} min` : `${+(v / 3600).toFixed(1)} h`),
};

const STEPS = [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 18000, 36000, 86400];

function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

function draw(place) {
  const { x, unit, series } = JSON.parse(place.dataset.chart);
  const show = UNIT[unit];
  const label = (value) => (value == null ? "–" : show(value));
  const axis = { stroke: colour("soft"), grid: { stroke: colour("line"), width: 1 }, ticks: { show: false }, font: "11px system-ui" };
  const options = {
    width: place.clientWidth, height: place.clientHeight,
    cursor: { points: { size: 6 }, drag: { x: false, y: false } },
    legend: { show: false },
    scales: { y: { range: (_, least, most) => [0, Math.max(most, unit === "count" ? 4 : 0.01) * 1.08] } },
    axes: [{ ...axis, grid: { show: false }, space: 80, size: 26, values: (_, ticks) => ticks.map((t) => new Date(t * 1000).toLocaleTimeString(undefined, { hour: "2-digit", minute: "2-digit" })) }, { ...axis, size: 52, ...(unit === "seconds" ? { incrs: STEPS } : {}), values: (_, ticks) => ticks.map(show) }],
    series: [{}, ...series.map((s) => ({ stroke: colour(s.tone), width: 2, fill: s.fill ? `${colour(s.tone)}22` : undefined, points: { show: false }, spanGaps: true }))],
    hooks: {
      setCursor: [(plot) => {
        const at = plot.cursor.idx;
        place.parentElement.querySelectorAll(".legend b").forEach((value, n) => {
          value.textContent = label(at == null ? series[n].values.at(-1) : series[n].values[at]);
        });
      }],
    },
  };
  charts.get(place)?.plot.destroy();
  place.replaceChildren();
  const plot = new uPlot(options, [x, ...series.map((s) => s.values)], place);
  charts.set(place, { plot, data: place.dataset.chart });
}

function drawCharts() {
  for (const [place, { plot }] of charts) {
    if (!place.isConnected) {
      plot.destroy();
      charts.delete(place);
    }
  }
  for (const place of document.querySelectorAll("[data-chart]")) {
    if (charts.get(place)?.data !== place.dataset.chart) draw(place);
  }
}

function drawAgain() {
  for (const place of charts.keys()) draw(place);
}

// -- questions: a link with data-ask opens the page that asks in a dialog

const dialog = document.getElementById("dialog");

let asking = false;

async function ask(link) {
  if (asking) return;
  asking = true;
  dialog.replaceChildren(); // never an older question, if this one cannot be fetched
  try {
    await htmx.ajax("GET", link.href, { target: "#dialog", select: "#ask", swap: "innerHTML" });
  } finally {
    asking = false;
  }
  const form = dialog.querySelector("form");
  if (!form) return location.assign(link.href);
  form.action = link.href;
  showTimes(dialog);
  dialog.showModal();
}

document.addEventListener("click", (event) => {
  const link = event.target.closest("a[data-ask]");
  if (link && !event.ctrlKey && !event.metaKey && !event.shiftKey) {
    event.preventDefault();
    ask(link);
  } else if (event.target.closest("[data-cancel]") && dialog.open) {
    event.preventDefault();
    dialog.close();
  } else if (event.target.closest("[data-copy]")) {
    const button = event.target.closest("[data-copy]");
    navigator.clipboard?.writeText(document.getElementById(button.dataset.copy).textContent);
    button.textContent = "Copied";
  }
});

// -- boxes to choose rows with

document.addEventListener("change", (event) => {
  if (event.target.matches("[data-all]")) {
    for (const box of event.target.form.elements) if (box.name === "chosen") box.checked = event.target.checked;
  } else if (event.target.matches("[data-submit]")) {
    event.target.form.requestSubmit();
  }
});

// -- staying up to date

let fetched = Date.now();
let changes = null;
let wait = 1000;
let later = null;

function say(text, on) {
  if (live.textContent === text) return;
  live.textContent = text;
  live.classList.toggle("on", on);
}

function busy() {
  const active = document.activeElement;
  return dialog.open || (active && active.matches("input, textarea, select") && main.contains(active));
}

async function refresh() {
  if (document.hidden || busy()) return;
  fetched = Date.now();
  await htmx.ajax("GET", location.href, { source: main, target: "#main", select: "#main", swap: "outerMorph ignoreTitle:true" });
}

function listen() {
  clearTimeout(later);
  if (!main.dataset.live || document.hidden || changes) return;
  const address = new URL("changes", root);
  if (queue) address.searchParams.set("queue", queue);
  changes = new EventSource(address);
  changes.onopen = () => { say("live", true); wait = 1000; };
  changes.onmessage = refresh;
  changes.onerror = () => {
    changes.close();
    changes = null;
    say("connecting …", false);
    later = setTimeout(() => { listen(); refresh(); }, wait);
    wait = Math.min(2 * wait, SLOWEST_MS);
  };
  changes.addEventListener("end", () => { changes.close(); location.reload(); });
}

function rest() {
  if (!main.dataset.live) return;
  changes?.close();
  changes = null;
  say("paused", false);
}

document.addEventListener("visibilitychange", () => {
  if (document.hidden) return rest();
  listen();
  if (main.dataset.live) refresh();
});
document.addEventListener("htmx:before:swap", (event) => {
  if (event.detail.ctx?.response?.status === 401) {
    event.preventDefault();
    location.reload();
  }
});
document.addEventListener("htmx:after:swap", () => { showTimes(document); drawCharts(); });
document.addEventListener("keydown", (event) => {
  if (event.key === "/" && !event.target.closest("input, textarea, select")) {
    event.preventDefault();
    document.querySelector('header input[type="search"]').focus();
  }
});
setInterval(() => {
  if (document.hidden) return;
  for (const time of document.querySelectorAll("time[data-ago]")) time.textContent = ago(new Date(time.dateTime));
  const soon = document.querySelector("[data-incomplete]") ? 1500 : QUIET_MS;
  if (main.dataset.live && Date.now() - fetched > soon) refresh();
}, 1000);
let width = innerWidth;
addEventListener("resize", () => { if (innerWidth !== width) { width = innerWidth; drawAgain(); } });
dark.addEventListener("change", drawAgain);
addEventListener("pageshow", (event) => { if (event.persisted) refresh(); });

document.documentElement.classList.add("script");
if (!main.dataset.live) live.textContent = "";
showTimes(document);
drawCharts();
listen();
