// A tool call as a card: what was asked, whether it may run, what came back.

const TOOLS = new Map(); // name → {schema, asks}, as the server has them
let toolsOn = true; // whether they are offered, unless the user has said otherwise
const offersTools = () => TOOLS.size > 0 && (settings.tools ?? toolsOn);
const NOT_ALLOWED = "error: the user did not allow this call";
const STOPPED_CALL = "error: the user stopped the call";

// Arguments by name; a string is shown as it is, so that code can be read.
function argumentList(text) {
  let values;
  try {
    values = JSON.parse(text || "{}");
  } catch {
    values = null; // still on its way, or no JSON at all
  }
  if (values === null || typeof values !== "object" || Array.isArray(values)) return h("pre", {}, text);
  const spelt = (value) => (typeof value === "string" ? value : JSON.stringify(value, null, 1));
  return Object.entries(values).map(([name, value]) =>
    h("div", {}, h("dt", {}, name), h("dd", {}, h("pre", {}, spelt(value)))),
  );
}

// `question`, while the user is asked, is {allow, refuse}.
function callCard(call, result, question, busy) {
  const failed = result !== undefined && result.startsWith("error:");
  const waits = question ? "waits for you" : busy ? "running …" : "";
  const state = result === undefined ? waits : failed ? "✕ failed" : "✓ done";
  return h(
    "section",
    { class: `call${failed ? " failed" : ""}`, "aria-label": `Tool call ${call.name}` },
    h(
      "header",
      {},
      h("span", { "aria-hidden": "true" }, "ƒ"),
      h("strong", {}, call.name),
      h("span", { class: "state" }, state),
    ),
    h("dl", {}, argumentList(call.arguments)),
    question &&
      h(
        "div",
        { class: "ask" },
        h("span", {}, "Run this on your machine?"),
        h("button", { class: "button strong", type: "button", on: { click: question.allow } }, "Run"),
        h("button", { class: "button", type: "button", on: { click: question.refuse } }, "Refuse"),
      ),
    result !== undefined && h("div", { class: "result" }, h("pre", { tabindex: "0" }, result.replace(/\n+$/, ""))),
  );
}

async function runTool(call, signal) {
  let values;
  try {
    values = JSON.parse(call.arguments || "{}");
  } catch {
    return "error: the arguments are not JSON";
  }
  const response = await ask("/ui/tools", { name: call.name, arguments: values }, signal);
  return (await response.json()).content;
}
