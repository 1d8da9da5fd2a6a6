// Where the boxes of the flow diagram stand and how its arrows run.
//
// Coordinates are (along, across): along the flow and across it. The same layout is drawn from left to right on a wide
// page and from top to bottom on a narrow one. Stages that make something stand on the spine in the column after their
// last input; an evaluation hangs below the checkpoint it measured; the verdict closes the row of evaluations.
// Arrows that skip columns run on tracks of their own, one track for each source, so that lines merge but never hide.

function flowNodes(stages) {
  const nodes = stages.map((stage) => ({ stage, inputs: [], column: 0, lane: 0 }));
  const known = new Map(nodes.map((node) => [node.stage.name, node]));
  for (const node of [...nodes]) {
    for (const [role, names] of Object.entries(node.stage.inputs)) {
      if (role === "documents" && isEval(node)) continue; // which questions leaked: not what is measured
      for (const name of names) {
        if (!known.has(name)) {
          // a path outside the run: it gets a box, so that the arrow starts somewhere
          const given = { name, kind: role, status: "external", inputs: {}, seconds: null, bytes: null };
          const source = { stage: given, inputs: [], column: 0, lane: 0 };
          known.set(name, source);
          nodes.unshift(source);
        }
        if (known.get(name) !== node) node.inputs.push({ role, source: known.get(name) });
      }
    }
  }
  return nodes;
}

const isEval = (node) => node.stage.kind === "eval";
const isVerdict = (node) => node.stage.kind === "verdict";
function measured(node) {
  const input = node.inputs.find((each) => each.role === "checkpoint") || node.inputs[0];
  return input && input.source;
}

function placeNodes(nodes) {
  const spine = nodes.filter((node) => !isEval(node) && !isVerdict(node));
  const evals = nodes.filter((node) => isEval(node));
  const verdicts = nodes.filter((node) => isVerdict(node));
  const taken = new Map();
  const take = (column, from) => {
    let lane = from;
    while (taken.has(`${column},${lane}`)) lane += 1;
    taken.set(`${column},${lane}`, true);
    return lane;
  };
  // Runs list stages after their inputs; a damaged file that does not must not hang the page, hence no recursion.
  for (const node of spine) {
    node.column = node.inputs.length ? 1 + Math.max(...node.inputs.map((input) => input.source.column)) : 0;
    node.lane = take(node.column, 0);
  }
  const spineLanes = 1 + Math.max(0, ...spine.map((node) => node.lane));
  for (const node of evals) {
    node.column = measured(node) ? measured(node).column : 0;
    node.lane = take(node.column, spineLanes);
  }
  const last = Math.max(-1, ...[...spine, ...evals].map((node) => node.column));
  verdicts.forEach((node, index) => {
    node.column = last + 1 + index;
    node.lane = take(node.column, evals.length ? spineLanes : 0);
  });
  return {
    spineLanes,
    columns: 1 + Math.max(0, ...nodes.map((node) => node.column)),
    lanes: 1 + Math.max(0, ...nodes.map((node) => node.lane)),
  };
}

// Tracks: the lowest one on which no other source runs over the same columns.
function assignTracks(edges) {
  const tracks = [];
  const bySource = new Map();
  for (const edge of edges) bySource.set(edge.source, [...(bySource.get(edge.source) || []), edge]);
  for (const group of bySource.values()) {
    const columns = group.flatMap((edge) => [edge.source.column, edge.target.column]);
    const from = Math.min(...columns),
      to = Math.max(...columns);
    let track = tracks.findIndex((used) => used.every(([low, high]) => to <= low || from >= high));
    if (track < 0) track = tracks.push([]) - 1;
    tracks[track].push([from, to]);
    for (const edge of group) edge.track = track;
  }
  return tracks.length;
}

// size: along and across of a box, gap between columns and between lanes, distance of tracks.
function layoutFlow(stages, size) {
  const nodes = flowNodes(stages);
  const { spineLanes, columns, lanes } = placeNodes(nodes);
  const edges = nodes.flatMap((target) =>
    target.inputs.map(({ role, source }) => ({ role, source, target, track: 0 })),
  );
  for (const edge of edges) {
    const { source, target } = edge;
    if (isVerdict(target)) edge.way = "scores";
    else if (isEval(target)) edge.way = measured(target) === source ? "hang" : "under";
    else edge.way = source.lane === target.lane && target.column === source.column + 1 ? "next" : "over";
    edge.minor = edge.way === "under" || edge.way === "over" || edge.way === "scores";
  }
  const over = assignTracks(edges.filter((edge) => edge.way === "over"));
  const under = assignTracks(edges.filter((edge) => edge.way === "under"));
  assignTracks(edges.filter((edge) => edge.way === "scores"));
  for (const edge of edges) if (edge.way === "scores") edge.track = 0;

  const head = over ? over * size.track + 6 : 0;
  const middle = size.laneGap + under * size.track;
  const across = (lane) =>
    head + size.across / 2 + lane * (size.across + size.laneGap) + (lane >= spineLanes ? middle - size.laneGap : 0);
  const along = (column) => size.along / 2 + column * (size.along + size.gap);
  for (const node of nodes) Object.assign(node, { along: along(node.column), across: across(node.lane) });
  const bottom = across(lanes - 1) + size.across / 2;
  const hasScores = edges.some((edge) => edge.way === "scores");
  for (const edge of edges)
    edge.points = route(edge, size, { head, spineBottom: across(spineLanes - 1) + size.across / 2, bottom });
  return {
    nodes,
    edges,
    along: along(columns - 1) + size.along / 2,
    across: bottom + (hasScores ? size.track + 8 : 0),
  };
}

function route(edge, size, lines) {
  const { source, target, way, track } = edge;
  const out = size.along / 2,
    side = size.across / 2,
    quarter = size.along / 4;
  if (way === "next")
    return [
      [source.along + out, source.across],
      [target.along - out, target.across],
    ];
  if (way === "hang")
    return [
      [source.along, source.across + side],
      [target.along, target.across - side],
    ];
  if (way === "under") {
    const bus = lines.spineBottom + (track + 1) * size.track;
    return [
      [source.along, source.across + side],
      [source.along, bus],
      [target.along - quarter, bus],
      [target.along - quarter, target.across - side],
    ];
  }
  if (way === "scores") {
    const bus = lines.bottom + size.track;
    return [
      [source.along, source.across + side],
      [source.along, bus],
      [target.along, bus],
      [target.along, target.across + side],
    ];
  }
  const bus = lines.head - 6 - (track + 0.5) * size.track;
  if (source.lane === 0 && target.lane === 0)
    return [
      [source.along + quarter, source.across - side],
      [source.along + quarter, bus],
      [target.along - quarter, bus],
      [target.along - quarter, target.across - side],
    ];
  const leave = source.along + out + size.gap / 3,
    enter = target.along - out - size.gap / 2;
  return [
    [source.along + out, source.across],
    [leave, source.across],
    [leave, bus],
    [enter, bus],
    [enter, target.across],
    [target.along - out, target.across],
  ];
}
