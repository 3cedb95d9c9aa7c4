"use strict";
// Asks for the state twice a second and shows it. What cannot be reached or is old is never shown
// as if it were fresh: no answer turns the banner red and the picture grey.

const POLL_MS = 500;
const PATIENCE_MS = 2000;
const RECONNECT_MS = 2000;
const MOST_REASONS = 4;
const SYMBOLS = { OK: "✓", WARN: "!", STALE: "◷", ERROR: "✕", WAITING: "…", OFFLINE: "✕" };
const WORDS = { WARN: "WARNING", WAITING: "WAITING", OFFLINE: "NO CONNECTION" };

const at = (id) => document.getElementById(id);

function element(tag, text, className) {
  const made = document.createElement(tag);
  if (text !== undefined) made.textContent = text;
  if (className) made.className = className;
  return made;
}

const shown = (value, digits = 0) => (value === null || value === undefined ? "–" : value.toFixed(digits));

function showBanner(level, reasons) {
  at("banner").className = level.toLowerCase();
  at("symbol").textContent = SYMBOLS[level] || "?";
  at("verdict").textContent = WORDS[level] || level;
  const lines = reasons.slice(0, MOST_REASONS).map((text) => element("li", text));
  if (reasons.length > MOST_REASONS) lines.push(element("li", `and ${reasons.length - MOST_REASONS} more`));
  at("reasons").replaceChildren(...lines);
  document.title = `${WORDS[level] || level} · Waysight`;
}

function showPicture(picture) {
  const dead = picture.trouble || "";
  at("frame").className = dead ? "dead" : "live";
  at("veil").textContent = dead;
  if (picture.width && picture.height) at("frame").style.aspectRatio = `${picture.width} / ${picture.height}`;
  const facts = [
    ["frame", picture.frame_id || "–"],
    ["size", picture.width ? `${picture.width} × ${picture.height}` : "–"],
    ["stamp", picture.stamp || "–"],
    ["age", picture.age_s === null ? "–" : `${shown(picture.age_s, 1)} s`],
    ["objects", picture.objects === null ? "–" : String(picture.objects)],
    ["shown", `${shown(picture.rate, 1)} Hz`],
  ];
  at("facts").replaceChildren(...facts.map(([name, value]) => {
    const pair = element("div");
    pair.append(element("dt", name), element("dd", value));
    return pair;
  }));
}

function tile(label, value, unit, bad) {
  const made = element("div", undefined, bad ? "tile bad" : "tile");
  const figure = element("b", value);
  if (unit) figure.append(" ", element("small", unit));
  made.append(figure, element("span", label));
  return made;
}

function showTiles(flow) {
  const fresh = flow.filter((row) => !row.stale_row);
  const sum = (...keys) => fresh.reduce((all, row) => all + keys.reduce((n, key) => n + (row[key] || 0), 0), 0);
  // The pipeline is as fast as its last stage, and as late as its latest.
  const rates = fresh.map((row) => row.rate).filter((rate) => rate !== null);
  const latest = (key) => {
    const ages = fresh.map((row) => row[key]).filter((age) => age !== null);
    return ages.length ? Math.max(...ages) : null;
  };
  // To drop an old picture for a newer one is by design; to lose one or to get a broken one is not.
  const broken = sum("lost", "invalid");
  at("tiles").replaceChildren(
    tile("slowest stage", rates.length ? shown(Math.min(...rates), 1) : "–", "Hz"),
    tile("dropped for a newer", String(sum("dropped"))),
    tile("lost or invalid", String(broken), "", broken > 0),
    tile("latency p50", shown(latest("age_p50_ms"), 1), "ms"),
    tile("latency p90", shown(latest("age_p90_ms"), 1), "ms"),
    tile("latency p99", shown(latest("age_p99_ms"), 1), "ms"),
  );
}

function showFlow(flow) {
  const rows = flow.map((row) => {
    const line = element("tr", undefined, row.stale_row ? "old" : "");
    line.append(element("td", row.name), element("td", shown(row.rate, 1)));
    for (const key of ["age_p50_ms", "age_p90_ms", "age_p99_ms"]) line.append(element("td", shown(row[key], 1)));
    line.append(element("td", shown(row.processed)));
    line.append(element("td", shown(row.dropped)));
    for (const key of ["lost", "invalid"]) line.append(element("td", shown(row[key]), row[key] ? "bad" : ""));
    return line;
  });
  document.querySelector("#flow tbody").replaceChildren(...rows);
}

function showNodes(nodes) {
  const open = new Set([...document.querySelectorAll("#nodes details[open]")].map((made) => made.dataset.name));
  at("nodes").replaceChildren(...nodes.map((node) => {
    const made = element("details");
    made.dataset.name = node.name;
    made.open = open.has(node.name);
    const summary = element("summary");
    summary.append(
      element("span", node.level, `level ${node.level.toLowerCase()}`),
      element("span", node.name, "name"),
      element("span", node.message, "message"),
      element("span", node.lifecycle, "lifecycle"),
    );
    const values = element("div", undefined, "values");
    values.append(...Object.entries(node.values).map(([key, value]) => {
      const pair = element("div");
      pair.append(element("span", key), element("b", value));
      return pair;
    }));
    made.append(summary, values);
    return made;
  }));
}

function show(state) {
  const reasons = state.verdict.reasons.map((reason) => reason.text);
  if (!reasons.length) reasons.push(`${state.nodes.length} nodes, all well`);
  showBanner(state.verdict.level, reasons);
  showPicture(state.picture);
  showTiles(state.flow);
  showFlow(state.flow);
  showNodes(state.nodes);
}

function showOffline() {
  showBanner("OFFLINE", ["the robot does not answer; everything below is old"]);
  at("frame").className = "dead";
  at("veil").textContent = "NO CONNECTION";
}

let offline = false;

async function poll() {
  try {
    const answer = await fetch("/api/state", { cache: "no-store", signal: AbortSignal.timeout(PATIENCE_MS) });
    if (!answer.ok) throw new Error(answer.statusText);
    show(await answer.json());
    if (offline) connectPicture(); // the old stream may hang without an error
    offline = false;
  } catch {
    offline = true;
    showOffline();
  }
  setTimeout(poll, POLL_MS);
}

function connectPicture() {
  at("picture").src = `/stream.mjpg?${Date.now()}`;
}

at("picture").addEventListener("error", () => setTimeout(connectPicture, RECONNECT_MS));
connectPicture();
poll();
