"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const tip = document.getElementById("tip");
  const SVG = "http://www.w3.org/2000/svg";
  let marked = null;

  const number = (value) => value.toLocaleString("en", { maximumFractionDigits: 4 });
  const bytes = (value) => {
    for (const [unit, size] of [["GiB", 2 ** 30], ["MiB", 2 ** 20], ["KiB", 2 ** 10]])
      if (value >= size) return `${(value / size).toFixed(1)} ${unit}`;
    return `${value} B`;
  };
  const short = (value) =>
    value === null ? "none" : Math.abs(value) >= 1e5 || (value && Math.abs(value) < 1e-3)
      ? value.toExponential(3) : number(value);

  /* Where the pointer is, in the picture's own coordinates. */
  const place = (svg, event) => {
    const box = svg.getBoundingClientRect(), view = svg.viewBox.baseVal;
    return [(event.clientX - box.left) * view.width / box.width,
            (event.clientY - box.top) * view.height / box.height];
  };
  const of = (svg, name) => Number(svg.dataset[name]);

  const hide = () => {
    tip.hidden = true;
    if (marked) marked.remove();
    marked = null;
  };
  const show = (event, text) => {
    tip.textContent = text;
    tip.hidden = false;
    const { width, height } = tip.getBoundingClientRect();
    const left = event.clientX + 14 + width > innerWidth ? event.clientX - width - 14 : event.clientX + 14;
    const top = event.clientY + 14 + height > innerHeight ? event.clientY - height - 14 : event.clientY + 14;
    tip.style.left = `${Math.max(4, left)}px`;
    tip.style.top = `${Math.max(4, top)}px`;
  };
  const mark = (svg, tag, attributes) => {
    if (marked) marked.remove();
    marked = document.createElementNS(SVG, tag);
    marked.setAttribute("class", "mark");
    for (const [name, value] of Object.entries(attributes)) marked.setAttribute(name, value);
    svg.append(marked);
  };

  const WIDTH = 8; /* numbers of a box */
  const arena = (svg, event) => {
    const found = data.arena, [px, py] = place(svg, event);
    const step = Math.floor((px - of(svg, "x0")) / of(svg, "sx"));
    const at = (py - of(svg, "y0")) / of(svg, "sy");
    if (step < 0 || step >= found.steps.length || at < 0 || py < of(svg, "top")) return hide();
    const phase = (found.phases.find(([, a, b]) => step >= a && step < b) || [""])[0];
    const lines = [`step ${number(step * found.each)}${phase ? `, ${phase}` : ""}: ${found.names[found.steps[step]]}`,
                   `${bytes(found.live[step])} live`];
    let hit = -1;
    for (let k = 0; k < found.boxes.length; k += WIDTH) {
      const [start, stop, offset, size] = found.boxes.slice(k, k + 4);
      if (step >= start && step < stop && at >= offset && at < offset + size) hit = k;
    }
    if (hit < 0) {
      hide();
      return show(event, lines.join("\n"));
    }
    const [start, stop, offset, size, kind, name, module, again] = found.boxes.slice(hit, hit + WIDTH);
    const words = [found.names[name]];
    if (found.names[module]) words.push(`module ${found.names[module]}`);
    words.push(`${found.kinds[kind]}${again ? ", computed again" : ""}: ${bytes(size)} (${number(size)} bytes)`,
               `bytes ${number(offset)} to ${number(offset + size)}, steps ${number(start * found.each)} to ${number(stop * found.each - 1)}`, "");
    show(event, [...words, ...lines].join("\n"));
    const x = of(svg, "x0") + of(svg, "sx") * start, y = of(svg, "y0") + of(svg, "sy") * (offset + size);
    mark(svg, "rect", { x, y, width: of(svg, "sx") * (stop - start), height: -of(svg, "sy") * size });
  };

  const lines = (svg, event) => {
    const found = data[svg.dataset.data], [px] = place(svg, event);
    const where = (px - of(svg, "x0")) / of(svg, "sx");
    const near = (xs) => {
      let low = 0, high = xs.length - 1;
      while (high - low > 1) {
        const middle = (low + high) >> 1;
        if (xs[middle] <= where) low = middle; else high = middle;
      }
      return Math.abs(xs[low] - where) <= Math.abs(xs[high] - where) ? low : high;
    };
    const rows = [];
    let step = null;
    for (const one of found) {
      if (!one.x.length) continue;
      const k = near(one.x);
      if (step === null || Math.abs(one.x[k] - where) < Math.abs(step - where)) step = one.x[k];
      rows.push([one.x[k], `${one.name} ${short(one.y[k])}`]);
    }
    if (step === null) return hide();
    show(event, [`step ${number(step)}`,
                 ...rows.map(([x, text]) => x === step ? text : `${text} (step ${number(x)})`)].join("\n"));
    const x = of(svg, "x0") + of(svg, "sx") * step;
    mark(svg, "path", { d: `M${x} ${of(svg, "top")}V${of(svg, "base")}` });
  };

  const points = (svg, event) => {
    const [px, py] = place(svg, event);
    let best = null, least = 900;
    for (const [nbytes, time, words] of data[svg.dataset.data]) {
      const x = of(svg, "x0") + of(svg, "sx") * Math.log(nbytes);
      const y = of(svg, "y0") + of(svg, "sy") * Math.log(time);
      const far = (x - px) ** 2 + (y - py) ** 2;
      if (far < least) [best, least] = [[x, y, words], far];
    }
    if (best === null) return hide();
    show(event, best[2]);
    mark(svg, "circle", { cx: best[0], cy: best[1], r: 7 });
  };

  const charts = { arena, lines, points };
  for (const svg of document.querySelectorAll("svg[data-chart]")) {
    const draw = charts[svg.dataset.chart];
    for (const name of ["pointermove", "pointerdown"]) svg.addEventListener(name, (event) => draw(svg, event));
    svg.addEventListener("pointerleave", (event) => { if (event.pointerType === "mouse") hide(); });
  }
  addEventListener("scroll", hide, { passive: true });
})();
