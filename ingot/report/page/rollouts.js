// Rollouts: which group of which step is shown, and what is asked of its answers.

function renderRollouts() {
  const body = byId("rollouts-body"),
    runs = DATA.rollouts.filter((each) => each.steps.length);
  if (!runs.length) return body.append(empty("No stage of this run has written trajectories.jsonl yet."));
  const controls = h("div", { class: "rollout-controls" });
  body.append(controls);
  const begin = (run) => controls.replaceChildren(...rolloutBrowser(run));
  if (runs.length > 1) {
    const stages = runs.map((each, index) => [String(index), each.stage]);
    body.prepend(h("div", { class: "controls" }, picker("Stage", stages, (value) => begin(runs[Number(value)]))));
  }
  begin(runs[0]);
}

// Start on a group that teaches something: where all rewards are equal every advantage is zero.
const telling = ({ group }) => nodesOf([group]).some((node) => tokenValues(node, "advantages").some((value) => value));

function rolloutBrowser(run) {
  const places = run.steps.flatMap((step) => step.groups.map((group, number) => ({ step, group, number })));
  const colours = coloursOf(run).length ? coloursOf(run) : COLOURS.slice(0, 1);
  const state = { place: null, colour: colours[0], kind: "*", earned: "*", ended: "*" };
  const answers = places.flatMap(({ group }) => group.answers);
  const matches = (answer) =>
    (state.earned === "*" || earned(answer) === state.earned) && (state.ended === "*" || answer.ended === state.ended);
  const found = () =>
    places.filter(({ group }) => (state.kind === "*" || group.kind === state.kind) && group.answers.some(matches));
  const stepsOf = (listed) => [...new Set(listed.map(({ step }) => step))];

  const slider = h("input", {
    type: "range",
    min: "0",
    step: "1",
    "aria-label": "Step",
    on: { input: (event) => goStep(Number(event.target.value)) },
  });
  const label = h("output", { class: "number step-label" });
  const list = h("div", { class: "rollout-list", role: "group", "aria-label": "Groups of this step" });
  const panel = h("div", {
    class: "nodes",
    tabindex: "0",
    role: "group",
    "aria-label": "Tokens; arrow keys move from token to token, n and p to the next and the previous group",
  });
  const key = h("div", { class: "key" });
  const note = h("p", { class: "faint", role: "status" });
  const inspected = inspect(panel);

  const goStep = (number) => {
    const listed = found(),
      steps = stepsOf(listed),
      step = steps[clamp(number, 0, steps.length - 1)],
      there = listed.filter((place) => place.step === step);
    state.place = there.find(telling) || there[0] || null;
    update();
  };
  const goGroup = (move) => {
    const listed = found();
    state.place = listed[clamp(listed.indexOf(state.place) + move, 0, listed.length - 1)] || null;
    update();
    if (!body.contains(document.activeElement)) panel.focus({ preventScroll: true });
    if (state.place) announce(`Step ${state.place.step.step}, group ${state.place.number + 1}: ${state.place.group.task}`);
  };
  const ask = (changes) => {
    Object.assign(state, changes);
    const listed = found(),
      at = places.indexOf(state.place);
    if (!listed.includes(state.place))
      state.place = listed.find((place) => places.indexOf(place) > at) || listed.at(-1) || null;
    update();
  };
  const groupButton = (place) => {
    const right = place.group.answers.filter((answer) => earned(answer) === "right").length;
    return h(
      "button",
      {
        type: "button",
        class: "rollout-item",
        "aria-pressed": String(place === state.place),
        on: {
          click: () => {
            state.place = place;
            update();
            list.querySelector("[aria-pressed=true]").focus();
          },
        },
      },
      h("span", {}, `${place.number + 1} · ${words(place.group.kind) || "task"}`),
      h("small", { class: "faint number" }, `${right} of ${place.group.answers.length} right`),
    );
  };
  const update = () => {
    const listed = found(),
      steps = stepsOf(listed);
    const asked = listed.length < places.length ? ` ${listed.length} of ${plural(places.length, "group")} match.` : "";
    if (!state.place) {
      inspected([], 0);
      note.textContent = asked.trim();
      list.replaceChildren();
      panel.replaceChildren(empty("No answer matches."));
      return;
    }
    const { step, group } = state.place,
      at = steps.indexOf(step),
      shown = sum(step.groups.map((each) => each.answers.length));
    Object.assign(slider, { max: String(steps.length - 1), value: String(at) });
    slider.setAttribute("aria-valuetext", `step ${step.step}`);
    label.textContent = `step ${thousands(step.step)}`;
    note.textContent =
      `${step.groups.length} of ${plural(step.total_groups, "group")} and ${shown} of ${plural(step.total, "rollout")} ` +
      `recorded at this step; ${run.steps.length} of ${plural(run.total_steps, "recorded step")}; ` +
      `${plural(run.total, "rollout")} in the file.${asked}`;
    list.replaceChildren(...listed.filter((place) => place.step === step).map(groupButton));
    const end = scaleEnd(state.colour, step.groups);
    key.replaceChildren(...legend(state.colour, end));
    const { view, tokens } = groupView(group, matches, state.colour, end);
    inspected(tokens, step.step);
    panel.replaceChildren(...view);
  };

  const icon = (text, name, move) =>
    h("button", { type: "button", class: "button icon", "aria-label": name, title: name, on: { click: move } }, text);
  const here = () => stepsOf(found()).indexOf(state.place && state.place.step);
  const options = (values, say) => [["*", "all"], ...values.map((value) => [value, say(value)])];
  const distinct = (values) => [...new Set(values)];
  const kinds = distinct(places.map(({ group }) => group.kind)),
    rewards = Object.keys(EARNED).filter((name) => answers.some((answer) => earned(answer) === name)),
    ends = distinct(answers.map((answer) => answer.ended));
  const body = h(
    "div",
    {
      on: {
        keydown: (event) => {
          const move = { n: 1, p: -1 }[event.key];
          const typing = event.target.matches("select") || event.ctrlKey || event.metaKey || event.altKey;
          if (move && !typing) goGroup(move);
        },
      },
    },
    h(
      "div",
      { class: "controls" },
      h(
        "div",
        { class: "stepper" },
        icon("‹", "Previous step", () => goStep(here() - 1)),
        slider,
        icon("›", "Next step", () => goStep(here() + 1)),
        label,
      ),
      h(
        "div",
        { class: "stepper" },
        icon("p ‹", "Previous group", () => goGroup(-1)),
        icon("n ›", "Next group", () => goGroup(1)),
      ),
      picker("Kind", options(kinds, (kind) => words(kind) || "none"), (kind) => ask({ kind })),
      picker("Reward", options(rewards, (name) => EARNED[name][1]), (value) => ask({ earned: value })),
      picker("Ended", options(ends, endedWords), (ended) => ask({ ended })),
    ),
    h(
      "div",
      { class: "controls" },
      choice(
        "Colour",
        colours.map(({ name, label: text }) => [name, text]),
        state.colour.name,
        (value) => {
          state.colour = colours.find(({ name }) => name === value);
          update();
        },
      ),
      key,
    ),
    note,
    h("div", { class: "card rollout-pane" }, list, panel),
  );
  goStep(run.steps.length - 1);
  return [body];
}
