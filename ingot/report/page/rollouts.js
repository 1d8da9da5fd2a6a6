// Rollouts token by token: background by advantage or log-probability, grey where the policy did not choose the token.

function renderRollouts() {
  const body = byId("rollouts-body"),
    runs = DATA.rollouts.filter((each) => each.steps.length);
  if (!runs.length) return body.append(empty("No stage of this run has written trajectories.jsonl yet."));
  const state = { run: runs[0], step: runs[0].steps.length - 1, chosen: 0, colour: "advantages" };
  const slider = h("input", {
    type: "range",
    min: "0",
    step: "1",
    "aria-label": "Step",
    on: { input: (event) => go(Number(event.target.value)) },
  });
  const label = h("output", { class: "number step-label" });
  const list = h("div", { class: "rollout-list", role: "group", "aria-label": "Rollouts of this step" });
  const view = h("div", { class: "rollout-view" });
  const key = h("div", { class: "key" });
  const note = h("p", { class: "faint" });

  // Start on a rollout that teaches something: in a group of equal rewards every advantage is zero.
  const telling = (step) =>
    Math.max(
      0,
      step.rollouts.findIndex((rollout) =>
        rollout.nodes.some((node) => tokenValues(node, "advantages").some((value) => value)),
      ),
    );
  const go = (step) => {
    state.step = clamp(step, 0, state.run.steps.length - 1);
    state.chosen = telling(state.run.steps[state.step]);
    update();
  };
  const update = () => {
    const { step, rollouts, total } = state.run.steps[state.step];
    Object.assign(slider, { max: String(state.run.steps.length - 1), value: String(state.step) });
    slider.setAttribute("aria-valuetext", `step ${step}`);
    label.textContent = `step ${thousands(step)}`;
    note.textContent =
      `${rollouts.length} of ${plural(total, "rollout")} recorded at this step; ` +
      `${plural(state.run.steps.length, "step")} shown; ${plural(state.run.total, "rollout")} in the file.`;
    list.replaceChildren(
      ...rollouts.map((rollout, index) =>
        h(
          "button",
          {
            type: "button",
            class: index && rollouts[index - 1].task !== rollout.task ? "rollout-item group" : "rollout-item",
            "aria-pressed": String(index === state.chosen),
            on: {
              click: () => {
                state.chosen = index;
                update();
                list.children[index].focus();
              },
            },
          },
          h("span", { class: "reward number" }, isNumber(rollout.reward) ? number(rollout.reward, 3) : "–"),
          h(
            "span",
            { class: "what" },
            h("span", {}, verdictSign(rollout), words(rollout.kind) || "rollout"),
            h("code", {}, rollout.task),
          ),
          meter(rollout),
        ),
      ),
    );
    const largest =
      Math.max(
        ...rollouts.flatMap((rollout) =>
          rollout.nodes.flatMap((node) => tokenValues(node, "advantages").filter(isNumber).map(Math.abs)),
        ),
        0,
      ) || 1;
    key.replaceChildren(...legend(state.colour, largest));
    view.replaceChildren(...rolloutView(rollouts[state.chosen], state.colour, largest));
  };

  body.append(
    h(
      "div",
      { class: "controls" },
      runs.length > 1 &&
        picker(
          "Stage",
          runs.map((each, index) => [String(index), each.stage]),
          (value) => {
            state.run = runs[Number(value)];
            go(state.run.steps.length - 1);
          },
        ),
      h(
        "div",
        { class: "stepper" },
        h(
          "button",
          {
            type: "button",
            class: "button icon",
            "aria-label": "Previous step",
            on: { click: () => go(state.step - 1) },
          },
          "‹",
        ),
        slider,
        h(
          "button",
          { type: "button", class: "button icon", "aria-label": "Next step", on: { click: () => go(state.step + 1) } },
          "›",
        ),
        label,
      ),
      choice(
        "Colour",
        [
          ["advantages", "advantage"],
          ["logprobs", "log-probability"],
        ],
        "advantages",
        (value) => {
          state.colour = value;
          update();
        },
      ),
      key,
    ),
    note,
    h("div", { class: "card rollout-pane" }, list, view),
  );
  go(state.step);
}

const verdictSign = ({ correct }) =>
  typeof correct === "boolean" &&
  h("span", { class: correct ? "right" : "wrong", title: correct ? "right" : "wrong" }, correct ? "✓ " : "✕ ");

// A column that is one number stands for that number at every token.
function tokenValues(node, name) {
  const column = node[name];
  return Array.isArray(column) ? column : node.pieces.map(() => (column === undefined ? null : column));
}

const sampledTokens = (rollout) => sum(rollout.nodes.filter((node) => node.sampled).map((node) => node.pieces.length));
const meter = (rollout) =>
  h("small", { class: "faint number" }, plural(sampledTokens(rollout) + (rollout.cut || 0), "token"));

function tint(colour, value, largest) {
  if (!isNumber(value)) return null;
  if (colour === "logprobs") return { name: "--surprise", share: clamp(-value / 4, 0, 1) * 62 };
  return { name: value >= 0 ? "--better" : "--worse", share: clamp(Math.abs(value) / largest, 0, 1) * 58 };
}

