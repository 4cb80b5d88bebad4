// The theme, and sorting and filtering of tables. Pages read without this file too.
"use strict";

(function () {
  const root = document.documentElement;
  root.classList.add("scripted");

  // Storage can be refused (private windows, pages opened from disk): the theme then lasts as long as the page.
  function stored() {
    try { return localStorage.getItem("curvebench-theme"); } catch (refused) { return null; }
  }
  function store(theme) {
    try { localStorage.setItem("curvebench-theme", theme); } catch (refused) { /* see above */ }
  }
  const kept = stored();
  if (kept === "light" || kept === "dark") root.dataset.theme = kept;

  function theme() {
    if (root.dataset.theme) return root.dataset.theme;
    return matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
  }

  function themeButton() {
    const button = document.getElementById("theme");
    const label = () => { button.textContent = theme() === "dark" ? "Light theme" : "Dark theme"; };
    button.addEventListener("click", () => {
      root.dataset.theme = theme() === "dark" ? "light" : "dark";
      store(root.dataset.theme);
      label();
    });
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", label);
    label();
  }

  // A cell sorts by data-value where it has one, a number if it is one; cells without a value come last.
  function key(row, column) {
    const cell = row.cells[column];
    const text = cell.dataset.value !== undefined ? cell.dataset.value : cell.textContent.trim();
    if (text === "") return null;
    const number = Number(text.replace("inf", "Infinity"));
    return Number.isNaN(number) ? text : number;
  }
  function compare(left, right) {
    if (typeof left === "number" && typeof right === "number") return left === right ? 0 : left - right;
    return String(left).localeCompare(String(right));
  }

  function sortable(table) {
    const heads = Array.from(table.tHead.rows[table.tHead.rows.length - 1].cells);
    heads.forEach((head, column) => {
      const button = head.querySelector("button");
      if (!button) return;
      button.addEventListener("click", () => {
        const descending = head.getAttribute("aria-sort") === "ascending";
        heads.forEach((other) => other.removeAttribute("aria-sort"));
        head.setAttribute("aria-sort", descending ? "descending" : "ascending");
        const body = table.tBodies[0];
        const keyed = Array.from(body.rows, (row) => [key(row, column), row]);
        keyed.sort(([left], [right]) => {
          if (left === null || right === null) return (left === null) - (right === null);
          return descending ? compare(right, left) : compare(left, right);
        });
        body.append(...keyed.map(([, row]) => row));
      });
    });
  }

  function filtering() {
    const text = document.getElementById("filter");
    if (!text) return;
    const basis = document.getElementById("basis");
    const said = document.getElementById("shown");
    const rows = Array.from(document.querySelectorAll("table[data-filtered] tbody tr"));
    const apply = () => {
      const words = text.value.toLowerCase().split(/\s+/).filter(Boolean);
      let shown = 0;
      rows.forEach((row) => {
        const content = row.textContent.toLowerCase();
        const fits = words.every((word) => content.includes(word));
        row.hidden = !fits || (basis !== null && basis.value !== "" && row.dataset.basis !== basis.value);
        shown += row.hidden ? 0 : 1;
      });
      said.textContent = shown + " of " + rows.length + " rows";
    };
    text.addEventListener("input", apply);
    if (basis) basis.addEventListener("change", apply);
    apply();
  }

  document.addEventListener("DOMContentLoaded", () => {
    themeButton();
    document.querySelectorAll("table[data-sortable]").forEach(sortable);
    filtering();
  });
})();
