// Draws report.html from the JSON in it (its keys: src/telemetry/report_data.cpp). Text from the run
// only ever becomes text nodes.
"use strict";

const data = JSON.parse(document.getElementById("data").textContent);
const by = (id) => document.getElementById(id);

function make(tag, className, ...children) {
  const element = document.createElement(tag);
  if (className) element.className = className;
  element.append(...children);
  return element;
}

function draw(tag, attributes, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

// ---- numbers ----

// 1234567 as "1.23M", 0.0003 as "3×10⁻⁴".
function short(value, digits = 3) {
  if (value === 0) return "0";
  const size = Math.abs(value);
  const trim = (number) => String(Number(number.toPrecision(digits)));
  for (const [unit, suffix] of [[1e12, "T"], [1e9, "B"], [1e6, "M"], [1e3, "k"]])
    if (size >= unit) return trim(value / unit) + suffix;
  if (size >= 0.01) return trim(value);
  const [mantissa, exponent] = value.toExponential(digits - 1).split("e");
  const raised = exponent.replace("+", "").replace(/./g, (c) => (c === "-" ? "⁻" : "⁰¹²³⁴⁵⁶⁷⁸⁹"[c]));
  const front = Number(mantissa);
  return (front === 1 ? "" : front + "×") + "10" + raised;
}

const whole = (value) => Math.round(value).toLocaleString("en-US");

// Round numbers that cover the range, about `count` of them.
function linearTicks(low, high, count) {
  const rough = (high - low) / Math.max(1, count);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((m) => m * power).find((s) => s >= rough * 0.999);
  const ticks = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; ++i) ticks.push(i * step);
  return ticks;
}

function logTicks(low, high, count) {
  const all = (mantissas) => {
    const ticks = [];
    for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); ++power)
      for (const mantissa of mantissas) {
        const tick = mantissa * 10 ** power;
        if (tick >= low * 0.999 && tick <= high * 1.001) ticks.push(tick);
      }
    return ticks;
  };
  for (const mantissas of [[1, 1.5, 2, 3, 4, 5, 6, 7, 8, 9], [1, 2, 3, 5, 7], [1, 2, 5], [1, 3]]) {
    const ticks = all(mantissas);
    if (ticks.length <= count + 2) return ticks.length > 1 ? ticks : linearTicks(low, high, count);
  }
  const ticks = all([1]);
  const every = Math.ceil(ticks.length / count);
  return ticks.filter((_, i) => i % every === 0);
}

function extent(values) {
  let low = Infinity, high = -Infinity;
  for (const value of values) {
    if (value < low) low = value;
    if (value > high) high = value;
  }
  return [low, high];
}

// ---- charts ----

let axis = "step";
const charts = [];

class Chart {
  constructor(spec) {
    this.spec = spec;
    this.log = !!spec.log;
    this.tip = make("div", "tip");
    this.tip.hidden = true;
    this.figure = make("figure", spec.id === "loss" ? "wide" : "", this.caption(), this.tip);
    this.svg = draw("svg", { tabindex: 0, role: "img", "aria-label": this.summary() });
    this.figure.insertBefore(this.svg, this.tip);
    this.listen();
  }

  summary() {
    const { title, unit, curve } = this.spec;
    const values = curve.smooth || curve.value;
    return `${title}${unit ? ", " + unit : ""}: from ${short(values[0])} at step ${whole(curve.step[0])}` +
      ` to ${short(values.at(-1))} at step ${whole(curve.step.at(-1))}. Arrow keys read values.`;
  }

