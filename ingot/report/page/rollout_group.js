// The answers to one task side by side, token by token.

const ENDED = {
  answer: "answered",
  stopped: "stopped by the environment",
  cut: "cut at the limit of a turn",
  malformed: "malformed turn",
  turns: "out of turns",
  tokens: "out of tokens",
  time: "out of time",
  error: "environment failed",
  cancelled: "cancelled",
};
const endedWords = (ended) => (Object.hasOwn(ENDED, ended) ? ENDED[ended] : words(ended) || "not said");

const EARNED = { right: ["✓", "right"], between: ["◐", "between"], wrong: ["✕", "wrong"], failed: ["–", "no reward"] };

// Right is what the verifier calls so, or a whole reward where it says nothing; between is some reward without being right.
function earned({ correct, reward, error }) {
  if (error) return "failed";
  if (correct === true || (typeof correct !== "boolean" && reward >= 1)) return "right";
  return reward > 0 ? "between" : "wrong";
}

const namedNumbers = (rewards) =>
  Object.entries(rewards || {})
    .map(([name, value]) => `${words(name)} ${number(value, 3)}`)
    .join(", ");

const turnFacts = ({ sampled, ended, rewards }) =>
  [sampled ? "sampled" : "given", ended === "length" ? "cut at its limit" : words(ended || ""), namedNumbers(rewards)]
    .filter(Boolean)
    .join(" · ");

const PART_LABELS = { think: "thinking", call: "tool call", result: "tool result" };

function nodeView(node, colour, end, tokens) {
  const elements = tokenElements(node, colour, end, tokens),
    parts = speechParts(node.pieces.join(""), node.begins),
    shown = parts.map(([kind]) => ({ kind, elements: [] }));
  let at = 0,
    part = 0;
  for (const [index, element] of elements.entries()) {
    while (part < parts.length - 1 && at >= parts[part][2]) part += 1;
    if (shown.length) shown[part].elements.push(element);
    at += node.pieces[index].length;
  }
  return h(
    "div",
    { class: "node" },
    h("span", { class: "role" }, node.role || "message", h("small", {}, turnFacts(node))),
    h(
      "div",
      { class: "tokens" },
      shown.length
        ? shown.map((each) =>
            each.kind
              ? h("div", { class: `part ${each.kind}` }, h("small", {}, PART_LABELS[each.kind]), each.elements)
              : each.elements,
          )
        : elements,
    ),
  );
}

function attemptView(answer, colour, end, tokens) {
  const verdict = earned(answer),
    [sign, word] = EARNED[verdict];
  const facts = [endedWords(answer.ended), plural(answer.sampled, "token"), answer.format_ok === false && "badly formed"];
  return h(
    "article",
    { class: "attempt", "data-earned": verdict, "data-ended": answer.ended },
    h(
      "header",
      { class: "attempt-head" },
      h("strong", { class: "number reward" }, answer.error ? "–" : number(answer.reward, 3)),
      h("span", { class: verdict === "right" ? "right" : verdict === "wrong" ? "wrong" : "" }, `${sign} ${word}`),
      h("small", { class: "faint" }, facts.filter(Boolean).join(" · ")),
      Object.keys(answer.rewards).length > 0 &&
        h("small", { class: "faint number" }, namedNumbers(answer.rewards)),
      answer.error && h("small", { class: "wrong" }, answer.error),
    ),
    answer.nodes.map((node) => nodeView(node, colour, end, tokens)),
    answer.cut > 0 && h("p", { class: "faint" }, `${plural(answer.cut, "more token")} not shown.`),
  );
}

// The elements of a group, of which only the answers that match are shown, and its tokens.
function groupView(group, matches, colour, end) {
  const tokens = [],
    answers = group.answers.filter(matches),
    hidden = group.answers.length - answers.length,
    left = group.size - group.answers.length;
  const counted = [
    hidden > 0 && `${answers.length} of ${plural(group.answers.length, "answer")} match.`,
    left > 0 && `${plural(left, "more answer")} of this group not in this report.`,
  ];
  const view = [
    h(
      "div",
      { class: "group-head" },
      h("span", {}, words(group.kind) || "task", " ", h("code", {}, group.task)),
      h("p", { class: "prompt" }, oneLine(group.prompt)),
      counted.some(Boolean) && h("p", { class: "faint" }, counted.filter(Boolean).join(" ")),
    ),
    group.given && h("div", { class: "given-prompt" }, nodeView(group.given, colour, end, tokens)),
    group.given_cut > 0 && h("p", { class: "faint" }, `${plural(group.given_cut, "more token")} of the prompt not shown.`),
    h(
      "div",
      { class: "attempts scroll" },
      answers.map((answer) => attemptView(answer, colour, end, tokens)),
    ),
  ];
  return { view: view.filter(Boolean), tokens };
}
