const at = (id) => document.getElementById(id), losses = [];
const COLOURS = { parameter: [58, 118, 168], buffer: [104, 158, 196], state: [122, 98, 168],
  index: [168, 98, 150], gradient: [196, 128, 58], other: [96, 140, 104] };
const NAMES = { parameter: "weights", buffer: "running statistics", state: "optimizer",
  index: "sparse indices", gradient: "gradients", other: "everything else" };
const home = new URL(".", location.href).href.replace(/\/$/, "");
const library = at("library").textContent;
const { inside } = SETTINGS, beside = `${home}/${SETTINGS.name}`;
const decoded = (file) => inside?.[file] && `Uint8Array.from(atob("${inside[file]}"), (c) => c.charCodeAt(0))`;
const text = `const HOME = ${JSON.stringify(home)}, OWN = ${SETTINGS.own};
const MODULE = ${JSON.stringify(inside ? `data:text/javascript;base64,${inside.js}` : `${beside}.js`)};
const WASM = ${decoded("wasm")}, SAMPLES = ${decoded("samples")}, NAMES = ${JSON.stringify(SETTINGS.names)};
(async () => {${library.replaceAll("export ", "")}${at("worker").textContent}})();`;
const script = (text) => URL.createObjectURL(new Blob([text], { type: "text/javascript" }));
const { pictureOf, soundOf, spanned } = await import(script(library));
const most = Number(new URLSearchParams(location.search).get("steps"));
let facts, training = false, samples = "";
document.body.classList.toggle("small", new URLSearchParams(location.search).has("small"));

