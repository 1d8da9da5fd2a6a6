// An answer token by token: colour is doubt, and pointing at a token shows what else it might have been.

const LEAST = 1e-4;

// What a token looks like where it is alone: blanks and line ends are visible, a part of a character is its bytes.
function spell({ token, bytes }) {
  if (bytes && token.includes("\ufffd")) return bytes.map((byte) => `⟨${byte.toString(16).padStart(2, "0")}⟩`).join("");
  return token.replace(/\n/g, "⏎").replace(/^ | $/g, "␣").replace(/\t/g, "⇥") || "∅";
}
const chance = (logprob) => {
  const share = Math.exp(logprob);
  return share < LEAST ? "<0.01 %" : `${(share * 100).toFixed(share > 0.0995 ? 1 : 2)} %`;
};

function alternatives(token) {
  const rows = (token.top_logprobs || []).slice();
  if (!rows.some((row) => row.token === token.token)) rows.push(token);
  rows.sort((left, right) => right.logprob - left.logprob);
  return h(
    "table",
    { class: "alternatives" },
    rows.map((row) =>
      h(
        "tr",
        { class: row.token === token.token ? "chosen" : null },
        h("th", { scope: "row" }, spell(row)),
        h("td", {}, chance(row.logprob)),
      ),
    ),
  );
}

function tokenSpan(token, text) {
  const parts = text.split("\n").flatMap((part, at) => (at ? [h("i", { class: "break" }, "⏎"), "\n", part] : [part]));
  return h(
    "span",
    { class: "token", style: { "--doubt": (1 - Math.exp(Math.min(0, token.logprob))).toFixed(3) } },
    text ? parts : h("i", { class: "break" }, "⋅"),
  );
}

// A character of several tokens stands at the last of them.
function tokenSpans(tokens) {
  const decoder = new TextDecoder();
  return tokens.map((token) =>
    tokenSpan(token, token.bytes ? decoder.decode(new Uint8Array(token.bytes), { stream: true }) : token.token),
  );
}

// `tokens` may grow after the view was made, and its spans with it.
function tokenView(tokens) {
  const view = h("div", {
    class: "token-view",
    tabindex: "0",
    role: "group",
    "aria-label": "The answer token by token; the arrow keys go from one to the next",
  });
  let current = -1;
  const select = (at) => {
    view.children[current]?.classList.remove("current");
    current = at;
    if (at < 0) return hideTip();
    view.children[at].classList.add("current");
    const box = view.children[at].getBoundingClientRect();
    showTip(alternatives(tokens[at]), box.left, box.bottom);
    announce(`${spell(tokens[at])}, ${chance(tokens[at].logprob)}`);
  };
  view.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    select(clamp(current + step, 0, view.children.length - 1));
  });
  view.addEventListener("blur", () => select(-1));
  view.addEventListener("mousemove", (event) => {
    const at = [...view.children].indexOf(event.target.closest(".token"));
    if (at < 0) hideTip();
    else showTip(alternatives(tokens[at]), event.clientX, event.clientY);
  });
  view.addEventListener("mouseleave", hideTip);
  view.append(...tokenSpans(tokens));
  return view;
}
