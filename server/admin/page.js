"use strict";
// The page shows /api/v1/state, which docs/state.md describes, once a second.

const maxRows = 100; // maximum number of rows in a table
const maxEvents = 5; // number of events above the list that can be opened
const staleAfter = 3; // age in seconds from which figures are reported as stale

const byId = (id) => document.getElementById(id);
const mayWrite = document.documentElement.dataset.right === "write";

// plain returns text with escapes for control characters and for those that change the direction.
function plain(text) {
  return String(text).replace(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu, (c) => `\\u{${c.codePointAt(0).toString(16)}}`);
}

// cut shortens a text for a list to some 2 * n characters. Details have all of it.
const cut = (text, n = 80) => (text.length > 2 * n ? `${text.slice(0, n)}…${text.slice(-n)}` : text);

// element returns an element. Strings become text, never HTML.
function element(name, attributes, ...children) {
  const e = name === "svg" || name === "path"
    ? document.createElementNS("http://www.w3.org/2000/svg", name) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) if (value) e.setAttribute(key, value);
  e.append(...children.map((c) => (c instanceof Node ? c : plain(c))));
  return e;
}

const isSelecting = () => !getSelection().isCollapsed;

function setText(e, text) {
  text = plain(text);
  if (e.textContent !== text) e.textContent = text;
}

// rebuild replaces the children of a list if its data has changed.
function rebuild(list, data, build) {
  const text = JSON.stringify(data);
  if (list.data !== text) list.replaceChildren(...data.map(build));
  list.data = text;
}

const count = new Intl.NumberFormat("en").format;
const rate = (f) => (f === undefined ? "" : f >= 1000 ? count(Math.round(f)) : f.toFixed(1));
const percent = (f) => Math.round(100 * f) + "%";

// clock returns a time in the time zone of the browser, with the date unless it is today.
function clock(time) {
  const t = new Date(time), two = (n) => String(n).padStart(2, "0");
  const date = t.toDateString() === new Date().toDateString() ? ""
    : `${t.getFullYear()}-${two(t.getMonth() + 1)}-${two(t.getDate())} `;
  return date + [t.getHours(), t.getMinutes(), t.getSeconds()].map(two).join(":");
}

// Rows of the tables.

const keyName = (k) => k.descriptor || (k.hash ? "#" + k.hash : "");
const limitName = (l) => `${l.domain}: ${l.rule ? `${l.rule} ${l.limit}` : "limit override of the request"}`;
const unitOf = (l) => (l.unit === "tokens" || l.unit === "hits" ? ` (${l.unit})` : "");

// limitOfKey returns the limit of a key with the number that applies to it, and the state of both.
function limitOfKey(k) {
  const from = k.table ? `, from table ${k.table}` : ", from the request";
  return (k.own_limit ? limitName({ ...k, limit: k.own_limit }) + from : limitName(k)) + unitOf(k)
    + (k.in_flight === undefined ? "" : `, ${k.in_flight} of ${k.permits} in flight`)
    + (k.penalty_until ? `, penalty until ${clock(k.penalty_until)}` : "");
}

// drawLine draws the total and the denied hits of the last five minutes into an svg element.
function drawLine(svg, { hits, denied } = { hits: [], denied: [] }) {
  const most = Math.max(1, ...hits);
  const bar = (n, i) => (n ? `M${4 * i} 16v-${Math.max(0.5, (16 * n) / most).toFixed(1)}h3V16z` : "");
  [hits, denied].forEach((all, i) => {
    const path = svg.children[i], d = all.map(bar).join("");
    if (path.getAttribute("d") !== d) path.setAttribute("d", d);
  });
  return most;
}

function newLine(label) {
  return element("svg", { viewBox: "0 0 120 16", preserveAspectRatio: "none", role: "img", "aria-label": label },
    element("path", {}), element("path", { class: "denied" }));
}

