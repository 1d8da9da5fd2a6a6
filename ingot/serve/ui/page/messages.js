// The conversation on the screen: a view for each turn, redrawn when its message changes.

const view = {
  elements: [], // one per message; a tool's result is drawn in the card of its call
  open: new Set(), // numbers of the messages whose thinking is unfolded
};
const scroller = byId("scroller");
let sticky = true; // whether the end is kept in sight
scroller.addEventListener("scroll", () => {
  sticky = scroller.scrollHeight - scroller.scrollTop - scroller.clientHeight < 60;
});
const keepEnd = () => sticky && (scroller.scrollTop = scroller.scrollHeight);

function drawAll() {
  view.open.clear();
  view.elements = talk.conversation.messages.map((_, number) => drawMessage(number));
  byId("messages").replaceChildren(...(view.elements.length ? view.elements : [welcome()]));
  sticky = true;
  keepEnd();
}

// Draw again what has changed from message `number` on.
function redraw(number) {
  const list = byId("messages"),
    count = talk.conversation.messages.length;
  if (!view.elements.length) list.replaceChildren();
  for (const element of view.elements.splice(count)) element.remove();
  for (let at = number; at < count; at += 1) {
    const element = drawMessage(at);
    if (view.elements[at]) view.elements[at] = patch(view.elements[at], element);
    else list.append((view.elements[at] = element));
  }
  if (!count) list.replaceChildren(welcome());
  drawTrouble();
  keepEnd();
}

// Make `old` like `fresh` with as little change as can be, and give what stands there now: a node that is replaced loses
// the click, the focus or the selection that is on it, and an answer that grows is drawn many times a second.
function patch(old, fresh) {
  if (old.isEqualNode(fresh)) return old;
  if (old.nodeName !== fresh.nodeName || old.className !== fresh.className) {
    old.replaceWith(fresh);
    return fresh;
  }
  if (old.nodeType === Node.TEXT_NODE) old.data = fresh.data;
  for (const { name } of [...(old.attributes || [])]) if (name !== "open" && !fresh.hasAttribute(name)) old.removeAttribute(name);
  for (const { name, value } of fresh.attributes || []) if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  const children = [...fresh.childNodes];
  while (old.childNodes.length > children.length) old.lastChild.remove();
  children.forEach((child, at) => (at < old.childNodes.length ? patch(old.childNodes[at], child) : old.append(child)));
  return old;
}

function welcome() {
  return h(
    "div",
    { class: "welcome" },
    s("svg", { viewBox: "0 0 32 32", width: 44, height: 44, "aria-hidden": "true" }, s("path", { d: "M9.5 9h13L29 23H3z" })),
    h("h2", {}, talk.model ? talk.model.id : "Ingot"),
    h("p", {}, "Say something. Conversations are kept in this browser."),
  );
}

function drawMessage(number) {
  const message = talk.conversation.messages[number];
  if (message.role === "user") return userTurn(message, number);
  if (message.role === "assistant") return assistantTurn(message, number);
  return h("div", { hidden: true });
}

const action = (text, label, click) =>
  h("button", { class: "button quiet", type: "button", "aria-label": label, on: { click } }, text);

function userTurn(message, number) {
  return h(
    "article",
    { class: "turn user", "aria-label": "You" },
    h("div", { class: "bubble" }, message.content),
    h(
      "div",
      { class: "actions" },
      action("Edit", "Edit and send again", () => editTurn(number)),
      action("Copy", "Copy the message", (event) => copyText(message.content, event.target)),
    ),
  );
}

