// The page of a sweep: the metric against what was swept, the table of settings, and the curves of all trials.

const measured = DATA.settings.filter((each) => isNumber(each.value));

// What can stand below the metric: an option with numbers, a list of values, or how much data the trials saw.
function places() {
  const found = DATA.axes.map((axis) => ({
    name: axis.name,
    key: axis.key,
    log: axis.log,
    named: !axis.numeric,
    ticks: axis.values.map((value, index) => (axis.numeric ? [value, short(value)] : [index, String(value)])),
    at: (each) => (axis.numeric ? each.values[axis.key] : axis.values.map(String).indexOf(String(each.values[axis.key]))),
  }));
  for (const name of ["tokens", "conversations", "pairs", "documents"]) {
    const sizes = measured.map((each) => each.sizes[name]);
    if (sizes.length > 1 && sizes.every(isNumber) && new Set(sizes).size > 1)
      found.push({ name, key: null, log: Math.max(...sizes) > 5 * Math.min(...sizes), named: false, ticks: null, at: (each) => each.sizes[name] });
  }
  return found;
}

// One line for each combination of the other options' values.
function seriesAlong(place) {
  const others = DATA.axes.filter((axis) => axis.key !== place.key);
  const label = (each) => others.map((axis) => `${axis.name}=${each.values[axis.key]}`).join(", ") || DATA.label;
  const lines = new Map();
  for (const each of measured) lines.set(label(each), [...(lines.get(label(each)) || []), each]);
  const ordered = [...lines].sort(([one], [other]) => one.localeCompare(other, "en", { numeric: true }));
  return ordered.map(([name, members], index) => {
    const sorted = [...members].sort((one, other) => place.at(one) - place.at(other));
    return {
      label: name,
      colour: seriesColour(index),
      dash: seriesDash(index),
      x: sorted.map(place.at),
      y: sorted.map((each) => each.value),
      error: sorted.map((each) => each.standard_error),
      settings: sorted,
      smooth: null,
      bad: [],
    };
  });
}

function renderMetric() {
  const body = byId("metric-body"),
    options = places();
  if (!measured.length || !options.length) return body.append(empty("There is nothing to draw yet."));
  const first = Math.max(0, options.findIndex((each) => !each.named)); // numbers before names
  const state = { place: options[first], log: options[first].log };
  const card = h("figure", { class: "card chart-card wide", "data-metric": DATA.metric });
  const legend = h("p", { class: "legend" });
  const log = toggle("log x", state.log, (on) => {
    state.log = on;
    draw();
  });
  const cursor = (x, chart, event) => {
    const found = chart.point(x);
    if (!found.length) return hideTip();
    const box = chart.svg.getBoundingClientRect();
    const lines = found.map(({ each, index }) => settingLine(each, index));
    showTip(
      h("div", { class: "tip-lines" }, lines),
      event ? event.clientX : box.left + (chart.x(x) * box.width) / chart.width,
      event ? event.clientY : box.top + 24,
    );
    if (!event) announce(lines.map((line) => line.textContent).join("; "));
  };
  const chart = new Chart(DATA.label, { cursor, zoom: () => {} });
  const draw = () => {
    const { place } = state,
      series = seriesAlong(place);
    chart.draw(Math.max(260, card.clientWidth - 26), 340, series, {
      logX: state.log && !place.named,
      logY: false,
      zoom: null,
      whole: place.named ? [-0.3, place.ticks.length - 0.7] : null,
      xLabel: place.name,
      xUnit: "",
      ticks: place.ticks,
    });
    legend.replaceChildren(
      h("span", {}, `along: ${place.key || place.name}`),
      ...(series.length > 1
        ? series.map((each) =>
            h("span", {}, h("span", { class: "swatch", style: { background: each.colour } }), ` ${each.label}`),
          )
        : []),
    );
  };
  card.append(h("figcaption", {}, h("h3", {}, DATA.label)), chart.svg, legend);
  const choose = (name) => {
    state.place = options.find((each) => each.name === name);
    state.log = state.place.log;
    log.querySelector("input").checked = state.log;
    draw();
  };
  body.classList.add("stack");
  body.append(
    h(
      "div",
      { class: "controls card pad" },
      options.length > 1 && choice("X axis", options.map(({ name }) => [name, words(name)]), state.place.name, choose),
      log,
    ),
    card,
  );
  new ResizeObserver(draw).observe(body);
  draw();
}

