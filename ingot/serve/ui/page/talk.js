// A conversation goes on: send, stream, run tools, stop, regenerate.

const CALL_ROUNDS = 8; // a model that keeps calling tools is stopped here
const REDRAW = 40; // milliseconds between two drawings of an answer that grows
const SEEDS = 2 ** 31;

const talk = {
  conversation: newConversation(),
  model: null, // as /v1/models describes it
  running: false,
  writing: -1, // the number of the message that is being written
  questions: new Map(), // call id → {allow, refuse}, while the user is asked
  trouble: null,
  attempts: 0,
  stop: null, // an AbortController while something runs
};

function forServer(messages) {
  const system = settings.system.trim() ? [{ role: "system", content: settings.system }] : [];
  const turns = messages.map((message) => {
    const { role, content, reasoning_content, tool_calls, tool_call_id } = message;
    return {
      role,
      content,
      ...(reasoning_content && { reasoning_content }),
      ...(tool_calls?.length && {
        tool_calls: tool_calls.map(({ id, name, arguments: text }) => ({
          id,
          type: "function",
          function: { name, arguments: text },
        })),
      }),
      ...(tool_call_id && { tool_call_id }),
    };
  });
  return [...system, ...turns];
}

function request() {
  const seed = settings.seed === "" ? Math.floor(Math.random() * SEEDS) : Number(settings.seed) + talk.attempts;
  return {
    model: talk.model.id,
    messages: forServer(talk.conversation.messages),
    temperature: settings.temperature,
    top_p: settings.top_p,
    max_tokens: settings.max_tokens,
    seed,
    ...(settings.probabilities && { logprobs: true, top_logprobs: 5 }),
    ...(offersTools() && { tools: [...TOOLS.values()].map(({ schema }) => ({ type: "function", function: schema })) }),
    ...(!settings.thinking && { chat_template_kwargs: { enable_thinking: false } }),
  };
}

// Replace everything from message `number` on by what the user says now.
function sendFrom(number, text) {
  if (talk.running) return;
  talk.conversation.messages.splice(number, Infinity, { role: "user", content: text });
  talk.attempts = 0;
  sticky = true;
  run();
}

function regenerate() {
  const messages = talk.conversation.messages;
  const last = messages.findLastIndex((message) => message.role === "user");
  if (last < 0 || talk.running) return;
  messages.splice(last + 1);
  talk.attempts += 1;
  sticky = true;
  run();
}

async function run() {
  if (talk.running) return;
  const conversation = talk.conversation;
  Object.assign(talk, { running: true, trouble: null, stop: new AbortController() });
  showRunning();
  redraw(0); // the answers before lose what only the last one offers
  try {
    if (!talk.model) await findModel();
    for (let round = 0; round < CALL_ROUNDS; round += 1) {
      const message = await writeTurn(conversation, talk.stop.signal);
      if (!message.tool_calls?.length || message.finish === "stopped") break;
      await answerCalls(conversation, message, talk.stop.signal);
    }
  } catch (error) {
    if (error.name !== "AbortError")
      talk.trouble = error instanceof Trouble ? error : new Trouble(`The page failed: ${error.message}`);
  } finally {
    settleCalls(conversation);
    Object.assign(talk, { running: false, writing: -1, stop: null });
    talk.questions.clear();
    saveConversation(conversation);
    drawList();
    showRunning();
    redraw(0);
    announce(talk.trouble ? "" : "The answer is complete");
  }
}

// Add an assistant's turn and fill it from the stream. One to which nothing came is taken away again.
async function writeTurn(conversation, signal) {
  const message = { role: "assistant", content: "" };
  const body = request(),
    number = conversation.messages.push(message) - 1;
  talk.writing = number;
  redraw(number);
  const began = performance.now();
  let first = null,
    timer = null;
  const draw = () => {
    timer ??= setTimeout(() => ((timer = null), redraw(number)), REDRAW);
  };
  try {
    for await (const event of stream(body, signal)) {
      if (event.usage) message.usage = event.usage;
      for (const choice of event.choices || []) {
        if (addDelta(message, choice, began)) first ??= performance.now();
        draw();
      }
    }
  } catch (error) {
    if (error.name !== "AbortError") throw error;
    message.finish = "stopped";
  } finally {
    clearTimeout(timer);
    talk.writing = -1;
    const seconds = (performance.now() - first) / 1000;
    if (first !== null && message.usage && seconds > 0)
      message.speed = Math.max(0, message.usage.completion_tokens - 1) / seconds;
    if (first !== null) message.first = (first - began) / 1000;
    if (!message.content && !message.reasoning_content && !message.tool_calls?.length && message.finish !== "stop")
      conversation.messages.splice(number);
    showRoom();
  }
  return message;
}

// What a piece of the stream adds; true if it was text.
function addDelta(message, choice, began) {
  const delta = choice.delta || {};
  const thought = delta.reasoning_content || delta.reasoning;
  if (thought) message.reasoning_content = (message.reasoning_content || "") + thought;
  if (delta.content) {
    if (message.reasoning_content && !message.thought) message.thought = (performance.now() - began) / 1000;
    message.content += delta.content;
  }
  for (const part of delta.tool_calls || []) {
    const calls = (message.tool_calls ||= []);
    const fresh = { id: part.id || `call_${Math.random().toString(36).slice(2)}`, name: "", arguments: "" };
    const call = (calls[part.index ?? calls.length] ||= fresh);
    call.name += part.function?.name || "";
    call.arguments += part.function?.arguments || "";
  }
  if (choice.logprobs?.content) (message.tokens ||= []).push(...choice.logprobs.content);
  if (choice.finish_reason) message.finish = choice.finish_reason;
  return Boolean(thought || delta.content || delta.tool_calls);
}

async function answerCalls(conversation, message, signal) {
  const number = conversation.messages.indexOf(message);
  for (const call of message.tool_calls) {
    const tool = TOOLS.get(call.name);
    const asks = tool && tool.asks && settings.approve;
    const allowed = !asks || (await question(call, number, signal));
    redraw(number);
    const content = !tool
      ? `error: there is no tool ${call.name}; there are: ${[...TOOLS.keys()].join(", ")}`
      : allowed
        ? await runTool(call, signal)
        : NOT_ALLOWED;
    conversation.messages.push({ role: "tool", tool_call_id: call.id, content });
    redraw(number);
  }
}

function question(call, number, signal) {
  return new Promise((resolve, reject) => {
    const end = (settle, value) => () => {
      talk.questions.delete(call.id);
      settle(value);
    };
    talk.questions.set(call.id, { allow: end(resolve, true), refuse: end(resolve, false) });
    signal.addEventListener("abort", end(reject, new DOMException("stopped", "AbortError")), { once: true });
    redraw(number);
    announce(`The model wants to run ${call.name}`);
    view.elements[number].querySelector(".ask .button")?.focus();
  });
}

// Servers refuse a conversation in which a call has no answer.
function settleCalls(conversation) {
  const message = conversation.messages.findLast((one) => one.role === "assistant");
  for (const call of message?.tool_calls || [])
    if (!conversation.messages.some((one) => one.tool_call_id === call.id))
      conversation.messages.push({ role: "tool", tool_call_id: call.id, content: STOPPED_CALL });
}
