// One token: how it is shown, and the numbers behind it when it is pointed at or reached by arrow keys.

// A line break is shown as a sign and then made.
const shownPiece = (piece) =>
  piece === ""
    ? h("i", { class: "faint" }, "∅")
    : piece.split(/(\n)/).map((part) => (part === "\n" ? [h("i", { class: "break" }, "↵"), "\n"] : part));

// The elements of a node's tokens; each is noted in `tokens` with its numbers.
function tokenElements(node, colour, end, tokens) {
  const columns = COLOURS.map(({ name }) => [name, tokenValues(node, name)]);
  return node.pieces.map((piece, index) => {
    const values = Object.fromEntries(columns.map(([name, column]) => [name, column[index]]));
    const paint = node.sampled ? tint(colour, values[colour.name], end) : null;
    const token = h(
      "span",
      { class: node.sampled ? "token" : "token given", style: paint ? { "background-color": paint } : null },
      shownPiece(piece),
    );
    tokens.push({ token, piece, sampled: node.sampled, ...values });
    return token;
  });
}

function tokenNumbers({ sampled, advantages, logprobs, ratios, entropies, ages }, step) {
  const rows = [
    ["log-probability", logprobs, () => `${number(logprobs)} (p ${number(Math.exp(logprobs), 3)})`],
    ["log-ratio π/μ", ratios, () => `${number(ratios)} (π/μ ${number(Math.exp(ratios))})`],
    ["advantage", advantages, () => number(advantages)],
    ["entropy", entropies, () => `${number(entropies)} nats`],
    ["drawn by version", ages, () => `${number(step - ages)} (${plural(ages, "update")} old)`],
  ];
  const known = rows.filter(([, value]) => isNumber(value)).map(([name, , text]) => [name, text()]);
  return [...known, ["mask", sampled ? "sampled" : "not sampled"]];
}

// Lets a panel show the numbers of the tokens in it. The function that is returned says which these are, and of which step.
function inspect(panel) {
  let tokens = [],
    index = new Map(),
    step = 0,
    current = -1;
  const show = (at, x, y) => {
    if (current >= 0) tokens[current].token.classList.remove("current");
    current = at;
    const { token, piece } = tokens[at];
    token.classList.add("current");
    const box = token.getBoundingClientRect();
    const rows = tokenNumbers(tokens[at], step);
    showTip(
      h(
        "div",
        { class: "tip-lines" },
        h("code", {}, visible(piece)),
        h(
          "dl",
          { class: "tip-fields" },
          rows.map(([name, text]) => h("div", {}, h("dt", {}, name), h("dd", { class: "number" }, text))),
        ),
      ),
      x === undefined ? box.left : x,
      y === undefined ? box.bottom : y,
    );
    return `${visible(piece)}, ${rows.map(([name, text]) => `${name} ${text}`).join(", ")}`;
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
    if ((!move && event.key !== "Home" && event.key !== "End") || !tokens.length) return;
    event.preventDefault();
    const last = tokens.length - 1;
    const next = event.key === "Home" ? 0 : event.key === "End" ? last : clamp(current + move, 0, last);
    tokens[next].token.scrollIntoView({ block: "nearest", inline: "nearest" });
    announce(show(next));
  });
  return (shown, at) => {
    if (current >= 0) leave();
    tokens = shown;
    step = at;
    index = new Map(tokens.map((each, place) => [each.token, place]));
  };
}
