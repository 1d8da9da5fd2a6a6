// Scores over the steps of a training run, with their errors, and which of them to trust at this size.

const TRUST = {
  stable: ["good", "stable", "rises with training, above chance, with little noise"],
  noisy: ["bad", "noisy", "rises, but noise is too large to choose between two models by it"],
  blind: ["bad", "blind", "says nothing at this size: it does not rise, or is not above chance"],
  unknown: ["", "too few steps", ""],
};
const FRAME = { width: 340, height: 150, left: 44, right: 10, top: 10, bottom: 24 };

function renderHistories() {
  const body = byId("history-body");
  const { compute, histories } = DATA;
  for (const history of histories) {
    body.append(
      h("h3", {}, `${history.checkpoint}: ${plural(history.metrics[0].steps.length, "step")} measured`),
      h("div", { class: "charts" }, history.metrics.map(historyCard)),
    );
  }
  if (histories.length) {
    body.append(
      h(
        "p",
        { class: "legend" },
        h("span", {}, "band: two standard errors to each side"),
        h("span", {}, "dashed: chance"),
        Object.values(TRUST)
          .filter(([, , about]) => about)
          .map(([look, name, about]) => h("span", {}, h("span", { class: `tag ${look}` }, name), ` ${about}`)),
      ),
    );
  }
  if (compute) {
    body.append(
      h(
        "p",
        { class: "legend", id: "eval-share" },
        `Measuring took ${duration(compute.measuring)}, ${percent(compute.share)} of the time of training and measuring.`,
      ),
    );
  }
}

function historyCard(curve) {
  const [look, name] = TRUST[curve.signal.kind];
  return h(
    "figure",
    { class: "card chart-card history", "data-metric": curve.metric },
    h("figcaption", {}, h("strong", {}, curve.label), h("span", { class: `tag ${look}` }, name)),
    historyChart(curve),
    h("small", { class: "faint" }, curve.signal.reasons.join(" · ")),
  );
}

function historyChart(curve) {
  const { width, height, left, right, top, bottom } = FRAME;
  const points = curve.steps.map((step, index) => ({
    step,
    value: curve.values[index],
    error: isNumber(curve.errors[index]) ? curve.errors[index] : 0,
  }));
  const edges = points.flatMap(({ value, error }) => [value - 2 * error, value + 2 * error]);
  const [low, high] = valueRange(isNumber(curve.chance) ? [...edges, curve.chance] : edges, false);
  const x = scale(points[0].step, points.at(-1).step, left, width - right, false);
  const y = scale(low, high, height - bottom, top, false);
  const line = (place) => points.map((point) => `${x(point.step)},${y(place(point))}`);
  const band = [...line(({ value, error }) => value + 2 * error), ...line(({ value, error }) => value - 2 * error).reverse()];
  return s(
    "svg",
    {
      class: "chart history-chart",
      viewBox: `0 0 ${width} ${height}`,
      role: "img",
      "aria-label": `${curve.label}: ${points.map(({ step, value }) => `step ${step}, ${number(value)}`).join("; ")}`,
    },
    niceTicks(low, high, 4).map((tick) => [
      s("line", { class: "grid", x1: left, x2: width - right, y1: y(tick), y2: y(tick) }),
      s("text", { class: "tick", x: left - 6, y: y(tick) + 4, "text-anchor": "end" }, number(tick, 3)),
    ]),
    [points[0], points.at(-1)].map(({ step }, index) =>
      s("text", { class: "tick", x: x(step), y: height - 6, "text-anchor": index ? "end" : "start" }, `step ${thousands(step)}`),
    ),
    isNumber(curve.chance) &&
      s("line", { class: "chance", x1: left, x2: width - right, y1: y(curve.chance), y2: y(curve.chance) }),
    s("polygon", { class: "band", points: band.join(" ") }),
    s("polyline", { class: "mean", points: line(({ value }) => value).join(" ") }),
    points.map(({ step, value, error }) =>
      s(
        "circle",
        { cx: x(step), cy: y(value), r: 3 },
        s("title", {}, `step ${thousands(step)}: ${number(value)}${error ? ` ± ${number(error)}` : ""}`),
      ),
    ),
  );
}
