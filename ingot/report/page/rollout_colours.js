// What a token can be coloured by. Below zero it takes the colour `low`, above zero `high`; `end` is where the scale ends if
// the numbers do not say it, `least` the smallest end: what is far below it is rounding. `ends` are the words of the legend.

const COLOURS = [
  { name: "advantages", label: "advantage", low: "--worse", high: "--better", ends: ["pushed down", "pushed up"] },
  { name: "ratios", label: "log-ratio", low: "--series-3", high: "--series-2", least: 0.01, ends: ["π < μ", "π > μ"] },
  { name: "logprobs", label: "log-probability", low: "--surprise", end: 4, ends: ["surprising", "certain"] },
  { name: "entropies", label: "entropy", high: "--series-4", least: 0.01, ends: ["certain", "open"] },
  { name: "ages", label: "age", high: "--series-6", least: 1, ends: ["new", "updates old"] },
];
const STRONGEST = 60; // percent

// A column that is one number stands for that number at every token.
function tokenValues(node, name) {
  const column = node[name];
  return Array.isArray(column) ? column : node.pieces.map(() => (column === undefined ? null : column));
}

const nodesOf = (groups) => groups.flatMap((group) => group.answers.flatMap((answer) => answer.nodes));

// The colours that some token of the run has a number for.
const coloursOf = (run) => {
  const nodes = nodesOf(run.steps.flatMap((step) => step.groups));
  return COLOURS.filter(({ name }) => nodes.some((node) => node[name] !== undefined));
};

// Where the scale of a step ends: the same for its groups, so that they can be compared.
function scaleEnd(colour, groups) {
  if (colour.end) return colour.end;
  let largest = colour.least || 0;
  for (const node of nodesOf(groups))
    for (const value of tokenValues(node, colour.name)) if (isNumber(value)) largest = Math.max(largest, Math.abs(value));
  return largest || 1;
}

const mixed = (name, share) => `color-mix(in srgb, var(${name}) ${share.toFixed(0)}%, transparent)`;

function tint(colour, value, end) {
  if (!isNumber(value)) return null;
  const name = value < 0 ? colour.low : colour.high || colour.low;
  return name ? mixed(name, clamp(Math.abs(value) / end, 0, 1) * STRONGEST) : null;
}

function legend(colour, end) {
  const side = (name) => (name ? mixed(name, STRONGEST) : null);
  const stops = [side(colour.low), "transparent", side(colour.high)].filter(Boolean);
  const [low, high] = colour.ends;
  const from = colour.low ? `${colour.end ? "≤ " : ""}−${number(end, 3)}` : "0";
  return [
    h("span", { class: "number" }, `${from} ${low}`),
    h("span", { class: "ramp", style: { background: `linear-gradient(90deg, ${stops.join(", ")})` } }),
    h("span", { class: "number" }, `${colour.high ? (colour.low ? "+" : "") + number(end, 3) : "0"} ${high}`),
    h("span", { class: "token given" }, "not sampled"),
  ];
}
