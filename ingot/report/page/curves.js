// The curves section: one chart for each metric, one line for each stage, controls that act on all charts.

// Known metrics in the order in which one reads a run; any other follows by name.
const METRICS = {
  loss: "Loss", // and losses by source after it: loss/NAME
  validation_bits_per_byte: "Validation bits per byte",
  learning_rate: "Learning rate",
  gradient_norm: "Gradient norm",
  update_ratio: "Update to weight", // by kind of parameter
  tokens_per_second: "Tokens per second",
  mfu: "Model FLOPs utilisation",
  data_wait_share: "Data wait, share of time",
  checkpoint_stall: "Checkpoint stall, seconds",
  memory_gib: "Memory in GiB",
  router: "Router",
  reward: "Reward",
  correct_share: "Correct share",
  format_share: "Format share",
  response_length: "Response length, tokens", // and of right and wrong answers after it
  truncated_share: "Truncated answers, share",
  entropy: "Entropy of the policy, nats per token",
  start_divergence: "Divergence from the start (KL), nats per token",
  reward_std: "Reward standard deviation",
  ratio_mean: "Policy ratio, mean",
  ratio: "Policy ratio, share of tokens",
  clip_share: "Clipped share",
  staleness: "Staleness of tokens, updates", // and the share of each age after it: staleness/AGE
  learner_idle_share: "Learner idle, share of time",
  sampler_idle_share: "Sampler idle, share of time",
  sampler_tokens_per_second: "Sampler tokens per second",
  queue_length: "Finished groups in the queue",
  dropped_groups: "Groups dropped for age",
  cancelled_groups: "Groups cancelled in play for age",
  preference_accuracy: "Preference accuracy",
  margin: "Preference margin",
  cross_entropy: "Cross-entropy, nats per token",
  loss_deviations: "Loss, deviations above usual",
  gradient_norm_deviations: "Gradient norm, deviations above usual",
  spurious: "Spurious rewards: 1 where coin flips stand in for them",
  mixed_groups: "Groups of mixed reward, share",
  noise_scale: "Noise scale, tokens",
  sampler_divergence: "Sampler divergence (KL)",
  seconds: "Time of a step, seconds",
  teacher_divergence: "Teacher divergence (KL)",
};
// Of "loss/code": the family "loss", and the member "code".
const family = (name) => name.split("/", 1)[0];
function metricTitle(name) {
  if (Object.hasOwn(METRICS, name)) return METRICS[name];
  const known = name !== family(name) && Object.hasOwn(METRICS, family(name));
  return known ? `${METRICS[family(name)]}: ${words(name.slice(family(name).length + 1))}` : title(name);
}