const withError = (each) => `${number(each.value)}${isNumber(each.standard_error) ? ` ± ${number(each.standard_error, 2)}` : ""}`;

function settingLine(each, index) {
  const setting = each.settings[index];
  return h(
    "div",
    { class: "tip-line" },
    h("span", { class: "swatch", style: { background: each.colour } }),
    h("span", {}, setting.label),
    h("b", { class: "number" }, withError(setting)),
  );
}

function renderSettings() {
  const best = measured[0];
  const sizes = ["tokens", "conversations", "pairs", "documents"].filter((name) => measured.some((each) => name in each.sizes));
  const head = [...DATA.axes.map((axis) => axis.name), DATA.label, "difference", "", ...sizes, "time", "trials"];
  const rows = DATA.settings.map((each) =>
    h(
      "tr",
      {},
      DATA.axes.map((axis) => h("td", { class: "number" }, isNumber(each.values[axis.key]) ? number(each.values[axis.key]) : String(each.values[axis.key]))),
      h("td", { class: "number" }, isNumber(each.value) ? withError(each) : "–"),
      h("td", { class: "number" }, each.difference ? withError(each.difference) : "–"),
      h("td", {}, each === best ? h("span", { class: "tag good" }, "best") : each.close && h("span", { class: "tag" }, "within 1 SE")),
      sizes.map((name) => h("td", { class: "number" }, isNumber(each.sizes[name]) ? number(Math.round(each.sizes[name])) : "–")),
      h("td", { class: "number" }, duration(each.seconds)),
      h("td", {}, each.trials.map(trialLink)),
    ),
  );
  byId("settings-body").append(
    h(
      "div",
      { class: "card pad scroll" },
      h("table", { class: "plain" }, h("thead", {}, h("tr", {}, head.map((name) => h("th", { scope: "col" }, name)))), h("tbody", {}, rows)),
    ),
  );
}

function trialLink(trial) {
  const name = isNumber(trial.seed) ? `seed ${trial.seed}` : "report";
  if (trial.error !== null) return h("span", { class: "tag bad", title: trial.error }, `${name}: failed`);
  return [h("a", { href: `${encodeURIComponent(trial.folder)}/report.html` }, name), " "];
}

function renderTop() {
  byId("run-name").textContent = DATA.name;
  byId("metric-title").textContent = DATA.label;
  const run = DATA.settings.flatMap((each) => each.trials);
  const failed = run.filter((each) => each.error !== null).length;
  const facts = [
    ["Metric", `${DATA.metric}, ${DATA.higher_is_better ? "more" : "less"} is better`],
    ["Swept", DATA.axes.map((axis) => axis.key).join(" · ") || "seeds"],
    ["Trials", `${run.length} of ${DATA.trials} run${failed ? `, ${failed} failed` : ""}`],
    ["Seeds", DATA.seeds.join(", ") || "the recipe's"],
    ["Recipe", [DATA.recipe, ...DATA.fixed].join(" · ")],
  ];
  byId("facts").append(...facts.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))));
  byId("notes").append(...DATA.notes.map((text) => h("li", { class: "card pad" }, text.replace(/^./u, (letter) => letter.toUpperCase()))));
  byId("footer").append(`Built by Ingot on ${moment(DATA.built)}. This file never uses the network.`);
}

renderTheme();
renderTop();
renderMetric();
renderSettings();
renderCurves();
addEventListener("keydown", (event) => {
  if (event.key === "Escape") hideTip();
});
