// The data funnel: what each curation step kept, removed and rewrote, and what was left at the end.

function renderFunnels() {
  const body = byId("data-body");
  if (!DATA.funnels.length) return body.append(empty("No stage of this run has left documents/funnel.json yet."));
  for (const funnel of DATA.funnels) body.append(funnelView(funnel));
}

// Curation begins with files: `select` chooses some, `read` makes documents of them.
const countsFiles = (funnel, step) => funnel.steps[0]?.step === "select" && funnel.steps.indexOf(step) < 2;

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
  const documents = funnel.steps.filter((step) => !countsFiles(funnel, step));
  const whole = {
    documents: Math.max(1, ...documents.map((step) => step.documents_in)),
    bytes: Math.max(1, ...funnel.steps.filter((step) => step.step !== "select").map((step) => step.bytes_in)),
  };
  const choices = steps.map((step) => ({
    button: funnelRow(funnel, step, whole, () => select(step)),
    step,
    view: () => stepView(funnel, step),
  }));
  if (funnel.kept.length) {
    const kept = { step: "kept" };
    choices.push({ button: keptRow(funnel, () => select(kept)), step: kept, view: () => keptView(funnel) });
  }
  const select = (step) => {
    for (const each of choices) each.button.setAttribute("aria-pressed", String(each.step === step));
    browser.replaceChildren(...choices.find((each) => each.step === step).view());
  };
  // Open the step with the most pairs to compare.
  const differs = (sample) => "duplicate_text" in sample && sample.duplicate_text !== sample.text;
  const pairs = (step) => (funnel.removed[step.step] || { samples: [] }).samples.filter(differs).length;
  const most = steps.reduce((best, step) => (pairs(step) > (best ? pairs(best) : 0) ? step : best), null);
  const opened = most || steps.find((step) => funnel.removed[step.step]) || steps[0];
  if (opened) select(opened);
  // Where little is left, bars measured against the start are too short to compare.
  const last = documents.at(-1);
  const against = last && last.documents_out < whole.documents / 4 ? "own" : "start";
  const table = h("div", { class: `card funnel-steps ${against}` });
  return h(
    "div",
    { class: "funnel" },
    DATA.funnels.length > 1 && h("h3", {}, funnel.stage),
    totals(funnel, documents),
    funnel.steps.length > 0 &&
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
        h("span", { title: "estimated from bytes" }, "About tokens"),
        h("span", { title: "processor time of all workers together" }, "Time"),
      ),
      choices.map((each) => each.button),
    ]),
    funnel.steps.length > 0 &&
      h(
        "p",
        { class: "legend" },
        [
          ["kept", "kept"],
          ["lost", "removed documents"],
          ["lost cut", "cut out of texts that stayed"],
        ].map(([look, text]) => h("span", {}, h("i", { class: `${look} patch` }), ` ${text}`)),
      ),
    h("div", { class: "card" }, browser),
  );
}

function totals(funnel, documents) {
  const read = funnel.steps.find((step) => countsFiles(funnel, step) && step.step === "read");
  const last = documents.at(-1) || read;
  if (!last) return null;
  const first = documents[0] || { documents_in: read.documents_out, bytes_in: read.bytes_out };
  const tokens = isNumber(last.tokens_out) ? `, about ${short(last.tokens_out)} tokens` : "";
  return h(
    "p",
    { class: "totals" },
    h("strong", {}, plural(last.documents_out, "document")),
    ` (${bytes(last.bytes_out)}${tokens}) kept of ${thousands(first.documents_in)} (${bytes(first.bytes_in)}): `,
    h("strong", {}, percent(last.documents_out / Math.max(first.documents_in, 1))),
    " of documents, ",
    h("strong", {}, percent(last.bytes_out / Math.max(first.bytes_in, 1))),
    " of bytes.",
    read && ` Read from ${plural(read.documents_in, "file")} (${bytes(read.bytes_in)}).`,
  );
}

function funnelRow(funnel, step, whole, select) {
  const bar = (unit, show) => {
    const into = step[`${unit}_in`],
      out = step[`${unit}_out`];
    if (!isNumber(into)) return h("span", {});
    if (unit === "documents" && countsFiles(funnel, step))
      return h(
        "span",
        { class: "number amounts" },
        step.step === "read" ? `${plural(into, "file")} → ${plural(out, "document")}` : plural(out, "file"),
        into > out && step.step !== "read" && h("small", {}, ` −${thousands(into - out)}`),
      );
    const own = Math.max(into, 1),
      lost = into - out;
    // What was never read is no part of the start: beside a whole disk, all that follows would be too short to see.
    const start = step.step === "select" ? own : whole[unit];
    const widths = (amount) => ({ "--start": `${(100 * amount) / start}%`, "--own": `${(100 * amount) / own}%` });
    const cut = unit === "bytes" ? clamp(step.bytes_cut || 0, 0, Math.max(lost, 0)) : 0;
    return h(
      "span",
      { class: "bar-cell" },
      h(
        "span",
        { class: "track" },
        h("span", { class: "kept", style: widths(Math.min(out, into)) }),
        h("span", { class: "lost cut", style: widths(cut) }),
        h("span", { class: "lost", style: widths(Math.max(lost, 0) - cut) }),
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
  const noun = countsFiles(funnel, step) ? "file" : "document";
  const label = isNumber(step.documents_in)
    ? `${words(step.step)}: ${plural(step.documents_in, noun)} in, ` +
      `${step.step === "read" ? plural(step.documents_out, "document") : thousands(step.documents_out)} out; ` +
      `${bytes(step.bytes_in)} in, ${bytes(step.bytes_out)} out`
    : words(step.step);
  const removed = funnel.removed[step.step],
    rewritten = funnel.rewritten[step.step];
  const samples = [removed && plural(removed.total, "sample"), rewritten && "rewrites"].filter(Boolean).join(" · ");
  return h(
    "button",
    { type: "button", class: "funnel-row", "aria-pressed": "false", "aria-label": label, on: { click: select } },
    h("span", { class: "step" }, words(step.step), samples && h("small", {}, samples)),
    bar("documents", thousands),
    bar("bytes", bytes),
    h("span", { class: "number about" }, isNumber(step.tokens_out) ? short(step.tokens_out) : ""),
    h(
      "span",
      { class: "number time" },
      isNumber(step.seconds) ? duration(step.seconds) : "",
      isNumber(rate(step)) && h("small", {}, `${number(rate(step), 2)} MB/s`),
    ),
  );
}

// Megabytes a second of processor time; nothing where too little was measured.
const rate = (step) => (step.seconds >= 0.05 && step.step !== "select" ? step.bytes_in / step.seconds / 1e6 : null);

function keptRow(funnel, select) {
  const last = funnel.steps.at(-1);
  return h(
    "button",
    { type: "button", class: "funnel-row kept-row", "aria-pressed": "false", on: { click: select } },
    h("span", { class: "step" }, "Kept", h("small", {}, plural(funnel.kept.length, "sample"))),
    h("span", { class: "number amounts" }, last ? plural(last.documents_out, "document") : ""),
    h("span", { class: "number amounts" }, last ? bytes(last.bytes_out) : ""),
    h("span", { class: "number about" }, last && isNumber(last.tokens_out) ? short(last.tokens_out) : ""),
    h("span", { class: "time" }),
  );
}
