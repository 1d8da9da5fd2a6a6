// Documents to read: what a step removed and why, what it made of texts, what was kept. Any list can be searched.

const SAMPLES_AT_ONCE = 4;

// A list of samples with a search box. `describe(found)` says what is listed; `texts(sample)` is what is searched.
function sampleList({ samples, view, texts, describe, match = () => true }) {
  const state = { text: "", match, shown: SAMPLES_AT_ONCE };
  const list = h("div", { class: "samples" }),
    count = h("p", { class: "faint", role: "status" });
  const update = () => {
    const found = samples().filter(
      (sample) => state.match(sample) && texts(sample).some((text) => (text || "").toLowerCase().includes(state.text)),
    );
    const left = found.length - state.shown;
    count.replaceChildren(...[describe(found.length)].flat());
    const more = h(
      "button",
      { type: "button", class: "button", on: { click: () => change({ shown: state.shown + SAMPLES_AT_ONCE }) } },
      `Show ${Math.min(left, SAMPLES_AT_ONCE)} more`,
    );
    list.replaceChildren(
      ...found.slice(0, state.shown).map(view),
      ...(left > 0 ? [more] : []),
      ...(found.length ? [] : [empty("No sample matches.")]),
    );
    requestAnimationFrame(() => reveal(list));
  };
  const change = (changes) => {
    Object.assign(state, changes);
    update();
  };
  const reset = (changes) => change({ shown: SAMPLES_AT_ONCE, ...changes });
  update();
  return { list, count, reset, search: search("Filter", (text) => reset({ text })) };
}

// A mark below the edge of its box would never be seen: scroll to the first one, both sides of a pair by as much.
function reveal(list) {
  if (list.offsetParent === null) return; // not on the screen
  const together = [...list.querySelectorAll(".aligned")].map((pair) => [...pair.querySelectorAll("pre.text")]);
  const alone = [...list.querySelectorAll("pre.text")].filter((box) => !box.closest(".aligned")).map((box) => [box]);
  for (const boxes of [...together, ...alone]) {
    const depths = boxes.flatMap((box) => {
      const mark = box.querySelector("mark");
      return mark ? [mark.getClientRects()[0].top - box.getBoundingClientRect().top + box.scrollTop] : [];
    });
    const first = Math.min(...depths);
    for (const box of boxes) if (first > box.clientHeight - 40 && first < Infinity) box.scrollTop = first - 60;
  }
}

const textBox = (content) => h("pre", { class: "text", tabindex: "0" }, content);
const side = (caption, content) => h("figure", {}, h("figcaption", {}, caption), textBox(content));

const from = (sample) => (sample.skipped > 0 ? ` (from character ${thousands(sample.skipped)})` : "");

function sampleHead(what, sample) {
  return h(
    "div",
    { class: "sample-head" },
    what && h("strong", {}, what),
    h("span", {}, sample.source),
    h("code", {}, sample.id),
    isNumber(sample.bytes) && h("span", { class: "number" }, bytes(sample.bytes)),
  );
}

function removedSample(sample) {
  const article = (...parts) =>
    h("article", { class: "sample" }, sampleHead(sample.reason || "no reason given", sample), parts);
  const same = sample.duplicate_text === sample.text; // nothing to compare: once is enough
  if (typeof sample.duplicate_text === "string" && !same) {
    const [left, right] = difference(sample.text, sample.duplicate_text);
    return article(
      h(
        "div",
        { class: "pair aligned" },
        side(`removed${from(sample)}`, marked(left, "only-left")),
        side(["kept ", h("code", {}, sample.duplicate_of || ""), from(sample)], marked(right, "only-right")),
      ),
    );
  }
  const text = highlighted(sample.text, sample.spans || []);
  if (typeof sample.eval_text === "string") {
    const shared = spanTexts(sample.text, sample.spans || []).join("\n");
    const [, found] = difference(shared.toLowerCase(), sample.eval_text.toLowerCase());
    return article(
      h(
        "div",
        { class: "pair" },
        side("removed", text),
        side(["eval ", h("code", {}, sample.eval)], marked(restored(found, sample.eval_text), "span")),
      ),
    );
  }
  return article(
    sample.duplicate_of &&
      h("p", { class: "faint" }, same ? "same text as " : "duplicate of ", h("code", {}, sample.duplicate_of)),
    textBox(text),
  );
}

// The pieces of a comparison in lower case as they stand in the text, with what both have as the changed part.
function restored(parts, text) {
  const own = pieces(text);
  return own.length === parts.length ? own.map((piece, index) => [piece, !parts[index][1]]) : [[text, true]];
}

function rewrittenSample(sample) {
  // Of a page and its main content little is common: marks would be everywhere.
  const [left, right] = difference(sample.before, sample.after);
  const alike = Math.max(commonShare(left), commonShare(right)) > 0.5;
  const [before, after] = alike
    ? [marked(left, "only-left"), marked(right, "only-right")]
    : [sample.before, sample.after];
  return h(
    "article",
    { class: "sample" },
    sampleHead(null, sample),
    h(
      "div",
      { class: "pair aligned" },
      side(`before${from(sample)}`, before),
      side(`after${from(sample)}`, after),
    ),
  );
}

function commonShare(parts) {
  const size = (chosen) => sum(chosen.map(([piece]) => piece.trim().length));
  return size(parts.filter(([, common]) => common)) / Math.max(size(parts), 1);
}

function keptSample(sample) {
  const columns = Object.entries(sample.columns),
    shown = [...sample.text].length; // characters as Python counts them
  return h(
    "article",
    { class: "sample" },
    sampleHead(null, sample),
    columns.length > 0 &&
      h(
        "dl",
        { class: "columns-of" },
        columns.map(([name, value]) => h("div", {}, h("dt", {}, words(name)), h("dd", {}, scalar(value)))),
      ),
    textBox(sample.text),
    sample.characters > shown &&
      h("p", { class: "faint" }, `the first ${thousands(shown)} of ${thousands(sample.characters)} characters`),
  );
}