function editTurn(number) {
  if (talk.running) return;
  const box = h("textarea", { rows: "4", "aria-label": "Edit the message" });
  box.value = talk.conversation.messages[number].content;
  const close = () => redraw(number);
  const save = () => box.value.trim() && sendFrom(number, box.value.trim());
  const editor = h(
    "form",
    { class: "editor", on: { submit: (event) => (event.preventDefault(), save()) } },
    box,
    h(
      "div",
      {},
      h("button", { class: "button", type: "button", on: { click: close } }, "Cancel"),
      h("button", { class: "button strong", type: "submit" }, "Send"),
    ),
  );
  box.addEventListener("keydown", (event) => {
    if (event.key === "Escape") close();
    else if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
      event.preventDefault();
      save();
    }
  });
  view.elements[number].replaceChildren(editor);
  box.focus();
}

function assistantTurn(message, number) {
  const running = talk.running && number === talk.writing;
  const empty = !message.content && !message.reasoning_content && !message.tool_calls?.length;
  return h(
    "article",
    { class: "turn assistant", "aria-label": "Assistant", "aria-busy": running ? "true" : null },
    message.reasoning_content && thinkingBlock(message, number, running),
    settings.probabilities && message.tokens?.length ? tokenView(message.tokens) : message.content && markdown(message.content),
    running && empty && h("span", { class: "waiting", role: "img", "aria-label": "The model is reading" }, h("i"), h("i"), h("i")),
    (message.tool_calls || []).map((call) =>
      callCard(call, resultOf(call, number), talk.questions.get(call.id), talk.running),
    ),
    !running && note(message),
    !running && !followed(number) && assistantActions(message, number),
  );
}

const resultOf = (call, number) =>
  talk.conversation.messages.slice(number + 1).find((message) => message.tool_call_id === call.id)?.content;

// Only the last of the turns between two messages of the user has actions.
function followed(number) {
  const next = talk.conversation.messages.slice(number + 1).find((message) => message.role !== "tool");
  return (next && next.role === "assistant") || (!next && talk.running);
}

function thinkingBlock(message, number, running) {
  const writing = running && !message.content;
  const details = h(
    "details",
    { class: "thinking", open: view.open.has(number) },
    h("summary", {}, writing ? "Thinking …" : message.thought >= 1 ? `Thought for ${duration(message.thought)}` : "Thoughts"),
    h("div", { class: "trace" }, message.reasoning_content.trim()),
  );
  details.addEventListener("toggle", () => (details.open ? view.open.add(number) : view.open.delete(number)));
  return details;
}

const NOTES = {
  __proto__: null, // a server may call its reason anything
  length: "Cut off: the limit of tokens was reached. Raise it under Settings.",
  stopped: "Stopped.",
  deadline: "Cut off: it took longer than the server allows.",
};
const silent = (message) => message.finish === "stop" && !message.content?.trim() && !message.tool_calls?.length;
function note(message) {
  const text = silent(message) ? "The model ended its turn without an answer." : NOTES[message.finish || ""];
  return text && h("p", { class: "note" }, text);
}

function assistantActions(message, number) {
  const parts = [];
  if (message.usage) parts.push(plural(message.usage.completion_tokens, "token"));
  if (message.speed) parts.push(`${short(message.speed)} tokens/s`);
  if (isNumber(message.first)) parts.push(`${message.first.toFixed(2)} s to the first`);
  const last = !talk.conversation.messages.slice(number + 1).some((next) => next.role !== "tool");
  return h(
    "div",
    { class: "actions" },
    action("Copy", "Copy the answer", (event) => copyText(message.content, event.target)),
    last && action("Regenerate", "Regenerate the answer", regenerate),
    h("span", { class: "stats number" }, parts.join(" · ")),
  );
}

function drawTrouble() {
  byId("trouble")?.remove();
  const trouble = talk.trouble;
  if (!trouble) return;
  byId("messages").append(
    h(
      "div",
      { id: "trouble", class: "notice", role: "alert" },
      h("div", {}, h("p", { class: "what" }, trouble.message), trouble.fix && h("p", { class: "fix" }, trouble.fix)),
      talk.conversation.messages.some((message) => message.role === "user") &&
        h("button", { class: "button", type: "button", on: { click: regenerate } }, "Try again"),
    ),
  );
}
