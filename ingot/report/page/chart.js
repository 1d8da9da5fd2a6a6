// One line chart: scales, ticks, lines, crosshair. It knows nothing of runs.
// A series is { label, colour, dash, x: [], y: [], smooth: [] | null, bad: [x of values that are not finite] }, and perhaps
// error: [], one for each y (null: not known), drawn as a bar to both sides.

function niceTicks(low, high, most) {
  const raw = (high - low) / Math.max(most, 1),
    power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 2.5, 5, 10].map((factor) => factor * power).find((each) => each >= raw * 0.999);
  const ticks = [];
  for (let index = Math.ceil(low / step - 1e-9); index * step <= high + step * 1e-9; index += 1)
    ticks.push(index * step);
  return ticks;
}

function logTicks(low, high, most) {
  const from = Math.floor(Math.log10(low)),
    to = Math.ceil(Math.log10(high));
  for (const factors of [[1, 2, 3, 5], [1, 2, 5], [1, 3], [1]]) {
    const ticks = [];
    for (let power = from; power <= to; power += 1) for (const factor of factors) ticks.push(factor * 10 ** power);
    const inside = ticks.filter((tick) => tick >= low * 0.9999 && tick <= high * 1.0001);
    if (inside.length <= most * 1.5 || factors.length === 1) {
      const every = Math.ceil(inside.length / (most * 1.5));
      return inside.length < 2
        ? niceTicks(low, high, most).filter((tick) => tick > 0)
        : inside.filter((_, index) => index % every === 0);
    }
  }
  return [];
}

function scale(low, high, from, to, log) {
  const f = log ? Math.log10 : (value) => value;
  const a = f(low),
    b = f(high),
    span = b - a || 1;
  const map = (value) => from + ((f(value) - a) / span) * (to - from);
  map.back = (pixel) => {
    const value = a + ((pixel - from) / (to - from)) * span;
    return log ? 10 ** value : value;
  };
  return map;
}

// Exponential mean with the bias of its start taken out, so that the line begins where the data begins. The strength is
// that of a curve of 600 points: a curve of few points is smoothed over the same stretch of the chart, not flattened.
function smoothed(values, strength) {
  const weight = strength ** (600 / values.length);
  let mean = 0,
    mass = 0;
  return values.map((value) => {
    mean = weight * mean + (1 - weight) * value;
    mass = weight * mass + (1 - weight);
    return mean / mass;
  });
}

function nearest(values, target) {
  let low = 0,
    high = values.length - 1;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (values[middle] < target) low = middle;
    else high = middle;
  }
  return Math.abs(values[low] - target) <= Math.abs(values[high] - target) ? low : high;
}

// What an axis of values spans: a little more than they do. Values that are all the same get room around them, but an
// axis reaches below zero only for values that do.
function valueRange(values, log) {
  const low = Math.min(...values),
    high = Math.max(...values);
  if (log) {
    const room = low === high ? 1.25 : (high / low) ** 0.04;
    return [low / room, high * room];
  }
  const room = low === high ? Math.abs(low) * 0.1 || 1 : (high - low) * 0.05;
  if (low === 0 && high === 0) return [0, room];
  return [low >= 0 ? Math.max(0, low - room) : low - room, high <= 0 ? Math.min(0, high + room) : high + room];
}

// The values of a series with their x; of a value with an error both of its ends.
function reaches(series) {
  return series.y.flatMap((y, index) => {
    const error = series.error && isNumber(series.error[index]) ? series.error[index] : 0;
    return error ? [[series.x[index], y - error], [series.x[index], y + error]] : [[series.x[index], y]];
  });
}

class Chart {
  // handlers: cursor(x, chart, event) when the crosshair moves (x null: gone), zoom(from, to).
  constructor(name, handlers) {
    this.name = name;
    this.handlers = handlers;
    this.svg = s("svg", { class: "chart", tabindex: "0", role: "img" });
    this.series = [];
    this.svg.addEventListener("pointermove", (event) => this.move(event));
    this.svg.addEventListener("pointerleave", () => {
      if (this.drag === undefined) handlers.cursor(null, this);
    });
    this.svg.addEventListener("pointerdown", (event) => this.press(event));
    this.svg.addEventListener("pointerup", (event) => this.release(event));
    this.svg.addEventListener("keydown", (event) => this.key(event));
    this.svg.addEventListener("blur", () => handlers.cursor(null, this));
  }