  caption() {
    const { title, unit, curve, points } = this.spec;
    const caption = make("figcaption", "", make("b", "", title), make("span", "unit", unit));
    const legend = make("span", "legend");
    const entry = (style, color, name) => {
      const swatch = make("i", style);
      if (color) swatch.style.cssText = color;
      legend.append(make("span", "", swatch, name));
    };
    const soft = "opacity:.4;border-color:var(--accent)";
    if (curve.smooth) entry("", "border-color:var(--accent)", "smoothed");
    if (curve.low) entry("band", "background:var(--accent-soft)", "lowest to highest");
    else if (curve.smooth) entry("", soft, "each step");
    if (points) entry("dot", "", points.name);
    if (this.spec.id === "loss" && data.skipped.count)
      entry("", "border-color:var(--bad)", `${whole(data.skipped.count)} skipped`);
    if (legend.childNodes.length) caption.append(legend);
    if (this.spec.id === "loss" || this.spec.id === "grad_norm") {
      const button = make("button", "scale", "log");
      button.type = "button";
      button.title = "Logarithmic vertical axis";
      button.setAttribute("aria-pressed", this.log);
      button.addEventListener("click", () => {
        this.log = !this.log;
        button.setAttribute("aria-pressed", this.log);
        this.render();
      });
      if (!legend.childNodes.length) button.style.marginLeft = "auto";
      caption.append(button);
    }
    return caption;
  }

  // The ranges of both axes; this.x and this.y map values to pixels.
  measure() {
    const { curve, points, levels, id } = this.spec;
    const margin = { left: 0, right: 10, top: 10, bottom: 26 };
    this.width = Math.max(200, this.svg.clientWidth || this.figure.clientWidth - 32);
    this.height = id === "loss" ? Math.max(230, Math.min(320, this.width * 0.4)) : 190;
    const values = [...(curve.low || curve.value), ...(curve.high || []), ...(points ? points.value : []),
      ...(levels || []).map((level) => level.value)];
    let [low, high] = extent(this.log ? values.filter((value) => value > 0) : values);
    if (id === "throughput" || id === "learning_rate" || (id === "grad_norm" && !this.log)) low = Math.min(0, low);
    if (high === low) high = low + (Math.abs(low) || 1);
    this.logarithmic = this.log && low > 0;
    if (this.logarithmic) {
      const room = (high / low) ** 0.04;
      low /= room;
      high *= room;
    } else {
      const room = (high - low) * 0.05;
      high += room;
      if (low !== 0) low -= room;
    }
    const start = Math.min(0, curve[axis][0]);
    const end = Math.max(curve[axis].at(-1), start + 1e-9);
    const scale = this.logarithmic ? Math.log : (value) => value;
    const inside = { height: this.height - margin.top - margin.bottom };
    const rows = Math.max(3, Math.round(inside.height / 44));
    this.ticks = this.logarithmic ? logTicks(low, high, rows) : linearTicks(low, high, rows);
    margin.left = 14 + 7 * Math.max(3, ...this.ticks.map((tick) => short(tick).length));
    inside.width = this.width - margin.left - margin.right;
    this.x = (value) => margin.left + ((value - start) / (end - start)) * inside.width;
    this.y = (value) => margin.top + inside.height -
      ((scale(value) - scale(low)) / (scale(high) - scale(low))) * inside.height;
    Object.assign(this, { margin, inside, low, high, start, end });
  }

  path(xs, ys) {
    let out = "", pen = "M";
    for (let i = 0; i < xs.length; ++i) {
      if (this.logarithmic && !(ys[i] > 0)) { pen = "M"; continue; }
      out += pen + this.x(xs[i]).toFixed(1) + " " + this.y(ys[i]).toFixed(1);
      pen = "L";
    }
    return out;
  }

