// Keeps the dashboard up to date. Events say that something changed; then the elements marked data-live are fetched
// again and replaced. The server renders and escapes all HTML.

const script = document.querySelector('script[type="module"]');
const root = new URL(document.documentElement.dataset.root || "./", location.href);
const { queue, id } = script.dataset;
const live = document.getElementById("live");
const WINDOW_SECONDS = 60;
const LEAST_MS = 500;
const QUIET_MS = 10000;
const RATES = { publish: "in", adopt: "in", ack: "done", nack: "failed", reject: "failed", reap: "failed" };

// -- times, in the reader's own zone

const clock = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });

function localTimes(part) {
  for (const time of part.querySelectorAll("time[datetime]")) {
    time.textContent = clock.format(new Date(time.dateTime));
    time.title = time.dateTime;
  }
}

// -- rates, from the events of the last minute

const began = Date.now();
const seconds = new Map(); // second → { "in/orders": 3, … }

function count(moved) {
  const kind = RATES[moved.verb];
  if (!kind) return;
  const second = Math.floor(Date.now() / 1000);
  if (!seconds.has(second)) seconds.set(second, new Map());
  const counts = seconds.get(second);
  const name = `${kind}/${moved.queue}`;
  counts.set(name, (counts.get(name) || 0) + 1);
}

function showRates() {
  const now = Math.floor(Date.now() / 1000);
  const sums = new Map();
  for (const [second, counts] of seconds) {
    if (second <= now - WINDOW_SECONDS) seconds.delete(second);
    else for (const [name, n] of counts) sums.set(name, (sums.get(name) || 0) + n);
  }
  const span = Math.max(1, Math.min(WINDOW_SECONDS, (Date.now() - began) / 1000));
  for (const cell of document.querySelectorAll("[data-rate]")) {
    const sum = sums.get(`${cell.dataset.rate}/${cell.dataset.queue}`) || 0;
    const rate = sum / span;
    cell.textContent = rate === 0 ? "0" : rate < 10 ? rate.toFixed(1) : Math.round(rate).toString();
    cell.classList.toggle("zero", sum === 0);
  }
}

// -- refreshing live elements

let fetched = Date.now();
let pending = null;

async function refresh() {
  pending = null;
  fetched = Date.now();
  let answer, text;
  try {
    answer = await fetch(location.href, { headers: { accept: "text/html" } });
    text = await answer.text();
  } catch {
    return; // the server cannot be reached; the feed notices when it is back
  }
  if (answer.status === 401) return location.reload();
  const fresh = new DOMParser().parseFromString(text, "text/html");
  for (const part of document.querySelectorAll("[data-live]")) {
    const other = fresh.getElementById(part.id);
    if (!other) continue;
    localTimes(other);
    keepOpen(part, other);
    if (other.innerHTML !== part.innerHTML) replace(part, other);
  }
  showRates();
}

// Keeps open details open, and the focus where it is.
function keepOpen(part, other) {
  const opened = [...part.querySelectorAll("details")].map((one) => one.open);
  [...other.querySelectorAll("details")].forEach((one, n) => { if (n < opened.length) one.open = opened[n]; });
}

function replace(part, other) {
  const at = part.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
  part.replaceChildren(...other.childNodes);
  if (at) [...part.querySelectorAll("a")].find((one) => one.getAttribute("href") === at)?.focus();
}

function refreshSoon() {
  if (pending === null) pending = setTimeout(refresh, Math.max(0, fetched + LEAST_MS - Date.now()));
}

// -- the feed

function say(text, on) {
  live.textContent = text;
  live.classList.toggle("on", on);
}

const feedUrl = new URL("v1/events", root);
if (queue) feedUrl.searchParams.set("queue", queue);
const feed = new EventSource(feedUrl);
feed.onopen = () => { say("live", true); refreshSoon(); };
feed.onerror = () => say(feed.readyState === EventSource.CLOSED ? "not live" : "connecting …", false);
feed.onmessage = (event) => {
  const moved = JSON.parse(event.data);
  count(moved);
  if (!id || moved.id === id) refreshSoon();
};
feed.addEventListener("end", () => { feed.close(); location.reload(); });

setInterval(showRates, 1000);
setInterval(() => { if (Date.now() - fetched > QUIET_MS && !document.hidden) refreshSoon(); }, 1000);
document.addEventListener("keydown", (event) => {
  if (event.key === "/" && !/^(INPUT|TEXTAREA|SELECT)$/.test(document.activeElement.tagName)) {
    event.preventDefault();
    document.querySelector('input[type="search"]').focus();
  }
});
localTimes(document);
