// The page of muse-plugin view: sends a sentence, shows what comes back. Text only ever becomes text nodes, never markup.
"use strict";

const SVG = "http://www.w3.org/2000/svg";
const CELL = 22; // pixels
const LONGEST_LABEL = 14; // characters
const LETTER = 7.5; // pixels, at most on average
const MISSING = "–";

const find = (id) => document.getElementById(id);
let answer = null;
let chosen = 0;

function make(name, text = "", attributes = {}) {
  const element = document.createElement(name);
  element.textContent = text;
  return setAttributes(element, attributes);
}

function draw(name, attributes = {}, text = "") {
  const element = document.createElementNS(SVG, name);
  element.textContent = text;
  return setAttributes(element, attributes);
}

function setAttributes(element, attributes) {
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, String(value));
  return element;
}

function format(number, digits = 3) {
  return number === null ? MISSING : number.toFixed(digits).replace("-", "−");
}

function cut(text) {
  const letters = Array.from(text);
  return letters.length <= LONGEST_LABEL ? text : letters.slice(0, LONGEST_LABEL - 1).join("") + "…";
}

function nameLanguage(code) {
  try {
    return new Intl.DisplayNames(["en"], { type: "language" }).of(code);
  } catch {
    return code;
  }
}

async function ask(address, options = {}) {
  let response;
  try {
    response = await fetch(address, options);
  } catch {
    throw new Error("The server does not answer; start it again and reload this page.");
  }
  let content;
  try {
    content = await response.json();
  } catch {
    throw new Error(`The server sent no JSON (status ${response.status}); reload this page.`);
  }
  if (!response.ok) throw new Error(content.error);
  return content;
}

// What does not depend on the sentence

async function showModel() {
  const model = await ask("model");
  find("text").lang = model.source_lang;
  find("translation").lang = model.target_lang;
  find("languages").textContent = ` (${nameLanguage(model.source_lang)} to ${nameLanguage(model.target_lang)})`;
  find("search").textContent =
    `Beam ${model.beam}, length penalty ${model.lenpen}, ${model.nbest} best; at most ${model.max_tokens} tokens.`;
  for (const [side, layers] of Object.entries(model.gates)) showGates(side, layers, model.gate_notes[side]);
  find("gates").hidden = Object.keys(model.gates).length === 0;
}

function showGates(side, layers, note) {
  const section = find("gates");
  section.append(make("h3", side === "encoder" ? "Encoder" : "Decoder"));
  if (note) {
    section.append(make("p", note));
    return;
  }
  const sizes = [...new Set(layers.flatMap((layer) => layer.weights.map((weight) => weight.kernel_size)))];
  sizes.sort((first, second) => first - second);
  const head = make("tr");
  head.append(make("th", "Layer", { scope: "col" }));
  for (const size of sizes) head.append(make("th", `${size} token${size === 1 ? "" : "s"}`, { scope: "col" }));
  const table = make("table", "", { "data-side": side });
  const parts = [make("thead"), make("tbody")];
  parts[0].append(head);
  table.append(...parts);
  for (const layer of layers) {
    const row = make("tr");
    row.append(make("th", layer.layer, { scope: "row" }));
    for (const size of sizes) {
      const found = layer.weights.find((weight) => weight.kernel_size === size);
      const cell = make("td", found ? format(found.weight) : MISSING, { class: "number" });
      if (found && found.weight !== null) cell.append(drawBar(found.weight));
      row.append(cell);
    }
    parts[1].append(row);
  }
  const scroll = make("div", "", { class: "scroll", role: "region", "aria-label": `Gates of the ${side}`, tabindex: 0 });
  scroll.append(table);
  section.append(scroll);
}

function drawBar(weight) {
  const bar = draw("svg", { width: 80, height: 6, class: "bar", "aria-hidden": "true" });
  bar.append(draw("rect", { width: 80 * weight, height: 6, class: "heat" }));
  bar.append(draw("rect", { width: 80, height: 6, class: "frame" }));
  return bar;
}

function drawLegend() {
  const legend = find("legend");
  for (let i = 0; i < 12; i++) {
    legend.append(draw("rect", { x: 10 * i, width: 10, height: 16, class: "heat", "fill-opacity": i / 11 }));
  }
  legend.append(draw("rect", { x: 0.5, y: 0.5, width: 119, height: 15, class: "frame" }));
}

// What does

async function translate() {
  const button = find("translate");
  if (button.getAttribute("aria-disabled") === "true") return;
  button.setAttribute("aria-disabled", "true");
  find("error").textContent = "";
  find("status").textContent = "Translating …";
  const start = performance.now();
  try {
    answer = await ask("inspect", {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify({ text: find("text").value }),
    });
    showAnswer();
    const seconds = ((performance.now() - start) / 1000).toFixed(1);
    const count = answer.hypotheses.length;
    find("status").textContent =
      `${count} translation${count === 1 ? "" : "s"} in ${seconds} seconds. The best: ${answer.hypotheses[0].text}`;
  } catch (error) {
    find("results").hidden = true;
    find("status").textContent = "";
    find("error").textContent = error.message;
  } finally {
    button.removeAttribute("aria-disabled");
  }
}

