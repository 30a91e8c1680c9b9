"use strict";
(() => {
  for (const board of document.querySelectorAll(".board")) {
    const named = board.querySelector(".named");
    const said = named.textContent;
    const curves = new Map([...board.querySelectorAll("path.curve")].map((path) => [path.dataset.curve, path]));
    const rows = new Map([...board.querySelectorAll("tr[data-curve]")].map((row) => [row.dataset.curve, row]));
    const show = (which) => {
      for (const [key, curve] of curves) {
        curve.classList.toggle("on", key === which);
        rows.get(key).classList.toggle("on", key === which);
      }
      const chosen = curves.get(which);
      if (chosen) chosen.parentNode.append(chosen); // on top of the others
      named.textContent = chosen ? `${chosen.querySelector("title").textContent}.` : said;
    };
    for (const item of board.querySelectorAll("[data-curve]")) {
      item.addEventListener("mouseenter", () => show(item.dataset.curve));
      item.addEventListener("focus", () => show(item.dataset.curve));
      item.addEventListener("mouseleave", () => show(null));
      item.addEventListener("blur", () => show(null));
    }
  }
})();