  render() {
    this.measure();
    const { svg, margin, inside, spec } = this;
    const { curve, points, levels } = spec;
    const right = margin.left + inside.width, bottom = margin.top + inside.height;
    svg.setAttribute("viewBox", `0 0 ${this.width} ${this.height}`);
    svg.setAttribute("height", this.height);
    svg.replaceChildren();

    for (const tick of this.ticks) {
      const y = Math.round(this.y(tick)) + 0.5;
      svg.append(draw("line", { class: "grid", x1: margin.left, x2: right, y1: y, y2: y }),
        draw("text", { x: margin.left - 8, y: y + 4, "text-anchor": "end" }, short(tick)));
    }
    svg.append(draw("line", { class: "base", x1: margin.left, x2: right, y1: bottom + 0.5, y2: bottom + 0.5 }));
    const columns = Math.max(2, Math.floor(inside.width / 72));
    for (const tick of linearTicks(this.start, this.end, columns)) {
      const x = this.x(tick);
      if (x > right - 40) continue;  // there the axis has its name
      svg.append(draw("line", { class: "base", x1: x, x2: x, y1: bottom, y2: bottom + 4 }),
        draw("text", { x, y: bottom + 18, "text-anchor": "middle" }, short(tick)));
    }
    svg.append(draw("text", { x: right, y: bottom + 18, "text-anchor": "end" }, axis === "step" ? "step" : "tokens"));

    const xs = curve[axis];
    if (curve.low) {
      const lows = this.logarithmic ? curve.low.map((v) => Math.max(v, this.low)) : curve.low;
      const back = this.path([...xs].reverse(), [...lows].reverse()).replace("M", "L");
      svg.append(draw("path", { class: "band", d: this.path(xs, curve.high) + back + "Z" }));
    }
    if (curve.smooth && !curve.low) svg.append(draw("path", { class: "raw", d: this.path(xs, curve.value) }));
    svg.append(draw("path", { class: "line", d: this.path(xs, curve.smooth || curve.value) }));
    const sorted = [...(levels || [])].sort((a, b) => b.value - a.value);
    for (const [i, level] of sorted.entries()) {
      const y = this.y(level.value);
      const below = i > 0 && y - this.y(sorted[i - 1].value) < 18;
      svg.append(draw("line", { class: "level", x1: margin.left, x2: right, y1: y, y2: y }),
        draw("text", { class: "level-name", x: right - 4, y: below ? y + 15 : y - 6, "text-anchor": "end" }, level.name));
    }
    if (spec.id === "validation" && curve.step.length <= 60) this.dots(curve, "here");
    if (points) {
      svg.append(draw("path", { class: "points", d: this.path(points[axis], points.value) }));
      if (points.step.length <= 60) this.dots(points, "point");
    }
    if (axis === "step")
      for (const step of data.skipped.steps) {
        const x = this.x(step);
        svg.append(draw("line", { class: "skip", x1: x, x2: x, y1: bottom - 7, y2: bottom },
          draw("title", {}, `step ${whole(step)} was skipped`)));
      }
    this.hair = draw("line", { class: "hair", y1: margin.top, y2: bottom, visibility: "hidden" });
    this.here = draw("circle", { class: "here", r: 4.5, visibility: "hidden" });
    svg.append(this.hair, this.here);
  }

  dots(curve, style) {
    for (let i = 0; i < curve.step.length; ++i)
      this.svg.append(draw("circle", { class: style, r: 3.5, cx: this.x(curve[axis][i]), cy: this.y(curve.value[i]) }));
  }

