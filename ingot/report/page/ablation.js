// The notebook of an ablation: forest plots of gains, the decision table, swept options, predictions, runs and curves.

const [baseline, ...arms] = DATA.arms;
const VERDICTS = { adopt: "good", reject: "bad", pruned: "bad", "cannot tell": "" };
const VERDICT_COLOURS = { adopt: "var(--better)", reject: "var(--worse)" };
const differenceOf = (arm, metric) => arm.differences.find((each) => each.metric === metric.name);
const verdictTag = (arm) => h("span", { class: `tag ${VERDICTS[arm.verdict] || ""}` }, arm.verdict);

function table(head, rows) {
  const row = (cells) => h("tr", {}, cells.map((cell) => h("td", { class: typeof cell === "string" ? "number" : null }, cell)));
  const headings = h("tr", {}, head.map((name) => h("th", { scope: "col" }, name)));
  return h("div", { class: "card pad scroll" }, h("table", { class: "plain" }, h("thead", {}, headings), h("tbody", {}, rows.map(row))));
}

function renderForest() {
  const body = byId("forest-body");
  body.classList.add("stack");
  for (const metric of DATA.metrics) {
    const rows = arms.map((arm) => {
      const one = differenceOf(arm, metric),
        [low, high] = (one && one.gain_interval) || [null, null];
      const colour = (one && one.certain && VERDICT_COLOURS[one.gain > 0 ? "adopt" : "reject"]) || "var(--soft)";
      return { label: arm.name, gain: one ? one.gain : null, low, high, colour };
    });
    const card = h("figure", { class: "card chart-card wide", "data-metric": metric.name });
    const said = metric.can_tell ? "" : " (says nothing at this size)";
    const draw = () => {
      const width = Math.max(560, card.clientWidth - 26);
      card.replaceChildren(
        h("figcaption", {}, h("h3", {}, `Gain in ${metric.label.toLowerCase()}${said}`)),
        h("div", { class: "scroll" }, forest(metric.label, rows, width)),
      );
    };
    body.append(card);
    new ResizeObserver(draw).observe(body);
    draw();
  }
}

// An arm's cost as its share of the baseline's.
function share(arm, name, text) {
  const own = arm[name],
    base = baseline[name];
  if (!isNumber(own)) return "–";
  if (arm === baseline || !isNumber(base) || !base) return text(own);
  return own === base ? "=" : gainText(own / base - 1, 1);
}

function costs(arm) {
  return [
    share(arm, "parameters", short),
    share(arm, "flops", short),
    share(arm, "tokens_per_second", (value) => number(Math.round(value))),
    share(arm, "memory_gib", (value) => `${value.toFixed(2)} GiB`),
  ];
}

function speedUp(found) {
  if (!found) return "–";
  const end = (value) => (isNumber(value) && value > 0 ? value.toFixed(2) : "…");
  return `${found.value.toFixed(2)} [${end(found.low)}, ${end(found.high)}]${found.extrapolated ? "*" : ""}`;
}

function renderDecisions() {
  const [metric] = DATA.metrics;
  const deviation = metric.baseline.deviation;
  const mean = (arm) => (isNumber(arm.means[metric.name]) ? number(arm.means[metric.name], 5) : "–");
  const first = ["baseline", mean(baseline) + (isNumber(deviation) ? ` ± ${number(deviation, 2)}` : ""), "", "", ...costs(baseline), "", "", ""];
  const rows = arms.map((arm) => {
    const one = differenceOf(arm, metric);
    return [
      arm.name + (arm.confounded ? " (confounded)" : ""),
      mean(arm),
      one && isNumber(one.gain) ? gainText(one.gain) : "–",
      one && one.tested ? number(one.corrected_p_value, 2) : "–",
      ...costs(arm),
      speedUp(arm.speed_up),
      one && !one.certain && isNumber(one.runs_that_would_tell) ? number(one.runs_that_would_tell) : "–",
      h("span", {}, verdictTag(arm), ` ${arm.why}`),
    ];
  });
  const head = ["Arm", metric.label, "Gain", "p (Holm)", "Parameters", "FLOPs", "Tokens/s", "Memory", "Speed-up", "Seeds that would tell", "Verdict"];
  byId("forest-body").append(table(head, [first, ...rows]));
}