// A column has the title of its head, the value to sort by, and the text of a cell. Columns whose
// cells have other contents have make and fill instead of text.
const number = (title, value, text, style) => ({ title, value, text: (x) => text(value(x)), class: "number", style });
const opener = (title, value) => ({
  title, value, class: "name",
  make: () => element("button", { type: "button", "aria-haspopup": "dialog" }),
  fill: (cell, x) => setText(cell.firstChild, cut(value(x))),
});
const resetColumn = {
  title: "reset",
  make: () => element("button", { type: "button", class: "reset" }, "Reset…"),
  fill: (cell, k) => {
    cell.hidden = !k.rule;
    cell.firstChild.setAttribute("aria-label", `Reset ${plain(cut(keyName(k)))}`);
  },
};

const tables = {
  keys: newTable("keys", (k) => [k.domain, k.hash, k.limit].join("\n"), [
    number("denied/s", (k) => k.denied_per_second, rate),
    number("share of the domain's denials", (k) => k.share, percent),
    number("denied", (k) => k.denied, count),
    { title: "since", value: (k) => k.since, text: (k) => clock(k.since), class: "time" },
    opener("key", keyName),
    { title: "limit", value: limitName, text: (k) => cut(limitOfKey(k)) },
    ...(mayWrite ? [resetColumn] : []),
  ]),
  limits: newTable("limits", (l) => [l.domain, l.rule, l.limit, l.name, l.at].join("\n"), [
    number("hits/s", (l) => l.hits_per_second, rate),
    number("denied/s", (l) => l.denied_per_second, rate, (l) => (l.denied_per_second > 0 ? "bad" : "")),
    number("near/s", (l) => l.near_per_second, rate),
    {
      title: "last 5 minutes",
      make: () => newLine("hits in the last five minutes"),
      fill: (cell, l) => drawLine(cell.firstChild, l.line),
    },
    opener("limit", (l) => limitName(l) + unitOf(l)
      + (l.shadow ? `, shadow: would deny ${rate(l.shadow_per_second)}/s` : "")),
    { title: "rule at", value: (l) => l.at, text: (l) => l.at },
  ]),
  quota: newTable("quota", (b) => [b.domain, b.rule, b.limit, b.hash].join("\n"), [
    number("demand/s", (b) => b.demand_per_second, rate),
    number("assigned", (b) => b.assigned_per_second, rate),
    number("of limit", (b) => b.limit_per_second, rate),
    { title: "limit", value: limitName, text: (b) => `${cut(limitName(b))} ${keyName(b)}` },
    { title: "Envoys: share of demand", text: sharesText },
  ]),
};

function sharesText(b) {
  const shares = b.shares.map((s) => `${s.address || "stream " + s.stream} ${rate(s.share_per_second)} of `
    + rate(s.demand_per_second) + (s.confirmed ? "" : " unconfirmed"));
  if (b.unconfirmed_per_second) shares.push(`${rate(b.unconfirmed_per_second)} not confirmed`);
  if (b.lost_until) shares.push(`${rate(b.lost_per_second)} lost until ${clock(b.lost_until)}`);
  if (b.learning_until) shares.push(`learning until ${clock(b.learning_until)}`);
  return `${b.holders}: ${shares.join("; ")}`;
}

// newTable adds a table to a section. id returns a name for an item, which stays the same.
function newTable(section, id, columns) {
  const table = { id, columns, rows: new Map(), items: [], body: element("tbody", { role: "rowgroup" }) };
  const heads = columns.map((column) => {
    const head = element("th", { scope: "col", role: "columnheader", class: column.class === "number" && "number" });
    if (!column.value) {
      head.append(column.title);
      return head;
    }
    head.append(element("button", { type: "button" }, column.title));
    head.firstChild.addEventListener("click", () => {
      table.descending = table.sorted === column ? !table.descending : column.class === "number";
      table.sorted = column;
      for (const h of heads) h.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", table.descending ? "descending" : "ascending");
      showTable(table);
    });
    return head;
  });
  table.note = element("p", { class: "soft" });
  table.element = element("table", { role: "table", "aria-label": byId(section).querySelector("h2").textContent },
    element("thead", { role: "rowgroup" }, element("tr", { role: "row" }, ...heads)), table.body);
  byId(section).append(table.element, table.note);
  table.body.addEventListener("click", (event) => {
    const item = event.target.closest("tr")?.item;
    if (!item || isSelecting()) return;
    if (event.target.matches(".reset")) previewReset(item);
    else if (section !== "quota") openDetails(section, table.id(item));
  });
  return table;
}