const worker = new Worker(script(text)); // not a module: pages opened from disk may not start one
worker.onerror = (event) => said(event.message || "the worker did not start", true);
worker.onmessage = ({ data }) => {
  if (data.error) failed(data.error);
  if (data.said) said(data.said);
  if (data.fleeting) at("fleeting").hidden = false;
  if (data.ready) ready(data);
  if (data.check) {
    const same = data.check.digest === data.check.expected;
    at("bits").textContent = same ? "equal" : "differ";
    document.body.dataset.bits = same;
  }
  if (data.kept) kept(data.kept);
  if (data.own !== undefined) owned(data);
  if (data.guess) guess(data);
  if (data.learned) learned(data);
  if (data.table) tabled(data.table);
  if (data.loss !== undefined) losses.push([data.step, data.loss]);
  if (data.report) progress(data);
};
function said(what, bad) {
  at("said").textContent = what;
  at("said").className = bad ? "bad" : "";
  if (bad) document.body.dataset.error = what;
}
function ready(data) {
  facts = data.facts;
  losses.length = 0;
  at("held").textContent = bytes(facts.arena);
  for (const id of ["go", "again", "keep"]) at(id).disabled = false;
  said(data.step ? `Continues after minibatch ${data.step.toLocaleString()}${samples && `, on ${samples}`}.`
    : `Ready: ${facts.minibatch} samples per minibatch${samples && `, from ${samples}`}.`);
  const roles = new Set(Object.keys(facts.regions).map((role) => (COLOURS[role] ? role : "other")).concat("other"));
  at("legend").innerHTML = [...roles].map((role) =>
    `<i style="background: rgb(${COLOURS[role]})"></i>${NAMES[role]}`).join("") +
    " &mdash; bright: written since the last frame";
  offer(data);
  document.body.dataset.ready = "true";
  if (most) go(true);
}
function bytes(n) { return n < 2 ** 20 ? `${(n / 1024).toFixed(1)} KiB` : `${(n / 2 ** 20).toFixed(2)} MiB`; }
function progress(data) {
  const { report } = data;
  training = data.training;
  at("go").textContent = training ? "Pause" : "Train";
  at("step").textContent = report.step.toLocaleString();
  at("now").textContent = report.step ? report.loss.toFixed(4) : "-";
  if (data.speed) at("speed").textContent = Math.round(data.speed).toLocaleString();
  at("memory").textContent = at("beside").textContent = bytes(data.memory);
  document.body.dataset.memory = data.memory;
  document.body.dataset.step = report.step;
  if (data.digest) document.body.dataset.digest = data.digest;
  else delete document.body.dataset.digest;
  if (data.evaluation) {
    const { loss, accuracy, losses: parts = [] } = data.evaluation;
    const share = (part) => `${(100 * part).toFixed(2)} %`;
    at("right").textContent = accuracy === undefined ? loss.toFixed(4) : share(accuracy);
    at("measure").textContent = accuracy === undefined ? "loss of held-out samples" : "accuracy";
    if (accuracy !== undefined) document.body.dataset.accuracy = accuracy;
    at("measures").replaceChildren(...parts.flatMap((part) => [[`${part.label}_loss`, part.loss.toFixed(4)],
      ...(part.accuracy === undefined ? [] : [[`${part.label}_accuracy`, share(part.accuracy)]])]).map(carded));
  }
  document.body.dataset.training = training;
  drawArena(data.arena);
  drawLoss();
  if (data.predictions?.length) drawSamples(data.predictions);
}
function carded([name, value]) {
  const card = document.createElement("div"), [number, caption] = [document.createElement("b"), document.createElement("span")];
  card.className = "card";
  [number.textContent, caption.textContent] = [value, name];
  card.append(number, caption);
  return card;
}
function go(on) { worker.postMessage({ train: on, ...(most ? { steps: most } : {}) }); }
at("go").onclick = () => go(!training);
at("again").onclick = () => worker.postMessage({ again: true });
at("keep").onclick = () => { go(false); worker.postMessage({ keep: true }); };
at("file").onchange = async () => {
  const [file] = at("file").files;
  if (file) worker.postMessage({ samples: await file.arrayBuffer(), name: file.name });
};
function kept(state) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([state]));
  link.download = `${facts.name}.state`;
  link.click();
}
function drawLoss() {
  const canvas = at("loss"), scale = devicePixelRatio, ink = getComputedStyle(canvas).getPropertyValue("--accent");
  [canvas.width, canvas.height] = [canvas.clientWidth * scale, canvas.clientHeight * scale];
  const context = canvas.getContext("2d"), { width, height } = canvas;
  if (losses.length < 2) return;
  const parts = Math.min(losses.length, 400), means = [];
  for (let k = 0; k < parts; k++) {
    const some = losses.slice(Math.floor(k * losses.length / parts), Math.floor((k + 1) * losses.length / parts));
    means.push(some.reduce((sum, [, loss]) => sum + loss, 0) / some.length);
  }
  const known = means.filter(Number.isFinite), top = Math.max(...known), low = Math.min(0, ...known);
  context.strokeStyle = ink;
  context.lineWidth = 1.5 * scale;
  context.beginPath();
  means.forEach((mean, k) => context.lineTo(k * width / (parts - 1),
    height - 6 * scale - (height - 12 * scale) * (mean - low) / (top - low || 1)));
  context.stroke();
  context.fillStyle = getComputedStyle(canvas).color;
  context.font = `${12 * scale}px system-ui`;
  context.fillText(top.toFixed(3), 6 * scale, 16 * scale);
}
function drawArena({ cells, size }) {
  const canvas = at("arena"), across = Math.ceil(Math.sqrt(cells.length * 4)), down = Math.ceil(cells.length / across);
  [canvas.width, canvas.height] = [across, down];
  const picture = new ImageData(across, down), roles = new Array(cells.length).fill("other");
  for (const [role, parts] of Object.entries(facts.regions)) // parts: offset, length, ... in units of 64 bytes
    for (let p = 0; p < parts.length; p += 2)
      for (let k = Math.floor(64 * parts[p] / size); k < 64 * (parts[p] + parts[p + 1]) / size; k++)
        roles[k] = COLOURS[role] ? role : "other";
  cells.forEach((changed, k) => {
    const colour = COLOURS[roles[k]].map((c) => (changed ? Math.min(255, c * 1.35 + 30) : c * .6));
    picture.data.set([...colour, 255], 4 * k);
  });
  canvas.getContext("2d").putImageData(picture, 0, 0);
}
// Not Math.min(...values): a call takes about 120,000 arguments.
function lowest(values) { return values.reduce((a, b) => Math.min(a, b)); }
function highest(values) { return values.reduce((a, b) => Math.max(a, b)); }
function drawSamples(found) {
  at("shown").hidden = false;
  const shape = facts.inputs[0].shape.filter((n) => n !== 1), classes = facts.target.type === "i32" && facts.target.elements === 1;
  const picture = shape.length === 2 || (shape.length === 3 && shape[0] === 3);
  at("samples").replaceChildren(...found.map(({ x, y, out }) => {
    const figure = document.createElement("figure");
    if (picture) figure.append(drawPicture(x, shape));
    const told = document.createElement("div");
    if (classes) {
      const best = out.indexOf(highest(out));
      told.textContent = best === y[0] ? `${best}` : `${best}, not ${y[0]}`;
      told.className = best === y[0] ? "" : "wrong";
    } else told.textContent = [...out.slice(0, 3)].map((v) => v.toFixed(2)).join(", ");
    figure.append(told);
    return figure;
  }));
}
function drawPicture(x, shape) {
  const canvas = document.createElement("canvas"), [h, w] = shape.slice(-2), planes = shape.length === 3 ? 3 : 1;
  [canvas.width, canvas.height] = [w, h];
  const low = lowest(x), high = highest(x), image = new ImageData(w, h);
  for (let k = 0; k < w * h; k++)
    for (let c = 0; c < 4; c++)
      image.data[4 * k + c] = c === 3 ? 255 : 255 * (x[(planes === 3 ? c : 0) * w * h + k] - low) / (high - low || 1);
  canvas.getContext("2d").putImageData(image, 0, 0);
  return canvas;
}
