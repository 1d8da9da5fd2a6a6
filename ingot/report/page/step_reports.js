// What single steps have to say: the reader its problems, decontamination its eval sets, MinHash its S-curve.

function problemsView(step, problems) {
  const repaired = Object.entries(step.repaired || {}).map(([rule, count]) => `${thousands(count)} ${rule}`);
  const bars = ruleBars(step.reasons || {}, [], () => {});
  if (!bars && !repaired.length) return [empty("Everything that was found could be read.")];
  return [
    bars,
    repaired.length > 0 && h("p", { class: "faint" }, `Read after a repair: ${repaired.join(", ")}.`),
    problems.length > 0 &&
      h(
        "div",
        { class: "scroll" },
        h(
          "table",
          { class: "plain problems" },
          h(
            "thead",
            {},
            h(
              "tr",
              {},
              ["Place", "What", "Text"].map((name) => h("th", { scope: "col" }, name)),
            ),
          ),
          h(
            "tbody",
            {},
            problems.map((problem) =>
              h(
                "tr",
                {},
                h("td", {}, h("code", {}, problem.place)),
                h(
                  "td",
                  {},
                  h("strong", {}, problem.rule),
                  ` ${problem.detail}`,
                  problem.kept && h("span", { class: "faint" }, " (repaired)"),
                ),
                h("td", {}, h("code", {}, problem.text.slice(0, 160))),
              ),
            ),
          ),
        ),
      ),
    problems.length > 0 &&
      h("p", { class: "faint everything" }, "More, and what was found there: ", h("code", {}, "documents/problems.jsonl")),
  ];
}

function evalSetsView(report) {
  const sets = Object.entries(report.sets);
  return h(
    "div",
    { class: "scroll" },
    h(
      "table",
      { class: "plain eval-sets" },
      h("caption", {}, `${thousands(report.removed)} of ${plural(report.documents, "document")} hold an eval`),
      h(
        "thead",
        {},
        h(
          "tr",
          {},
          ["Eval set", "Evals", "Searched for", "Found", "Share found", "Documents removed for it"].map((name, index) =>
            h("th", { scope: "col", class: index ? "number" : "" }, name),
          ),
        ),
      ),
      h(
        "tbody",
        {},
        sets.map(([name, set]) =>
          h(
            "tr",
            {},
            h("th", { scope: "row" }, name),
            [set.evals, set.searched, set.found].map((value) => h("td", { class: "number" }, thousands(value))),
            h("td", { class: "number" }, set.found ? percent(set.found / Math.max(set.evals, 1)) : "0 %"),
            h("td", { class: "number" }, thousands(set.documents)),
          ),
        ),
      ),
    ),
  );
}

// The chance that a pair meets, by its similarity; behind it how alike the removed were to what stayed.
function bandingView({ bands, rows, shingles, size, min_jaccard, knee, similarities }) {
  const width = 460,
    height = 214,
    left = 44,
    right = width - 12,
    top = 36, // above it stand the names of the limits, clear of the bars
    bottom = height - 34;
  const x = scale(0, 1, left, right, false),
    y = scale(0, 1, bottom, top, false);
  const meets = (similarity) => 1 - (1 - similarity ** rows) ** bands;
  const points = Array.from({ length: 101 }, (_, index) => index / 100);
  const most = Math.max(...similarities, 1),
    step = 1 / Math.max(similarities.length, 1);
  const total = sum(similarities);
  const limits = [[knee, `knee ${knee.toFixed(2)}`, "knee"]];
  if (isNumber(min_jaccard)) limits.push([min_jaccard, `verified from ${min_jaccard}`, "verified"]);
  const beside = x(Math.min(...limits.map(([at]) => at))) - 6;
  const below = isNumber(min_jaccard) && similarities.some((count, index) => count && (index + 1) * step <= min_jaccard);
  const percentages = [0, 0.25, 0.5, 0.75, 1];
  const chart = s(
    "svg",
    {
      class: "chart s-curve",
      viewBox: `0 0 ${width} ${height}`,
      role: "img",
      "aria-label":
        `S-curve of ${bands} bands of ${rows} rows: share of pairs that meet at Jaccard similarity ` +
        [0.5, 0.6, 0.7, 0.8, 0.9].map((each) => `${each}: ${percent(meets(each), 3)}`).join(", "),
    },
    percentages.map((each) => [
      s("line", { class: "grid", x1: left, x2: right, y1: y(each), y2: y(each) }),
      s("text", { class: "tick", x: left - 6, y: y(each) + 4, "text-anchor": "end" }, `${100 * each} %`),
    ]),
    [0, 0.2, 0.4, 0.6, 0.8, 1].map((each) =>
      s("text", { class: "tick", x: x(each), y: bottom + 15, "text-anchor": "middle" }, String(each)),
    ),
    s(
      "text",
      { class: "tick", x: (left + right) / 2, y: height - 4, "text-anchor": "middle" },
      "Jaccard similarity of a pair",
    ),
    similarities.map((count, index) => {
      const from = x(index * step),
        tall = ((bottom - top) * count) / most;
      return (
        count > 0 &&
        s("rect", { class: "bin", x: from, y: bottom - tall, width: x(step) - x(0) - 1, height: tall })
      );
    }),
    s("path", {
      class: "line",
      style: { stroke: "var(--accent)" },
      d: points.map((each, index) => `${index ? "L" : "M"}${x(each).toFixed(1)} ${y(meets(each)).toFixed(1)}`).join(""),
    }),
    limits.map(([at, text, look], index) => [
      s("line", { class: `limit ${look}`, x1: x(at), x2: x(at), y1: 4, y2: bottom }),
      s("text", { class: "tick", x: beside, y: 12 + 14 * index, "text-anchor": "end" }, text),
    ]),
  );
  chart.addEventListener("pointermove", (event) => {
    const box = chart.getBoundingClientRect();
    const at = clamp(x.back(((event.clientX - box.left) * width) / box.width), 0, 1);
    const bin = similarities[Math.min(similarities.length - 1, Math.floor(at / step))] || 0;
    showTip(
      `similarity ${at.toFixed(2)}: ${percent(meets(at), 3)} of pairs meet; ${plural(bin, "document")} removed`,
      event.clientX,
      event.clientY,
    );
  });
  chart.addEventListener("pointerleave", hideTip);
  return h(
    "figure",
    { class: "banding" },
    chart,
    h(
      "figcaption",
      { class: "faint" },
      `Line: share of pairs that meet in at least one of ${bands} bands of ${rows} hashes`,
      shingles && ` (shingles of ${size} ${shingles})`,
      ". ",
      total > 0 && `Bars: how alike the ${plural(total, "removed document")} are to the copy that stayed. `,
      isNumber(min_jaccard)
        ? `Pairs that meet are compared by their true similarity and joined from ${min_jaccard} on.`
        : "Pairs that meet are joined without being compared.",
      below && " Copies of copies form one group, so that some are less alike than that to the one that stayed.",
    ),
  );
}
