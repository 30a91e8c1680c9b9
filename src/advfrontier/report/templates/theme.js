"use strict";
// Runs before anything is drawn, so that a page never flashes in the wrong colours.
const theme = {
  stored() {
    try { return localStorage.getItem("advfrontier-theme"); } catch { return null; }
  },
  now() {
    return document.documentElement.dataset.theme;
  },
  set(name, remember) {
    document.documentElement.dataset.theme = name;
    if (remember) {
      try { localStorage.setItem("advfrontier-theme", name); } catch { /* some browsers forbid it for files */ }
    }
    document.dispatchEvent(new Event("theme"));
  },
};
const prefersDark = matchMedia("(prefers-color-scheme: dark)");
theme.set(theme.stored() ?? (prefersDark.matches ? "dark" : "light"));
prefersDark.addEventListener("change", () => {
  if (!theme.stored()) theme.set(prefersDark.matches ? "dark" : "light");
});
