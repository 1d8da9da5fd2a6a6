// Any small JSON value as something readable: numbers as numbers, objects as lists, rows of objects as tables.

function scalar(value) {
  if (value === null || value === undefined) return h("span", { class: "faint" }, "–");
  if (isNumber(value)) return h("span", { class: "number", title: String(value) }, number(value));
  if (typeof value === "boolean") return value ? "yes" : "no";
  return String(value);
}

// Numbers whose name says what they are.
function quantity(name, value) {
  if (/(^|_)share$/.test(name)) return percent(value, 3);
  return /(^|_)bytes$/.test(name) ? bytes(value) : number(value);
}

const isNested = (value) => value !== null && typeof value === "object";
const isObject = (value) => isNested(value) && !Array.isArray(value);

// A table if all rows are objects with the same few fields.
function asTable(rows, heads) {
  if (!rows.length || !rows.every((row) => isObject(row))) return null;
  const columns = Object.keys(rows[0]);
  const alike =
    columns.length > 0 &&
    columns.length <= 8 &&
    rows.every(
      (row) =>
        Object.keys(row).length === columns.length && columns.every((name) => name in row && !isNested(row[name])),
    );
  if (!alike) return null;
  return h(
    "div",
    { class: "scroll" },
    h(
      "table",
      { class: "plain" },
      h(
        "thead",
        {},
        h(
          "tr",
          {},
          heads && h("th", {}),
          columns.map((name) => h("th", { scope: "col" }, title(name))),
        ),
      ),
      h(
        "tbody",
        {},
        rows.map((row, index) =>
          h(
            "tr",
            {},
            heads && h("th", { scope: "row" }, heads[index]),
            columns.map((name) =>
              h(
                "td",
                { class: isNumber(row[name]) ? "number" : "" },
                isNumber(row[name])
                  ? h("span", { title: String(row[name]) }, quantity(name, row[name]))
                  : scalar(row[name]),
              ),
            ),
          ),
        ),
      ),
    ),
  );
}

function valueView(value) {
  if (Array.isArray(value)) {
    const table = asTable(value);
    if (table) return table;
    if (value.every((item) => !isNested(item)))
      return h(
        "span",
        { class: "chips" },
        value.map((item) => h("code", { class: "chip" }, typeof item === "string" ? visible(item) : scalar(item))),
      );
    return h("div", { class: "stack" }, value.map(valueView));
  }
  if (isObject(value)) {
    const table = asTable(Object.values(value), Object.keys(value).map(title));
    return table || fields(value);
  }
  return scalar(value);
}

function fields(value) {
  const entries = Object.entries(value);
  if (!entries.length) return h("span", { class: "faint" }, "–");
  return h(
    "dl",
    { class: "fields" },
    entries.map(([name, item]) =>
      h("div", { class: isNested(item) ? "nested" : "" }, h("dt", {}, title(name)), h("dd", {}, valueView(item))),
    ),
  );
}

// Invisible characters of a token or a word as signs.
function visible(text) {
  return text.replace(/ /g, "␣").replace(/\n/g, "↵").replace(/\t/g, "⇥").replace(/\r/g, "␍") || "∅";
}

function renderTokenizer() {
  const body = byId("tokenizer-body");
  if (!DATA.tokenizers.length)
    return body.append(empty("No stage of this run has left tokenizer/statistics.json yet."));
  for (const { stage, statistics } of DATA.tokenizers) {
    const entries = Object.entries(statistics);
    const tiles = entries.filter(([, value]) => isNumber(value));
    const rest = entries.filter(([, value]) => !isNumber(value));
    body.append(
      h(
        "div",
        { class: "stack" },
        DATA.tokenizers.length > 1 && h("h3", {}, stage),
        h(
          "dl",
          { class: "tiles" },
          tiles.map(([name, value]) =>
            h(
              "div",
              { class: "card tile" },
              h("dt", {}, title(name)),
              h("dd", { class: "number", title: String(value) }, quantity(name, value)),
            ),
          ),
        ),
        rest.length > 0 &&
          h(
            "div",
            { class: "columns" },
            rest.map(([name, value]) =>
              h(
                "div",
                { class: isObject(value) ? "card pad wide" : "card pad" },
                h("h3", {}, title(name)),
                valueView(value),
              ),
            ),
          ),
      ),
    );
  }
}
