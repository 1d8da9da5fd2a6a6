// Markdown of an answer as nodes. Model text only ever becomes text nodes and, for links, a checked href: no markup is
// parsed from it. What is not understood is shown as it was written. Every repetition is bounded, so time is linear.

const INLINE = new RegExp(
  [
    /\\(?<escaped>[\\`*_{}[\]()#+\-.!~|>])/,
    /(?<ticks>`{1,3})(?<code>[^`]|[^`].{0,2000}?[^`])\k<ticks>(?!`)/,
    /\[(?<label>[^\]\n]{1,500})\]\((?<address>[^)\s]{1,2000})\)/,
    /\*\*\*(?<both>\S(?:[^*\n]{0,2000}?\S)?)\*\*\*/,
    /\*\*(?<bold>\S(?:.{0,2000}?\S)?)\*\*/,
    /(?<![\w*])\*(?<italic>\S(?:[^*\n]{0,2000}?\S)?)\*(?![\w*])/, // 2*3*4 is a product
    /(?<![\w_])_(?<underlined>\S(?:[^_\n]{0,2000}?\S)?)_(?![\w_])/,
    /~~(?<struck>\S(?:.{0,2000}?\S)?)~~/,
    /(?<bare>https?:\/\/[^\s<>"']{1,2000}[^\s<>"'.,;:!?)\]])/,
  ]
    .map((part) => part.source)
    .join("|"),
  "s",
);

const safeAddress = (text) => (/^(https?:\/\/|mailto:)/i.test(text) ? text : null);

function link(address, ...children) {
  return h("a", { href: address, target: "_blank", rel: "noopener noreferrer nofollow" }, ...children);
}

function inlineNodes(text, depth = 0) {
  const nodes = [];
  const inner = (part) => (depth < 6 ? inlineNodes(part, depth + 1) : part);
  for (let found; (found = INLINE.exec(text)); text = text.slice(found.index + found[0].length)) {
    const part = found.groups;
    nodes.push(...lines(text.slice(0, found.index)));
    if (part.escaped) nodes.push(part.escaped);
    else if (part.code) nodes.push(h("code", {}, part.code));
    else if (part.label) nodes.push(safeAddress(part.address) ? link(part.address, inner(part.label)) : found[0]);
    else if (part.both) nodes.push(h("em", {}, h("strong", {}, inner(part.both))));
    else if (part.bold) nodes.push(h("strong", {}, inner(part.bold)));
    else if (part.italic || part.underlined) nodes.push(h("em", {}, inner(part.italic || part.underlined)));
    else if (part.struck) nodes.push(h("s", {}, inner(part.struck)));
    else if (part.bare) nodes.push(link(part.bare, part.bare));
  }
  nodes.push(...lines(text));
  return nodes;
}

// A line end in an answer is meant: models write verses and addresses.
const lines = (text) => text.split("\n").flatMap((line, index) => (index ? [h("br"), line] : line ? [line] : []));

const FENCE = /^(\s{0,3})(`{3,}|~{3,})\s*([\w+#.-]*)[^`]*$/;
const HEADING = /^(#{1,6})\s+(.*?)\s*#*$/;
const RULE = /^\s{0,3}([-*_])(\s*\1){2,}\s*$/;
const ITEM = /^(\s*)([-*+]|\d{1,9}[.)])\s+(.*)$/;
const DIVIDER = /^\s*\|?\s*:?-+:?\s*(\|\s*:?-+:?\s*)*\|?\s*$/;

function codeBlock(language, text) {
  const copy = h("button", { class: "button quiet", type: "button", "aria-label": "Copy the code" }, "Copy");
  const code = h("code", {}, text);
  copy.addEventListener("click", () => copyText(code.textContent, copy)); // it may have grown since
  return h(
    "figure",
    { class: "code" },
    h("figcaption", {}, h("span", {}, language || "text"), copy),
    h("pre", { tabindex: "0" }, code),
  );
}

function markdown(text, depth = 0) {
  return h("div", { class: "markdown" }, blocks(text.replace(/\r\n?/g, "\n").split("\n"), depth));
}

function blocks(rows, depth) {
  const nodes = [];
  for (let at = 0; at < rows.length; ) {
    const row = rows[at];
    let end = at + 1,
      found;
    if (!row.trim()) {
      // nothing between two blocks
    } else if ((found = FENCE.exec(row))) {
      const closing = new RegExp(`^\\s{0,3}${found[2][0]}{${found[2].length},}\\s*$`);
      while (end < rows.length && !closing.test(rows[end])) end += 1;
      const indent = new RegExp(`^\\s{0,${found[1].length}}`);
      const code = rows.slice(at + 1, end).map((line) => line.replace(indent, ""));
      nodes.push(codeBlock(found[3], code.join("\n")));
      end += 1; // an open fence goes to the end: more may be on its way
    } else if ((found = HEADING.exec(row))) {
      nodes.push(h(`h${Math.min(found[1].length + 1, 4)}`, {}, inlineNodes(found[2])));
    } else if (RULE.test(row)) {
      nodes.push(h("hr"));
    } else if (/^\s{0,3}>/.test(row) && depth < 8) {
      while (end < rows.length && /^\s{0,3}>/.test(rows[end])) end += 1;
      const inside = rows.slice(at, end).map((line) => line.replace(/^\s{0,3}> ?/, ""));
      nodes.push(h("blockquote", {}, markdown(inside.join("\n"), depth + 1)));
    } else if ((found = ITEM.exec(row)) && depth < 8) {
      let list;
      [list, end] = listBlock(rows, at, found, depth);
      nodes.push(list);
    } else if (row.includes("|") && end < rows.length && DIVIDER.test(rows[end]) && rows[end].includes("-")) {
      end += 1;
      while (end < rows.length && rows[end].trim() && rows[end].includes("|")) end += 1;
      nodes.push(table(rows.slice(at, end)));
    } else {
      while (end < rows.length && rows[end].trim() && !startsBlock(rows[end])) end += 1;
      nodes.push(h("p", {}, inlineNodes(rows.slice(at, end).join("\n").trim())));
    }
    at = end;
  }
  return nodes;
}

const startsBlock = (row) =>
  FENCE.test(row) || HEADING.test(row) || RULE.test(row) || ITEM.test(row) || /^\s{0,3}>/.test(row);

// The items of one list: a row that is indented more than the sign belongs to the item.
function listBlock(rows, at, first, depth) {
  const ordered = /\d/.test(first[2]),
    indent = first[1].length,
    items = [];
  let end = at;
  while (end < rows.length) {
    const found = ITEM.exec(rows[end]);
    const loose = !rows[end].trim() && end + 1 < rows.length && /^\s/.test(rows[end + 1]);
    if (found && found[1].length <= indent + 1 && /\d/.test(found[2]) === ordered) {
      if (found[1].length < indent) break;
      items.push([found[3]]);
    } else if (!rows[end].trim() && (loose || (ITEM.exec(rows[end + 1] || "") || [])[1]?.length === indent)) {
      items.at(-1).push("");
    } else if (rows[end].trim() && rows[end].search(/\S/) > indent && items.length) {
      items.at(-1).push(rows[end].slice(indent + 1));
    } else if (rows[end].trim() && !startsBlock(rows[end]) && end > at && rows[end - 1].trim()) {
      items.at(-1).push(rows[end]);
    } else break;
    end += 1;
  }
  const cells = items.map((lines) => {
    const inner = Math.min(...lines.slice(1).filter((line) => line.trim()).map((line) => line.search(/\S/)), 8);
    const text = [lines[0], ...lines.slice(1).map((line) => line.slice(inner))];
    const parts = blocks(text, depth + 1);
    const plain = parts.length && parts[0].tagName === "P"; // the words of an item stand beside its sign
    return h("li", {}, plain ? [[...parts[0].childNodes], parts.slice(1)] : parts);
  });
  const start = ordered ? parseInt(first[2], 10) : null;
  return [h(ordered ? "ol" : "ul", { start: start !== 1 ? start : null }, cells), end];
}

function table(rows) {
  const cells = (row) =>
    row
      .trim()
      .replace(/^\||\|$/g, "")
      .split(/(?<!\\)\|/)
      .map((cell) => inlineNodes(cell.trim()));
  const [head, , ...body] = rows.map(cells);
  return h(
    "div",
    { class: "table" },
    h(
      "table",
      {},
      h("thead", {}, h("tr", {}, head.map((cell) => h("th", { scope: "col" }, cell)))),
      h("tbody", {}, body.map((row) => h("tr", {}, row.map((cell) => h("td", {}, cell))))),
    ),
  );
}

async function copyText(text, button) {
  const before = button.textContent;
  try {
    await navigator.clipboard.writeText(text);
    button.textContent = "Copied";
    announce("Copied");
  } catch {
    button.textContent = "Not allowed"; // the browser's decision
  }
  setTimeout(() => (button.textContent = before), 1500);
}