function renderSweeps() {
  byId("sweeps").hidden = !DATA.sweeps.length;
  const body = byId("sweeps-body");
  body.classList.add("stack");
  for (const sweep of DATA.sweeps) {
    const mean = (values) => sum(values) / values.length;
    const error = (values) =>
      values.length > 1 ? Math.sqrt(sum(values.map((value) => (value - mean(values)) ** 2)) / (values.length - 1) / values.length) : null;
    const line = { dash: "none", smooth: null, bad: [] };
    const points = {
      ...line,
      label: sweep.name,
      colour: seriesColour(0),
      x: sweep.points.map((each) => each.value),
      y: sweep.points.map((each) => mean(each.by_seed)),
      error: sweep.points.map((each) => error(each.by_seed)),
    };
    const fitted = { ...line, label: "parabola", colour: seriesColour(1), x: sweep.fitted.map(([x]) => x), y: sweep.fitted.map(([, y]) => y) };
    const chart = new Chart(sweep.key, { cursor: () => {}, zoom: () => {} });
    const card = h("figure", { class: "card chart-card wide" }, h("figcaption", {}, h("h3", {}, sweep.key)), chart.svg, h("p", { class: "legend" }, sweep.text));
    const draw = () =>
      chart.draw(Math.max(260, card.clientWidth - 26), 300, [points, fitted], {
        logX: sweep.log,
        logY: false,
        zoom: null,
        whole: null,
        xLabel: sweep.key,
        xUnit: "",
        ticks: sweep.points.map((each) => [each.value, short(each.value)]),
      });
    body.append(card);
    new ResizeObserver(draw).observe(body);
    draw();
  }
}

// A value; of a part that another kind replaces, or that was taken out or put in, only which kind it is.
function shown(value, other) {
  if (typeof value === "string") return value;
  if (value && value.kind && (!other || other.kind !== value.kind)) return value.kind;
  return JSON.stringify(value);
}

function renderArms() {
  const rows = arms.map((arm) => [
    arm.name,
    h("span", {}, arm.changes.map((each) => h("div", {}, `${each.key}: ${shown(each.before, each.after)} → ${shown(each.after, each.before)}`))),
    h("span", {}, arm.matched || ""),
    h("span", {}, arm.predicted.map((each) => h("div", {}, `${each.text} (${each.at.slice(0, 10)}${each.late ? ", written after a result" : ""})`))),
    h("span", {}, verdictTag(arm), ` ${arm.why}`),
  ]);
  byId("arms-body").append(table(["Tried", "Changed", "Matched", "Predicted before", "Found"], rows));
}

function renderRuns() {
  const metrics = DATA.metrics.map((metric) => metric.name);
  const rows = DATA.runs.map((run) => [
    h("span", {}, run.report ? h("a", { href: run.report.split("/").map(encodeURIComponent).join("/") }, run.name) : run.name),
    h("span", { class: `tag ${run.status === "failed" ? "bad" : ""}` }, run.status),
    ...metrics.map((name) => (isNumber(run.values[name]) ? number(run.values[name], 5) : "–")),
    run.seconds ? duration(run.seconds) : "–",
    isNumber(run.tokens_per_second) ? number(Math.round(run.tokens_per_second)) : "–",
    h("span", {}, run.error),
  ]);
  byId("runs-body").append(table(["Run", "Status", ...DATA.metrics.map((metric) => metric.label), "Time", "Tokens/s", ""], rows));
}

function renderTop() {
  byId("run-name").textContent = DATA.name;
  const count = (name) => arms.filter((arm) => arm.verdict === name).length;
  const facts = [
    ["Adopt", String(count("adopt"))],
    ["Reject", String(count("reject") + count("pruned"))],
    ["Cannot tell", String(count("cannot tell"))],
    ["Baseline", DATA.baseline],
    ["Seeds", DATA.seeds.join(", ")],
    ["Matched by", DATA.match],
    ["Spent", duration(DATA.spent.seconds)],
  ];
  byId("facts").append(...facts.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))));
  byId("notes").append(...DATA.notes.map((text) => h("li", { class: "card pad" }, text.replace(/^./u, (letter) => letter.toUpperCase()))));
  byId("footer").append(`Built by Ingot on ${moment(DATA.built)}. This file never uses the network.`);
}

renderTheme();
renderTop();
renderForest();
renderDecisions();
renderSweeps();
renderArms();
renderRuns();
renderCurves();
addEventListener("keydown", (event) => {
  if (event.key === "Escape") hideTip();
});
