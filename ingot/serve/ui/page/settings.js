// The panel of settings: what is sent with every request. Changes count from the next message on, and are remembered.

function slider(label, name, least, most, about) {
  const output = h("output", {}, String(settings[name]));
  const bounds = { min: least, max: most, step: least || 0.05 };
  const input = h("input", { type: "range", ...bounds, value: settings[name], "aria-label": label });
  input.addEventListener("input", () => {
    settings[name] = Number(input.value);
    output.textContent = input.value;
    saveSettings();
  });
  return h("label", { class: "field" }, h("span", {}, label, output), input, h("small", {}, about));
}

function numeric(label, name, least, empty, about) {
  const bounds = { min: least, step: "1", inputmode: "numeric", placeholder: empty };
  const input = h("input", { type: "number", ...bounds, value: settings[name], "aria-label": label });
  input.addEventListener("change", () => {
    const value = parseInt(input.value, 10);
    settings[name] = Number.isInteger(value) && value >= least ? value : DEFAULTS[name];
    input.value = settings[name];
    saveSettings();
  });
  return h("label", { class: "field" }, h("span", {}, label), input, h("small", {}, about));
}

function option(label, name, changed = () => {}) {
  return toggle(label, settings[name] ?? toolsOn, (value) => {
    settings[name] = value;
    saveSettings();
    changed();
  });
}

function drawSettings() {
  const system = h("textarea", { rows: "4", "aria-label": "System prompt", placeholder: "None" });
  system.value = settings.system;
  system.addEventListener("input", () => ((settings.system = system.value), saveSettings()));
  const parts = [
    h("h2", {}, "Sampling"),
    slider("Temperature", "temperature", 0, 2, "0 takes the likeliest token."),
    slider("Top-p", "top_p", 0.01, 1, "Sample from the likeliest tokens of this share."),
    numeric("Longest answer", "max_tokens", 1, "", "In tokens, thinking included."),
    numeric("Seed", "seed", 0, "Another each time", "The same seed gives the same answer."),
    h("h2", {}, "System prompt"),
    h("label", { class: "field" }, system),
    h("h2", {}, "Model"),
    option("Think first", "thinking"),
    option("Show the probability of each token", "probabilities", drawAll),
    h("h2", {}, "Tools"),
    TOOLS.size
      ? [
          option("Let the model call tools", "tools"),
          option("Ask before a tool runs on this machine", "approve"),
          h(
            "ul",
            { class: "tool-list" },
            [...TOOLS.values()].map(({ schema, asks }) =>
              h("li", {}, h("code", {}, schema.name), " ", schema.description, !asks && " (never asks: it can do no harm)"),
            ),
          ),
        ]
      : h("p", { class: "note" }, "None. Start ingot ui with --tools calculator,python or a file of functions."),
    h("h2", {}, "This conversation"),
    h("button", { class: "button", type: "button", on: { click: download } }, "Download as JSON"),
  ];
  byId("settings").replaceChildren(...parts.flat());
}

// The file that /load of `ingot chat` reads.
function download() {
  const text = JSON.stringify({ messages: forServer(talk.conversation.messages) }, null, 1);
  const address = URL.createObjectURL(new Blob([text], { type: "application/json" }));
  h("a", { href: address, download: "conversation.json" }).click();
  setTimeout(() => URL.revokeObjectURL(address), 1000);
}
