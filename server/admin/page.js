// The page shows /api/v1/state, which docs/state.md describes, once a second.

const maxEvents = 5; // number of events above the list that can be opened
const staleAfter = 3; // age in seconds from which figures are reported as stale

let state; // the last answer
let allLimits = []; // limits of the active rules, including those without hits in the last five minutes
const maxLimits = 10000; // maximum number of limits in an answer
const figures = ["hits_per_second", "denied_per_second", "near_per_second", "hits", "denied", "exceeded", "line"];
const noFigures = Object.fromEntries(figures.map((name) => [name, undefined]));

function show() {
  const { config } = state, shared = state.counters === "store";
  const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
  setText(byId("about"), `${state.host}, ${state.program}, at ${clock(state.time)} (times: ${zone}); `
    + (config.hash ? `${count(config.limits)} limits, rules ${config.hash} since ${clock(config.loaded)}` : "no rules")
    + `; keys: ${state.top_keys}`
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
  tables.keys.omitted = state.domains.reduce((n, d) => n + (d.omitted_keys ?? 0), 0);
  const active = flat(state, "rules");
  const seen = new Set(active.map(tables.limits.id));
  for (const l of allLimits) l.unknown = active.length >= state.max;
  tables.limits.none = state.config.hash ? "the rules have no limits" : "no rules are loaded";
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

// readCounter reads and shows the counter of the opened key, if its values are known.
async function readCounter() {
  const asked = opened, k = asked?.item;
  if (!k?.descriptor || k.descriptor.endsWith("…") || asked.reading) return;
  asked.reading = true;
  let counter;
  try {
    const query = new URLSearchParams({ domain: k.domain, descriptor: k.descriptor });
    const response = await fetch("/counters?" + query, { signal: AbortSignal.timeout(5000) });
    counter = response.ok && (await response.json()).counters.find((c) => c.key === k.hash);
  } catch { /* without an answer no counter is shown */ }
  asked.reading = false;
  asked.counter = counter && `${count(counter.used)} of ${count(counter.capacity)} used`
    + (counter.resets_at ? `, resets at ${clock(counter.resets_at)}` : "");
  if (asked === opened && !isSelecting()) showDetails();
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
    ["now", x.hits !== undefined && ["hits", "denied", "near"].map((what) => `${rate(x[what + "_per_second"])} ${what}/s`).join(", ")],
    ["in total", x.hits !== undefined && `${count(x.hits)} hits, ${count(x.denied)} denied`],
    ["exceeded", x.exceeded && `${count(x.exceeded)} hits while the store was unavailable`],
    ["most denied", tables.keys.items.filter((k) => limitName(k) === limitName(x)).slice(0, 5)
      .map((k) => `${keyName(k)} ${rate(k.denied_per_second)}/s`).join(", ")],
  ];
  setText(byId("subject"), isKey ? keyName(x) : limitName(x));
  const given = facts.filter(([, text]) => text);
  byId("facts").replaceChildren(element("dl", {}, ...given.flatMap(([title, text]) =>
    [element("dt", {}, title), element("dd", {}, text)])), ...chart(limit));
}

// chart returns the elements of a chart of the last five minutes.
function chart(limit) {
  const line = limit?.line;
  if (limit?.unknown) return [element("p", {}, `The limit is not among the ${count(state.max)} busiest limits.`)];
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

let previewed; // key whose reset was asked for last
let pending; // path of the change that the dialog asks about, empty if the dialog shows an error

// ask shows the dialog with a question and the name of its answer.
function ask(question, answer, path) {
  pending = path;
  setText(byId("question"), question);
  setText(byId("yes"), answer);
  byId("yes").hidden = !path;
  byId("confirmation").showModal();
}

async function send(method, path) {
  const response = await fetch(path, { method, signal: AbortSignal.timeout(5000) });
  const reply = await response.json();
  if (!response.ok) throw new Error(`${response.status}: ${reply.error}`);
  return reply;
}

async function previewReset(key) {
  previewed = key;
  let path = "/api/v1/reset?" + new URLSearchParams({ domain: key.domain, key: key.hash }), text;
  try {
    const r = await send("GET", path);
    text = `Reset ${keyName(key)} (${limitOfKey(key)})? ${r.counters} counter(s), ${count(r.used)} hit(s) used. `
      + "Requests that they deny will be allowed again."
      + (r.not_reset ? ` ${r.not_reset} cannot be reset: their names in the store contain client values.` : "");
  } catch (e) {
    path = "";
    text = `Cannot reset ${keyName(key)}. ${e.message}`;
  }
  if (previewed === key && !byId("confirmation").open) ask(text, "Reset", path);
}

byId("unmask").addEventListener("click", () => {
  if (state.unmasked_until) ask("Hide the values of keys? Sluice forgets them.", "Hide", "/api/v1/unmask?for=0s");
  else ask("Show the values of the keys that are denied from now on, for 10 minutes? The log and the events name you.",
    "Show", "/api/v1/unmask?for=10m");
});
byId("yes").addEventListener("click", async () => {
  const path = pending;
  let error;
  try {
    await send("POST", path);
  } catch (e) {
    error = e.name === "TimeoutError" ? "No answer within 5 seconds. The events show whether it is done."
      : `Not done. ${e.message}`;
  }
  if (path !== pending) return; // the dialog asks another question
  if (!error) byId("confirmation").close();
  else setText(byId("question"), error);
  byId("yes").hidden = true;
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
  // A filter, an order and details can concern each limit and key; details also limits without hits.
  const max = opened || words().length || tables.limits.sorted ? maxLimits : maxRows;
  const keys = opened || words().length || tables.keys.sorted ? maxLimits : maxRows;
  const get = async (query, max) => {
    const response = await fetch("/api/v1/state" + query, {
      cache: "no-store", headers: { Accept: "application/json" }, signal: AbortSignal.timeout(10000),
    });
    const reply = await response.json();
    if (!response.ok) throw new Error(`${response.status}: ${reply.error}`);
    reply.max = max;
    return reply;
  };
  try {
    let reply = await (state ? get(`?rules=${opened ? "all" : "active"}&max=${max}&keys=${keys}`, max) : get("", maxLimits));
    const reloaded = reply.config.hash !== state?.config.hash;
    if (state && reloaded) reply = await get("", maxLimits);
    if (reloaded) allLimits = flat(reply, "rules").map((l) => ({ ...l, ...noFigures }));
    answered = performance.now();
    failure = "";
    // A press of a button would be lost if its row moved.
    if (isSelecting() || document.querySelector("main:active")) return;
    state = reply;
    show();
    showDetails();
    readCounter();
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
