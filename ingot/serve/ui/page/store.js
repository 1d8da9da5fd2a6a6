// Conversations and settings, kept in this browser. A conversation is {id, title, changed, messages}, and a message has
// OpenAI's shape plus what the page shows: {role, content, reasoning_content, tool_calls, tool_call_id, finish, usage, speed}.

const PREFIX = "ingot-chat-";
const LONGEST_TITLE = 60;
const memory = new Map(); // where the browser keeps nothing (a private window), the tab does

const storage = {
  get(key) {
    try {
      return localStorage.getItem(PREFIX + key) ?? memory.get(key) ?? null;
    } catch {
      return memory.get(key) ?? null;
    }
  },
  set(key, value) {
    try {
      localStorage.setItem(PREFIX + key, value);
      memory.delete(key);
      return true;
    } catch {
      memory.set(key, value);
      return false;
    }
  },
  remove(key) {
    memory.delete(key);
    try {
      localStorage.removeItem(PREFIX + key);
    } catch {
      /* it was never there */
    }
  },
};

function readJson(key, otherwise) {
  try {
    return JSON.parse(storage.get(key)) ?? otherwise;
  } catch {
    return otherwise;
  }
}

const DEFAULTS = {
  system: "",
  temperature: 0.7,
  top_p: 1,
  max_tokens: 1024,
  seed: "",
  thinking: true,
  tools: null, // as the server says: true where the model was made for them
  approve: true,
  probabilities: false,
};
const settings = { ...DEFAULTS, ...readJson("settings", {}) };
const saveSettings = () => storage.set("settings", JSON.stringify(settings));

// The index is small and read at once; a conversation is read when it is opened.
const index = [];
function readIndex() {
  const entries = readJson("index", []).filter((entry) => entry && typeof entry.id === "string");
  index.splice(0, Infinity, ...entries);
}
readIndex();

function newConversation() {
  return { id: `${Date.now().toString(36)}${Math.random().toString(36).slice(2, 8)}`, title: "", changed: 0, messages: [] };
}

function loadConversation(id) {
  const found = readJson(`talk-${id}`, null);
  return found && Array.isArray(found.messages) ? found : null;
}

// Probabilities stay out: they are many times as long as the text.
function saveConversation(conversation) {
  const first = conversation.messages.find((message) => message.role === "user");
  if (!first) return;
  conversation.title = first.content.trim().replace(/\s+/g, " ").slice(0, LONGEST_TITLE) || "…";
  conversation.changed = Date.now();
  const messages = conversation.messages.map(({ tokens, ...kept }) => kept);
  const kept = storage.set(`talk-${conversation.id}`, JSON.stringify({ ...conversation, messages }));
  const entry = { id: conversation.id, title: conversation.title, changed: conversation.changed };
  changeIndex(conversation.id, [entry]);
  if (!kept) announce("The browser's storage is full: this conversation is kept only until the page is closed");
}

function removeConversation(id) {
  storage.remove(`talk-${id}`);
  changeIndex(id, []);
}

// Put `entries` first in place of those of `id`; another tab may have changed the index meanwhile.
function changeIndex(id, entries) {
  readIndex();
  index.splice(0, Infinity, ...entries, ...index.filter((entry) => entry.id !== id));
  storage.set("index", JSON.stringify(index));
}
