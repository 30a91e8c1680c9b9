"use strict";
(() => {
  const button = document.getElementById("theme");
  const label = () => {
    const dark = theme.now() === "dark";
    button.setAttribute("aria-pressed", String(dark));
    button.textContent = dark ? "Light" : "Dark";
  };
  button.addEventListener("click", () => theme.set(theme.now() === "dark" ? "light" : "dark", true));
  document.addEventListener("theme", label);
  label();

  // Paper is white.
  let before = null;
  addEventListener("beforeprint", () => {
    before = theme.now();
    theme.set("light");
  });
  addEventListener("afterprint", () => {
    if (before) theme.set(before);
    before = null;
  });

  // Tables that are wider than their box say so.
  const cue = (box) => {
    const rest = box.scrollWidth - box.clientWidth - box.scrollLeft;
    box.classList.toggle("more", rest > 2);
    box.classList.toggle("wide", box.scrollWidth > box.clientWidth + 2);
  };
  for (const box of document.querySelectorAll(".scroll")) {
    box.addEventListener("scroll", () => cue(box), { passive: true });
    new ResizeObserver(() => cue(box)).observe(box);
  }

  const value = (row, column, text) => {
    const cell = row.cells[column];
    const given = cell.dataset.sort ?? cell.textContent.trim();
    if (text) return given.toLowerCase();
    return given === "inf" ? Infinity : Number(given);
  };
  for (const table of document.querySelectorAll("table.sortable")) {
    const headings = [...table.tHead.rows[0].cells];
    headings.forEach((heading, column) => {
      const sorter = document.createElement("button");
      sorter.type = "button";
      sorter.append(...heading.childNodes);
      heading.append(sorter);
      sorter.addEventListener("click", () => {
        const text = heading.dataset.key === "text";
        const first = text || heading.dataset.key === "ascending" ? "ascending" : "descending";
        const turned = first === "ascending" ? "descending" : "ascending";
        const direction = heading.ariaSort === first ? turned : first;
        for (const other of headings) other.ariaSort = null;
        heading.ariaSort = direction;
        const sign = direction === "ascending" ? 1 : -1;
        const rows = [...table.tBodies[0].rows];
        rows.sort((a, b) => {
          // Models in doubt stay below the others: their figures may be far too good.
          const last = ("last" in a.dataset) - ("last" in b.dataset);
          if (last && !text) return last;
          const [x, y] = [value(a, column, text), value(b, column, text)];
          return sign * (text ? x.localeCompare(y, undefined, { numeric: true }) : x === y ? 0 : x < y ? -1 : 1);
        });
        table.tBodies[0].append(...rows);
      });
    });
  }

  for (const copy of document.querySelectorAll("button.copy")) {
    copy.addEventListener("click", async () => {
      const code = copy.parentElement.querySelector("code");
      try {
        await navigator.clipboard.writeText(code.textContent);
        copy.textContent = "Copied";
      } catch {
        getSelection().selectAllChildren(code); // files may not reach the clipboard: leave the last step to the reader
        copy.textContent = "Selected";
      }
      setTimeout(() => { copy.textContent = "Copy"; }, 1500);
    });
  }
})();
