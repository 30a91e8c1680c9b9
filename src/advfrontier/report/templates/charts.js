"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const norms = new Map(data.norms.map((norm) => [norm.norm, norm]));
  const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
  const faded = (k) => `${color(`c${k}`)}22`;
  const shows = (id) => document.getElementById(id)?.checked ?? false;
  // Plotly reads a little markup in names; a model's name is never markup.
  const plain = (text) => text.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
  const config = { displayModeBar: false, responsive: true, doubleClick: "reset" };
  const touch = matchMedia("(pointer: coarse)").matches; // where dragging has to scroll the page
  const dashes = ["solid", "7px,3px", "2px,3px", "8px,3px,2px,3px", "14px,4px"];

  // Beyond its last step a curve stays where it is.
  const endless = ({ x, y }) => ({ x: [...x, 1e9], y: [...y, y[y.length - 1]] });

  const step = (curve, name, line, more) => ({
    type: "scatter",
    mode: "lines",
    name: plain(name),
    ...endless(curve),
    line: { shape: "hv", ...line },
    hovertemplate: `<b>${plain(name)}</b><br>ε = %{x:.4g}<br>robust accuracy %{y:.1%}<extra></extra>`,
    ...more,
  });

  const band = (curve, fill) => {
    const { x, y } = endless(curve);
    const edge = (sign) => ({
      type: "scatter",
      mode: "lines",
      x,
      y: y.map((share) => Math.min(1, Math.max(0, share + sign * curve.margin))),
      line: { shape: "hv", width: 0 },
      hoverinfo: "skip",
      meta: "band",
    });
    return [edge(1), { ...edge(-1), fill: "tonexty", fillcolor: fill }];
  };

  const axes = (more) => ({
    color: color("muted"),
    gridcolor: color("grid"),
    linecolor: color("rule"),
    zeroline: false,
    ticks: "outside",
    tickcolor: color("rule"),
    fixedrange: false,
    ...more,
  });

  const layout = (xaxis, yaxis, more) => ({
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    font: { family: "system-ui, sans-serif", size: 12, color: color("muted") },
    margin: { l: 54, r: 16, t: 32, b: 42 },
    showlegend: false,
    hovermode: "closest",
    dragmode: touch ? false : "zoom",
    hoverdistance: 30,
    hoverlabel: { bgcolor: color("panel"), bordercolor: color("rule"), font: { color: color("text"), size: 12 } },
    xaxis: axes(xaxis),
    yaxis: axes(yaxis),
    ...more,
  });

  // Dotted lines with their labels above; labels that would run into the one before stand a line higher.
  const marks = (items, axis, width) => {
    const log = axis.type === "log";
    const place = (x) => (log ? Math.log10(x) : x);
    const pixels = (width - 80) / (axis.range[1] - axis.range[0]);
    let before = { end: -Infinity, raised: false };
    const found = { shapes: [], annotations: [] };
    for (const { x, label } of items.filter((item) => !log || item.x > 0)) {
      const half = 3.5 * label.length + 2;
      const raised = place(x) * pixels - half < before.end && !before.raised;
      before = { end: place(x) * pixels + half, raised };
      found.shapes.push({
        type: "line", x0: x, x1: x, y0: 0, y1: 1, yref: "paper",
        line: { color: color("muted"), width: 1.5, dash: "dot" }, layer: "above", // a grid line in the same place would hide it
      });
      found.annotations.push({
        x: place(x), y: 1, yref: "paper", yanchor: "bottom", yshift: raised ? 12 : 0, text: plain(label),
        showarrow: false, font: { size: 11, color: color("muted") },
      });
    }
    return found;
  };

  const sizes = (norm) => (shows("log")
    ? { type: "log", range: [Math.log10(norm.near) - 0.1, Math.log10(norm.far) + 0.1], dtick: 1 }
    : { type: "linear", range: [0, norm.far] });

  const curves = (norm, width) => {
    const traces = [];
    if (shows("pool")) {
      for (const model of norm.pool) {
        const name = model.flagged ? `${model.name} (flagged)` : model.name;
        const line = { color: color("faint"), width: 1, dash: model.flagged ? "dot" : "solid" };
        traces.push(step(model, name, line, { meta: "pool" }));
      }
    }
    if (shows("frontier") && norm.frontier) {
      const line = { color: color("text"), width: 1.5, dash: "dash" };
      traces.push(step(norm.frontier, "defence frontier", line, { meta: "frontier" }));
    }
    for (const model of [...norm.others, { ...norm.own, line: [0, 0] }]) {
      const [paint, dash] = model.line;
      if (shows("bands")) traces.push(...band(model, faded(paint)));
      traces.push(step(model, model.name, { color: color(`c${paint}`), width: 2.25, dash: dashes[dash] }, { meta: "model" }));
      if (model.certified) {
        const line = { color: color(`c${paint}`), width: 1.25, dash: "dot" };
        traces.push(step(model.certified, `${model.name}, certified`, line, { meta: "certified" }));
      }
    }
    const axis = sizes(norm);
    return [traces, layout(
      { title: { text: `ε in ${norm.symbol}`, standoff: 8 }, ...axis },
      { range: [0, 1.005], tickformat: ".0%" },
      marks(norm.radii, axis, width),
    )];
  };

  const short = (queries) => (queries % 1000 === 0 ? `${queries / 1000}k` : String(queries));

  const queries = (norm, width) => {
    const { x, y, tiers } = norm.queries;
    const total = x[x.length - 1];
    const last = y[y.length - 1];
    const at = tiers.map((tier) => y[x.indexOf(tier)]);
    // The first queries fall from far above; what matters is whether the end is level.
    const early = y[x.findIndex((q) => q >= total / 20)];
    const top = Math.max(1.2 * last, Math.min(early, 2 * last)) || 1;
    const traces = [
      {
        type: "scatter", mode: "lines", x, y, line: { color: color("accent"), width: 2.25 }, meta: "model",
        hovertemplate: "%{x:,} queries<br>AUREC %{y:.4g}<extra></extra>",
      },
      {
        type: "scatter", mode: "markers", x: tiers, y: at, marker: { color: color("accent"), size: 8 }, meta: "tiers",
        hovertemplate: "tier of %{x:,} queries<br>AUREC %{y:.4g}<extra></extra>",
      },
    ];
    const axis = { type: "linear", range: [0, 1.03 * total] };
    return [traces, layout(
      { title: { text: "queries per sample", standoff: 8 }, tickformat: ",d", nticks: 6, ...axis },
      { title: { text: `AUREC in ${norm.symbol}`, standoff: 6 }, range: [0.94 * last, top + 0.02 * last], nticks: 6 },
      { ...marks(tiers.map((tier) => ({ x: tier, label: short(tier) })), axis, width), margin: { l: 68, r: 16, t: 32, b: 42 } },
    )];
  };

  const difference = (norm) => {
    const { first, second } = norm.difference;
    const { x, y } = endless(norm.difference);
    const most = 1.1 * Math.max(0.02, ...y.map(Math.abs));
    // Where a model leads, its own colour is below the line.
    const part = (k, sign) => ({
      type: "scatter", mode: "lines", x, y: y.map((gap) => (sign * gap > 0 ? gap : 0)), line: { shape: "hv", width: 0 },
      fill: "tozeroy", fillcolor: faded(k), hoverinfo: "skip", meta: "lead",
    });
    const trace = {
      type: "scatter", mode: "lines", x, y, line: { shape: "hv", color: color("text"), width: 1.5 }, meta: "model",
      hovertemplate: "ε = %{x:.4g}<br>%{y:+.1%}<extra></extra>",
    };
    const side = (text, y, yanchor) => ({
      x: 1, xref: "paper", xanchor: "right", y, yref: "paper", yanchor, text: plain(text), showarrow: false,
      font: { size: 11, color: color("muted") },
    });
    return [[part(0, 1), part(1, -1), trace], layout(
      { title: { text: `ε in ${norm.symbol}`, standoff: 8 }, ...sizes(norm) },
      { range: [-most, most], tickformat: "+.0%", zeroline: true, zerolinecolor: color("rule") },
      { annotations: [side(`${first} leads`, 1, "top"), side(`${second} leads`, 0, "bottom")] },
    )];
  };

  const figures = { curve: curves, queries, difference };
  const draw = () => {
    for (const chart of document.querySelectorAll(".chart")) {
      const figure = figures[chart.dataset.chart](norms.get(chart.dataset.norm), chart.clientWidth);
      Plotly.react(chart, ...figure, config);
    }
    for (const item of document.querySelectorAll("[data-shows]")) item.hidden = !shows(item.dataset.shows);
  };

  // With a viewBox a chart can be scaled by the style sheet, which paper needs: nothing is drawn anew for printing.
  const scalable = (chart) => () => {
    for (const svg of chart.querySelectorAll(".main-svg")) {
      svg.setAttribute("viewBox", `0 0 ${svg.getAttribute("width")} ${svg.getAttribute("height")}`);
    }
  };

  document.addEventListener("theme", draw);
  for (const box of document.querySelectorAll(".controls input")) box.addEventListener("change", draw);
  draw();
  for (const chart of document.querySelectorAll(".chart")) {
    scalable(chart)();
    chart.on("plotly_afterplot", scalable(chart));
  }
})();
