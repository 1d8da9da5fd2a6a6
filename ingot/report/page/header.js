// The head of the page: what was run, whether it kept its promises, and what could not be shown.

function renderHeader() {
  byId("run-name").textContent = DATA.name;
  const finished = DATA.stages.filter((stage) => stage.status === "done" || stage.status === "reused").length;
  const seconds = sum(DATA.stages.map((stage) => stage.seconds || 0));
  const size = sum(DATA.stages.map((stage) => stage.bytes || 0));
  const facts = [
    ["Seed", isNumber(DATA.seed) ? String(DATA.seed) : "–"],
    ["Date", moment(DATA.date)],
    ["Total time", duration(seconds)],
    ["Recipe", DATA.recipe || "–"],
    ["Stages", `${finished} of ${DATA.stages.length} finished`],
    ["On disk", bytes(size)],
  ];
  byId("facts").append(
    ...facts.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", { class: "number" }, value))),
  );
  renderVerdict();
  renderProblems();
  byId("footer").append(
    `Built by Ingot ${DATA.version || ""} on ${moment(DATA.built)} from the run folder alone. This file never uses the network.`,
  );
}

function renderVerdict() {
  const claims = DATA.verdicts.flatMap((verdict) => verdict.claims);
  const failed = claims.filter((claim) => claim.held === false).length;
  const broken = DATA.stages.find((stage) => stage.status === "failed");
  const going = DATA.stages.find((stage) => stage.status === "running");
  let look = "neutral",
    sign = "○",
    text = "No verdict";
  if (failed) [look, sign, text] = ["bad", "✕", `${failed} of ${plural(claims.length, "claim")} failed`];
  else if (broken) [look, sign, text] = ["bad", "✕", `Stage ${broken.name} failed`];
  else if (going) [look, sign, text] = ["neutral", "▶", `Running: ${going.name}`];
  else if (claims.length)
    [look, sign, text] = ["good", "✓", claims.length === 1 ? "The claim held" : `All ${claims.length} claims held`];
  byId("verdict-badge").append(
    h("p", { class: `badge ${look}` }, h("span", { "aria-hidden": "true" }, sign), ` ${text}`),
  );
  if (!claims.length) return;
  byId("claims").append(
    h("h2", { class: "visually-hidden" }, "Verdict"),
    h("ul", { class: "claims" }, claims.map(claimCard)),
  );
}

// What was claimed in words, and the numbers it was decided on. A claim without the usual fields shows what it has.
function claimParts(claim) {
  const others = (...known) => Object.entries(claim).filter(([name]) => !known.includes(name));
  const { metric, stage, direction, reference, by, sigmas } = claim;
  if (![metric, stage, direction].every((part) => typeof part === "string"))
    return { text: claim.claim, numbers: others("claim", "held") };
  const row = DATA.evaluations.rows.find((each) => each.metric === metric);
  const error = isNumber(claim.standard_error) ? ` ± ${number(claim.standard_error, 2)}` : "";
  const used = "claim held metric stage direction reference value reference_value difference standard_error by sigmas";
  return {
    text: `${row ? row.label : words(metric)}: ${stage} ${direction} ${reference}${by > 0 ? ` by ${number(by)}` : ""}`,
    numbers: [
      [stage, claim.value],
      ...(typeof reference === "string" ? [[reference, claim.reference_value]] : []),
      [
        sigmas > 0
          ? `difference (asked: ${direction.startsWith("not ") ? "at most" : "over"} ${number(sigmas)} SE)`
          : "difference",
        `${number(claim.difference)}${error}`,
      ],
      ...others(...used.split(" ")),
    ],
  };
}

function claimCard(claim) {
  const { text, numbers } = claimParts(claim);
  const [look, sign, word] =
    claim.held === true
      ? ["good", "✓", " (held)"]
      : claim.held === false
        ? ["bad", "✕", " (failed)"]
        : ["neutral", "○", ""];
  return h(
    "li",
    { class: `card claim ${look}` },
    h(
      "p",
      {},
      h("span", { class: "sign", "aria-hidden": "true" }, sign),
      h("span", {}, text, h("span", { class: "visually-hidden" }, word)),
    ),
    h(
      "dl",
      {},
      numbers
        .filter(([, value]) => value !== null)
        .map(([name, value]) => h("div", {}, h("dt", {}, words(name)), h("dd", {}, valueView(value)))),
    ),
  );
}

// A run in progress or a broken one: say what is not here instead of leaving holes.
function renderProblems() {
  const lines = [];
  for (const stage of DATA.stages) {
    const place = h("a", { href: `#${stageId(stage.name)}` }, stage.name);
    const judged = DATA.verdicts.some((verdict) => verdict.stage === stage.name); // its cards say it better
    if (stage.status === "failed" && !judged)
      lines.push(["Stage ", place, ` failed${stage.error ? `: ${stage.error}` : "."}`]);
    if (stage.status === "running") lines.push(["Stage ", place, " is still running; what it wrote so far is shown."]);
    if (stage.missing.length) lines.push(["Stage ", place, ` is finished but has no ${stage.missing.join(", ")}.`]);
  }
  const pending = DATA.stages.filter((stage) => stage.status === "pending").map((stage) => stage.name);
  if (pending.length) lines.push([`Not run yet: ${pending.join(", ")}.`]);
  lines.push(...DATA.problems.map((problem) => [problem]));
  if (!lines.length) return;
  byId("problems").append(
    h(
      "div",
      { class: "notice", role: "note" },
      h("h2", {}, "Not in this report"),
      h(
        "ul",
        {},
        lines.map((line) => h("li", {}, line)),
      ),
    ),
  );
}
