// What the page asks its server for. An answer other than 200 becomes a Trouble: what was wrong, and what to do.

class Trouble extends Error {
  constructor(message, fix, status) {
    super(message);
    this.fix = fix;
    this.status = status;
  }
}

const FIXES = {
  401: "Open the page by the address that the terminal shows: it holds the key.",
  403: "Open the page by the address that the terminal shows.",
  404: "The server no longer has this model. Reload the page.",
  413: "Begin a new conversation, or shorten the message.",
  429: "The server is full.",
  502: "The server behind this page does not answer. Is it running?",
  503: "The server is starting or stopping. Try again in a moment.",
};

// The key comes with the address (#key=…), which browsers do not send to servers; it is kept for this tab.
function readKey() {
  const given = new URLSearchParams(location.hash.slice(1)).get("key");
  try {
    if (given) {
      sessionStorage.setItem("ingot-key", given);
      history.replaceState(null, "", location.pathname);
    }
    return given || sessionStorage.getItem("ingot-key");
  } catch {
    return given;
  }
}
const KEY = readKey();

async function ask(path, body, signal) {
  const headers = { ...(KEY && { Authorization: `Bearer ${KEY}` }), ...(body && { "Content-Type": "application/json" }) };
  let response;
  try {
    response = await fetch(path, { method: body ? "POST" : "GET", headers, signal, body: body && JSON.stringify(body) });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Trouble("The server does not answer.", "Is ingot ui still running in the terminal?");
  }
  if (!response.ok) throw await trouble(response);
  return response;
}

async function trouble(response) {
  let error = {};
  try {
    error = (await response.json()).error || {};
  } catch {
    /* no JSON: the status says enough */
  }
  let fix = FIXES[response.status] || "";
  if (error.code === "context_length_exceeded" || /context|too long/i.test(error.message || ""))
    fix =
      "The conversation is longer than the model can read. Begin a new one, edit an earlier message, or ask for fewer tokens.";
  const wait = response.headers.get("Retry-After");
  const said = /try again in/i.test(error.message || "");
  if (!said && /^\d+$/.test(wait || "")) fix += ` Try again in ${plural(Number(wait), "second")}.`;
  return new Trouble(String(error.message || `The server answered ${response.status}.`), fix, response.status);
}

// The events of one chat completion, as they come.
async function* stream(body, signal) {
  const response = await ask("/v1/chat/completions", { ...body, stream: true, stream_options: { include_usage: true } }, signal);
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) throw new Trouble("The connection ended in the middle of the answer.", "Regenerate the answer.");
      const rows = (rest + value).split(/\r?\n/);
      rest = rows.pop();
      for (const row of rows) {
        if (!row.startsWith("data:")) continue;
        const text = row.slice(5).trim();
        if (text === "[DONE]") return;
        const event = JSON.parse(text);
        if (event.error) throw new Trouble(String(event.error.message || "The answer failed."), "Regenerate the answer.");
        yield event;
      }
    }
  } catch (error) {
    if (error instanceof TypeError) throw new Trouble("The connection broke.", "Regenerate the answer.");
    throw error;
  } finally {
    reader.cancel().catch(() => {}); // the server stops when nobody listens
  }
}
