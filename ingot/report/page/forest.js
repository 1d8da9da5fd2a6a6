// A forest plot: a row for each arm with its gain and the interval, around the line of no difference.
// A row is { label, gain, low, high, colour }; low and high are null where an interval is not known.

const FOREST = { row: 30, top: 14, bottom: 34, label: 190, value: 190 };

function forest(name, rows, width) {
  const left = FOREST.label,
    right = Math.max(left + 120, width - FOREST.value),
    bottom = FOREST.top + FOREST.row * rows.length;
  const ends = rows.flatMap((row) => [row.gain, row.low, row.high]).filter(isNumber);
  const [low, high] = valueRange([...ends, 0], false);
  const spread = Math.max(Math.abs(low), Math.abs(high));
  const x = scale(-spread, spread, left, right, false);
  const ticks = niceTicks(-spread, spread, (right - left) / 90);
  const parts = [
    ...ticks.map((tick) =>
      s(
        "g",
        {},
        s("line", { class: "grid", x1: x(tick), x2: x(tick), y1: FOREST.top - 6, y2: bottom }),
        s("text", { class: "tick", x: x(tick), y: bottom + 18, "text-anchor": "middle" }, gainText(tick, 1)),
      ),
    ),
    s("line", { class: "axis zero", x1: x(0), x2: x(0), y1: FOREST.top - 6, y2: bottom }),
    ...rows.map((row, index) => forestRow(row, FOREST.top + FOREST.row * (index + 0.5), x, right)),
  ];
  return s(
    "svg",
    {
      class: "chart forest",
      role: "img",
      width,
      height: bottom + FOREST.bottom,
      viewBox: `0 0 ${width} ${bottom + FOREST.bottom}`,
      "aria-label": `${name}: ${rows.map((row) => `${row.label} ${forestText(row)}`).join("; ")}`,
    },
    ...parts,
  );
}

function forestRow(row, y, x, right) {
  const known = isNumber(row.low) && isNumber(row.high);
  return s(
    "g",
    { class: "forest-row" },
    s("text", { class: "tick forest-label", x: 4, y: y + 4 }, row.label),
    known &&
      s("path", {
        class: "line error-bar",
        style: { stroke: row.colour },
        d: `M${x(row.low)} ${y}H${x(row.high)}M${x(row.low)} ${y - 5}v10M${x(row.high)} ${y - 5}v10`,
      }),
    isNumber(row.gain) && s("circle", { class: "dot", style: { fill: row.colour }, cx: x(row.gain), cy: y, r: 4.5 }),
    s("text", { class: "tick forest-value", x: right + 14, y: y + 4 }, forestText(row)),
  );
}

const gainText = (share, digits = 2) => minus(`${share > 0 ? "+" : ""}${(100 * share).toFixed(digits)} %`);

function forestText(row) {
  if (!isNumber(row.gain)) return "not measured";
  if (!isNumber(row.low) || !isNumber(row.high)) return gainText(row.gain);
  return `${gainText(row.gain)} [${gainText(row.low)}, ${gainText(row.high)}]`;
}
