"use strict";
// Elements and tables of the page. The rest of the script is in page.js.

const maxRows = 100; // maximum number of rows in a table

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
      + (l.shadow ? `, shadow: would deny ${rate(l.shadow_per_second)}/s` : "")
      + (l.soft ? `, ${rate(l.shadow_per_second)}/s above it` : "")),
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
    else if (section === "keys" || section === "limits") openDetails(section, table.id(item));
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
  const found = items.length + (all.length ? 0 : table.omitted ?? 0);
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
