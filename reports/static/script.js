// Theme, sorting, filtering, explanations of columns, claims that open, and comparison of two methods. Pages can be read without this file.
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

  // A column is sorted by the attribute data-value of its cells, or else by their text; numbers are compared as numbers. Cells without a value come last.
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

  // Choices of the reader are stored after the # of the address, so that a link or a reload restores them. An anchor differs from them by having no =.
  function asked() {
    return new URLSearchParams(location.hash.includes("=") ? location.hash.slice(1) : "");
  }
  function keep(change) {
    const chosen = asked();
    change(chosen);
    history.replaceState(null, "", chosen.size ? "#" + chosen : location.pathname + location.search);
  }

  // The order of a table is stored as sort=TABLE.COLUMN.up or .down, with numbers of table and column from 1.
  function sorting() {
    const tables = Array.from(document.querySelectorAll("table[data-sortable]"));
    const headsOf = (table) => Array.from(table.tHead.rows[table.tHead.rows.length - 1].cells);
    const buttonOf = (head) => head.querySelector("button");
    const sort = (table, column, descending) => {
      headsOf(table).forEach((head) => head.removeAttribute("aria-sort"));
      headsOf(table)[column].setAttribute("aria-sort", descending ? "descending" : "ascending");
      const body = table.tBodies[0];
      const keyed = Array.from(body.rows, (row) => [key(row, column), row]);
      keyed.sort(([left], [right]) => {
        if (left === null || right === null) return (left === null) - (right === null);
        return descending ? compare(right, left) : compare(left, right);
      });
      body.append(...keyed.map(([, row]) => row));
    };
    tables.forEach((table, place) => {
      headsOf(table).forEach((head, column) => {
        const button = buttonOf(head);
        if (!button) return;
        button.addEventListener("click", () => {
          const now = head.getAttribute("aria-sort");
          const descending = now ? now === "ascending" : head.dataset.mostFirst !== undefined;
          sort(table, column, descending);
          keep((chosen) => {
            const others = chosen.getAll("sort").filter((one) => !one.startsWith(place + 1 + "."));
            chosen.delete("sort");
            others.forEach((one) => chosen.append("sort", one));
            chosen.append("sort", [place + 1, column + 1, descending ? "down" : "up"].join("."));
          });
        });
      });
    });
    const restore = () => asked().getAll("sort").forEach((one) => {
      const [place, column, direction] = one.split(".");
      const table = tables[place - 1];
      const head = table && headsOf(table)[column - 1];
      if (head && buttonOf(head)) sort(table, column - 1, direction === "down");
    });
    addEventListener("hashchange", restore);
    restore();
  }

  // Hide the rows that do not match the words and choices, and elements that contain no other rows. Returns a function that shows all rows again.
  function filtering() {
    const text = document.getElementById("filter");
    if (!text) return () => {};
    const choices = Array.from(document.querySelectorAll("[data-filter]"));
    const said = document.getElementById("shown");
    const rows = Array.from(document.querySelectorAll("table[data-filtered] tbody tr, [data-row]"));
    const counted = rows.filter((row) => row.matches("[data-row]") || row.closest("table").dataset.filtered === "");
    const groups = Array.from(document.querySelectorAll("[data-group]"));
    const inside = new Map(groups.map((group) => [group, rows.filter((row) => group.contains(row))]));
    const fits = (row, wanted) => wanted.every((choice) => row.dataset[choice.dataset.filter] === choice.value);
    // Show beside each radio button how many rows it would show, given the words and the choices of other groups.
    const count = (found, wanted) => choices.filter((choice) => choice.type === "radio").forEach((choice) => {
      const others = wanted.filter((one) => one.dataset.filter !== choice.dataset.filter);
      const own = choice.value === "" ? others : [...others, choice];
      const left = counted.filter((row) => found.has(row) && fits(row, own)).length;
      choice.parentElement.querySelector("strong").textContent = left;
      choice.disabled = !left && !choice.checked && choice.value !== "";
    });
    const apply = () => {
      const words = text.value.toLowerCase().split(/\s+/).filter(Boolean);
      const wanted = choices.filter((choice) => (choice.type !== "radio" || choice.checked) && choice.value !== "");
      const found = new Set(rows.filter((row) => {
        const around = row.closest("[data-words]");
        const content = (row.textContent + " " + (around ? around.dataset.words : "")).toLowerCase();
        return words.every((word) => content.includes(word));
      }));
      rows.forEach((row) => { row.hidden = !found.has(row) || !fits(row, wanted); });
      count(found, wanted);
      groups.forEach((group) => {
        group.hidden = inside.get(group).every((row) => row.hidden);
        if (words.length && group.matches("details")) group.open = true;
      });
      said.textContent = counted.filter((row) => !row.hidden).length + " of " + counted.length + " " + (said.dataset.counted || "rows");
    };
    const show = (words, values) => {
      text.value = words;
      choices.forEach((choice) => {
        const value = values.get(choice.dataset.filter) || "";
        if (choice.type === "radio") choice.checked = choice.value === value;
        else choice.value = value;
      });
      apply();
    };
    const remember = () => {
      apply();
      keep((chosen) => {
        const now = choices.filter((choice) => choice.type !== "radio" || choice.checked).map((choice) => [choice.dataset.filter, choice.value]);
        [["filter", text.value], ...now].forEach(([name, value]) => { if (value) chosen.set(name, value); else chosen.delete(name); });
      });
    };
    const restore = () => { const chosen = asked(); if (chosen.size) show(chosen.get("filter") || "", chosen); };
    text.addEventListener("input", remember);
    choices.forEach((choice) => choice.addEventListener("change", remember));
    addEventListener("hashchange", restore);
    apply();
    restore();
    return () => show("", new Map());
  }

  // A link to a claim opens the claim, a button opens all claims, and all claims are open when the page is printed.
  function folding(showAll) {
    const claims = Array.from(document.querySelectorAll("details.claim"));
    const button = document.getElementById("open-all");
    const reveal = () => {
      const target = document.getElementById(location.hash.slice(1));
      const claim = target && target.closest("details.claim");
      if (!claim) return;
      if (claim.hidden) showAll();
      claim.open = true;
      const here = target.closest("details.here");
      if (here) here.open = true;
      (here || claim).scrollIntoView();
    };
    if (button) {
      const shown = () => claims.filter((claim) => !claim.hidden);
      const label = () => { button.textContent = shown().length && shown().every((claim) => claim.open) ? "Close all" : "Open all"; };
      button.addEventListener("click", () => {
        const open = button.textContent === "Open all";
        shown().forEach((claim) => { claim.open = open; });
        label();
      });
      claims.forEach((claim) => claim.addEventListener("toggle", label));
      addEventListener("hashchange", reveal);
      reveal();
    }
    let closed = [];
    addEventListener("beforeprint", () => {
      closed = Array.from(document.querySelectorAll("main details:not([open])"));
      closed.forEach((each) => { each.open = true; });
    });
    addEventListener("afterprint", () => closed.forEach((each) => { each.open = false; }));
  }

  // Show the description of a column beside its title when the pointer or the keyboard focus is on it. Escape hides the description.
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
        tip.innerHTML = document.getElementById(button.getAttribute("aria-describedby")).innerHTML;
        tip.hidden = false;
        shown = button;
        settle();
      };
      button.addEventListener("focus", show);
      button.addEventListener("blur", () => { if (!tip.matches(":hover")) hide(); }); // keep it under the pointer, so that its links can be clicked
      button.parentElement.addEventListener("pointerenter", show);
      button.parentElement.addEventListener("pointerleave", leave);
    });
  }

  // Return the visible rows of a table, with cells that span several rows or columns repeated. A cell has its stored value, its text, and the interval below.
  function taken(table) {
    const text = (of) => of.textContent.replace(/\s+/g, " ").trim();
    const grid = [];
    Array.from(table.rows).filter((row) => row.getClientRects().length).forEach((row, place) => {
      const line = grid[place] = grid[place] || [];
      Array.from(row.cells).forEach((each) => {
        const bare = each.cloneNode(true);
        bare.querySelectorAll(".lead-tag, [aria-hidden]").forEach((tag) => tag.remove());
        const below = Array.from(bare.querySelectorAll(".range, .unit"), (one) => { one.remove(); return text(one); }).join(", ");
        const kept = { value: each.dataset.value, shown: text(bare), below };
        const at = Array.from({ length: line.length + 1 }, (_, column) => column).find((column) => !line[column]);
        for (let down = 0; down < each.rowSpan; down += 1) {
          const own = grid[place + down] = grid[place + down] || [];
          for (let right = 0; right < each.colSpan; right += 1) own[at + right] = down || right ? { shown: "", below: "" } : kept;
        }
      });
    });
    return [grid.slice(0, table.tHead.rows.length), grid.slice(table.tHead.rows.length)];
  }

  const words = (each) => [each.shown, each.below].filter(Boolean).join(" ");
  const withValues = (heads, rows) => heads[0].map((_, column) => rows.some((row) => row[column] && row[column].value !== undefined));

  // A column with stored values becomes two columns: the stored values, and the visible texts.
  function asCsv([heads, rows]) {
    const quoted = (text) => (/[",\n]/.test(text) ? '"' + text.replaceAll('"', '""') + '"' : text);
    const full = withValues(heads, rows);
    const line = (row, value) => row.flatMap((each, column) => (full[column] ? [value(each), words(each)] : [words(each)])).map(quoted).join(",");
    const lines = [...heads.map((row) => line(row, (each) => words(each) + ", in full")), ...rows.map((row) => line(row, (each) => each.value || ""))];
    return lines.join("\n") + "\n";
  }

  const SIGNS = {
    "\\": "\\textbackslash{}", "{": "\\{", "}": "\\}", "$": "\\$", "&": "\\&", "%": "\\%", "#": "\\#", "_": "\\_", "~": "\\textasciitilde{}", "^": "\\textasciicircum{}",
    "<": "$<$", ">": "$>$", "×": "$\\times$", "±": "$\\pm$", "∞": "$\\infty$", "−": "$-$", "—": "--", "≤": "$\\le$", "≥": "$\\ge$", "↓": "$\\downarrow$", "↑": "$\\uparrow$", "●": "$\\bullet$", "µ": "\\textmu{}",
  };
  function asLatex([heads, rows]) {
    const raised = (signs) => "$^{" + Array.from(signs, (sign) => (sign === "⁻" ? "-" : "⁰¹²³⁴⁵⁶⁷⁸⁹".indexOf(sign))).join("") + "}$";
    const escaped = (text) => Array.from(text, (sign) => SIGNS[sign] || sign).join("").replace(/[⁻⁰¹²³⁴⁵⁶⁷⁸⁹]+/g, raised);
    const line = (row) => row.map((each) => escaped(words(each))).join(" & ") + " \\\\";
    const kinds = withValues(heads, rows).map((full) => (full ? "r" : "l")).join("");
    return ["% \\usepackage{booktabs}", "\\begin{tabular}{" + kinds + "}", "\\toprule", ...heads.map(line), "\\midrule", ...rows.map(line), "\\bottomrule", "\\end{tabular}", ""].join("\n");
  }

  // Add two buttons below every table that save its visible rows.
  function taking() {
    const page = document.body.dataset.page.replace(".html", "");
    const kinds = { CSV: [asCsv, "csv", "text/csv"], LaTeX: [asLatex, "tex", "application/x-tex"] };
    document.querySelectorAll("main table").forEach((table, place) => {
      const line = document.createElement("p");
      line.className = "take";
      Object.entries(kinds).forEach(([name, [write, ending, type]]) => {
        const button = document.createElement("button");
        button.type = "button";
        button.textContent = name;
        button.addEventListener("click", () => {
          const link = document.createElement("a");
          link.href = URL.createObjectURL(new Blob([write(taken(table))], { type }));
          link.download = page + "." + (place + 1) + "." + ending;
          link.click();
          setTimeout(() => URL.revokeObjectURL(link.href), 1000);
        });
        line.append(button);
      });
      (table.closest(".scroll") || table).after(line);
    });
  }

  // Return the nodes of a text in which lines may break after underscores.
  const breakable = (text) => String(text).split(/(_)/).flatMap((part) => (part === "_" ? [part, document.createElement("wbr")] : [part]));

  function cell(kind, style, text, more) {
    const made = document.createElement(kind);
    made.className = style;
    made.append(...breakable(text));
    if (more) {
      const range = document.createElement("span");
      range.className = "range";
      range.append(...breakable(more));
      made.append(range);
    }
    return made;
  }

  // Compare two methods that the reader chooses. The choice is stored after the # of the address.
  function comparing() {
    const stored = document.getElementById("comparisons");
    if (!stored) return;
    const data = JSON.parse(stored.textContent);
    const selects = ["first", "second"].map((id) => document.getElementById(id));
    const box = document.getElementById("chosen");
    const heads = box.querySelectorAll("thead th");
    const draw = () => {
      const [first, second] = selects.map((select) => select.value);
      const met = data.contests.filter((contest) => contest.pairs[first] && contest.pairs[first][second]);
      document.getElementById("first-head").textContent = data.methods[first];
      document.getElementById("second-head").textContent = data.methods[second];
      const rows = met.map((contest) => {
        const [effect, ends, wins, others, chance, chances, p] = contest.pairs[first][second];
        const row = document.createElement("tr");
        row.append(
          cell("th", "stacked", contest.workload, contest.study),
          cell("td", "stacked wrap", contest.quantity, contest.better),
          cell("td", "number", ...contest.medians[first]),
          cell("td", "number", ...contest.medians[second]),
          cell("td", "number", effect, ends.startsWith("[") ? contest.effect + " " + ends : ends),
          cell("td", "number", wins, others),
          cell("td", "number", chance, chances),
          cell("td", "number", p),
        );
        row.cells[0].scope = "row";
        Array.from(row.cells).slice(1).forEach((each, place) => { each.dataset.label = heads[place + 1].textContent; });
        return row;
      });
      box.querySelector("tbody").replaceChildren(...rows);
      box.hidden = !rows.length;
      const places = new Set(met.map((contest) => JSON.stringify([contest.study, contest.workload])));
      document.getElementById("met").textContent = first === second ? "Choose two methods that differ"
        : rows.length ? "Both ran on " + places.size + (places.size === 1 ? " workload" : " workloads")
        : "They never ran on the same problem";
    };
    const read = () => {
      const chosen = asked();
      selects.forEach((select) => {
        const place = data.methods.indexOf(chosen.get(select.id));
        if (place >= 0) select.value = place;
      });
      draw();
    };
    const remember = () => {
      keep((chosen) => selects.forEach((select) => chosen.set(select.id, data.methods[select.value])));
      draw();
    };
    selects.forEach((select, place) => {
      select.value = data.methods.indexOf(data.shown[place]);
      select.addEventListener("change", remember);
    });
    document.getElementById("swap").addEventListener("click", () => {
      [selects[0].value, selects[1].value] = [selects[1].value, selects[0].value];
      remember();
    });
    addEventListener("hashchange", read);
    read();
  }

  // Load all pictures when the page is complete, and not only when they are scrolled into view: a printed page would lack them.
  function pictures() {
    document.querySelectorAll("img[loading]").forEach((each) => { each.loading = "eager"; });
  }

  document.addEventListener("DOMContentLoaded", () => {
    themeButton();
    sorting();
    folding(filtering());
    tips();
    comparing();
    taking();
    pictures();
  });
})();