const words = () => byId("filter").value.toLowerCase().split(/\s+/).filter(Boolean);

// matches reports whether an item contains all words of the filter.
function matches(x, all) {
  if (!all.length) return true;
  const hash = x.hash && "#" + x.hash;
  const text = [x.domain, x.rule, x.limit, x.table, x.name, x.at, x.descriptor, hash, x.why].join(" ");
  return all.every((word) => text.toLowerCase().includes(word));
}

// showTable updates the rows of a table. It keeps elements, so that the focus stays.
function showTable(table) {
  const all = words(), { sorted, body } = table;
  let items = table.items.filter((x) => matches(x, all));
  const found = items.length;
  if (sorted) {
    const sign = table.descending ? -1 : 1;
    items = items.toSorted((x, y) => {
      const a = sorted.value(x) ?? -1, b = sorted.value(y) ?? -1;
      return byUnit(x, y) || (a < b ? -sign : a > b ? sign : 0);
    });
  }
  const focused = document.activeElement;
  let next = body.firstElementChild;
  for (const item of items.slice(0, maxRows)) {
    const id = table.id(item);
    let row = table.rows.get(id);
    if (!row) {
      row = element("tr", { role: "row" }, ...table.columns.map((c) =>
        element("td", { role: "cell", class: c.class, "data-title": c.title }, ...(c.make ? [c.make()] : []))));
      table.rows.set(id, row);
    }
    row.item = item;
    table.columns.forEach((c, i) => {
      const cell = row.cells[i];
      if (c.fill) c.fill(cell, item); else setText(cell, c.text(item));
      if (c.style) cell.className = `${c.class} ${c.style(item)}`;
    });
    if (row === next) next = next.nextElementSibling; else body.insertBefore(row, next);
  }
  while (next) {
    const gone = next;
    next = next.nextElementSibling;
    table.rows.delete(table.id(gone.item));
    gone.remove();
  }
  if (document.activeElement !== focused && focused.isConnected) focused.focus({ preventScroll: true });
  table.element.hidden = !table.items.length;
  setText(table.note, !table.items.length ? table.none
    : found > maxRows ? `the first ${maxRows} of ${count(found)}: use the filter to see others`
      : all.length ? `${count(found)} of ${count(table.items.length)} match the filter` : "");
}

// Sections.

let state; // the last answer
let allLimits = []; // limits of the active rules, including those without hits in the last five minutes
const noRates = Object.fromEntries(["hits", "denied", "near"].map((what) => [what + "_per_second", undefined]));

function show() {
  const { config } = state, shared = state.counters === "store";
  const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
  setText(byId("about"), `${state.host}, ${state.program}, at ${clock(state.time)} (times: ${zone}); `
    + `${count(config.limits)} limits, rules ${config.hash} since ${clock(config.loaded)}; keys: ${state.top_keys}`
    + (state.unmasked_until ? `, values shown until ${clock(state.unmasked_until)}` : "")
    + (shared ? "; counters are shared: rates and keys are those seen by this replica" : ""));
  showStatus(state.status);
  const warnings = [];
  if (state.shadow_mode) warnings.push(["warn", "shadow mode: every request is allowed, despite the denials below"]);
  if (!config.hash) warnings.push(["bad", "no rules loaded: every request gets an error"]);
  else if (!config.limits) warnings.push(["bad", "the rules have no limits: every request is allowed"]);
  rebuild(byId("warnings"), warnings, ([style, text]) => element("p", { class: style }, text));
  byId("conditions").hidden = !state.conditions.length;
  rebuild(byId("conditions").querySelector("ul"), state.conditions, condition);
  byId("unmask").hidden = !mayWrite || state.top_keys !== "hashed";
  setText(byId("unmask"), state.unmasked_until ? "Hide values" : "Show values for 10 minutes");
  showEvents();
  showLists();
}

// flat returns the elements of a list of all domains, the most denied first.
const flat = (from, field) => from.domains.flatMap((d) => d[field].map((x) => ({ ...x, domain: d.domain })))
  .sort((a, b) => byUnit(a, b) || b.denied_per_second - a.denied_per_second
    || b.hits_per_second - a.hits_per_second || b.denied - a.denied);

