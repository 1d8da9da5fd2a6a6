// Ground floor of the page: the data, making elements, writing numbers, the tooltip.
// Text of the run only ever becomes text nodes or attribute values: no markup is parsed from it, anywhere.

// Objects lose their prototype: a metric or a step may be called "constructor".
const DATA = JSON.parse(document.getElementById("report-data").textContent, (_, value) =>
  value !== null && typeof value === "object" && !Array.isArray(value) ? Object.setPrototypeOf(value, null) : value,
);
const SVG = "http://www.w3.org/2000/svg";
const byId = (id) => document.getElementById(id);

function fill(element, properties, children) {
  for (const [name, value] of Object.entries(properties || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "on") for (const [event, handler] of Object.entries(value)) element.addEventListener(event, handler);
    else if (name === "style") for (const [key, item] of Object.entries(value)) element.style.setProperty(key, item);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : String(child));
  }
  return element;
}

const h = (tag, properties, ...children) => fill(document.createElement(tag), properties, children);
const s = (tag, properties, ...children) => fill(document.createElementNS(SVG, tag), properties, children);

const isNumber = (value) => typeof value === "number" && Number.isFinite(value);
const sum = (values) => values.reduce((total, value) => total + value, 0);
const clamp = (value, low, high) => Math.min(high, Math.max(low, value));

// Names such as learning_rate as words.
const words = (name) => String(name).replace(/[_-]+/g, " ").trim();
const title = (name) => words(name).replace(/^./u, (letter) => letter.toUpperCase());

function thousands(value) {
  return value.toLocaleString("en-US", { maximumFractionDigits: 0 });
}

// Four significant digits, thousands separated; the exact value belongs in a title attribute.
function number(value, digits = 4) {
  if (!isNumber(value)) return "–";
  if (value === 0) return "0"; // also for minus zero
  const size = Math.abs(value);
  if (Number.isInteger(value) && size < 1e15) return minus(thousands(value));
  if (size >= 1e15 || size < 1e-4)
    return minus(
      value
        .toExponential(digits - 2)
        .replace(/\.?0+e/, "e")
        .replace("e+", "e"),
    );
  if (size >= 10 ** (digits - 1)) return minus(thousands(value));
  return minus(String(Number(value.toPrecision(digits))));
}

const minus = (text) => text.replace("-", "−");

function short(value) {
  const size = Math.abs(value);
  for (const [limit, unit] of [
    [1e12, "T"],
    [1e9, "G"],
    [1e6, "M"],
    [1e3, "k"],
  ])
    if (size >= limit * 0.99999) return minus(String(Number((value / limit).toPrecision(3)))) + unit;
  return number(value, 3);
}

function bytes(value) {
  if (!isNumber(value)) return "–";
  for (const [limit, unit] of [
    [1e12, "TB"],
    [1e9, "GB"],
    [1e6, "MB"],
    [1e3, "kB"],
  ])
    if (value >= limit * 0.9995) return `${Number((value / limit).toPrecision(3))} ${unit}`;
  return `${value} B`;
}

function duration(value) {
  if (!isNumber(value)) return "–";
  if (value < 60) return `${value < 9.95 ? value.toFixed(1) : Math.round(value)} s`;
  const whole = Math.round(value),
    hours = Math.floor(whole / 3600),
    minutes = Math.floor((whole % 3600) / 60);
  return hours ? `${hours} h ${minutes} min` : `${minutes} min ${whole % 60} s`;
}

function percent(share, digits = 2) {
  if (!isNumber(share)) return "–";
  const value = share * 100;
  return value > 0 && value < 0.1 ? "<0.1 %" : `${Number(value.toPrecision(value >= 99 ? 3 : digits))} %`;
}

const plural = (count, noun, many) => `${thousands(count)} ${count === 1 ? noun : many || noun + "s"}`;

function moment(seconds) {
  if (!isNumber(seconds)) return "–";
  const date = new Date(seconds * 1000);
  const part = (value) => String(value).padStart(2, "0");
  const day = [date.getFullYear(), part(date.getMonth() + 1), part(date.getDate())].join("-");
  return `${day} ${part(date.getHours())}:${part(date.getMinutes())}`;
}

// Colour is never alone: every status has a sign and a word.
const STATUS = {
  done: ["✓", "done"],
  reused: ["↺", "reused"],
  running: ["▶", "running"],
  failed: ["✕", "failed"],
  pending: ["○", "pending"],
  unknown: ["?", "unknown"],
  external: ["⇥", "given"],
};
const status = (name) => (Object.hasOwn(STATUS, name) ? STATUS[name] : STATUS.unknown);
const statusClass = (name) => `status-${Object.hasOwn(STATUS, name) ? name : "unknown"}`;

// Line colours by position, after Okabe and Ito; the style sheet holds both themes' values. Dashes tell repeats apart.
const SERIES_COLOURS = 7;
const seriesColour = (index) => `var(--series-${index % SERIES_COLOURS})`;
const seriesDash = (index) => ["none", "6 3", "2 3"][Math.floor(index / SERIES_COLOURS) % 3];

function empty(text) {
  return h("p", { class: "empty" }, text);
}

// The one tooltip. Content is nodes; it stays inside the window.
const tip = byId("tip");
function showTip(content, x, y) {
  tip.replaceChildren(...[content].flat());
  tip.hidden = false;
  const box = tip.getBoundingClientRect(),
    gap = 14;
  const left = x + gap + box.width > innerWidth - 8 ? x - gap - box.width : x + gap;
  const top = y + gap + box.height > innerHeight - 8 ? y - gap - box.height : y + gap;
  tip.style.left = `${Math.max(8, left)}px`;
  tip.style.top = `${Math.max(8, top)}px`;
}
function hideTip() {
  tip.hidden = true;
}
function announce(text) {
  byId("announce").textContent = text;
}

// A row of choices of which one is on: radio buttons in clothes.
let groups = 0;
function choice(label, options, selected, change) {
  const group = `choice-${(groups += 1)}`;
  return h(
    "fieldset",
    { class: "choice" },
    h("legend", {}, label),
    options.map(([value, text]) =>
      h(
        "label",
        {},
        h("input", {
          type: "radio",
          name: group,
          value,
          checked: value === selected,
          on: { change: () => change(value) },
        }),
        h("span", {}, text),
      ),
    ),
  );
}

function toggle(label, checked, change) {
  return h(
    "label",
    { class: "toggle" },
    h("input", { type: "checkbox", checked, on: { change: (event) => change(event.target.checked) } }),
    h("span", {}, label),
  );
}

function picker(label, options, change) {
  return h(
    "label",
    { class: "picker" },
    h("span", {}, label),
    h(
      "select",
      { on: { change: (event) => change(event.target.value) } },
      options.map(([value, text]) => h("option", { value }, text)),
    ),
  );
}

function search(label, change) {
  return h(
    "label",
    { class: "picker search" },
    h("span", {}, label),
    h("input", {
      type: "search",
      placeholder: "Type to filter",
      spellcheck: "false",
      on: { input: (event) => change(event.target.value.toLowerCase()) },
    }),
  );
}
