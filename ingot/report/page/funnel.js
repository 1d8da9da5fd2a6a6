// The data funnel: what each curation step kept, and samples of what it removed.

const SAMPLES_AT_ONCE = 4;
const MOST_RULES = 12;

function renderFunnels() {
  const body = byId("data-body");
  if (!DATA.funnels.length) return body.append(empty("No stage of this run has left documents/funnel.json yet."));
  for (const funnel of DATA.funnels) body.append(funnelView(funnel));
}

function funnelView(funnel) {
  // A step that has samples but no row in the funnel (or the other way round) still appears.
  const listed = funnel.steps.map((step) => step.step);
  const steps = [
    ...funnel.steps,
    ...Object.keys(funnel.removed)
      .filter((name) => !listed.includes(name))
      .map((name) => ({ step: name })),
  ];
  const browser = h("div", { class: "browser" });
  const first = funnel.steps[0],
    last = funnel.steps.at(-1);
  const buttons = steps.map((step) => funnelRow(step, first, funnel.removed[step.step], () => select(step)));
  const select = (step) => {
    buttons.forEach((button, index) => button.setAttribute("aria-pressed", String(steps[index] === step)));
    browser.replaceChildren(...removedView(step, funnel.removed[step.step]));
  };
  // Open the step with the most pairs to compare.
  const differs = (sample) => "duplicate_text" in sample && sample.duplicate_text !== sample.text;
  const pairs = (step) => (funnel.removed[step.step] || { samples: [] }).samples.filter(differs).length;
  const most = steps.reduce((best, step) => (pairs(step) > (best ? pairs(best) : 0) ? step : best), null);
  const opened = most || steps.find((step) => funnel.removed[step.step]);
  if (opened) select(opened);
  // Where little is left, bars measured against the start are too short to compare.
  const against = first && last.documents_out < first.documents_in / 4 ? "own" : "start";
  const table = h("div", { class: `card funnel-steps ${against}` });
  return h(
    "div",
    { class: "funnel" },
    DATA.funnels.length > 1 && h("h3", {}, funnel.stage),
    first &&
      h(
        "p",
        { class: "totals" },
        h("strong", {}, plural(last.documents_out, "document")),
        ` (${bytes(last.bytes_out)}) kept of ${thousands(first.documents_in)} (${bytes(first.bytes_in)}): `,
        h("strong", {}, percent(last.documents_out / first.documents_in)),
        " of documents, ",
        h("strong", {}, percent(last.bytes_out / first.bytes_in)),
        " of bytes.",
      ),
    first &&
      h(
        "div",
        { class: "controls" },
        choice(
          "Bars against",
          [
            ["start", "the start"],
            ["own", "each step's input"],
          ],
          against,
          (value) => {
            table.className = `card funnel-steps ${value}`;
          },
        ),
      ),
    fill(table, {}, [
      h(
        "div",
        { class: "funnel-head", "aria-hidden": "true" },
        h("span", {}, "Step"),
        h("span", {}, "Documents"),
        h("span", {}, "Bytes"),
        h("span", {}, "Time"),
      ),
      buttons,
    ]),
    h("div", { class: "card" }, browser),
  );
}

function funnelRow(step, first, removed, select) {
  const bar = (unit, show) => {
    const into = step[`${unit}_in`],
      out = step[`${unit}_out`];
    if (!isNumber(into)) return h("span", {});
    const whole = Math.max(first[`${unit}_in`], into, out, 1),
      own = Math.max(into, 1),
      lost = into - out;
    const widths = (amount) => ({ "--start": `${(100 * amount) / whole}%`, "--own": `${(100 * amount) / own}%` });
    return h(
      "span",
      { class: "bar-cell" },
      h(
        "span",
        { class: "track" },
        h("span", { class: "kept", style: widths(Math.min(out, into)) }),
        h("span", { class: "lost", style: widths(Math.max(lost, 0)) }),
      ),
      h(
        "span",
        { class: "number amounts", title: `${into} in, ${out} out` },
        show(out),
        lost !== 0 &&
          h(
            "small",
            {},
            ` ${lost > 0 ? "−" : "+"}${show(Math.abs(lost))} (${percent(Math.abs(lost) / Math.max(into, 1))})`,
          ),
      ),
    );
  };
  const label = isNumber(step.documents_in)
    ? `${words(step.step)}: ${plural(step.documents_in, "document")} in, ${thousands(step.documents_out)} out; ` +
      `${bytes(step.bytes_in)} in, ${bytes(step.bytes_out)} out`
    : words(step.step);
  return h(
    "button",
    { type: "button", class: "funnel-row", "aria-pressed": "false", "aria-label": label, on: { click: select } },
    h("span", { class: "step" }, words(step.step), removed && h("small", {}, plural(removed.total, "sample"))),
    bar("documents", thousands),
    bar("bytes", bytes),
    h("span", { class: "number time" }, isNumber(step.seconds) ? duration(step.seconds) : ""),
  );
}

