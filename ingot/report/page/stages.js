// Details of each stage: what it was given, what it said at its end, and its fully resolved configuration.

function renderStages() {
  const body = byId("stages-body");
  if (!DATA.stages.length) return body.append(empty("This run has no stages yet."));
  body.append(h("div", { class: "card stage-list" }, DATA.stages.map(stageView)));
}

function stageView(stage) {
  const [sign, word] = status(stage.status);
  const inputs = Object.entries(stage.inputs).filter(([, names]) => names.length);
  const facts = h(
    "dl",
    { class: "fields" },
    h("div", {}, h("dt", {}, "Folder"), h("dd", {}, stage.folder ? h("code", {}, stage.folder) : "–")),
    inputs.map(([role, names]) =>
      h(
        "div",
        {},
        h("dt", {}, title(role)),
        h(
          "dd",
          { class: "inputs" },
          names.map((name) => (stageIds.has(name) ? h("a", { href: `#${stageId(name)}` }, name) : h("code", {}, name))),
        ),
      ),
    ),
  );
  return h(
    "details",
    { class: `stage-details ${statusClass(stage.status)}`, id: stageId(stage.name) },
    h(
      "summary",
      {},
      h("span", { class: "sign", title: word }, sign),
      h("span", { class: "stage-title" }, stage.name, stage.kind !== stage.name && h("small", {}, stage.kind)),
      h("span", { class: "stage-word" }, word),
      h("span", { class: "number" }, isNumber(stage.seconds) ? duration(stage.seconds) : ""),
      h("span", { class: "number" }, isNumber(stage.bytes) ? bytes(stage.bytes) : ""),
    ),
    h(
      "div",
      { class: "stage-body" },
      stage.error && h("p", { class: "notice" }, stage.error),
      stage.missing.length > 0 && h("p", { class: "faint" }, `Not found in its folder: ${stage.missing.join(", ")}.`),
      h(
        "div",
        { class: "stage-columns" },
        h(
          "div",
          {},
          h("h3", {}, "Result"),
          Object.keys(stage.summary).length ? fields(stage.summary) : empty("No summary was recorded."),
          Object.entries(stage.panel).map(([heading, value]) => [h("h3", {}, heading), valueView(value)]),
          h("h3", {}, "Inputs"),
          facts,
        ),
        h(
          "div",
          {},
          h("h3", {}, "Configuration"),
          stage.config
            ? h("pre", { class: "text yaml", tabindex: "0" }, yaml(stage.config))
            : empty("recipe.yaml is not there."),
        ),
      ),
    ),
  );
}

// Light colouring of YAML: keys and comments; everything stays text.
function yaml(text) {
  return text
    .replace(/\s+$/, "")
    .split("\n")
    .flatMap((line, index) => {
      const found = /^(\s*(?:- )*)([^\s#:'"][^:#]*)(:)(\s.*|)$/.exec(line);
      const parts = /^\s*#/.test(line)
        ? [h("span", { class: "comment" }, line)]
        : found
          ? [found[1], h("span", { class: "yaml-key" }, found[2]), found[3], found[4]]
          : [line];
      return index ? ["\n", ...parts] : parts;
    });
}
