"use strict";
// What readers do with the charts that Python has drawn: read values off, zoom, switch lines on and off.
(() => {
  const SIDE = 1000; // units of a chart's width and height
  const SHOWN = 10; // lines read off at most
  const off = new Set(); // switches that are off

  const element = (tag, name, parent, text = "") => {
    const made = document.createElement(tag);
    made.className = name;
    made.textContent = text;
    parent.append(made);
    return made;
  };

  // An axis: from a value to its place in units, and back.
  const axisOf = (form, kind, low, high) => ({
    form, kind, low, high,
    place: kind === "log"
      ? (value) => (value < low ? -SIDE : (SIDE * Math.log(value / low)) / Math.log(high / low))
      : (value) => (SIDE * (value - low)) / (high - low),
    value: kind === "log"
      ? (units) => low * (high / low) ** (units / SIDE)
      : (units) => low + (units / SIDE) * (high - low),
  });
  const readAxis = (text) => {
    const [form, kind, low, high] = text.split(" ");
    return axisOf(form, kind, Number(low), Number(high));
  };

  const digits = (value, count) => String(Number(value.toPrecision(count)));
  const queries = (value) => (value >= 1000 && value % 100 === 0 ? `${value / 1000}k` : String(value));
  const tickText = { share: (v) => `${digits(100 * v, 6)} %`, gap: (v) => `${v > 0 ? "+" : ""}${digits(100 * v, 6)} %`, size: (v) => digits(v, 6), count: queries };
  const readText = { share: (v) => `${(100 * v).toFixed(1)} %`, gap: (v) => `${v > 0 ? "+" : ""}${(100 * v).toFixed(1)} points`, size: (v) => digits(v, 4), count: (v) => Math.round(v).toLocaleString("en") };

  // Round values between two values: multiples of a round step, or 1, 2 and 5 times powers of ten.
  const ticksOf = (axis, low, high) => {
    const found = [];
    if (axis.kind === "log" && high / low > 3) {
      for (let power = 10 ** Math.floor(Math.log10(low)); power <= high; power *= 10) {
        for (const factor of high / low > 300 ? [1] : [1, 2, 5]) found.push(factor * power);
      }
      return found.filter((value) => value >= low && value <= high);
    }
    const power = 10 ** Math.floor(Math.log10(high - low));
    const step = [0.2, 0.25, 0.5, 1, 2].map((unit) => unit * power).find((size) => (high - low) / size <= 6);
    for (let k = Math.ceil(low / step - 1e-9); k <= high / step + 1e-9; k += 1) found.push(Number((k * step).toPrecision(6)));
    return found;
  };

  // The corners of a path, in units. Between the corners of steps only one coordinate changes.
  const corners = (path) => {
    const found = [];
    let x = 0;
    for (const [, letter, first, second] of path.matchAll(/([MLHV])(-?[\d.]+)(?: (-?[\d.]+))?/g)) {
      if (letter === "H") x = Number(first);
      else if (letter === "V") found.push([x, Number(first)]);
      else found.push([x = Number(first), Number(second)]);
    }
    return found;
  };
  const heightAt = (points, units, steps) => {
    let [low, high] = [0, points.length];
    while (low < high) { // the first corner beyond
      const middle = (low + high) >> 1;
      if (points[middle][0] > units) high = middle; else low = middle + 1;
    }
    if (low === 0) return null;
    const [x, y] = points[low - 1];
    if (steps) return y;
    if (low === points.length) return units > x + 1 ? null : y;
    const [after, below] = points[low];
    return y + ((below - y) * (units - x)) / (after - x);
  };

  const interactive = (box) => {
    const plot = box.querySelector(".plot");
    const svg = plot.querySelector("svg");
    const drawn = readAxis(box.dataset.x); // the axis of the paths as Python drew them
    const vertical = readAxis(box.dataset.y);
    const levels = Number(box.dataset.levels);
    const lines = [...svg.querySelectorAll("path")].map((path) => {
      const text = path.getAttribute("d");
      return { path, text, name: path.dataset.name, steps: !text.includes("L"), points: null };
    });
    const full = { x: 0, y: 0, width: SIDE, height: SIDE };
    let [axis, view] = [drawn, full];
    const cross = element("i", "cross", plot);
    const reading = element("div", "reading", box);
    const frame = element("i", "frame", plot);
    const reset = element("button", "reset quiet", box, "Reset zoom");
    for (const item of [cross, reading, frame, reset]) item.hidden = true;
    reset.type = "button";

    const across = (units) => (100 * (units - view.x)) / view.width;
    const down = (units) => (100 * (units - view.y)) / view.height;
    const moved = (units) => (axis === drawn ? units : axis.place(drawn.value(units)));

    const drawTicks = (side, own, low, high, place) => {
      for (const tick of plot.querySelectorAll(`.tick.${side}`)) tick.remove();
      for (const value of ticksOf(own, low, high)) {
        const tick = element("i", `tick ${side}${own.form === "gap" && value === 0 ? " zero" : ""}`, plot);
        element("b", "", tick, tickText[own.form](value));
        tick.style[side === "x" ? "left" : "top"] = `${place(value)}%`;
        plot.prepend(tick);
      }
    };
    const quiet = () => { cross.hidden = reading.hidden = frame.hidden = true; };
    const draw = () => {
      quiet(); // a reading belongs to the view it was taken in
      const part = view !== full;
      reset.hidden = !part;
      svg.setAttribute("viewBox", `${view.x} ${view.y} ${view.width} ${view.height}`);
      drawTicks("x", axis, axis.value(view.x), axis.value(view.x + view.width), (value) => across(axis.place(value)));
      drawTicks("y", vertical, vertical.value(SIDE - view.y - view.height), vertical.value(SIDE - view.y), (value) => down(SIDE - vertical.place(value)));
      for (const item of plot.querySelectorAll("[data-x]")) {
        const [x, y] = [across(moved(Number(item.dataset.x))), item.dataset.y ? down(Number(item.dataset.y)) : 0];
        item.style.left = `${x}%`;
        if (item.dataset.y) item.style.top = `${y}%`;
        item.style.visibility = x < 0 || x > 100 || y < 0 || y > 100 ? "hidden" : "";
      }
    };
    const zoom = (left, top, width, height) => {
      const inside = (start, size) => [Math.min(Math.max(start, 0), SIDE - size), size];
      const [x, w] = inside(left, Math.min(Math.max(width, 2), SIDE));
      const [y, h] = inside(top, Math.min(Math.max(height, 2), SIDE));
      view = w === SIDE && h === SIDE ? full : { x, y, width: w, height: h };
      draw();
    };
    const logarithmic = (on) => {
      const near = Number(box.dataset.near);
      if (!near) return;
      axis = on ? axisOf(drawn.form, "log", near, drawn.high) : drawn;
      view = full;
      for (const { path, text } of lines) {
        path.setAttribute("d", on ? text.replace(/([MH])(-?[\d.]+)/g, (_, letter, units) => letter + moved(Number(units)).toFixed(2)) : text);
      }
      draw();
    };

    // Shares of the plot, from the left and from the top.
    const read = (left, top) => {
      const units = view.x + left * view.width;
      const value = axis.value(units);
      const [before, height] = [drawn.place(value), view.y + top * view.height];
      let found = [];
      for (const line of lines) {
        if (!line.name || line.path.hidden || line.path.style.display === "none") continue;
        line.points ??= corners(line.text);
        const at = heightAt(line.points, before, line.steps);
        if (at !== null) found.push({ ...line, at, far: Math.abs(at - height) });
      }
      found.sort((a, b) => a.far - b.far);
      const nearest = found.find(({ path }) => path.matches(".pool"));
      found = found.filter((line) => !line.path.matches(".pool") || (line === nearest && line.far < view.height / 20));
      found = found.slice(0, SHOWN).sort((a, b) => a.at - b.at);
      reading.replaceChildren();
      const steps = levels ? ` (${digits(levels * value, 3)}/${levels})` : "";
      element("p", "", reading, drawn.form === "count" ? `${readText.count(value)} queries` : `ε = ${readText.size(value)}${steps}`);
      for (const line of found) {
        const row = element("p", "", reading);
        const key = element("i", `key ${line.path.getAttribute("class")}`, row);
        key.setAttribute("aria-hidden", "true");
        element("span", "", row, line.name);
        element("b", "", row, readText[vertical.form](vertical.value(SIDE - line.at)));
      }
      cross.style.left = `${100 * left}%`;
      reading.style.left = left < 0.5 ? `${plot.offsetLeft + left * plot.clientWidth + 12}px` : "";
      reading.style.right = left < 0.5 ? "" : `${box.clientWidth - plot.offsetLeft - left * plot.clientWidth + 12}px`;
      cross.hidden = reading.hidden = false;
    };

    const where = (event) => {
      const { left, top, width, height } = plot.getBoundingClientRect();
      const inside = (share) => Math.min(Math.max(share, 0), 1);
      return [inside((event.clientX - left) / width), inside((event.clientY - top) / height)];
    };
    let [start, cursor] = [null, 0.5];
    plot.addEventListener("pointerdown", (event) => {
      if (event.pointerType !== "mouse") return read(...where(event));
      if (event.button === 0) start = where(event);
      event.preventDefault();
    });
    plot.addEventListener("pointermove", (event) => {
      const [left, top] = where(event);
      cursor = left;
      read(left, top);
      if (!start) return;
      plot.setPointerCapture(event.pointerId);
      const [x, y] = [Math.min(left, start[0]), Math.min(top, start[1])];
      Object.assign(frame.style, { left: `${100 * x}%`, top: `${100 * y}%`, width: `${100 * Math.abs(left - start[0])}%`, height: `${100 * Math.abs(top - start[1])}%` });
      frame.hidden = false;
    });
    plot.addEventListener("pointerup", (event) => {
      if (!start) return;
      const [end, begin] = [where(event), start];
      start = null;
      frame.hidden = true;
      const [wide, high] = [Math.abs(end[0] - begin[0]), Math.abs(end[1] - begin[1])];
      if (wide * plot.clientWidth < 6) return;
      const flat = high * plot.clientHeight < 12; // a drag along the axis keeps the height
      const [top, height] = flat ? [0, 1] : [Math.min(begin[1], end[1]), high];
      zoom(view.x + Math.min(begin[0], end[0]) * view.width, view.y + top * view.height, wide * view.width, height * view.height);
    });
    const whole = () => { view = full; draw(); };
    plot.addEventListener("dblclick", whole);
    reset.addEventListener("click", whole);
    plot.addEventListener("pointerleave", () => { if (!start) quiet(); });
    box.addEventListener("blur", quiet);
    box.addEventListener("keydown", (event) => {
      const shift = { ArrowLeft: -0.02, ArrowRight: 0.02 }[event.key];
      const factor = { "+": 0.5, "-": 2 }[event.key];
      if (shift) read(cursor = Math.min(Math.max(cursor + shift, 0), 1), 0.5);
      else if (factor) zoom(view.x + cursor * view.width * (1 - factor), view.y, factor * view.width, view.height);
      else if (event.key === "Escape") { quiet(); whole(); }
      else return;
      event.preventDefault();
    });
    return { logarithmic };
  };

  const charts = [...document.querySelectorAll(".chart")].map(interactive);
  for (const input of document.querySelectorAll("input[data-shows]")) {
    const apply = () => {
      if (input.checked) off.delete(input.dataset.shows); else off.add(input.dataset.shows);
      for (const item of document.querySelectorAll(".plot [data-series]")) {
        item.style.display = item.dataset.series.split(" ").some((series) => off.has(series)) ? "none" : "";
      }
    };
    input.addEventListener("change", apply);
    if (!input.checked) apply(); // browsers remember boxes when a page is loaded again
  }
  const log = document.getElementById("log");
  const stretch = () => { for (const chart of charts) chart.logarithmic(log.checked); };
  log?.addEventListener("change", stretch);
  if (log?.checked) stretch();

  // A row of a leaderboard and its curve point at each other.
  for (const board of document.querySelectorAll(".board")) {
    const items = [...board.querySelectorAll("tr[data-series], path.model")];
    const show = (series) => {
      for (const item of items) item.classList.toggle("on", item.dataset.series === series);
      board.querySelector("path.on")?.parentNode.append(board.querySelector("path.on")); // above the others
    };
    for (const row of board.querySelectorAll("tr[data-series]")) {
      for (const kind of ["mouseenter", "focus"]) row.addEventListener(kind, () => show(row.dataset.series));
      for (const kind of ["mouseleave", "blur"]) row.addEventListener(kind, () => show(null));
    }
  }
})();
