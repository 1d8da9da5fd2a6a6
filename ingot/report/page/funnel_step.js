// What lies behind a row of the funnel: a step's rules, its report, its samples; or what was kept.

const MOST_RULES = 16;

function keptView(funnel) {
  const found = sampleList({
    samples: () => funnel.kept,
    view: keptSample,
    texts: (sample) => [sample.text, sample.id, sample.source, ...Object.values(sample.columns).map(String)],
    describe: (count) =>
      count < funnel.kept.length
        ? `${count} of the ${funnel.kept.length} samples in this report match`
        : [
            `${plural(count, "document")} at equal distances, with what the steps wrote about them. All of them: `,
            h("code", {}, `${funnel.folder}/documents/part-*.parquet`),
          ],
  });
  return [browserHead(h("h3", {}, h("em", {}, "Kept")), found.search), found.count, found.list];
}

const browserHead = (heading, ...controls) =>
  h("div", { class: "browser-head" }, heading, h("div", { class: "controls" }, controls));

function stepView(funnel, step) {
  const name = step.step,
    reading = countsFiles(funnel, step) && name === "read";
  const removed = funnel.removed[name],
    rewritten = funnel.rewritten[name];
  const what = reading ? "Not read by " : rewritten && !removed ? "Rewritten by " : "Removed by ";
  const heading = h("h3", {}, what, h("em", {}, words(name)));
  const reports = [
    stepFacts(funnel, step),
    reading && problemsView(step, funnel.problems),
    name in funnel.decontaminations && evalSetsView(funnel.decontaminations[name]),
    name in funnel.bandings && bandingView(funnel.bandings[name]),
  ]
    .flat()
    .filter(Boolean);
  if (!removed) {
    if (reading) return [browserHead(heading), ...reports];
    const bars = ruleBars(step.reasons || {}, [], () => {});
    const missing = bars ? "No samples of what this step removed were kept." : "This step removed nothing.";
    const list = rewritten && rewrittenList(rewritten);
    return [
      browserHead(heading, list && list.search),
      ...reports,
      bars,
      ...(list ? [list.count, list.list] : [empty(missing)]),
    ].filter(Boolean);
  }
  let everywhere = false;
  const all = Object.entries(funnel.removed).flatMap(([each, { samples }]) =>
    samples.map((sample) => ({ ...sample, reason: `${words(each)}: ${sample.reason}` })),
  );
  const found = sampleList({
    samples: () => (everywhere ? all : removed.samples),
    view: removedSample,
    texts: (sample) =>
      ["text", "duplicate_text", "eval_text", "reason", "source", "id"].map((field) => sample[field] || ""),
    describe: (count) => {
      const listed = everywhere ? all.length : removed.samples.length;
      if (count < listed) return `${count} of the ${listed} samples in this report match`;
      return everywhere
        ? `${plural(count, "sample")} of all steps`
        : `${listed} of ${plural(removed.total, "recorded sample")}, evenly over rules`;
    },
  });
  const bars = ruleBars(step.reasons || {}, removed.samples, (rule) =>
    found.reset({ match: (sample) => rule === null || everywhere || sample.rule === rule }),
  );
  const wider =
    Object.keys(funnel.removed).length > 1 &&
    toggle("all steps", false, (on) => {
      everywhere = on;
      found.reset({});
    });
  const pane = h("div", {}, bars, found.count, found.list, allRemoved(funnel));
  if (!rewritten) return [browserHead(heading, wider, found.search), ...reports, pane];
  const list = rewrittenList(rewritten),
    other = h("div", {}, list.count, list.list);
  const show = (value) => {
    for (const element of [wider, found.search, pane]) if (element) element.hidden = value !== "removed";
    for (const element of [list.search, other]) element.hidden = value !== "rewritten";
    reveal(other);
  };
  show("removed");
  const switcher = choice(
    "Show",
    [
      ["removed", "removed documents"],
      ["rewritten", "rewritten texts"],
    ],
    "removed",
    show,
  );
  return [browserHead(heading, switcher, wider, found.search, list.search), ...reports, pane, other];
}

function stepFacts(funnel, step) {
  const facts = [];
  const gone = step.documents_in - step.documents_out;
  if (gone > 0 && !countsFiles(funnel, step))
    facts.push(`${plural(gone, "document")} of ${thousands(step.documents_in)} removed`);
  if (step.bytes_cut > 0) facts.push(`${bytes(step.bytes_cut)} cut out of texts that stayed`);
  if (step.bytes_cut < 0) facts.push(`${bytes(-step.bytes_cut)} added to texts that stayed`);
  if (isNumber(rate(step)))
    facts.push(`${duration(step.seconds)} of processor time, ${number(rate(step), 3)} MB/s on one core`);
  return facts.length ? h("p", { class: "faint facts-line" }, facts.join(" · ")) : null;
}

function rewrittenList(samples) {
  return sampleList({
    samples: () => samples,
    view: rewrittenSample,
    texts: (sample) => [sample.before, sample.after, sample.id, sample.source],
    describe: (count) =>
      count < samples.length
        ? `${count} of the ${samples.length} samples in this report match`
        : `${plural(count, "text")} that this step changed, from the first difference on`,
  });
}

const allRemoved = (funnel) =>
  funnel.folder &&
  h(
    "p",
    { class: "faint everything" },
    "Every removed document, with its rule, numbers and spans: ",
    h("code", {}, `${funnel.folder}/removed/part-*.parquet`),
  );

// How many documents each rule of the step removed; selecting a rule shows its samples alone.
function ruleBars(reasons, samples, select) {
  const rules = Object.entries(reasons)
    .sort((one, other) => other[1] - one[1])
    .slice(0, MOST_RULES);
  if (!rules.length) return null;
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
      h("span", {}, words(rule).replace(/:$/, "")),
      h("span", { class: "rule-track" }, h("span", { style: { width: `${(100 * removed) / most}%` } })),
      h("span", { class: "number" }, thousands(removed)),
    ),
  );
  return h("div", { class: "rules", role: "group", "aria-label": "Documents removed by each rule" }, buttons);
}
