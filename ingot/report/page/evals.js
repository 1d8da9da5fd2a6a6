// The table of evaluations: metrics down, checkpoints across, and what changed from one checkpoint to the next.

// Enough decimals to tell values of a row apart, the same in the whole row.
function decimals(values) {
  const largest = Math.max(...values.map(Math.abs), 0);
  return largest < 10 ? 3 : largest < 100 ? 2 : largest < 1000 ? 1 : 0;
}

function fixed(value, places) {
  if (!isNumber(value)) return "–";
  return minus(value.toLocaleString("en-US", { minimumFractionDigits: places, maximumFractionDigits: places }));
}

function renderEvals() {
  const body = byId("evals-body"),
    { checkpoints } = DATA.evaluations;
  if (!checkpoints.length) return body.append(empty("No evaluation has left scores/scores.json yet."));
  const rows = DATA.evaluations.rows.map((row) => {
    const values = row.cells.filter(Boolean).map((cell) => cell.value);
    const [low, high] = [Math.min(...values), Math.max(...values)];
    const best = low === high ? null : row.higher_is_better ? high : low; // none where all are the same
    return { ...row, places: decimals(values), best };
  });
  const several = checkpoints.length > 1;
  body.append(
    h(
      "div",
      { class: "card scroll", tabindex: "0", role: "region", "aria-label": "Evaluation table" },
      h(
        "table",
        { class: "evals" },
        h(
          "thead",
          {},
          h(
            "tr",
            {},
            h("th", { scope: "col" }, "Metric"),
            several && h("th", { class: "trend" }, "Trend"),
            checkpoints.map((each) => h("th", { scope: "col", title: `measured by ${each.stage}` }, each.name)),
          ),
        ),
        h(
          "tbody",
          {},
          rows.map((row) =>
            h(
              "tr",
              { "data-metric": row.metric },
              h(
                "th",
                { scope: "row" },
                h("span", {}, row.label),
                h(
                  "small",
                  {},
                  row.higher_is_better ? "higher is better" : "lower is better",
                  isNumber(row.chance) && `, chance ${number(row.chance, 3)}`,
                ),
                !row.held_out &&
                  h("span", { class: "tag bad", title: "a decision was made by it: no proof any more" }, "not held out"),
              ),
              several && h("td", { class: "trend" }, sparkline(row)),
              row.cells.map((cell) => evalCell(row, cell, several)),
            ),
          ),
        ),
      ),
    ),
    h(
      "p",
      { class: "legend" },
      h("span", { class: "better" }, "▲▼ better"),
      h("span", { class: "worse" }, "▲▼ worse"),
      h(
        "span",
        { class: "noise" },
        "grey: chance may have done it, p is 0.05 or more (paired by question where the questions are the same)",
      ),
      h("span", {}, h("strong", {}, "bold"), ": best of the row"),
      h("span", {}, "± one standard error"),
    ),
  );
}

function evalCell(row, cell, several) {
  if (!cell) return h("td", { class: "faint" }, "–");
  const [low, high] = cell.interval.map((end) => isNumber(end) && number(end));
  const error = isNumber(cell.standard_error) ? ` ± ${cell.standard_error}${low && high ? `, 95 % from ${low} to ${high}` : ""}` : "";
  const exact = `${cell.value}${error}${isNumber(cell.count) ? `, ${plural(cell.count, "observation")}` : ""}`;
  const value = fixed(cell.value, row.places);
  const parts = [
    h(
      "span",
      { class: "value", title: exact },
      cell.value === row.best && several ? h("strong", {}, value) : value,
      isNumber(cell.standard_error) && h("small", {}, ` ±${fixed(cell.standard_error, row.places)}`),
    ),
  ];
  if (isNumber(cell.change)) {
    const look = !cell.certain ? "noise" : cell.better ? "better" : "worse";
    const sign = cell.change > 0 ? "▲" : cell.change < 0 ? "▼" : "=";
    const spread = isNumber(cell.change_error) ? ` ± ${number(cell.change_error)}` : "";
    parts.push(
      h(
        "span",
        {
          class: `delta ${look}`,
          title: `${cell.change > 0 ? "+" : ""}${number(cell.change)}${spread}: ${cell.certain ? look : "within noise"}`,
        },
        `${sign} ${fixed(Math.abs(cell.change), row.places)}`,
        h("span", { class: "visually-hidden" }, cell.certain ? ` ${look}` : " within noise"),
      ),
    );
  }
  return h("td", {}, parts);
}

// Dots with whiskers of one standard error, joined in the order of the checkpoints.
function sparkline(row) {
  const width = 96,
    height = 34,
    pad = 5;
  const points = row.cells.map((cell, index) => ({ cell, index })).filter(({ cell }) => cell && isNumber(cell.value));
  if (points.length < 2) return null;
  const error = (cell) => cell.standard_error || 0;
  const low = Math.min(...points.map(({ cell }) => cell.value - error(cell))),
    high = Math.max(...points.map(({ cell }) => cell.value + error(cell)));
  const x = (index) => pad + ((width - 2 * pad) * index) / (row.cells.length - 1);
  const y = (value) => (high === low ? height / 2 : height - pad - ((height - 2 * pad) * (value - low)) / (high - low));
  return s(
    "svg",
    { class: "sparkline", width, height, viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true" },
    s("polyline", { points: points.map(({ cell, index }) => `${x(index)},${y(cell.value)}`).join(" ") }),
    points.map(({ cell, index }) => [
      error(cell) > 0 &&
        s("line", { x1: x(index), x2: x(index), y1: y(cell.value - error(cell)), y2: y(cell.value + error(cell)) }),
      s("circle", { cx: x(index), cy: y(cell.value), r: 2.4, class: cell.value === row.best ? "best" : "" }),
    ]),
  );
}
