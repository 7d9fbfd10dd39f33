"use strict";
(() => {
  const byId = (id) => document.getElementById(id);
  const data = (id) => { const at = byId(id); return at ? JSON.parse(at.textContent) : null; };
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  const bytes = (n) => {
    let unit = 0;
    while (n >= 1024 && unit < units.length - 1) { n /= 1024; unit += 1; }
    return (unit ? (Math.floor(n * 10) / 10).toFixed(1) : n) + " " + units[unit];
  };
  const clamp = (n, low, high) => Math.min(Math.max(n, low), high);

  const timeline = (points) => {
    const chart = byId("chart"), cursor = byId("cursor"), moment = byId("moment");
    const cells = [...document.querySelectorAll("#legend [data-band]")];
    const keys = [...document.querySelectorAll("#chart path[class^=fill-]")].map((path) => path.className.baseVal.slice(5));
    let now = points.peak;
    const first = [moment, ...cells].map((cell) => [cell, cell.textContent]);
    const time = (index) => points.t[index].toFixed(points.t[points.t.length - 1] < 20 ? 2 : 1) + " s";
    const known = [...points.t.keys()].filter((index) => points.bands.length && points.bands[0][index] !== null);
    const at = (index) => {
      now = index;
      const apart = (other) => Math.abs(points.t[other] - points.t[index]);
      const near = known.reduce((best, other) => apart(other) < apart(best) ? other : best, known[0]);
      moment.textContent = "at " + time(index) + (near === undefined || near === index ? "" : "; uses at " + time(near));
      for (const cell of cells) {
        const of = cell.dataset.band;
        const value = of === "sum" ? points.rss[index] : of === "taken" ? points.taken[index] : points.bands[keys.indexOf(of)][near];
        cell.textContent = value !== null ? bytes(value) : "–";
      }
      cursor.hidden = false;
      cursor.style.left = points.x[index] + "%";
    };
    const rest = () => {
      now = points.peak;
      cursor.hidden = true;
      for (const [cell, text] of first) cell.textContent = text;
    };
    const nearest = (event) => {
      const box = chart.getBoundingClientRect();
      const x = (event.clientX - box.left) / box.width * 100;
      let low = 0, high = points.x.length - 1;
      while (high - low > 1) {
        const middle = (low + high) >> 1;
        if (points.x[middle] < x) low = middle; else high = middle;
      }
      return x - points.x[low] < points.x[high] - x ? low : high;
    };
    chart.addEventListener("pointermove", (event) => at(nearest(event)));
    chart.addEventListener("pointerdown", (event) => at(nearest(event)));
    chart.addEventListener("pointerleave", (event) => { if (event.pointerType === "mouse") rest(); });
    chart.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (step) { at(clamp(now + step, 0, points.x.length - 1)); event.preventDefault(); }
      if (event.key === "Escape") rest();
    });
    rest();
  };

  const flame = (tree) => {
    const graph = byId("graph"), status = byId("status"), reset = byId("reset"), measure = byId("measure"), find = byId("find");
    const row = 21, rows = 48;
    const hues = [205, 185, 165, 225, 150, 245, 45, 20];
    const hue = (text) => {
      let hash = 7;
      for (const letter of text) hash = (hash * 31 + letter.charCodeAt(0)) >>> 0;
      return hues[hash % hues.length];
    };
    const link = (node, parent) => { node.up = parent; for (const callee of node.c || []) link(callee, node); };
    link(tree.root, null);
    tree.measures.forEach(([name], index) => {
      if (tree.root.v[index] > 0) measure.add(new Option(name, index));
    });
    // A program that has freed most of it shows more at its peak.
    if (tree.root.v[5] > 2 * tree.root.v[0]) measure.value = 5;
    let which = Number(measure.value), focus = tree.root, word = "";
    const value = (node) => node.v[which];
    const amount = (n) => tree.measures[which][1] === "bytes" ? bytes(n) : n.toLocaleString("en") + " objects";
    const percent = (part, whole) => (whole ? part / whole * 100 : 0).toFixed(1) + " %";
    const hit = (node) => word !== "" && tree.names[node.n].some((text) => text.toLowerCase().includes(word));
    const describe = (node) => {
      const [name, place] = tree.names[node.n];
      status.textContent = name + (place ? " (" + place + ")" : "") + ": " + amount(value(node)) + ", " + percent(value(node), value(tree.root)) + " of all";
    };
    const found = (node) => hit(node) ? value(node) : (node.c || []).reduce((sum, callee) => sum + found(callee), 0);
    const idle = () => {
      if (word !== "") status.textContent = "Found in " + amount(found(focus)) + ", " + percent(found(focus), value(focus)) + " of what is shown.";
      else describe(focus);
    };
    const box = (node, left, width, depth, kind) => {
      const button = document.createElement("button");
      const [name, place] = tree.names[node.n];
      button.type = "button";
      button.textContent = width > 2 ? name : "";
      button.title = name + (place ? "\n" + place : "") + "\n" + amount(value(node)) + " · " + percent(value(node), value(tree.root));
      button.setAttribute("aria-label", name + ", " + amount(value(node)));
      button.style.left = left + "%";
      button.style.width = width + "%";
      button.style.top = depth * row + "px";
      button.style.setProperty("--h", hue(place.replace(/:\d+$/, "") || name));
      if (width < 1.5) button.classList.add("thin");
      if (kind === "above") button.classList.add("above");
      if (hit(node)) button.classList.add("hit");
      button.addEventListener("click", () => zoom(node));
      button.addEventListener("pointerenter", () => describe(node));
      button.addEventListener("focus", () => describe(node));
      graph.append(button);
    };
    let deepest = 0, first = 0;
    const draw = (node, left, width, depth) => {
      if (width < 0.15 || depth > first + rows) return;
      deepest = Math.max(deepest, depth);
      box(node, left, width, depth, "below");
      const callees = [...(node.c || [])].sort((a, b) => value(b) - value(a));
      for (const callee of callees) {
        const part = value(node) ? width * value(callee) / value(node) : 0;
        draw(callee, left, part, depth + 1);
        left += part;
      }
    };
    const render = () => {
      graph.textContent = "";
      graph.classList.toggle("finding-some", word !== "");
      const above = [];
      for (let node = focus.up; node; node = node.up) above.unshift(node);
      above.forEach((node, depth) => box(node, 0, 100, depth, "above"));
      deepest = first = above.length;
      if (value(focus) > 0) draw(focus, 0, 100, above.length);
      graph.style.height = (deepest + 1) * row + "px";
      reset.disabled = focus === tree.root && word === "";
      idle();
    };
    const zoom = (node) => { focus = node; render(); };
    measure.addEventListener("change", () => { which = Number(measure.value); render(); });
    find.addEventListener("input", () => { word = find.value.trim().toLowerCase(); render(); });
    reset.addEventListener("click", () => { find.value = ""; word = ""; zoom(tree.root); });
    graph.addEventListener("pointerleave", idle);
    document.addEventListener("keydown", (event) => { if (event.key === "Escape" && focus !== tree.root) zoom(focus.up); });
    render();
  };

  const points = data("points"), tree = data("tree");
  if (points) timeline(points);
  if (tree) flame(tree);
})();