// byUnit compares by unit: rates of limits with different units are not comparable. All rates of
// keys are in descriptors.
function byUnit(a, b) {
  const rank = (x) => (x.hash ? 0 : ["requests", "permits", "tokens", "hits"].indexOf(x.unit));
  return rank(a) - rank(b);
}

// showLists shows the lists to which the filter applies.
function showLists() {
  const all = words();
  tables.keys.none = state.top_keys === "off" ? "denied keys are not recorded (--top-keys=off)" : "no key is denied";
  tables.keys.items = flat(state, "denied_keys");
  const active = flat(state, "rules");
  const seen = new Set(active.map(tables.limits.id));
  tables.limits.none = "the rules have no limits";
  tables.limits.items = active.concat(allLimits.filter((l) => !seen.has(tables.limits.id(l))));
  const quota = state.quota;
  byId("quota").hidden = !quota;
  tables.quota.none = quota?.streams ? "" : "no Envoy is connected";
  tables.quota.items = quota?.streams ? quota.largest : [];
  const unmatched = [
    ...state.unknown_domains.filter((u) => u.descriptors_per_second),
    ...flat(state, "unmatched"),
    ...state.unknown_domains.filter((u) => !u.descriptors_per_second),
  ];
  byId("unmatched").hidden = !unmatched.length;
  rebuild(byId("unmatched").querySelector("ul"), unmatched.filter((u) => matches(u, all)), (u) => {
    const seen = u.why && soft(`seen ${count(u.seen)}, last ${clock(u.last)}`);
    if (u.why) return element("li", {}, `${cut(u.domain)}: ${cut(u.why, 600)} `, seen);
    const now = u.descriptors_per_second > 0;
    return element("li", { class: !now && "soft" },
      now ? `${rate(u.descriptors_per_second)} descriptors per second ` : `none now, ${count(u.descriptors)} before, `,
      `for the domain ${cut(u.domain)}, which has no rules${u.meant ? `; did you mean ${cut(u.meant)}?` : ""}`);
  });
  Object.values(tables).forEach(showTable);
}

const soft = (text) => element("span", { class: "soft" }, text);

// showStatus shows the tiles.
function showStatus(s) {
  const tiles = [
    ["calls/s", rate(s.calls_per_second)],
    ["denied/s", rate(s.denied_per_second)],
    ["errors/s", rate(s.errors_per_second), s.errors_per_second > 0 && "bad"],
    ["Envoy connections", count(s.connections), !s.connections && "warn"],
    ["p99 time", s.p99_seconds === null ? "no calls" : `${(1000 * s.p99_seconds).toPrecision(2)} ms`],
    ["counters used", `${count(s.counters_used)} of ${count(s.counters_max)}`],
    ["store", s.store, s.store === "unavailable" && "bad"],
  ];
  rebuild(byId("status"), tiles, ([title, text, style]) =>
    element("div", {}, element("dt", {}, title), element("dd", { class: style }, text)));
}

function condition(c) {
  const style = { error: "bad", warning: "warn" }[c.severity] ?? "";
  return element("li", {}, element("span", { class: style }, c.text), " ", element("code", {}, c.code),
    " ", soft(`since ${clock(c.since)}${fieldsText(c.fields)}`), lines(c.lines), element("p", { class: "soft" },
      `Remedy: ${c.remedy} (${c.docs})`));
}

const lines = (all) => element("ul", {}, ...(all ?? []).map((line) => element("li", {}, element("code", {}, line))));

const fieldsText = (fields) => Object.entries(fields ?? {}).sort().map(([name, value]) => ` ${name}=${value}`).join("");