function showAnswer() {
  find("translation").textContent = answer.hypotheses[0].text;
  const language = find("translation").lang;
  const rows = answer.hypotheses.map((hypothesis, number) => {
    const row = make("tr");
    const head = make("th", "", { scope: "row" });
    const label = make("label");
    const radio = make("input", "", { type: "radio", name: "hypothesis", value: number });
    radio.checked = number === 0;
    radio.addEventListener("change", () => choose(number));
    label.append(radio, ` ${number + 1}`);
    head.append(label);
    row.append(head, make("td", hypothesis.text, { lang: language, dir: "auto" }));
    row.append(make("td", format(hypothesis.score), { class: "number" }));
    return row;
  });
  find("nbest").tBodies[0].replaceChildren(...rows);
  showSource();
  const layers = answer.hypotheses[0].attention.map((entry) => entry.layer);
  const kept = find("layer").value;
  find("layer").replaceChildren(...layers.map((layer) => make("option", layer, { value: layer })));
  find("layer").value = layers.includes(Number(kept)) ? kept : String(layers[layers.length - 1] ?? "");
  find("attention").hidden = layers.length === 0;
  find("attention-note").hidden = layers.length > 0;
  find("attention-note").textContent = answer.attention_note;
  find("results").hidden = false;
  choose(0);
}

function showSource() {
  const unknown = answer.source.filter((token) => !token.known).length;
  const words = answer.source.map((token) => make("bdi", token.text, token.known ? {} : { class: "unknown" }));
  const line = find("source");
  line.replaceChildren("Source, as the model reads it: ");
  words.forEach((word) => line.append(word, " "));
  if (unknown > 0) line.append(`(${unknown} not in its dictionary, underlined)`);
}

function choose(number) {
  chosen = number;
  const tokens = answer.hypotheses[number].tokens;
  const rows = [["Token", ...tokens.map((token) => token.text)]];
  if (tokens.some((token) => token.score !== null)) {
    rows.push(["Score", ...tokens.map((token) => format(token.score))]);
    rows.push(["Probability", ...tokens.map((token) => format(token.score === null ? null : Math.exp(token.score)))]);
  }
  const lines = rows.map(([name, ...cells], place) => {
    const line = make("tr");
    line.append(make("th", name, { scope: "row" }));
    for (const cell of cells) {
      line.append(place === 0 ? make("th", cell, { scope: "col", dir: "auto" }) : make("td", cell, { class: "number" }));
    }
    return line;
  });
  find("tokens").tBodies[0].replaceChildren(...lines);
  showAttention();
}

function chosenWeights() {
  const layer = Number(find("layer").value);
  return answer.hypotheses[chosen].attention.find((entry) => entry.layer === layer)?.weights;
}

function showAttention() {
  const weights = chosenWeights();
  if (weights === undefined) return;
  const source = answer.source.map((token) => token.text);
  const target = answer.hypotheses[chosen].tokens.map((token) => token.text);
  drawMap(weights, source, target);
  if (find("numbers").open) fillTable(weights, source, target);
  else emptyTable();
}

function drawMap(weights, source, target) {
  const widest = (words) => LETTER * Math.max(...words.map((word) => Array.from(cut(word)).length));
  const left = widest(target) + 28;
  const top = widest(source) + 28;
  const [width, height] = [left + CELL * source.length + 8, top + CELL * target.length + 8];
  const map = find("map");
  map.replaceChildren(draw("title", {}, `Cross-attention of layer ${find("layer").value}; the table below has the numbers.`));
  setAttributes(map, { width, height, viewBox: `0 0 ${width} ${height}` });
  map.append(draw("text", { x: left, y: 14, class: "title" }, "source token, looked at"));
  map.append(
    draw("text", { x: -top, y: 14, class: "title", transform: "rotate(-90)", "text-anchor": "end" }, "token written"),
  );
  source.forEach((word, column) => {
    const [x, y] = [left + CELL * (column + 0.5) + 4, top - 6];
    map.append(draw("text", { x, y, transform: `rotate(-90 ${x} ${y})` }, cut(word)));
  });
  target.forEach((word, row) => {
    map.append(draw("text", { x: left - 6, y: top + CELL * (row + 0.5) + 4, "text-anchor": "end" }, cut(word)));
  });
  weights.forEach((line, row) => {
    line.forEach((weight, column) => {
      const place = { x: left + CELL * column, y: top + CELL * row, width: CELL - 1, height: CELL - 1 };
      const cell = draw("rect", { ...place, class: "heat", "fill-opacity": weight ?? 0 });
      cell.append(draw("title", {}, `${target[row]} looks at ${source[column]}: ${format(weight)}`));
      map.append(cell);
    });
  });
  const frame = { x: left - 0.5, y: top - 0.5, width: CELL * source.length, height: CELL * target.length };
  map.append(draw("rect", { ...frame, class: "frame", "pointer-events": "none" }));
}

function emptyTable() {
  find("weights").tHead.replaceChildren();
  find("weights").tBodies[0].replaceChildren();
}

function fillTable(weights, source, target) {
  const head = make("tr");
  head.append(make("th", "Token written", { scope: "col" }));
  for (const word of source) head.append(make("th", word, { scope: "col", dir: "auto" }));
  const rows = weights.map((line, place) => {
    const row = make("tr");
    row.append(make("th", target[place], { scope: "row", dir: "auto" }));
    for (const weight of line) row.append(make("td", format(weight), { class: "number" }));
    return row;
  });
  find("weights").tHead.replaceChildren(head);
  find("weights").tBodies[0].replaceChildren(...rows);
}

// Events

find("form").addEventListener("submit", (event) => {
  event.preventDefault();
  translate();
});
find("text").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
    event.preventDefault();
    translate();
  }
});
find("layer").addEventListener("change", showAttention);
find("numbers").addEventListener("toggle", showAttention);

drawLegend();
showModel().catch((error) => {
  find("error").textContent = error.message;
});
find("text").focus();
