// The theme, sorting and filtering of tables, what columns say, and the comparison of two methods. Pages read without this file too.
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
      const button = head.querySelector("button:not([data-tells])");
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

  // Words and choices hide the rows that do not fit, and with a row the section that tells more of it.
  function filtering() {
    const text = document.getElementById("filter");
    if (!text) return;
    const choices = Array.from(document.querySelectorAll("select[data-filter]"));
    const said = document.getElementById("shown");
    const rows = Array.from(document.querySelectorAll("table[data-filtered] tbody tr"));
    const sections = Array.from(document.querySelectorAll("section[data-row]"));
    const groups = Array.from(document.querySelectorAll("section[data-group]"));
    const apply = () => {
      const words = text.value.toLowerCase().split(/\s+/).filter(Boolean);
      rows.forEach((row) => {
        const content = row.textContent.toLowerCase();
        row.hidden = !words.every((word) => content.includes(word))
          || choices.some((choice) => choice.value !== "" && row.dataset[choice.dataset.filter] !== choice.value);
      });
      sections.forEach((section) => { section.hidden = document.getElementById(section.dataset.row).hidden; });
      groups.forEach((group) => { group.hidden = !group.querySelector("section[data-row]:not([hidden])"); });
      const counted = rows.filter((row) => row.closest("table").dataset.filtered === "");
      said.textContent = counted.filter((row) => !row.hidden).length + " of " + counted.length + " rows";
    };
    text.addEventListener("input", apply);
    choices.forEach((choice) => choice.addEventListener("change", apply));
    apply();
  }

  // What describes a column is shown beside its title, to the pointer and to the keyboard; Escape puts it away.
  function tips() {
    const tip = document.createElement("div");
    tip.className = "tip";
    tip.hidden = true;
    document.body.append(tip);
    let leaving = 0;
    let shown = null;
    const hide = () => { clearTimeout(leaving); tip.hidden = true; shown = null; };
    const settle = () => {
      if (shown === null) return;
      const place = shown.getBoundingClientRect();
      const below = place.bottom + 6 + tip.offsetHeight <= innerHeight;
      tip.style.top = Math.max(4, below ? place.bottom + 6 : place.top - 6 - tip.offsetHeight) + "px";
      tip.style.left = Math.max(8, Math.min(place.left, innerWidth - tip.offsetWidth - 8)) + "px";
    };
    const leave = () => { clearTimeout(leaving); leaving = setTimeout(hide, 150); };
    tip.addEventListener("pointerenter", () => clearTimeout(leaving));
    tip.addEventListener("pointerleave", leave);
    document.addEventListener("keydown", (event) => { if (event.key === "Escape") hide(); });
    document.addEventListener("scroll", settle, true);
    document.querySelectorAll("thead button[aria-describedby]").forEach((button) => {
      const show = () => {
        clearTimeout(leaving);
        tip.textContent = document.getElementById(button.getAttribute("aria-describedby")).textContent;
        tip.hidden = false;
        shown = button;
        settle();
      };
      button.addEventListener("focus", show);
      button.addEventListener("blur", hide);
      button.parentElement.addEventListener("pointerenter", show);
      button.parentElement.addEventListener("pointerleave", leave);
    });
  }

  function cell(kind, style, text, more) {
    const made = document.createElement(kind);
    made.className = style;
    made.textContent = text;
    if (more) {
      const range = document.createElement("span");
      range.className = "range";
      range.textContent = more;
      made.append(range);
    }
    return made;
  }

  // Two methods that the reader chooses; the choice is kept behind the # of the address.
  function comparing() {
    const stored = document.getElementById("comparisons");
    if (!stored) return;
    const data = JSON.parse(stored.textContent);
    const selects = ["first", "second"].map((id) => document.getElementById(id));
    const box = document.getElementById("chosen");
    const draw = () => {
      const [first, second] = selects.map((select) => select.value);
      const met = data.contests.filter((contest) => contest.pairs[first] && contest.pairs[first][second]);
      const rows = met.map((contest) => {
        const [effect, ends, wins, others, chance, chances, p] = contest.pairs[first][second];
        const row = document.createElement("tr");
        row.append(
          cell("th", "stacked", contest.workload, contest.study + ", " + contest.backend),
          cell("td", "stacked wrap", contest.quantity, contest.better),
          cell("td", "number", ...contest.medians[first]),
          cell("td", "number", ...contest.medians[second]),
          cell("td", "number", effect, contest.effect + " " + ends),
          cell("td", "number", wins, others),
          cell("td", "number", chance, chances),
          cell("td", "number", p),
        );
        row.cells[0].scope = "row";
        return row;
      });
      document.getElementById("first-head").textContent = data.methods[first];
      document.getElementById("second-head").textContent = data.methods[second];
      box.querySelector("tbody").replaceChildren(...rows);
      box.hidden = !rows.length;
      const places = new Set(met.map((contest) => JSON.stringify([contest.study, contest.workload, contest.backend])));
      document.getElementById("met").textContent = first === second ? "Choose two methods that differ"
        : rows.length ? "They met on " + places.size + (places.size === 1 ? " workload and backend" : " workloads and backends")
        : "They share no problem instance";
    };
    const read = () => {
      const asked = new URLSearchParams(location.hash.slice(1));
      selects.forEach((select) => {
        const place = data.methods.indexOf(asked.get(select.id));
        if (place >= 0) select.value = place;
      });
      draw();
    };
    const keep = () => {
      const chosen = new URLSearchParams();
      selects.forEach((select) => chosen.set(select.id, data.methods[select.value]));
      location.replace("#" + chosen);
      draw();
    };
    selects.forEach((select, place) => {
      select.value = data.methods.indexOf(data.shown[place]);
      select.addEventListener("change", keep);
    });
    document.getElementById("swap").addEventListener("click", () => {
      [selects[0].value, selects[1].value] = [selects[1].value, selects[0].value];
      keep();
    });
    addEventListener("hashchange", read);
    read();
  }

  document.addEventListener("DOMContentLoaded", () => {
    themeButton();
    document.querySelectorAll("table[data-sortable]").forEach(sortable);
    filtering();
    tips();
    comparing();
  });
})();
