// The flow diagram: stages as boxes that link to their details, arrows from inputs, and where the time went.

const stageIds = new Map(
  DATA.stages.map((stage, index) => [
    stage.name,
    /^[\w-]+$/.test(stage.name) ? `stage-${stage.name}` : `stage-${index}`,
  ]),
);
const stageId = (name) => stageIds.get(name) || "stages";

function renderFlow() {
  const figure = byId("flow-diagram");
  if (!DATA.stages.length) return figure.append(empty("This run has no stages yet."));
  let drawn = 0;
  const draw = () => {
    const width = figure.clientWidth - 2;
    if (width <= 0 || width === drawn) return;
    drawn = width;
    figure.replaceChildren(drawFlow(width - 38));
    byId("flow-time").replaceChildren(...drawTime(width));
  };
  new ResizeObserver(draw).observe(figure);
  draw();
}

function drawFlow(width) {
  const columns = placeNodes(flowNodes(DATA.stages)).columns;
  const gap = 18,
    widest = 136,
    narrowest = 88;
  const box = (width - gap * (columns - 1)) / columns;
  const upright = box < narrowest;
  const size = upright
    ? { along: 64, across: clamp((width - 70) / 2, 110, 220), gap: 22, laneGap: 26, track: 9 }
    : {
        along: Math.min(box, widest),
        across: 66,
        gap: columns > 1 ? Math.min(48, (width - columns * Math.min(box, widest)) / (columns - 1)) : gap,
        laneGap: 30,
        track: 11,
      };
  const plan = layoutFlow(DATA.stages, size);
  const swap = ([along, across]) => (upright ? [across, along] : [along, across]);
  const [w, hgt] = swap([plan.along, plan.across]);
  const boxSize = upright ? [size.across, size.along] : [size.along, size.across];
  const slowest = Math.max(...DATA.stages.map((stage) => stage.seconds || 0), 1e-9);

  const root = s(
    "svg",
    {
      class: "flow",
      viewBox: `-3 -3 ${w + 6} ${hgt + 6}`,
      width: w + 6,
      height: hgt + 6,
      role: "group",
      "aria-label": "Flow of stages",
    },
    s(
      "defs",
      {},
      ["arrow", "arrow-on"].map((id) =>
        s(
          "marker",
          { id, viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 7, markerHeight: 7, orient: "auto-start-reverse" },
          s("path", { d: "M0.5 0.8L7.2 4L0.5 7.2z" }),
        ),
      ),
    ),
  );
  const arrows = plan.edges.map((edge) => {
    const path = s(
      "path",
      { class: `edge${edge.minor ? " minor" : ""}`, d: rounded(edge.points.map(swap), 6), "marker-end": "url(#arrow)" },
      s("title", {}, `${edge.source.stage.name} → ${edge.target.stage.name} (${words(edge.role)})`),
    );
    return { edge, path };
  });
  const light = (node) => {
    root.classList.toggle("focused", Boolean(node));
    for (const { edge, path } of arrows) {
      const on = node && (edge.source === node || edge.target === node);
      path.classList.toggle("on", Boolean(on));
      path.setAttribute("marker-end", on ? "url(#arrow-on)" : "url(#arrow)");
    }
  };
  root.append(...arrows.map(({ path }) => path));
  for (const node of plan.nodes) root.append(flowBox(node, swap([node.along, node.across]), boxSize, slowest, light));
  return root;
}

