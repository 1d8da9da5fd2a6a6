// Answers of every checkpoint to the same tasks, side by side.

const TASKS_AT_ONCE = 10;

function renderGenerations() {
  const body = byId("generations-body"),
    { stages, tasks, total } = DATA.generations;
  if (!tasks.length) return body.append(empty("No evaluation has left scores/samples.jsonl yet."));
  const kinds = [...new Set(tasks.map((task) => task.kind))];
  const state = { kind: "*", outcome: "*", text: "", shown: TASKS_AT_ONCE };
  const list = h("div", { class: "card tasks" }),
    count = h("p", { class: "faint", role: "status" });
  const rows = tasks.map((task) => ({ task, view: null, text: searchable(task) }));
  const update = () => {
    const found = rows.filter(
      ({ task, text }) =>
        (state.kind === "*" || task.kind === kinds[Number(state.kind)]) &&
        text.includes(state.text) &&
        outcome(task, stages, state.outcome),
    );
    const page = found.slice(0, state.shown),
      left = found.length - page.length;
    for (const row of page) row.view = row.view || taskView(row.task, stages);
    list.replaceChildren(
      ...page.map((row) => row.view),
      ...(found.length ? [] : [empty("No task matches.")]),
      ...(left > 0
        ? [
            h(
              "button",
              {
                type: "button",
                class: "more",
                on: {
                  click: () => {
                    state.shown += TASKS_AT_ONCE;
                    update();
                  },
                },
              },
              `Show ${Math.min(left, TASKS_AT_ONCE)} more`,
            ),
          ]
        : []),
    );
    count.textContent =
      found.length === tasks.length
        ? `${tasks.length} of ${plural(total, "task")}`
        : `${found.length} of the ${tasks.length} tasks in this report match`;
  };
  const reset = (changes) => {
    Object.assign(state, changes, { shown: TASKS_AT_ONCE });
    update();
  };
  body.append(
    h(
      "div",
      { class: "controls" },
      kinds.length > 1 &&
        picker("Kind", [["*", "all"], ...kinds.map((kind, index) => [String(index), words(kind) || "none"])], (value) =>
          reset({ kind: value }),
        ),
      stages.length > 1 &&
        picker(
          "Outcome",
          [
            ["*", "all"],
            ["gained", "better at last than at first"],
            ["lost", "worse at last than at its best"],
            ["never", "never right"],
            ["always", "always right"],
          ],
          (value) => reset({ outcome: value }),
        ),
      search("Filter", (text) => reset({ text })),
      h(
        "button",
        {
          type: "button",
          class: "button",
          on: {
            click: (event) => {
              const open = Boolean(list.querySelector("details:not([open])"));
              for (const each of list.querySelectorAll("details")) each.open = open;
              event.target.textContent = open ? "Close all" : "Open all";
            },
          },
        },
        "Open all",
      ),
    ),
    count,
    list,
  );
  update();
  const first = list.querySelector("details");
  if (first) first.open = true;
}

const searchable = (task) =>
  [
    task.id,
    task.kind,
    task.prompt,
    task.expected,
    ...Object.values(task.answers).flatMap((answers) => answers.texts.map(([text]) => text)),
  ]
    .join("\n")
    .toLowerCase();

const rightShare = (answers) => answers.right / answers.judged;

function outcome(task, stages, wanted) {
  const shares = stages
    .map((stage) => task.answers[stage])
    .filter((answers) => answers && answers.judged)
    .map(rightShare);
  if (wanted === "*") return true;
  if (!shares.length) return false;
  if (wanted === "gained") return shares.at(-1) > shares[0];
  if (wanted === "lost") return shares.at(-1) < Math.max(...shares);
  return wanted === "never" ? Math.max(...shares) === 0 : Math.min(...shares) === 1;
}

function mark(stage, answers) {
  const [look, sign, word] = !answers
    ? ["none", "·", "not asked"]
    : !answers.judged
      ? ["none", "–", "not judged"]
      : answers.right === answers.judged
        ? ["right", "✓", "right"]
        : answers.right
          ? ["partly", "◐", "sometimes right"]
          : ["wrong", "✕", "wrong"];
  const share = answers && answers.judged > 1 ? ` ${answers.right}/${answers.judged}` : "";
  return h(
    "span",
    { class: `mark-chip ${look}`, title: `${stage}: ${word}${share}` },
    h("span", { "aria-hidden": "true" }, sign),
    h("span", { class: "visually-hidden" }, word),
    h("span", { class: "stage-name" }, stage),
    share && h("small", { class: "number" }, share),
  );
}