function legend(colour, largest) {
  if (colour === "logprobs")
    return [
      h("span", { class: "number" }, "0 (certain)"),
      h("span", { class: "ramp surprise" }),
      h("span", { class: "number" }, "≤ −4 (surprising)"),
      h("span", { class: "token given" }, "not sampled"),
    ];
  return [
    h("span", { class: "number" }, `−${number(largest, 3)}`),
    h("span", { class: "ramp diverging" }),
    h("span", { class: "number" }, `+${number(largest, 3)}`),
    h("span", { class: "token given" }, "not sampled"),
  ];
}

function rolloutView(rollout, colour, largest) {
  if (!rollout) return [empty("No rollout at this step.")];
  const tokens = [];
  const nodes = rollout.nodes.map((node) => {
    const advantages = tokenValues(node, "advantages"),
      logprobs = tokenValues(node, "logprobs");
    return h(
      "div",
      { class: "node" },
      h("span", { class: "role" }, node.role || "message", h("small", {}, node.sampled ? "sampled" : "given")),
      h(
        "div",
        { class: "tokens" },
        node.pieces.map((piece, index) => {
          const advantage = advantages[index],
            logprob = logprobs[index];
          const paint = node.sampled ? tint(colour, colour === "advantages" ? advantage : logprob, largest) : null;
          const token = h(
            "span",
            {
              class: node.sampled ? "token" : "token given",
              style: paint
                ? {
                    "background-color": `color-mix(in srgb, var(${paint.name}) ${paint.share.toFixed(0)}%, transparent)`,
                  }
                : null,
            },
            shownPiece(piece),
          );
          tokens.push({ token, piece, advantage, logprob, sampled: node.sampled });
          return token;
        }),
      ),
    );
  });
  const panel = h(
    "div",
    { class: "nodes", tabindex: "0", role: "group", "aria-label": "Tokens; arrow keys move from token to token" },
    nodes,
  );
  inspect(panel, tokens);
  return [
    h(
      "div",
      { class: "rollout-head" },
      h(
        "div",
        {},
        h("span", { class: "faint" }, "Reward "),
        h("strong", { class: "number" }, isNumber(rollout.reward) ? number(rollout.reward) : "–"),
        rollout.format_ok === false && !rollout.error && h("span", { class: "wrong" }, " badly formed"),
        rollout.error && h("span", { class: "wrong" }, ` no reward: ${rollout.error}`),
      ),
      h("p", { class: "prompt" }, oneLine(rollout.prompt)),
    ),
    panel,
    rollout.cut > 0 && h("p", { class: "faint" }, `${plural(rollout.cut, "more token")} not shown.`),
  ].filter(Boolean);
}

// A line break is shown as a sign and then made.
const shownPiece = (piece) =>
  piece === ""
    ? h("i", { class: "faint" }, "∅")
    : piece.split(/(\n)/).map((part) => (part === "\n" ? [h("i", { class: "break" }, "↵"), "\n"] : part));

function inspect(panel, tokens) {
  const index = new Map(tokens.map((each, at) => [each.token, at]));
  let current = -1;
  const show = (at, x, y) => {
    if (current >= 0) tokens[current].token.classList.remove("current");
    current = at;
    const { token, piece, advantage, logprob, sampled } = tokens[at];
    token.classList.add("current");
    const box = token.getBoundingClientRect();
    showTip(
      h(
        "div",
        { class: "tip-lines" },
        h("code", {}, visible(piece)),
        h(
          "dl",
          { class: "tip-fields" },
          h(
            "div",
            {},
            h("dt", {}, "log-probability"),
            h(
              "dd",
              { class: "number" },
              isNumber(logprob) ? `${number(logprob)} (p ${number(Math.exp(logprob), 3)})` : "–",
            ),
          ),
          h(
            "div",
            {},
            h("dt", {}, "advantage"),
            h("dd", { class: "number" }, isNumber(advantage) ? number(advantage) : "–"),
          ),
          h("div", {}, h("dt", {}, "mask"), h("dd", {}, sampled ? "sampled" : "not sampled")),
        ),
      ),
      x === undefined ? box.left : x,
      y === undefined ? box.bottom : y,
    );
  };
  const leave = () => {
    if (current >= 0) tokens[current].token.classList.remove("current");
    current = -1;
    hideTip();
  };
  panel.addEventListener("pointermove", (event) => {
    const token = event.target.closest(".token");
    if (token && index.has(token)) show(index.get(token), event.clientX, event.clientY);
    else leave();
  });
  panel.addEventListener("pointerleave", leave);
  panel.addEventListener("blur", leave);
  panel.addEventListener("keydown", (event) => {
    const move = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: 10, ArrowUp: -10 }[event.key];
    if (event.key === "Escape") return leave();
    if (!move && event.key !== "Home" && event.key !== "End") return;
    event.preventDefault();
    const next =
      event.key === "Home" ? 0 : event.key === "End" ? tokens.length - 1 : clamp(current + move, 0, tokens.length - 1);
    if (!tokens.length) return;
    tokens[next].token.scrollIntoView({ block: "nearest" });
    show(next);
    const { piece, advantage, logprob } = tokens[next];
    announce(`${visible(piece)}, log-probability ${number(logprob)}, advantage ${number(advantage)}`);
  });
}