// showEvents shows the last events, including the last reload.
function showEvents() {
  const reload = state.events.find((e) => e.fields?.changed);
  const first = state.events.filter((e, i) => i < maxEvents || e === reload);
  const others = state.events.filter((e) => !first.includes(e));
  const [list, earlier] = byId("events").querySelectorAll(":scope > ul, :scope > details");
  const item = (e) => {
    const style = { error: "bad", warning: "warn" }[e.level] ?? "", { changed, changes, ...fields } = e.fields ?? {};
    const more = changes > changed?.length ? [`and ${changes - changed.length} more`] : [];
    return element("li", {}, soft(clock(e.time)), " ",
      element("span", { class: style }, e.text + (e.ends ? " ends" : "")), " ", element("code", {}, e.code ?? ""),
      fieldsText(fields) + (e.count > 1 ? ` (${e.count} times)` : ""),
      lines(e.lines), lines(changed?.concat(more)));
  };
  rebuild(list, first, item);
  earlier.hidden = !others.length;
  setText(earlier.firstElementChild, `earlier events: ${others.length}`);
  rebuild(earlier.lastElementChild, others, item);
}

// Details of a key or a limit.

let opened; // table and id of the item, and the item in the last answer that had it

function openDetails(table, id) {
  opened = { table, id };
  showDetails();
  byId("details").showModal();
}

// readCounter reads the counter of the opened key, if its values are known.
async function readCounter() {
  const asked = opened, k = asked?.item;
  if (!k?.descriptor || k.descriptor.endsWith("…")) return;
  const response = await fetch("/counters?" + new URLSearchParams({ domain: k.domain, descriptor: k.descriptor }));
  const counter = response.ok && (await response.json()).counters.find((c) => c.key === k.hash);
  asked.counter = counter && `${count(counter.used)} of ${count(counter.capacity)} used`
    + (counter.resets_at ? `, resets at ${clock(counter.resets_at)}` : "");
}

function showDetails() {
  if (!opened) return;
  const found = tables[opened.table].items.find((x) => tables[opened.table].id(x) === opened.id);
  const x = opened.item = found ?? opened.item, isKey = opened.table === "keys";
  const limit = isKey ? tables.limits.items.find((l) => limitName(l) === limitName(x) && l.name === x.name) : x;
  const share = `${percent(x.share ?? 0)} of the domain's denials`;
  const facts = isKey ? [
    ["counter", `#${x.hash}${opened.counter ? `: ${opened.counter}` : ""}`],
    ["limit", limitOfKey(x)],
    ["rule at", limit?.at],
    ["denied", found ? `${rate(x.denied_per_second)}/s, ${share}` : "not in the last minute"],
    ["in total", `${count(x.denied)} since ${clock(x.since)}, the last one at ${clock(x.last)}`],
  ] : [
    ["rule at", x.at],
    ["name", x.name],
    ["now", ["hits", "denied", "near"].map((what) => `${rate(x[what + "_per_second"] ?? 0)} ${what}/s`).join(", ")],
    ["in total", `${count(x.hits)} hits, ${count(x.denied)} denied`],
    ["exceeded", x.exceeded && `${count(x.exceeded)} hits while the store was unavailable`],
    ["most denied", tables.keys.items.filter((k) => limitName(k) === limitName(x)).slice(0, 5)
      .map((k) => `${keyName(k)} ${rate(k.denied_per_second)}/s`).join(", ")],
  ];
  setText(byId("subject"), isKey ? keyName(x) : limitName(x));
  const given = facts.filter(([, text]) => text);
  byId("facts").replaceChildren(element("dl", {}, ...given.flatMap(([title, text]) =>
    [element("dt", {}, title), element("dd", {}, text)])), ...chart(limit?.line));
}

// chart returns the elements of a chart of the last five minutes.
function chart(line) {
  if (!line) return [element("p", {}, "No hits in the last five minutes. The chart appears ten seconds after a hit.")];
  const sum = (all) => count(all.reduce((a, b) => a + b, 0)), svg = newLine("");
  const text = `${sum(line.hits)} hits of all clients in the last five minutes, ${sum(line.denied)} denied (red)`;
  const most = drawLine(svg, line), end = new Date(state.time);
  const start = end - 1000 * line.seconds * line.hits.length;
  svg.setAttribute("aria-label", text);
  return [element("p", {}, `${text}; the highest bar is ${count(most)} in ${line.seconds} s`), svg,
    element("div", { class: "axis" }, element("span", {}, clock(start)), element("span", {}, clock(end)))];
}

