// What differs between two texts: the longest common subsequence of their words.

const pieces = (text) => text.match(/[\p{L}\p{N}_]+|\s+|[^\p{L}\p{N}_\s]/gu) || [];

// Returns for each text a list of [piece, common]. Quadratic, but texts are at most 2,000 characters; common beginnings
// and ends, which near-duplicates have by nature, are taken off first.
function difference(left, right) {
  const a = pieces(left),
    b = pieces(right);
  let start = 0;
  while (start < a.length && start < b.length && a[start] === b[start]) start += 1;
  let end = 0;
  while (end < a.length - start && end < b.length - start && a[a.length - 1 - end] === b[b.length - 1 - end]) end += 1;
  const rows = a.length - start - end,
    columns = b.length - start - end;
  const width = columns + 1,
    best = new Uint16Array((rows + 1) * width);
  for (let i = rows - 1; i >= 0; i -= 1)
    for (let j = columns - 1; j >= 0; j -= 1)
      best[i * width + j] =
        a[start + i] === b[start + j]
          ? best[(i + 1) * width + j + 1] + 1
          : Math.max(best[(i + 1) * width + j], best[i * width + j + 1]);
  const keepA = new Array(a.length).fill(true),
    keepB = new Array(b.length).fill(true);
  let i = 0,
    j = 0;
  while (i < rows || j < columns) {
    if (i < rows && j < columns && a[start + i] === b[start + j]) {
      i += 1;
      j += 1;
    } else if (j >= columns || (i < rows && best[(i + 1) * width + j] >= best[i * width + j + 1])) {
      keepA[start + i] = false;
      i += 1;
    } else {
      keepB[start + j] = false;
      j += 1;
    }
  }
  return [a.map((piece, index) => [piece, keepA[index]]), b.map((piece, index) => [piece, keepB[index]])];
}

// Neighbouring pieces of the same sort become one run, over the blanks between them: a changed sentence is one mark.
function marked(parts, look) {
  const runs = [];
  const changed = parts.map(
    ([piece, common], index) =>
      !common ||
      (/^\s+$/.test(piece) && index > 0 && index + 1 < parts.length && !parts[index - 1][1] && !parts[index + 1][1]),
  );
  for (const [index, [piece]] of parts.entries()) {
    const common = !changed[index];
    if (runs.length && runs.at(-1).common === common) runs.at(-1).text += piece;
    else runs.push({ text: piece, common });
  }
  return runs.map(({ text, common }) => (common ? text : h("mark", { class: look }, text)));
}

// Spans count characters as Python does: code points, not UTF-16 units.
function highlighted(text, spans) {
  const characters = [...text],
    parts = [];
  let at = 0;
  for (const [from, to] of [...spans].sort((one, other) => one[0] - other[0])) {
    const begin = clamp(from, at, characters.length),
      stop = clamp(to, begin, characters.length);
    if (begin > at) parts.push(characters.slice(at, begin).join(""));
    if (stop > begin) parts.push(h("mark", { class: "span" }, characters.slice(begin, stop).join("")));
    at = Math.max(at, stop);
  }
  parts.push(characters.slice(at).join(""));
  return parts;
}

const spanTexts = (text, spans) => spans.map(([from, to]) => [...text].slice(from, to).join(""));
