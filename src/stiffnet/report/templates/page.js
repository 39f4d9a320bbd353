"use strict";
(() => {
  const { figures, dark } = JSON.parse(document.getElementById("data").textContent);
  document.documentElement.classList.add("scripted");
  const darkMode = matchMedia("(prefers-color-scheme: dark)");
  const touch = matchMedia("(pointer: coarse)").matches;
  const config = {
    displaylogo: false,
    responsive: false, // we redraw ourselves, because ticks and stage labels depend on the width
    displayModeBar: false, // plotly's own bar has a button that uploads the data
    plotlyServerURL: "",
  };
  let printing = false;

  // Galleries: one box at a time. Before the charts are drawn, since what is hidden is not drawn.
  document.querySelectorAll("[data-gallery]").forEach((gallery) => {
    const choice = gallery.querySelector("select");
    const boxes = [...gallery.querySelectorAll(".module")];
    const show = () => boxes.forEach((box, i) => (box.hidden = i !== choice.selectedIndex));
    choice.addEventListener("change", () => {
      show();
      dispatchEvent(new Event("resize")); // draws what has come into view
    });
    gallery.querySelectorAll("[data-turn]").forEach((button) => {
      button.hidden = false;
      button.addEventListener("click", () => {
        choice.selectedIndex = (choice.selectedIndex + Number(button.dataset.turn) + boxes.length) % boxes.length;
        choice.dispatchEvent(new Event("change"));
      });
    });
    gallery.querySelector(".chooser").hidden = false;
    show();
  });

  // Charts are drawn in light colours; a dark page swaps each for its counterpart.
  function recoloured(value, isColour) {
    if (typeof value === "string") return isColour && Object.hasOwn(dark, value) ? dark[value] : value;
    if (Array.isArray(value)) return value.map((item) => recoloured(item, isColour));
    if (value === null || typeof value !== "object") return value;
    return Object.fromEntries(
      Object.entries(value).map(([key, item]) => [key, recoloured(item, isColour || /color(scale)?$/.test(key))]),
    );
  }

  // A narrow chart names fewer steps and says less about each stage.
  function fitted(layout, width) {
    layout.width = width;
    if (touch) layout.dragmode = false; // a finger scrolls the page
    const bands = layout.meta && layout.meta.bands;
    if (!bands) return layout;
    if (width < 480) layout.height += 70; // the legend needs several lines
    const steps = layout.xaxis.tickvals.length;
    const perStep = (width - 70) / steps;
    const stride = Math.max(1, Math.ceil(17 / perStep));
    const keep = (_, i) => i % stride === 0;
    layout.xaxis.tickvals = layout.xaxis.tickvals.filter(keep);
    layout.xaxis.ticktext = layout.xaxis.ticktext.filter(keep);
    bands.forEach((band, i) => {
      const room = (band.right - band.left) * perStep;
      const texts = [band.long, band.short, band.short.replace("stage ", "")];
      layout.annotations[i].text = texts.find((text) => text.length * 6.6 < room) || "";
    });
    return layout;
  }

  function draw(place) {
    const target = document.getElementById(place);
    const width = Math.floor(target.getBoundingClientRect().width);
    if (!width) return;
    const figure = darkMode.matches && !printing ? recoloured(figures[place], false) : structuredClone(figures[place]);
    const box = document.querySelector(`[data-log="${place}"]`);
    if (box) figure.layout.yaxis.type = box.checked ? "log" : "linear";
    Plotly.react(target, figure.data, fitted(figure.layout, width), config);
    target.dataset.width = width;
  }
  const drawAll = () => Object.keys(figures).forEach(draw);

  drawAll();
  darkMode.addEventListener("change", drawAll);
  let waiting;
  addEventListener("resize", () => {
    clearTimeout(waiting);
    waiting = setTimeout(drawAll, 120);
  });
  document.querySelectorAll("[data-log]").forEach((box) => box.addEventListener("change", () => draw(box.dataset.log)));
  document.querySelectorAll("[data-save]").forEach((button) =>
    button.addEventListener("click", () => {
      const { width, height } = document.getElementById(button.dataset.save).getBoundingClientRect();
      const filename = `stiffnet-${button.dataset.save}`;
      Plotly.downloadImage(button.dataset.save, { format: "png", scale: 2, width, height, filename });
    }),
  );

  // The numbers of a chart: a line for each point of each series, or for each cell of a surface.
  const shownText = (text) => new DOMParser().parseFromString(String(text), "text/html").body.textContent;
  function quoted(value) {
    if (value === null || value === undefined) return "";
    const text = typeof value === "number" ? String(value) : shownText(value);
    const safe = typeof value === "string" && /^[=+\-@\t]/.test(text) ? `'${text}` : text; // a spreadsheet would run it
    return /[",\n\r]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
  }
  function* points(figure) {
    const label = (axis, at) => {
      const place = axis && axis.ticktext ? axis.tickvals.indexOf(at) : -1;
      return place < 0 ? at : axis.ticktext[place];
    };
    const { xaxis, yaxis } = figure.layout;
    for (const trace of figure.data) {
      const error = trace.error_y || trace.error_x || {};
      if (trace.z) {
        for (const [i, row] of trace.z.entries())
          for (const [j, z] of row.entries()) {
            const [x, y] = [trace.x ? trace.x[j] : j, trace.y ? trace.y[i] : i];
            yield [trace.name, label(xaxis, x), label(yaxis, y), z, null, null];
          }
        continue;
      }
      const length = Math.max((trace.x || []).length, (trace.y || []).length);
      for (let i = 0; i < length; i++) {
        const [x, y] = [trace.x ? trace.x[i] : i, trace.y ? trace.y[i] : i];
        const [above, below] = [error.array, error.arrayminus || error.array].map((all) => (all ? all[i] : null));
        yield [trace.name, label(xaxis, x), label(yaxis, y), null, above, below];
      }
    }
  }
  document.querySelectorAll("[data-csv]").forEach((button) =>
    button.addEventListener("click", () => {
      const rows = [["series", "x", "y", "z", "error_above", "error_below"], ...points(figures[button.dataset.csv])];
      const text = rows.map((row) => row.map(quoted).join(",")).join("\r\n") + "\r\n";
      const link = document.createElement("a");
      link.href = URL.createObjectURL(new Blob([text], { type: "text/csv" }));
      link.download = `stiffnet-${button.dataset.csv}.csv`;
      link.click();
      setTimeout(() => URL.revokeObjectURL(link.href), 1000);
    }),
  );

  // Tables: click a heading to sort, type to filter.
  const shown = new Intl.NumberFormat("en");
  const inOrder = new Intl.Collator("en", { numeric: true }); // made once: a table may have 10,000 rows
  function key(row, column) {
    const cell = row.cells[column];
    if (!cell.classList.contains("number")) return cell.textContent;
    return cell.dataset.value === undefined ? null : Number(cell.dataset.value);
  }
  function compare(a, b, sign) {
    if (a === null || b === null) return (a === null) - (b === null); // what is missing goes last
    if (typeof a === "number") return sign * (a - b);
    return sign * inOrder.compare(a, b);
  }
  document.querySelectorAll("[data-table]").forEach((frame) => {
    const body = frame.querySelector("tbody");
    const headings = [...frame.querySelectorAll("thead th")];
    headings.forEach((heading, column) => {
      heading.querySelector("[data-sort]").addEventListener("click", () => {
        const before = heading.getAttribute("aria-sort");
        const first = heading.classList.contains("number") ? "descending" : "ascending";
        const second = first === "ascending" ? "descending" : "ascending";
        const order = before === first ? second : first;
        headings.forEach((other) => other.removeAttribute("aria-sort"));
        heading.setAttribute("aria-sort", order);
        const sign = order === "ascending" ? 1 : -1;
        const keyed = [...body.rows].map((row) => [key(row, column), row]);
        keyed.sort((a, b) => compare(a[0], b[0], sign));
        body.append(...keyed.map((pair) => pair[1]));
      });
    });
    const filter = frame.querySelector("[data-filter]");
    if (!filter) return;
    filter.addEventListener("input", () => {
      const wanted = filter.value.trim().toLowerCase();
      let left = 0;
      for (const row of body.rows) {
        row.hidden = !row.textContent.toLowerCase().includes(wanted);
        left += !row.hidden;
      }
      frame.querySelector("[data-shown]").textContent = `${shown.format(left)} ${left === 1 ? "row" : "rows"}`;
    });
  });

  // Several networks: the tables of one at a time.
  const choices = [...document.querySelectorAll("[data-panel]")];
  function choose() {
    choices.forEach((choice) => (document.getElementById(choice.value).hidden = !choice.checked));
  }
  choices.forEach((choice) => choice.addEventListener("change", choose));
  choose();

  // On paper everything is open and light.
  let closed = [];
  addEventListener("beforeprint", () => {
    printing = true;
    closed = [...document.querySelectorAll("details:not([open])")];
    closed.forEach((item) => (item.open = true));
    drawAll();
  });
  addEventListener("afterprint", () => {
    printing = false;
    closed.forEach((item) => (item.open = false));
    drawAll();
  });
})();