function renderCurves() {
  const body = byId("curves-body"),
    stages = DATA.curves.filter((each) => Object.keys(each.metrics).length);
  if (!stages.length) return body.append(empty("No stage of this run has written metrics.jsonl yet."));
  const order = Object.keys(METRICS);
  const rank = (name) => (order.includes(family(name)) ? order.indexOf(family(name)) : order.length);
  const names = [...new Set(stages.flatMap((each) => Object.keys(each.metrics)))].sort(
    (one, other) => rank(one) - rank(other) || one.localeCompare(other),
  );
  // Lengths that are far apart would press the short stages against the left edge.
  const lengths = stages.map(lastStep).filter((length) => length > 0);
  const state = {
    x: Math.max(...lengths) > 5 * Math.min(...lengths) ? "share" : "step",
    logX: false,
    logY: false,
    weight: 0,
    zoom: null,
    hidden: new Set(),
    wide: null,
  };
  const grid = h("div", { class: "charts" });
  const reset = h(
    "button",
    {
      type: "button",
      class: "button",
      hidden: true,
      on: {
        click: () => {
          state.zoom = null;
          draw();
        },
      },
    },
    "Reset zoom",
  );

  const cursor = (x, chart, event) => {
    for (const { chart: other } of cards) {
      const found = other.point(x);
      if (other !== chart) continue;
      if (!found.length) {
        hideTip();
        continue;
      }
      const lines = found.map(({ each, index }) => pointLine(each, index));
      const box = chart.svg.getBoundingClientRect();
      showTip(
        h("div", { class: "tip-lines" }, h("strong", {}, metricTitle(chart.metric)), lines),
        event ? event.clientX : box.left + (chart.x(x) * box.width) / chart.width,
        event ? event.clientY : box.top + 24,
      );
      if (!event)
        announce(
          found
            .map(({ each, index }) => `${each.label}, step ${number(each.steps[index])}: ${number(each.y[index])}`)
            .join("; "),
        );
    }
  };
  const zoom = (from, to) => {
    state.zoom = [from, to];
    hideTip();
    draw();
  };
  const cards = names.map((metric) => {
    const chart = new Chart(metricTitle(metric), { cursor, zoom });
    chart.metric = metric;
    const enlarge = h(
      "button",
      {
        type: "button",
        class: "button quiet icon",
        "aria-pressed": "false",
        "aria-label": `Enlarge ${words(metric)}`,
        title: "Enlarge",
        on: {
          click: () => {
            state.wide = state.wide === metric ? null : metric;
            draw();
          },
        },
      },
      "⤢",
    );
    const note = h("span", { class: "faint note" });
    const card = h(
      "figure",
      { class: "card chart-card", "data-metric": metric },
      h("figcaption", {}, h("h3", {}, metricTitle(metric)), note, enlarge),
      chart.svg,
    );
    return { metric, chart, card, enlarge, note };
  });
  // What has one value in all stages says nothing as a curve: its name and value, and the chart for who asks.
  const still = new Map(names.map((metric) => [metric, onlyValue(stages, metric)]).filter(([, value]) => value !== null));
  const stillGrid = h("div", { class: "charts" });
  for (const { metric, card } of cards) (still.has(metric) ? stillGrid : grid).append(card);
  const folded = h(
    "details",
    { class: "still", on: { toggle: () => draw() } },
    h(
      "summary",
      {},
      `${still.size} ${still.size === 1 ? "number" : "numbers"} that never changed: `,
      [...still].map(([metric, value]) => `${metricTitle(metric)}: ${number(value)}`).join("; "),
    ),
    stillGrid,
  );

  const draw = () => {
    reset.hidden = !state.zoom;
    for (const { card, enlarge, metric } of cards) {
      card.classList.toggle("wide", state.wide === metric);
      enlarge.setAttribute("aria-pressed", String(state.wide === metric));
    }
    for (const { metric, chart, card, note } of cards) {
      const shown = stages.filter((each) => metric in each.metrics && !state.hidden.has(each.stage));
      const series = shown
        .map((each) => seriesOf(each, metric, stages.indexOf(each), state))
        .filter((each) => each.x.length || each.bad.length);
      card.classList.toggle("off", !series.length);
      note.textContent = series.length === 1 && shown.length === 1 ? series[0].label : "";
      chart.draw(Math.max(200, card.clientWidth - 26), state.wide === metric ? 340 : 190, series, {
        logX: state.logX,
        logY: state.logY,
        zoom: state.zoom,
        whole: state.x === "share" ? [0, 100] : null, // of every chart, so that they can be compared
        xLabel: { step: "steps", tokens: "tokens", share: "percent of the stage" }[state.x],
        xUnit: state.x === "share" ? " %" : "",
      });
    }
  };

  const chips = stages.map((each, index) =>
    h(
      "label",
      {
        class: "series-chip",
        style: { "--colour": seriesColour(index) },
        title: "Double-click shows this one alone",
        on: { dblclick: () => only(index) },
      },
      h("input", {
        type: "checkbox",
        checked: true,
        "data-stage": each.stage,
        on: {
          change: (event) => {
            if (event.target.checked) state.hidden.delete(each.stage);
            else state.hidden.add(each.stage);
            draw();
          },
        },
      }),
      h("span", { class: "swatch" }),
      h("span", {}, each.stage),
    ),
  );
  const only = (index) => {
    const alone = stages.every((each, other) => state.hidden.has(each.stage) === (other !== index));
    state.hidden = new Set(alone ? [] : stages.filter((_, other) => other !== index).map((each) => each.stage));
    chips.forEach((chip, other) => {
      chip.querySelector("input").checked = !state.hidden.has(stages[other].stage);
    });
    draw();
  };
  const withTokens = stages.some((each) => Object.values(each.metrics).some((curve) => curve.tokens));
  const weight = h("output", { class: "number" }, "0");
  body.append(
    h(
      "div",
      { class: "controls card pad" },
      h("fieldset", { class: "chip-row" }, h("legend", {}, DATA.lines || "Stages"), chips),
      choice(
        "X axis",
        [["step", "step"], ...(withTokens ? [["tokens", "tokens"]] : []), ["share", "share of stage"]],
        state.x,
        (value) => {
          state.x = value;
          state.zoom = null;
          draw();
        },
      ),
      toggle("log y", false, (on) => {
        state.logY = on;
        draw();
      }),
      toggle("log x", false, (on) => {
        state.logX = on;
        state.zoom = null;
        draw();
      }),
      h(
        "label",
        { class: "slider" },
        h("span", {}, "Smoothing"),
        h("input", {
          type: "range",
          min: "0",
          max: "0.98",
          step: "0.01",
          value: "0",
          on: {
            input: (event) => {
              state.weight = Number(event.target.value);
              weight.textContent = event.target.value;
              draw();
            },
          },
        }),
        weight,
      ),
      reset,
    ),
    grid,
    still.size ? folded : "",
  );
  let drawn = 0;
  new ResizeObserver(() => {
    if (grid.clientWidth && grid.clientWidth !== drawn) {
      drawn = grid.clientWidth;
      draw();
    }
  }).observe(grid);
  draw();
}