  // Shows the values nearest to a place on the horizontal axis; null hides them.
  show(place, withTip) {
    const visible = place !== null;
    this.hair.setAttribute("visibility", visible ? "visible" : "hidden");
    this.here.setAttribute("visibility", visible ? "visible" : "hidden");
    this.tip.hidden = !(visible && withTip);
    if (!visible) return;
    const { curve, points } = this.spec;
    this.at = closest(curve[axis], place);
    const value = (curve.smooth || curve.value)[this.at];
    const x = this.x(curve[axis][this.at]), y = this.y(value);
    this.hair.setAttribute("x1", x);
    this.hair.setAttribute("x2", x);
    this.here.setAttribute("cx", x);
    this.here.setAttribute("cy", y);
    if (!withTip) return;
    const line = (label, text) => make("div", "", make("span", "", label + " "), make("b", "", text));
    const step = curve.step[this.at];
    this.tip.replaceChildren(make("div", "", `step ${whole(step)}`), line("tokens", short(curve.tokens[this.at])));
    const name = this.spec.title.toLowerCase();
    const unit = this.spec.id === "throughput" ? " tokens/s" : "";
    if (curve.smooth) this.tip.append(line("smoothed", short(value, 4)));
    if (curve.low) {
      if (!curve.smooth) this.tip.append(line(name, short(value, 4) + unit));
      this.tip.append(line("range", `${short(curve.low[this.at], 4)} – ${short(curve.high[this.at], 4)}`));
    } else {
      this.tip.append(line(curve.smooth ? "this step" : name, short(curve.value[this.at], 4) + unit));
    }
    if (points) {
      const near = closest(points[axis], curve[axis][this.at]);
      this.tip.append(line(`${points.name} at ${whole(points.step[near])}`, short(points.value[near], 4)));
    }
    if (data.skipped.steps.includes(step)) this.tip.append(make("div", "", "skipped"));
    const [frame, drawing] = [this.figure, this.svg].map((element) => element.getBoundingClientRect());
    const left = drawing.left - frame.left + (x * drawing.width) / this.width;
    const room = this.figure.clientWidth - left > this.tip.offsetWidth + 24;
    this.tip.style.left = (room ? left + 12 : Math.max(4, left - this.tip.offsetWidth - 12)) + "px";
    this.tip.style.top = drawing.top - frame.top + this.margin.top + 4 + "px";
  }

  listen() {
    const move = (event) => {
      const box = this.svg.getBoundingClientRect();
      const pixel = ((event.clientX - box.left) / box.width) * this.width;
      const share = Math.min(1, Math.max(0, (pixel - this.margin.left) / this.inside.width));
      this.announce(this.start + share * (this.end - this.start));
    };
    const leave = () => charts.forEach((chart) => chart.show(null));
    this.svg.addEventListener("pointermove", move);
    this.svg.addEventListener("pointerdown", move);
    this.svg.addEventListener("pointerleave", leave);
    this.svg.addEventListener("blur", leave);
    this.svg.addEventListener("keydown", (event) => {
      const xs = this.spec.curve[axis];
      const page = Math.max(1, Math.round(xs.length / 20));
      const by = { ArrowLeft: -1, ArrowRight: 1, PageDown: -page, PageUp: page, Home: -xs.length, End: xs.length }[event.key];
      if (!by) return;
      event.preventDefault();
      this.at = Math.min(xs.length - 1, Math.max(0, (this.at ?? 0) + by));
      this.announce(xs[this.at]);
    });
  }

  announce(place) {
    for (const chart of charts) chart.show(place, chart === this);
  }
}

// Index of the element of a sorted list closest to a value.
function closest(sorted, value) {
  let low = 0, high = sorted.length - 1;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (sorted[middle] < value) low = middle;
    else high = middle;
  }
  return Math.abs(sorted[low] - value) <= Math.abs(sorted[high] - value) ? low : high;
}

function showCharts() {
  if (!data.charts.length) return;
  by("charts").hidden = false;
  for (const spec of data.charts) {
    const chart = new Chart(spec);
    charts.push(chart);
    by("grid").append(chart.figure);
  }
  // A chart left alone in its row takes all of it.
  const narrow = charts.filter((chart) => chart.spec.id !== "loss");
  if (narrow.length % 2) narrow[0].figure.classList.add("wide");
  const render = () => charts.forEach((chart) => chart.render());
  const buttons = [...document.querySelectorAll("[data-axis]")];
  if (!(data.charts[0].curve.tokens.at(-1) > 0)) buttons[0].parentElement.hidden = true;
  for (const button of buttons)
    button.addEventListener("click", () => {
      axis = button.dataset.axis;
      for (const other of buttons) other.setAttribute("aria-pressed", other === button);
      render();
    });
  let width = 0;
  new ResizeObserver(() => {
    if (by("grid").clientWidth === width) return;
    width = by("grid").clientWidth;
    render();
  }).observe(by("grid"));
  render();
}