// Changes.

let pending; // path of the change that the dialog asks about, empty if the dialog shows an error

// ask shows the dialog with a question and the name of its answer.
function ask(question, answer, path) {
  pending = path;
  setText(byId("question"), question);
  setText(byId("yes"), answer);
  byId("yes").hidden = !path;
  byId("confirmation").showModal();
}

async function post(path) {
  const response = await fetch(path, { method: "POST" });
  const reply = await response.json();
  if (!response.ok) throw new Error(`${response.status}: ${reply.error}`);
  return reply;
}

async function previewReset(key) {
  let path = "/api/v1/reset?" + new URLSearchParams({ domain: key.domain, key: key.hash }), text;
  try {
    const r = await post(path);
    path += `&token=${r.token}`;
    text = `Reset ${keyName(key)} (${limitOfKey(key)})? ${r.counters} counter(s), ${count(r.used)} hit(s) used. `
      + "Requests that they deny will be allowed again."
      + (r.not_reset ? ` ${r.not_reset} cannot be reset: their names in the store contain client values.` : "");
  } catch (e) {
    path = "";
    text = `Cannot reset ${keyName(key)}. ${e.message}`;
  }
  ask(text, "Reset", path);
}

byId("unmask").addEventListener("click", () => {
  if (state.unmasked_until) ask("Hide the values of keys? Sluice forgets them.", "Hide", "/api/v1/unmask?for=0s");
  else ask("Show the values of the keys that are denied from now on, for 10 minutes? The log and the events name you.",
    "Show", "/api/v1/unmask?for=10m");
});
byId("yes").addEventListener("click", async () => {
  try {
    await post(pending);
    byId("confirmation").close();
  } catch (e) {
    setText(byId("question"), `Not done. ${e.message}`);
    byId("yes").hidden = true;
  }
});
for (const button of document.querySelectorAll("dialog .close")) {
  button.addEventListener("click", () => button.closest("dialog").close());
}
byId("details").addEventListener("close", () => { opened = undefined; });

// Refreshing.

let answered = performance.now(), failure = "", paused = false;

byId("pause").addEventListener("click", () => {
  paused = !paused;
  setText(byId("pause"), paused ? "Resume" : "Pause");
  byId("pause").setAttribute("aria-pressed", String(paused));
});
byId("filter").addEventListener("input", () => { if (state) showLists(); });

async function refresh() {
  const get = async (query) => {
    const response = await fetch("/api/v1/state" + query, {
      cache: "no-store", headers: { Accept: "application/json" }, signal: AbortSignal.timeout(10000),
    });
    const reply = await response.json();
    if (!response.ok) throw new Error(`${response.status}: ${reply.error}`);
    return reply;
  };
  try {
    let reply = await get(state ? `?rules=active&max=${maxRows}` : "");
    const reloaded = reply.config.hash !== state?.config.hash;
    if (state && reloaded) reply = await get("");
    if (reloaded) allLimits = flat(reply, "rules").map((l) => ({ ...l, ...noRates, line: undefined }));
    answered = performance.now();
    failure = "";
    // A press of a button would be lost if its row moved.
    if (isSelecting() || document.querySelector("main:active")) return;
    state = reply;
    show();
    await readCounter();
    showDetails();
  } catch (e) {
    failure = e.message;
  }
}

function showAge() {
  const age = Math.round((performance.now() - answered) / 1000), stale = !paused && age > staleAfter;
  byId("stale").hidden = !stale;
  const [text, seconds] = byId("stale").children;
  if (stale) {
    const since = state ? `the figures are from ${clock(state.time)}` : "there are no figures";
    setText(text, `No answer from sluice (${failure || "timeout"}): ${since}.`);
    setText(seconds, `The last answer was ${age} seconds ago.`);
  }
  setText(byId("notice"), paused ? "paused" : isSelecting() ? "paused while text is selected" : "");
}
setInterval(showAge, 1000);

(async () => {
  for (;;) {
    if (document.visibilityState !== "visible" || paused) answered = performance.now();
    else await refresh();
    await new Promise((resolve) => setTimeout(resolve, 1000));
  }
})();