function removedView(step, removed) {
  const heading = h("h3", {}, "Removed by ", h("em", {}, words(step.step)));
  if (!removed)
    return [
      heading,
      empty(
        step.documents_in === step.documents_out
          ? "This step removed nothing."
          : "No samples of what this step removed were kept.",
      ),
    ];
  const state = { text: "", rule: null, shown: SAMPLES_AT_ONCE };
  const list = h("div", { class: "samples" }),
    count = h("p", { class: "faint", role: "status" });
  const update = () => {
    const found = removed.samples.filter(
      (sample) =>
        (state.rule === null || sample.rule === state.rule) &&
        [sample.text, sample.duplicate_text, sample.reason, sample.source, sample.id].some((text) =>
          (text || "").toLowerCase().includes(state.text),
        ),
    );
    const left = found.length - state.shown;
    count.textContent =
      found.length < removed.samples.length
        ? `${found.length} of the ${removed.samples.length} samples in this report match`
        : `${removed.samples.length} of ${plural(removed.total, "recorded sample")}, evenly over rules`;
    list.replaceChildren(
      ...found.slice(0, state.shown).map(removedSample),
      ...(left > 0
        ? [
            h(
              "button",
              {
                type: "button",
                class: "button",
                on: {
                  click: () => {
                    state.shown += SAMPLES_AT_ONCE;
                    update();
                  },
                },
              },
              `Show ${Math.min(left, SAMPLES_AT_ONCE)} more`,
            ),
          ]
        : []),
      ...(found.length ? [] : [empty("No sample matches.")]),
    );
  };
  update();
  const reset = (changes) => {
    Object.assign(state, changes, { shown: SAMPLES_AT_ONCE });
    update();
  };
  return [
    h(
      "div",
      { class: "browser-head" },
      heading,
      h(
        "div",
        { class: "controls" },
        search("Filter", (text) => reset({ text })),
      ),
    ),
    ruleBars(step.reasons || {}, removed.samples, (rule) => reset({ rule })),
    count,
    list,
  ].filter(Boolean);
}

// How many documents each rule of the step removed; selecting a rule shows its samples alone.
function ruleBars(reasons, samples, select) {
  const rules = Object.entries(reasons)
    .sort((one, other) => other[1] - one[1])
    .slice(0, MOST_RULES);
  if (rules.length < 2) return null;
  const most = rules[0][1];
  const buttons = rules.map(([rule, removed]) =>
    h(
      "button",
      {
        type: "button",
        class: "rule",
        "aria-pressed": "false",
        disabled: !samples.some((sample) => sample.rule === rule),
        on: {
          click: (event) => {
            const on = event.currentTarget.getAttribute("aria-pressed") !== "true";
            for (const button of buttons)
              button.setAttribute("aria-pressed", String(on && button === event.currentTarget));
            select(on ? rule : null);
          },
        },
      },
      h("span", {}, words(rule)),
      h("span", { class: "rule-track" }, h("span", { style: { width: `${(100 * removed) / most}%` } })),
      h("span", { class: "number" }, thousands(removed)),
    ),
  );
  return h("div", { class: "rules", role: "group", "aria-label": "Documents removed by each rule" }, buttons);
}

function removedSample(sample) {
  const same = sample.duplicate_text === sample.text; // nothing to compare: once is enough
  const pair = typeof sample.duplicate_text === "string" && !same;
  const head = h(
    "div",
    { class: "sample-head" },
    h("strong", {}, sample.reason || "no reason given"),
    h("span", {}, sample.source),
    h("code", {}, sample.id),
    isNumber(sample.bytes) && h("span", { class: "number" }, bytes(sample.bytes)),
  );
  if (!pair)
    return h(
      "article",
      { class: "sample" },
      head,
      sample.duplicate_of &&
        h("p", { class: "faint" }, same ? "same text as " : "duplicate of ", h("code", {}, sample.duplicate_of)),
      h("pre", { class: "text", tabindex: "0" }, highlighted(sample.text, sample.spans || [])),
    );
  const [left, right] = difference(sample.text, sample.duplicate_text);
  return h(
    "article",
    { class: "sample" },
    head,
    h(
      "div",
      { class: "pair" },
      h(
        "figure",
        {},
        h("figcaption", {}, "removed"),
        h("pre", { class: "text", tabindex: "0" }, marked(left, "only-left")),
      ),
      h(
        "figure",
        {},
        h("figcaption", {}, "kept ", h("code", {}, sample.duplicate_of || "")),
        h("pre", { class: "text", tabindex: "0" }, marked(right, "only-right")),
      ),
    ),
  );
}