// ---- the rest of the page ----

function showFigures() {
  if (!data.figures.length) by("figures").hidden = true;
  for (const { label, value, detail } of data.figures) {
    const [, front, unit] = value.match(/^([^ ]+)(?: (tokens.*|bytes))?$/) || [null, value, ""];
    const shown = make("div", "value", front);
    if (unit) shown.append(make("small", "", unit));
    by("figures").append(make("div", "", make("div", "label", label), shown, make("div", "detail", detail)));
  }
}

function showCompression() {
  const list = data.compression;
  if (!list.length) return;
  by("compression").hidden = false;
  const most = Math.max(...list.map((entry) => entry.value));
  const own = list.find((entry) => entry.own);
  for (const { name, value, own: mine } of list) {
    const fill = make("div", "fill");
    fill.style.width = `calc((100% - 11em) * ${value / most})`;
    const figure = make("span", "figure", value.toFixed(3));
    if (own && !mine) {
      const change = Math.round((value / own.value - 1) * 100);
      figure.append(make("small", "", change >= 0 ? `${change}% more` : `${-change}% less`));
    }
    by("bars").append(make("div", mine ? "name own" : "name", name),
      make("div", mine ? "track own" : "track", fill, figure));
  }
}

function showSamples() {
  if (!data.samples.length) return;
  by("samples").hidden = false;
  for (const { prompt, text } of data.samples)
    by("texts").append(make("p", "sample", ...(prompt ? [make("mark", "", prompt)] : []), text));
}

function showVocabulary() {
  by("summary").textContent = (data.vocabulary || {}).summary || "";
  const names = { longest: "The longest", most_used: "The most used" };
  for (const [key, name] of Object.entries(names)) {
    const items = (data.vocabulary || {})[key];
    if (!items) continue;
    by("vocabulary").hidden = false;
    const most = Math.max(...items.map((item) => item.count || 0));
    const list = make("ol");
    for (const { text, count } of items) {
      const spaces = text.length - text.trimStart().length;
      const code = make("code", "", make("span", "space", "·".repeat(spaces)), text.slice(spaces));
      const line = make("li", "", code);
      if (count !== null) {
        line.append(make("span", "count", whole(count)));
        if (key === "most_used" && most > 0) line.style.setProperty("--share", (100 * count) / most + "%");
      }
      list.append(line);
    }
    const block = make("div", "", make("h3", "", name), list);
    const shown = 15;
    if (items.length > shown + 3) {
      [...list.children].slice(shown).forEach((line) => (line.hidden = true));
      const button = make("button", "", `${items.length - shown} more`);
      button.type = "button";
      button.addEventListener("click", () => {
        [...list.children].forEach((line) => (line.hidden = false));
        button.remove();
      });
      block.append(button);
    }
    by("lists").append(block);
  }
}

function showDetails() {
  if ((data.events || []).length) {
    by("events").hidden = false;
    for (const { time, event, detail } of data.events)
      by("events").querySelector("tbody").append(
        make("tr", "", make("td", "", time.replace("T", " ").replace(/\.\d+Z$/, " UTC")), make("td", "", event), make("td", "", detail)));
  }
  if (data.recipe) {
    by("recipe").hidden = false;
    by("recipe").querySelector("pre").textContent = data.recipe;
  }
  if (data.missing.length) by("footer").append(make("p", "", `Not in this run's folder, and so not shown: ${data.missing.join("; ")}.`));
  by("footer").append(make("p", "", "Written by sauropod report. This page is one file and asks nothing of the network."));
}

by("subtitle").textContent = data.subtitle || "";
if (data.started) {
  const date = new Date(data.started);
  by("started").textContent = isNaN(date) ? data.started
    : "Started " + date.toLocaleString("en-GB", { dateStyle: "long", timeStyle: "short", timeZone: "UTC" }) + " UTC";
}
showFigures();
showCharts();
showCompression();
showSamples();
showVocabulary();
showDetails();