  // `whole` is what the x axis spans without a zoom; the values' own range if it is not given. `ticks` are
  // [x, text] where the axis is not marked by itself.
  draw(width, height, series, { logX, logY, zoom, whole, xLabel, xUnit, ticks = null }) {
    Object.assign(this, { width, height, series });
    const inside = (x) => (!zoom || (x >= zoom[0] && x <= zoom[1])) && (!logX || x > 0);
    const xs = series.flatMap((each) => [...each.x, ...each.bad]).filter(inside);
    const ys = series.flatMap((each) => reaches(each).filter(([x, y]) => inside(x) && (!logY || y > 0)).map(([, y]) => y));
    if (!xs.length || !ys.length) {
      this.x = null;
      this.svg.replaceChildren(
        s(
          "text",
          { class: "tick", x: width / 2, y: height / 2, "text-anchor": "middle" },
          logY && series.length ? "nothing above zero to draw on a log scale" : "nothing to draw here",
        ),
      );
      return this.size();
    }
    let [xLow, xHigh] = zoom
      ? [Math.max(zoom[0], logX ? Math.min(...xs) : -Infinity), zoom[1]]
      : whole && !logX
        ? whole
        : [Math.min(...xs), Math.max(...xs)];
    if (xLow === xHigh) {
      xLow -= 0.5;
      xHigh += 0.5;
    }
    const [yLow, yHigh] = valueRange(ys, logY);
    const yTicks = (logY ? logTicks : niceTicks)(yLow, yHigh, height / 42);
    const longest = Math.max(0, ...yTicks.map((tick) => short(tick).length));
    this.plot = { left: Math.max(50, 14 + 6.5 * longest), right: width - 10, top: 10, bottom: height - 24 };
    const { left, right, top, bottom } = this.plot;
    this.x = scale(xLow, xHigh, left, right, logX);
    this.y = scale(yLow, yHigh, bottom, top, logY);
    const xTicks = ticks
      ? ticks.map(([at]) => at)
      : (logX ? logTicks : niceTicks)(Math.max(xLow, logX ? 1e-9 : xLow), xHigh, width / 75);
    const clip = `clip-${(Chart.clips = (Chart.clips || 0) + 1)}`;
    this.cursor = s("g", { class: "cursor" });
    this.svg.replaceChildren(
      s(
        "defs",
        {},
        s(
          "clipPath",
          { id: clip },
          s("rect", { x: left - 4, y: top - 4, width: right - left + 8, height: bottom - top + 8 }),
        ),
      ),
      ...yTicks.map((tick) =>
        s(
          "g",
          {},
          s("line", { class: "grid", x1: left, x2: right, y1: this.y(tick), y2: this.y(tick) }),
          s("text", { class: "tick", x: left - 7, y: this.y(tick) + 3.5, "text-anchor": "end" }, short(tick)),
        ),
      ),
      ...xTicks.map((tick) =>
        s(
          "text",
          {
            class: "tick",
            x: this.x(tick),
            y: bottom + 17,
            "text-anchor": this.x(tick) > right - 16 ? "end" : "middle",
          },
          ticks ? ticks.find(([at]) => at === tick)[1] : short(tick) + xUnit,
        ),
      ),
      s("line", { class: "axis", x1: left, x2: right, y1: bottom, y2: bottom }),
      s("g", { "clip-path": `url(#${clip})` }, ...series.map((each) => this.lines(each, logX, logY))),
      this.cursor,
    );
    this.svg.setAttribute(
      "aria-label",
      `${this.name}: ${series
        .filter((each) => each.y.length)
        .map((each) => `${each.label} from ${number(each.y[0])} to ${number(each.y.at(-1))}`)
        .join("; ")}. Along: ${xLabel}. Arrow keys move the crosshair.`,
    );
    this.size();
  }

  size() {
    for (const [key, value] of [
      ["width", this.width],
      ["height", this.height],
      ["viewBox", `0 0 ${this.width} ${this.height}`],
    ])
      this.svg.setAttribute(key, value);
  }

  lines(series, logX, logY) {
    const path = (xs, ys) => {
      let text = "",
        pen = false;
      for (let index = 0; index < xs.length; index += 1) {
        if ((logX && xs[index] <= 0) || (logY && ys[index] <= 0)) {
          pen = false;
          continue;
        }
        text += `${pen ? "L" : "M"}${this.x(xs[index]).toFixed(1)} ${this.y(ys[index]).toFixed(1)}`;
        pen = true;
      }
      return text;
    };
    const parts = [];
    const style = { stroke: series.colour, "stroke-dasharray": series.dash };
    parts.push(s("path", { class: series.smooth ? "line raw" : "line", style, d: path(series.x, series.y) }));
    if (series.smooth) parts.push(s("path", { class: "line", style, d: path(series.smooth.x, series.smooth.y) }));
    for (const [index, error] of (series.error || []).entries())
      if (isNumber(error) && (!logX || series.x[index] > 0)) parts.push(this.bar(series, index, error, logY));
    if (series.x.length <= 40)
      parts.push(
        series.x.map((x, index) =>
          (logX && x <= 0) || (logY && series.y[index] <= 0)
            ? null
            : s("circle", {
                class: series.smooth ? "dot raw" : "dot",
                style: { fill: series.colour },
                cx: this.x(x).toFixed(1),
                cy: this.y(series.y[index]).toFixed(1),
                r: 2.2,
              }),
        ),
      );
    for (const x of series.bad)
      if (!logX || x > 0)
        parts.push(
          s(
            "text",
            {
              class: "bad",
              style: { fill: series.colour },
              x: this.x(x),
              y: this.plot.top + 8,
              "text-anchor": "middle",
            },
            "✕",
            s("title", {}, `not a finite number at ${number(x)}`),
          ),
        );
    return parts;
  }