function flowBox(node, [x, y], [width, height], slowest, light) {
  const { stage } = node;
  const [sign, word] = status(stage.status);
  // An evaluation hangs below what it measured: its box need not repeat the name.
  const hangs = isEval(node) && measured(node) && stage.name === `eval-${measured(node).stage.name}`;
  const name = hangs ? "eval" : stage.name;
  const kind = stage.kind === name ? word : stage.kind;
  const cost = [stage.seconds, stage.bytes].some(isNumber)
    ? [isNumber(stage.seconds) ? compactTime(stage.seconds) : null, isNumber(stage.bytes) ? bytes(stage.bytes) : null]
        .filter(Boolean)
        .join(" · ")
    : "";
  const label = [
    `${stage.name}, ${stage.kind}, ${word}`,
    isNumber(stage.seconds) && duration(stage.seconds),
    isNumber(stage.bytes) && bytes(stage.bytes),
  ]
    .filter(Boolean)
    .join(", ");
  const parts = [
    s("title", {}, label),
    s("rect", { class: "box", x: 0, y: 0, width, height, rx: 8 }),
    s("text", { class: "name", x: 10, y: 19 }, fit(name, width - 16, "620 12.5px")),
    s(
      "text",
      { class: "detail", x: 10, y: 34 },
      s("tspan", { class: "sign" }, sign),
      ` ${fit(kind, width - 32, "10.5px")}`,
    ),
    s("text", { class: "detail number", x: 10, y: 48 }, fit(cost, width - 16, "10.5px")),
    isNumber(stage.seconds) &&
      s("rect", {
        class: "share",
        x: 10,
        y: height - 7,
        height: 3,
        rx: 1.5,
        width: Math.max(1, (width - 20) * (stage.seconds / slowest)),
      }),
  ];
  const properties = {
    class: `stage ${statusClass(stage.status)}`,
    transform: `translate(${x - width / 2} ${y - height / 2})`,
    on: {
      pointerenter: () => light(node),
      pointerleave: () => light(null),
      focusin: () => light(node),
      focusout: () => light(null),
    },
  };
  if (stage.status === "external") return s("g", properties, parts);
  return s("a", { ...properties, href: `#${stageId(stage.name)}`, "aria-label": label }, parts);
}

// The text, or as much of its beginning as is no wider than `room` in this font.
const ruler = document.createElement("canvas").getContext("2d");
function fit(text, room, font) {
  ruler.font = `${font} ${getComputedStyle(document.body).fontFamily}`;
  if (ruler.measureText(text).width <= room) return text;
  const letters = [...text];
  while (letters.length > 1 && ruler.measureText(`${letters.join("")}…`).width > room) letters.pop();
  return `${letters.join("")}…`;
}

const compactTime = (value) =>
  value < 60
    ? duration(value)
    : `${Math.floor(Math.round(value) / 60)}:${String(Math.round(value) % 60).padStart(2, "0")}`;

// A polyline with rounded corners.
function rounded(points, radius) {
  let path = `M${points[0][0]} ${points[0][1]}`;
  for (let index = 1; index < points.length; index += 1) {
    const [x, y] = points[index],
      [px, py] = points[index - 1],
      next = points[index + 1];
    if (!next) {
      path += `L${x} ${y}`;
      continue;
    }
    const before = Math.hypot(x - px, y - py),
      after = Math.hypot(next[0] - x, next[1] - y),
      r = Math.min(radius, before / 2, after / 2);
    if (r === 0) continue;
    const enter = [x + ((px - x) * r) / before, y + ((py - y) * r) / before];
    const leave = [x + ((next[0] - x) * r) / after, y + ((next[1] - y) * r) / after];
    path += `L${enter.join(" ")}Q${x} ${y} ${leave.join(" ")}`;
  }
  return path;
}

// Where the time went: one bar, a label wherever it fits.
function drawTime(width) {
  const timed = DATA.stages.filter((stage) => stage.seconds > 0);
  const total = sum(timed.map((stage) => stage.seconds));
  if (!timed.length) return [];
  const label = (stage) => {
    const room = (width * stage.seconds) / total - 16,
      share = percent(stage.seconds / total);
    if (fit(`${stage.name} ${share}`, room, "11.5px").endsWith("…"))
      return fit(stage.name, room, "11.5px").endsWith("…") ? null : stage.name;
    return [stage.name, " ", h("small", {}, share)];
  };
  return [
    h(
      "div",
      {
        class: "time-bar",
        role: "img",
        "aria-label": `Time: ${timed.map((stage) => `${stage.name} ${duration(stage.seconds)}`).join(", ")}`,
      },
      timed.map((stage, index) =>
        h(
          "div",
          {
            class: `slice tone-${index % 2}`,
            title: `${stage.name}: ${duration(stage.seconds)}, ${percent(stage.seconds / total)}`,
            style: { "flex-grow": String(stage.seconds) },
          },
          label(stage),
        ),
      ),
    ),
  ];
}