function taskView(task, stages) {
  const details = h(
    "details",
    { class: "task" },
    h(
      "summary",
      {},
      h(
        "span",
        { class: "task-prompt" },
        h("span", { class: "kind" }, words(task.kind)),
        h("span", { class: "line" }, oneLine(task.prompt)),
      ),
      h(
        "span",
        { class: "marks", style: { "--count": String(stages.length) } },
        stages.map((stage) => mark(stage, task.answers[stage])),
      ),
    ),
  );
  details.addEventListener("toggle", () => {
    if (!details.open || details.childElementCount > 1) return;
    details.append(
      h(
        "div",
        { class: "task-body" },
        h(
          "div",
          { class: "ask" },
          h("pre", { class: "text" }, task.prompt),
          h(
            "dl",
            { class: "inline" },
            h(
              "div",
              {},
              h("dt", {}, "Expected"),
              h("dd", {}, task.expected === null ? "–" : h("code", {}, task.expected)),
            ),
            h("div", {}, h("dt", {}, "Task"), h("dd", {}, h("code", {}, task.id))),
          ),
        ),
        h(
          "div",
          {
            class: "answers",
            style: { "--columns": String(stages.length <= 4 ? stages.length : Math.ceil(stages.length / 2)) },
          },
          stages.map((stage) => answerView(stage, task.answers[stage])),
        ),
      ),
    );
  });
  return details;
}

const oneLine = (text) => {
  const line = text.replace(/\s+/g, " ").trim();
  return line.length > 160 ? `${[...line].slice(0, 160).join("")}…` : line;
};

function answerView(stage, answers) {
  return h(
    "div",
    { class: "answer" },
    h("h4", {}, mark(stage, answers)),
    answers
      ? answers.texts.map(([text, correct]) =>
          h(
            "div",
            { class: "reply" },
            answers.texts.length > 1 &&
              h(
                "span",
                {
                  class: `sign ${correct === true ? "right" : correct === false ? "wrong" : ""}`,
                  "aria-label": correct === true ? "right" : correct === false ? "wrong" : "not judged",
                },
                correct === true ? "✓" : correct === false ? "✕" : "–",
              ),
            h("pre", { class: "text" }, text ? spoken(text) : h("span", { class: "faint" }, "(nothing)")),
          ),
        )
      : empty("not asked"),
  );
}

// Special tokens such as <|im_end|> are marks of the format, not something said.
const marks = (text) =>
  text
    .split(/(<\|[a-z_]+\|>)/)
    .map((part) => (/^<\|[a-z_]+\|>$/.test(part) ? h("span", { class: "special" }, part) : part));

// How templates write the parts of a turn: kind, opening, closing. The last two are harmony's.
const PARTS = [
  ["think", "<think>", "</think>"],
  ["call", "<tool_call>", "</tool_call>"],
  ["result", "<tool_response>", "</tool_response>"],
  ["think", "<|channel|>analysis<|message|>", "<|end|>"],
  ["call", "<|channel|>commentary", "<|call|>"],
];

// The text as [kind, start, end] from its beginning to its end, kind "" between parts. An unclosed part runs to the end;
// a text may begin inside one.
function speechParts(text, begins) {
  const found = [];
  let at = 0,
    open = begins ? { at: 0, from: 0, part: PARTS.find(([kind]) => kind === begins) } : null;
  while (at < text.length) {
    open =
      open ||
      PARTS.map((part) => ({ at: text.indexOf(part[1], at), part }))
        .filter((each) => each.at >= 0)
        .sort((one, other) => one.at - other.at)[0];
    if (!open) break;
    const [kind, opening, closing] = open.part,
      end = text.indexOf(closing, open.from === undefined ? open.at + opening.length : open.from),
      stop = end < 0 ? text.length : end + closing.length;
    if (open.at > at) found.push(["", at, open.at]);
    found.push([kind, open.at, stop]);
    at = stop;
    open = null;
  }
  if (at < text.length) found.push(["", at, text.length]);
  return found;
}

// Thinking dimmed, tool calls and results set apart.
function spoken(text) {
  return speechParts(text).flatMap(([kind, start, end]) => {
    const part = text.slice(start, end);
    return kind ? h("span", { class: kind === "think" ? "think" : "tool" }, part) : marks(part);
  });
}