  // The error of one value: a line from one end to the other, and a short one across each.
  bar(series, index, error, logY) {
    const x = this.x(series.x[index]),
      [from, to] = [series.y[index] - error, series.y[index] + error].map((y) => this.y(logY ? Math.max(y, 1e-12) : y));
    return s("path", {
      class: "line error-bar",
      style: { stroke: series.colour },
      d: `M${x} ${from}V${to}M${x - 4} ${from}h8M${x - 4} ${to}h8`,
    });
  }

  // Draw the crosshair at x (or take it away); says which point of each series it stands on.
  point(x) {
    if (!this.x) return [];
    this.cursor.replaceChildren();
    if (x === null) return [];
    const { left, right, top, bottom } = this.plot,
      at = this.x(x);
    if (!(at >= left - 1 && at <= right + 1)) return [];
    const near = Math.abs(this.x.back(left + 14) - this.x.back(left)) || Infinity;
    const found = this.series
      .filter((each) => each.x.length)
      .map((each) => ({ each, index: nearest(each.x, x) }))
      .filter(({ each, index }) => (x >= each.x[0] && x <= each.x.at(-1)) || Math.abs(each.x[index] - x) <= near);
    this.cursor.append(s("line", { x1: at, x2: at, y1: top, y2: bottom }));
    for (const { each, index } of found) {
      const cx = this.x(each.x[index]),
        cy = this.y(each.y[index]);
      if (Number.isFinite(cx) && Number.isFinite(cy) && cy <= bottom + 1 && cx >= left - 1 && cx <= right + 1)
        this.cursor.append(s("circle", { cx, cy, r: 3.6, style: { fill: each.colour } }));
    }
    return found;
  }

  where(event) {
    const box = this.svg.getBoundingClientRect();
    return clamp(((event.clientX - box.left) * this.width) / box.width, this.plot.left, this.plot.right);
  }

  move(event) {
    if (!this.x) return;
    const at = this.where(event);
    this.handlers.cursor(this.x.back(at), this, event);
    if (this.drag === undefined || Math.abs(at - this.drag) < 4) return;
    const { top, bottom } = this.plot;
    this.cursor.append(
      s("rect", {
        class: "brush",
        x: Math.min(at, this.drag),
        y: top,
        width: Math.abs(at - this.drag),
        height: bottom - top,
      }),
    );
  }

  press(event) {
    if (event.pointerType !== "mouse" || event.button !== 0 || !this.x) return;
    this.drag = this.where(event);
    this.svg.setPointerCapture(event.pointerId);
  }

  release(event) {
    if (this.drag === undefined) return;
    const from = this.drag,
      to = this.where(event);
    this.drag = undefined;
    if (Math.abs(to - from) >= 8) this.handlers.zoom(this.x.back(Math.min(from, to)), this.x.back(Math.max(from, to)));
  }

  key(event) {
    if (!this.x || !["ArrowLeft", "ArrowRight", "Home", "End", "Escape"].includes(event.key)) return;
    event.preventDefault();
    if (event.key === "Escape") {
      this.focus = undefined;
      return this.handlers.cursor(null, this);
    }
    const { left, right } = this.plot;
    const xs = [...new Set(this.series.flatMap((each) => each.x))]
      .sort((one, other) => one - other)
      .filter((x) => this.x(x) >= left - 1 && this.x(x) <= right + 1);
    if (!xs.length) return;
    const now = this.focus === undefined ? -1 : nearest(xs, this.focus);
    const stride = event.shiftKey ? 10 : 1;
    const next = { ArrowLeft: now - stride, ArrowRight: now + stride, Home: 0, End: xs.length - 1 }[event.key];
    this.focus = xs[clamp(next, 0, xs.length - 1)];
    this.handlers.cursor(this.focus, this);
  }
}
