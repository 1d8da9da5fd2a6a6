// Puts the page together: the model, the list of conversations, the composer, the keyboard.

const input = byId("input");

async function findModel() {
  const listed = (await (await ask("/v1/models")).json()).data || [];
  if (!listed.length) throw new Trouble("The server has no model.", "Look at its terminal.");
  const choose = (id) => {
    talk.model = listed.find((model) => model.id === id) || listed[0];
    storage.set("model", talk.model.id);
    document.title = `${talk.model.id} · Ingot chat`;
    showRoom();
  };
  choose(storage.get("model"));
  const names = [talk.model, ...listed.filter((model) => model !== talk.model)].map(({ id }) => [id, id]);
  byId("model").replaceChildren(names.length > 1 ? picker("", names, choose) : talk.model.id);
}

async function findTools() {
  const { tools, on } = await (await ask("/ui/tools")).json();
  for (const tool of tools) TOOLS.set(tool.schema.name, tool);
  toolsOn = on;
}

function showRoom() {
  const usage = talk.conversation.messages.findLast((message) => message.usage)?.usage;
  const most = talk.model?.max_model_len || talk.model?.context_length;
  byId("room").textContent = usage ? `${thousands(usage.total_tokens)}${most ? ` of ${thousands(most)}` : ""} tokens` : "";
}

function showRunning() {
  byId("send").hidden = talk.running;
  byId("stop").hidden = !talk.running;
  byId("send").disabled = !input.value.trim();
}

// ---- the list

function drawList() {
  const entries = index.map((entry) => {
    const { id, title } = entry,
      current = id === talk.conversation.id;
    const open = { class: "open", title, "aria-current": current ? "true" : null, on: { click: () => openConversation(id) } };
    const remove = { class: "remove", title: "Delete", "aria-label": `Delete ${title}`, on: { click: () => forget(entry) } };
    return h(
      "li",
      { class: `entry${current ? " current" : ""}` },
      h("button", { type: "button", ...open }, title),
      h("button", { type: "button", ...remove }, "×"),
    );
  });
  const none = h("li", { class: "empty-list" }, "No conversations yet.");
  byId("conversations").replaceChildren(...(entries.length ? entries : [none]));
}

function show(conversation) {
  talk.stop?.abort();
  Object.assign(talk, { conversation, trouble: null, attempts: 0 });
  showRoom();
  drawList();
  drawAll();
  showList(false);
  input.focus();
}

const openConversation = (id) => show(loadConversation(id) || newConversation());

function forget(entry) {
  if (!confirm(`Delete “${entry.title}”?`)) return;
  removeConversation(entry.id);
  if (entry.id === talk.conversation.id) show(newConversation());
  else drawList();
}

// ---- panels

function showList(shown) {
  byId("list").classList.toggle("shown", shown);
  byId("show-list").setAttribute("aria-expanded", String(shown));
}

function showSettings(shown) {
  byId("settings").hidden = !shown;
  byId("show-settings").setAttribute("aria-expanded", String(shown));
  if (shown) drawSettings();
}

// ---- the composer

function fit() {
  if (!CSS.supports("field-sizing", "content")) {
    input.style.setProperty("height", "auto");
    input.style.setProperty("height", `${input.scrollHeight}px`);
  }
  byId("send").disabled = !input.value.trim();
}

function send() {
  const text = input.value.trim();
  if (!text || talk.running) return;
  input.value = "";
  fit();
  sendFrom(talk.conversation.messages.length, text);
}

input.addEventListener("input", fit);
input.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
    event.preventDefault();
    send();
  } else if (event.key === "ArrowUp" && !input.value && !talk.running) {
    const last = talk.conversation.messages.findLastIndex((message) => message.role === "user");
    if (last >= 0) {
      event.preventDefault();
      editTurn(last);
    }
  }
});
byId("composer").addEventListener("submit", (event) => (event.preventDefault(), send()));
byId("stop").addEventListener("click", () => talk.stop?.abort());
byId("new").addEventListener("click", () => show(newConversation()));
byId("show-list").addEventListener("click", () => showList(!byId("list").classList.contains("shown")));
byId("show-settings").addEventListener("click", () => showSettings(byId("settings").hidden));
byId("main").addEventListener("click", () => showList(false));
addEventListener("keydown", (event) => {
  if (event.key === "Escape") {
    hideTip();
    if (talk.running) talk.stop.abort();
    else if (!byId("settings").hidden && innerWidth <= 1100) showSettings(false);
    showList(false);
  } else if (event.altKey && event.code === "KeyN") {
    event.preventDefault();
    show(newConversation());
  }
});

addEventListener("storage", (event) => {
  if (event.key !== `${PREFIX}index`) return;
  readIndex(); // another tab has a new conversation
  drawList();
});

renderTheme();
drawList();
if (index.length) talk.conversation = loadConversation(index[0].id) || talk.conversation;
drawAll();
showRunning();
Promise.all([findModel(), findTools()])
  .then(() => {
    if (!talk.conversation.messages.length && !talk.running) drawAll();
    showRoom();
    if (!byId("settings").hidden) drawSettings();
  })
  .catch((error) => {
    talk.trouble = error instanceof Trouble ? error : new Trouble(error.message);
    drawTrouble();
  });
input.focus({ preventScroll: true });
