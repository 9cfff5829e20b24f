"use strict";
// Renders the plots and the ladders of a report from the data in the page. Texts are only ever set as text.
(() => {
  const report = JSON.parse(document.getElementById("report").textContent);
  const root = document.documentElement;

  // -- plots: expressions are interpreted, so that the policy of the page need not permit eval

  const options = { ast: true, actions: false, renderer: "svg", defaultStyle: false, tooltip: { disableDefaultStyle: true } };
  const drawn = [...document.querySelectorAll("[data-plot]")].map((place) =>
    vegaEmbed(place, report.plots[Number(place.dataset.plot)], options).then(({ view }) => view.runAsync()));
  Promise.all(drawn).then(() => { root.dataset.plots = String(drawn.length); }, (error) => {
    root.dataset.failed = String(error);
    console.error(error);
  });

  // -- words

  const digits = (value) => value < 9.995 ? value.toFixed(2) : value < 99.95 ? value.toFixed(1) : value.toFixed(0);
  const seconds = (value) => {
    if (value >= 119.5) return `${Math.floor(Math.round(value) / 60)} min ${String(Math.round(value) % 60).padStart(2, "0")} s`;
    const [unit, scale] = value >= 0.9995 ? ["s", 1] : value >= 0.0009995 ? ["ms", 1e-3] : ["µs", 1e-6];
    return `${digits(value / scale)} ${unit}`;
  };
  const size = (bytes) => {
    if (bytes < 999.5) return `${bytes} B`;
    for (const unit of ["kB", "MB", "GB", "TB"]) if ((bytes /= 1000) < 999.5 || unit === "TB") return `${digits(bytes)} ${unit}`;
  };
  const count = (number) => number >= 2 ** 30 ? "∞" : number.toLocaleString("en-US");
  const frameName = ([, , , , type, many]) => many > 1 ? `${count(many)} × ${type}` : type;
  const frameMore = ([, , , , , , n, bytes]) => [n === null ? "" : `n=${count(n)}`, size(bytes)].filter(Boolean).join(", ");

  // -- ladders

  const WIDTH = 1040, LANE = 84, ROW = 25, TOP = 46, STALL = 44, PART = 14;

  const svg = (parent, tag, attributes, text) => {
    const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    if (text !== undefined) made.textContent = text;
    parent.append(made);
    return made;
  };
  const heightOf = (row) => row[0] === "s" ? STALL : ROW;

  // a part of a ladder, so that paper breaks between parts
  class Drawing {
    constructor(ladder, from) {
      this.ladder = ladder;
      this.from = from;
      this.rows = ladder.rows.slice(from, from + PART);
      this.top = from ? 0 : TOP;
      this.height = this.top + this.rows.reduce((sum, row) => sum + heightOf(row), 0);
      this.svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
      this.svg.setAttribute("viewBox", `0 0 ${WIDTH} ${this.height}`);
      this.svg.setAttribute("role", "img");
      this.svg.setAttribute("aria-label", `Ladder of stream ${ladder.stream}, rows ${from + 1} to ${from + this.rows.length}; the table below has the same rows`);
      // credit for items of the client is held by the client, on the left
      this.left = this.most(8) === null ? 110 : 240;
      this.right = WIDTH - (this.most(9) === null ? 110 : 190);
      this.lanes = [[8, this.left - 18, -1], [9, this.right + 18, 1]].filter(([at]) => this.most(at) !== null);
    }

    most(at) {
      const known = this.ladder.rows.filter((row) => row[0] === "f" && row[at] !== null).map((row) => row[at]);
      if (!known.length) return null;
      return Math.max(1, ...known.filter((value) => value < 2 ** 30));
    }

    draw() {
      if (!this.from) this.head();
      for (const [, x] of this.lanes) svg(this.svg, "line", { x1: x, x2: x, y1: this.top, y2: this.height, class: "rail" });
      let y = this.top;
      this.rows.forEach((row, at) => {
        ({ f: () => this.arrow(row, y, this.from + at), s: () => this.stall(row, y), o: () => this.omitted(row, y) })[row[0]]();
        y += heightOf(row);
      });
      return this.svg;
    }

    head() {
      const { ladder, left, right } = this;
      for (const [x, side, anchor] of [[left, "client", "start"], [right, "server", "end"]]) {
        const dx = anchor === "end" ? 4 : -4;
        svg(this.svg, "text", { x: x + dx, y: 14, class: "head", "text-anchor": anchor }, side);
        svg(this.svg, "text", { x: x + dx, y: 30, class: "faint", "text-anchor": anchor }, ladder[side] || "");
      }
      for (const [, x, way] of this.lanes) {
        svg(this.svg, "text", { x: x + way * 2, y: 30, class: "faint", "text-anchor": way < 0 ? "end" : "start" }, "credit left");
      }
    }

    life(y, height, kind) {
      for (const x of [this.left, this.right]) svg(this.svg, "line", { x1: x, x2: x, y1: y, y2: y + height, class: kind });
    }

    arrow(row, y, at) {
      const [, start, lasted, dir, , many, , , , , packet] = row;
      const side = dir === ">" ? "client" : "server";
      const line = y + ROW - 6, [from, to, back] = dir === ">" ? [this.left, this.right, -1] : [this.right, this.left, 1];
      this.life(y, ROW, "life");
      const group = svg(this.svg, "g", {});
      svg(group, "title", {}, `${frameName(row)}, ${frameMore(row)}` + (lasted ? `, within ${seconds(lasted / 1e6)}` : "") +
        (packet === null ? "" : `, packet ${packet}`));
      svg(group, "line", { x1: from, x2: to + back * 7, y1: line, y2: line, class: `arrow ${side}${many > 1 ? " many" : ""}` });
      svg(group, "polygon", { points: `${to},${line} ${to + back * 10},${line - 5} ${to + back * 10},${line + 5}`, class: `tip-${side}` });
      const label = svg(group, "text", { x: from - back * 14, y: line - 6, "text-anchor": dir === ">" ? "start" : "end" }, frameName(row) + " ");
      svg(label, "tspan", { class: "faint" }, frameMore(row));
      svg(this.svg, "text", { x: 78, y: line, class: "faint", "text-anchor": "end" }, (start / 1e6).toFixed(start < 1e9 ? 6 : 3));
      this.lanes.forEach((lane) => this.lane(row, y, at, lane));
    }

    lane(row, y, at, [index, x, way]) {
      const left = row[index];
      if (left === null) return;
      const width = left >= 2 ** 30 ? LANE : Math.max(0, left) / this.most(index) * LANE;
      svg(this.svg, "rect", { x: way < 0 ? x - width : x, y: y + 3, width, height: ROW, class: "lane" });
      const before = this.ladder.rows.slice(0, at).findLast((other) => other[0] === "f");
      if (before !== undefined && before[index] === left) return;
      svg(this.svg, "text", { x: x + way * 6, y: y + ROW - 4, "text-anchor": way < 0 ? "end" : "start", class: left <= 0 ? "none" : "" }, count(left));
    }

    stall(row, y) {
      const [, start, lasted, cause, , words] = row;
      const colour = cause ? `var(--${cause})` : "var(--muted)";
      this.life(y, STALL, "gap");
      svg(this.svg, "rect", { x: this.left + 8, y: y + 5, width: this.right - this.left - 16, height: STALL - 6, rx: 4, fill: colour, class: "stall" });
      const text = svg(this.svg, "text", { x: (this.left + this.right) / 2, y: y + STALL / 2 + 6, "text-anchor": "middle", class: "words" }, "");
      svg(text, "tspan", { "font-weight": 700 }, `stalled ${seconds(lasted)}`);
      svg(text, "tspan", {}, `: ${words}`);
    }

    omitted(row, y) {
      this.life(y, ROW, "gap");
      svg(this.svg, "text", { x: (this.left + this.right) / 2, y: y + ROW / 2 + 5, "text-anchor": "middle", class: "faint" }, `${count(row[1])} frames left out`);
    }
  }

  const element = (tag, text, kind) => {
    const made = document.createElement(tag);
    if (text !== undefined) made.textContent = text;
    if (kind) made.className = kind;
    return made;
  };

  const asTable = (ladder) => {
    const details = element("details"), table = element("table"), head = table.createTHead().insertRow(), body = table.createTBody();
    details.append(element("summary", "The same as a table"), table);
    for (const name of ["Seconds", "From", "Frame", "Details", "Credit of the client", "Credit of the server"]) head.append(element("th", name));
    for (const row of ladder.rows) {
      const line = body.insertRow();
      const cells = {
        f: () => [(row[1] / 1e6).toFixed(6), row[3] === ">" ? "client" : "server", frameName(row), frameMore(row), ...[8, 9].map((at) => row[at] === null ? "–" : count(row[at]))],
        s: () => [(row[1] / 1e6).toFixed(6), "", `stalled ${seconds(row[2])}`, row[5], "", ""],
        o: () => ["", "", `${count(row[1])} frames left out`, "", "", ""],
      }[row[0]]();
      for (const cell of cells) line.append(element("td", cell));
    }
    return details;
  };

  const ladders = report.ladders.map((ladder, at) => ({ ...ladder, at })).filter((ladder) => ladder.rows.length);
  const choice = document.getElementById("choice"), place = document.getElementById("drawn");
  if (!ladders.length || !place) return;
  const conn = document.getElementById("conn"), stream = document.getElementById("stream");
  const named = (ladder) => [`${ladder.stream}`, ladder.route, ladder.kind, ladder.ended,
    ladder.stalled ? `stalled ${seconds(ladder.stalled)}` : ""].filter(Boolean).join(" · ");

  const show = (ladder) => {
    const shown = ladder.rows.filter((row) => row[0] === "o").reduce((sum, row) => sum - row[1], ladder.frames);
    const start = new Date(ladder.start / 1000).toISOString().slice(11, 23);
    const words = `Stream ${ladder.stream}${ladder.route ? ` ${ladder.route}` : ""} of ${ladder.conn}: ${count(shown)} of ${count(ladder.frames)} frames. Seconds since ${start} UTC. Thick arrows are several frames. ` +
      "Between two events of credit, the credit left is interpolated.";
    const parts = [];
    for (let from = 0; from < ladder.rows.length; from += PART) parts.push(new Drawing(ladder, from).draw());
    place.replaceChildren(element("p", words, "note"), ...parts, asTable(ladder));
    root.dataset.ladder = String(ladder.at);
  };
  const streamsOf = (id) => ladders.filter((ladder) => ladder.conn === id);
  const select = (ladder) => {
    conn.value = ladder.conn;
    stream.replaceChildren(...streamsOf(ladder.conn).map((one) => new Option(named(one), one.at)));
    stream.value = ladder.at;
    show(ladder);
  };
  for (const id of new Set(ladders.map((ladder) => ladder.conn))) {
    const { client, server, protocol } = streamsOf(id)[0];
    conn.append(new Option(client ? `${client} → ${server} · ${protocol} · ${id}` : id, id));
  }
  conn.addEventListener("change", () => select(streamsOf(conn.value)[0]));
  stream.addEventListener("change", () => show(ladders.find((ladder) => ladder.at === Number(stream.value))));
  const follow = () => {
    const found = /^#ladder-(\d+)$/.exec(location.hash);
    const ladder = found && ladders.find(({ at }) => at === Number(found[1]));
    if (!ladder) return false;
    select(ladder);
    document.getElementById("ladder").scrollIntoView();
    return true;
  };
  addEventListener("hashchange", follow);
  choice.hidden = false;
  if (!follow()) select(ladders[0]);
})();