// The value of a metric that has the same one at every step of every stage, or null.
function onlyValue(stages, metric) {
  const shown = stages.map((each) => each.metrics[metric]).filter(Boolean);
  const values = new Set(shown.flatMap((curve) => curve.value));
  const several = shown.some((curve) => curve.value.length > 1);
  return several && values.size === 1 && !shown.some((curve) => curve.not_finite) ? [...values][0] : null;
}

const lastStep = (each) => Math.max(0, ...Object.values(each.metrics).map((curve) => curve.step.at(-1) || 0));

function seriesOf(each, metric, index, state) {
  const curve = each.metrics[metric],
    length = lastStep(each) || 1;
  const place = (step) => (state.x === "share" ? (100 * step) / length : step);
  const along = (columns) => (state.x === "tokens" ? columns.tokens || [] : columns.step.map(place));
  const pick = (columns) => {
    const xs = along(columns),
      kept = xs.map((x, at) => at).filter((at) => isNumber(xs[at]));
    return {
      x: kept.map((at) => xs[at]),
      y: kept.map((at) => columns.value[at]),
      steps: kept.map((at) => columns.step[at]),
      tokens: columns.tokens && kept.map((at) => columns.tokens[at]),
    };
  };
  const points = pick(curve);
  const base = curve.means ? pick(curve.means) : points;
  const smooth = state.weight > 0 && base.x.length > 2 ? { x: base.x, y: smoothed(base.y, state.weight) } : null;
  const bad = state.x === "tokens" ? [] : (curve.not_finite || []).map(place);
  return { label: each.stage, colour: seriesColour(index), dash: seriesDash(index), ...points, smooth, bad };
}

function pointLine(each, index) {
  const smooth = each.smooth ? each.smooth.y[nearest(each.smooth.x, each.x[index])] : null;
  return h(
    "div",
    { class: "tip-line" },
    h("span", { class: "swatch", style: { background: each.colour } }),
    h("span", {}, each.label),
    h("b", { class: "number" }, number(each.y[index])),
    smooth !== null && h("span", { class: "faint" }, `smooth ${number(smooth)}`),
    h(
      "span",
      { class: "faint number" },
      `step ${number(each.steps[index])}`,
      each.tokens && isNumber(each.tokens[index]) ? ` · ${short(each.tokens[index])} tokens` : "",
    ),
  );
}
