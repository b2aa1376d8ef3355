// The user's own samples: shown, predicted, corrected, learned.
const WAYS = { draw: "Draw", pictures: "Pictures", camera: "Camera", sound: "Sound", rows: "Rows" };
const MANY = 20; // classes that are listed
const FEW = 16; // target values that can be typed
let classes = 0, names = [], way, strokes = [], queue = [], stream, watching, asking = false, waiting, sounding;

/** Offer the inputs that suit the network. */
function offer(data) {
  ({ classes } = data);
  const why = unfit();
  at("why").hidden = !why;
  at("why").textContent = why;
  at("own").hidden = Boolean(why);
  if (why || way) return;
  const { shape } = facts.inputs[0], picture = pictureOf(shape), sound = soundOf(shape);
  const sounds = sound && (SETTINGS.rate || !data.base), pictures = picture && !SETTINGS.rate;
  const offered = { draw: pictures && picture[0] === 1, pictures, camera: pictures, sound: sounds, rows: true };
  at("ways").replaceChildren(...Object.keys(WAYS).filter((key) => offered[key]).map((key) => {
    const button = document.createElement("button");
    button.textContent = WAYS[key];
    button.dataset.key = key;
    button.onclick = () => choose(key);
    return button;
  }));
  at("naming").hidden = !classes;
  at("rate").value = SETTINGS.rate ?? 16000;
  at("column").value = SETTINGS.label ?? "";
  const { target } = facts, last = target.elements === 1 ? "the target" : `${target.elements} targets`;
  at("form").textContent = `A row has ${facts.inputs[0].elements} numbers. Rows that also contain ${last}, at the ` +
    "end or in the label column, are learned; others are predicted.";
  choose(Object.keys(WAYS).find((key) => offered[key]));
}
/** Why the user's own samples can't be used; "" if they can. */
function unfit() {
  const { inputs, target, output } = facts, no = "You can't use your own samples: ";
  if (!output) return no + "this network can't predict.";
  if (facts.lengths) return `${no}the network has several lengths, ${facts.lengths.name}=` +
    `${facts.lengths.sets.map(({ length }) => length).join(", ")} (this page supports one).`;
  if (inputs.length > 1) return `${no}the network has ${inputs.length} inputs (this page supports one).`;
  if (inputs[0].type !== "f32") return `${no}input ${inputs[0].name} expects integers.`;
  if (target.type === "i32" && !classes) return `${no}a sample has ${target.elements} targets.`;
  if (classes && output !== classes) return `${no}the output is not one number per class.`;
  return "";
}
function choose(key) {
  if (way === key) return;
  way = key;
  for (const button of at("ways").children) button.setAttribute("aria-pressed", button.dataset.key === key);
  for (const part of document.querySelectorAll("[data-way]")) part.hidden = part.dataset.way !== key;
  stopCamera();
  [queue, strokes] = [[], []];
  paint();
  clear();
}
function clear() {
  at("guesses").replaceChildren();
  at("other").hidden = true;
  at("asked").textContent = way === "draw" ? "Draw something, and the network recognises it." : "";
  delete document.body.dataset.guess;
}
/** Request a prediction; later requests replace pending ones. */
function look(message) {
  if (asking) { waiting = message; return; }
  asking = true;
  worker.postMessage({ look: message });
}
function owned(data) {
  ({ names, samples } = data);
  at("mine").textContent = data.own.toLocaleString();
  at("forget").disabled = !data.own;
  if (document.activeElement !== at("names")) at("names").value = names.join("\n");
  document.body.dataset.own = data.own;
}
function failed(error) {
  asking = false;
  waiting = undefined;
  said(error, true);
}
const called = (k) => names[k] || String(k);
function guess({ guess: out, x }) {
  asking = false;
  if (waiting) { const next = waiting; waiting = undefined; look(next); }
  if (way === "draw" && !strokes.length) return;
  if (way === "pictures" || way === "sound") show(x);
  if (classes) guessClass([...out]);
  else guessNumbers(out);
}
function guessClass(out) {
  const some = out.every((v) => v >= 0 && v <= 1) && Math.abs(out.reduce((a, b) => a + b) - 1) < .01;
  const top = highest(out), parts = some ? out : out.map((v) => Math.exp(v - top));
  const sum = parts.reduce((a, b) => a + b), best = out.indexOf(top);
  const order = out.map((_, k) => k);
  if (classes > MANY) order.sort((a, b) => out[b] - out[a]).splice(8);
  at("asked").textContent = `Recognised: ${called(best)}. If that is wrong, click the right class.`;
  at("guesses").replaceChildren(...order.map((k) => {
    const button = document.createElement("button"), [name, bar, share] = ["span", "i", "span"].map((tag) =>
      button.appendChild(document.createElement(tag)));
    button.className = k === best ? "guess best" : "guess";
    button.dataset.k = k;
    name.textContent = called(k);
    bar.style.width = `${(100 * parts[k]) / sum}%`;
    share.textContent = `${Math.round((100 * parts[k]) / sum)} %`;
    button.onclick = () => teach([k]);
    return button;
  }));
  at("other").hidden = classes <= MANY;
  at("known").replaceChildren(...names.map((name) => Object.assign(document.createElement("option"), { value: name })));
  if (!asking) document.body.dataset.guess = best; // of the whole drawing
}
function guessNumbers(out) {
  const { elements } = facts.target, many = elements > FEW;
  at("asked").textContent = many ? "Output:" : "Output. Correct the numbers that are wrong.";
  if (many) { at("guesses").textContent = [...out].slice(0, FEW).map((v) => v.toPrecision(4)).join(", ") + ", ..."; return; }
  const fields = Array.from({ length: elements }, (_, k) => {
    const field = document.createElement("input");
    [field.type, field.step] = ["number", "any"];
    field.value = out.length === elements ? Number(out[k].toPrecision(5)) : "";
    return field;
  });
  const button = document.createElement("button");
  button.textContent = "Learn";
  button.onclick = () => {
    const values = fields.map((field) => (field.value === "" ? NaN : Number(field.value)));
    if (values.every(Number.isFinite)) teach(values);
  };
  at("guesses").replaceChildren(...fields.map((field) => {
    const label = document.createElement("label");
    label.append(field);
    return label;
  }), button);
  if (!asking) document.body.dataset.guess = out[0];
}
/** Learn the shown sample with this target. */
function teach(values) {
  worker.postMessage({ learn: values });
  if (way !== "pictures" || !queue.length) return;
  const all = at("every").querySelector("input").checked;
  while (queue.length > 1 && all) {
    queue.shift();
    worker.postMessage({ look: { pixels: queue[0] } });
    worker.postMessage({ learn: values });
  }
  queue.shift();
  at("every").hidden = queue.length < 2;
  if (queue.length) look({ pixels: queue[0] });
}
function learned({ learned: count, meanwhile }) {
  const lessons = Number(document.body.dataset.lessons ?? 0) + 1;
  said(`Learned ${count === 1 ? "it" : `${count} samples`}${meanwhile ? "" : ", in 20 minibatches"}` +
    `${samples && `; now trained on ${samples}`}.`);
  document.body.dataset.lessons = lessons;
}

// Drawing.
const pen = at("draw").getContext("2d");
function paint() {
  const canvas = at("draw"), side = canvas.width = canvas.height = 320;
  pen.fillStyle = "#000";
  pen.fillRect(0, 0, side, side);
  [pen.strokeStyle, pen.lineWidth, pen.lineCap, pen.lineJoin] = ["#fff", .11 * side, "round", "round"];
  for (const line of strokes) {
    pen.beginPath();
    for (const [x, y] of [line[0], ...line]) pen.lineTo(x * side, y * side + .01);
    pen.stroke();
  }
}
const point = (event) => {
  const box = at("draw").getBoundingClientRect();
  return [(event.clientX - box.left) / box.width, (event.clientY - box.top) / box.height];
};
at("draw").onpointerdown = (event) => {
  event.preventDefault();
  at("draw").setPointerCapture?.(event.pointerId);
  strokes.push([point(event)]);
  paint();
};
at("draw").onpointermove = (event) => {
  if (!event.buttons || !strokes.length) return;
  for (const one of event.getCoalescedEvents?.().length ? event.getCoalescedEvents() : [event])
    strokes.at(-1).push(point(one));
  paint();
  look({ strokes });
};
at("draw").onpointerup = () => strokes.length && look({ strokes });
at("wipe").onclick = () => { strokes = []; paint(); clear(); };

// Pictures from files and the camera.
function pixelsOf(source, width, height) {
  const canvas = new OffscreenCanvas(width, height), context = canvas.getContext("2d", { willReadFrequently: true });
  context.drawImage(source, 0, 0);
  return { bytes: context.getImageData(0, 0, width, height).data, width, height };
}
at("pictures").onchange = async () => {
  queue = [];
  for (const file of at("pictures").files) {
    const picture = await createImageBitmap(file).catch(() => undefined);
    if (picture) queue.push(pixelsOf(picture, picture.width, picture.height));
    else said(`${file.name}: this browser can't read the picture.`, true);
  }
  at("every").hidden = queue.length < 2;
  if (queue.length) look({ pixels: queue[0] });
};
function show(x) {
  const { shape } = facts.inputs[0], picture = pictureOf(shape), canvas = document.querySelector(`[data-way=${way}] .seen`);
  const sound = way === "sound" && soundOf(shape);
  if (sound?.length === 1) return wave(canvas, x);
  const [channels, h, w, last] = sound ? [1, ...sound] : picture, low = x.reduce((a, b) => Math.min(a, b));
  const high = x.reduce((a, b) => Math.max(a, b)), image = new ImageData(w, h);
  for (let k = 0; k < w * h; k++) for (let c = 0; c < 4; c++) {
    const plane = channels === 3 ? c : 0, to = sound ? (h - 1 - Math.floor(k / w)) * w + k % w : k; // low frequencies at the bottom
    image.data[4 * to + c] = c === 3 ? 255 : 255 * (x[last ? channels * k + plane : plane * w * h + k] - low) / (high - low || 1);
  }
  [canvas.width, canvas.height] = [w, h];
  canvas.getContext("2d").putImageData(image, 0, 0);
}
function wave(canvas, x) {
  [canvas.width, canvas.height] = [320, 100];
  const context = canvas.getContext("2d");
  context.strokeStyle = getComputedStyle(canvas).getPropertyValue("--accent");
  context.beginPath();
  for (let k = 0; k < 320; k++) {
    const part = x.subarray(Math.floor(k * x.length / 320), Math.floor((k + 1) * x.length / 320) + 1);
    const most = part.reduce((a, b) => Math.max(a, Math.abs(b)), 0);
    context.moveTo(k, 50 - 48 * Math.min(1, most));
    context.lineTo(k, 51 + 48 * Math.min(1, most));
  }
  context.stroke();
}
const absent = (what, error) => said(`No ${what}: ${error.message || error.name}. It needs your permission, and ` +
  "a page served from localhost or over https.", true);
at("camera").onclick = async () => {
  if (stream) { stopCamera(); return; }
  try {
    stream = await navigator.mediaDevices.getUserMedia({ video: { width: 640, height: 480 } });
  } catch (error) { return absent("camera", error); }
  at("camera").textContent = "Stop the camera";
  at("video").srcObject = stream;
  await at("video").play();
  watching = setInterval(() => {
    const { videoWidth, videoHeight } = at("video");
    if (videoWidth && !asking) look({ pixels: pixelsOf(at("video"), videoWidth, videoHeight) });
  }, 200);
};
function stopCamera() {
  clearInterval(watching);
  for (const track of stream?.getTracks() ?? []) track.stop();
  [stream, watching] = [undefined, undefined];
  at("camera").textContent = "Start the camera";
}

// Sounds. A context with the training data's sample rate makes the browser resample.
const rate = () => Number(at("rate").value) || 16000;
const heard = (samples) => look({ sound: { samples, rate: rate() } });
at("record").onclick = async () => {
  if (sounding) return;
  sounding = true;
  try {
    const found = await navigator.mediaDevices.getUserMedia({ audio: { channelCount: 1 } });
    const context = new AudioContext({ sampleRate: rate() }), parts = [];
    const seconds = spanned(facts.inputs[0].shape, rate()) / rate();
    const node = context.createScriptProcessor(2048, 1, 1);
    node.onaudioprocess = ({ inputBuffer }) => parts.push(inputBuffer.getChannelData(0).slice());
    context.createMediaStreamSource(found).connect(node).connect(context.destination);
    at("record").textContent = "Listening ...";
    await new Promise((done) => setTimeout(done, 1000 * seconds + 300));
    found.getTracks().forEach((track) => track.stop());
    await context.close();
    const all = new Float32Array(parts.reduce((sum, part) => sum + part.length, 0));
    parts.reduce((at, part) => (all.set(part, at), at + part.length), 0);
    heard(all);
  } catch (error) { absent("microphone", error); }
  sounding = false;
  at("record").textContent = "Record";
};
at("sound").onchange = async () => {
  const [file] = at("sound").files;
  if (!file) return;
  try {
    const found = await new OfflineAudioContext(1, 1, rate()).decodeAudioData(await file.arrayBuffer());
    const planes = Array.from({ length: found.numberOfChannels }, (_, c) => found.getChannelData(c));
    heard(planes[0].map((_, k) => planes.reduce((sum, plane) => sum + plane[k], 0) / planes.length));
  } catch (error) { said(`${file.name}: ${error.message || "this browser can't read the sound"}`, true); }
};

// Rows of a table.
at("table").onchange = async () => {
  const [file] = at("table").files;
  if (file) worker.postMessage({ table: { text: await file.text(), label: at("column").value.trim() } });
  at("table").value = "";
};
at("values").onchange = () => {
  const values = at("values").value.trim().split(/[\s,;]+/).map(Number), { elements } = facts.inputs[0];
  if (values.length === elements && values.every(Number.isFinite)) look({ values });
  else said(`The row has ${values.length} values; expected ${elements} numbers.`, true);
};
function tabled(rows) {
  const table = document.createElement("table"), line = (cells) => {
    const row = table.insertRow();
    for (const cell of cells) row.insertCell().textContent = cell;
  };
  line(["row", classes ? "class" : "prediction"]);
  rows.slice(0, 200).forEach(({ out }, k) => line([k + 1, classes ? called(out.indexOf(highest(out)))
    : [...out].slice(0, FEW).map((v) => v.toPrecision(4)).join(", ")]));
  at("found").replaceChildren(table);
  said(`${rows.length} rows predicted${rows.length > 200 ? "; the first 200 are shown" : ""}.`);
}

at("is").onclick = () => {
  const word = at("named").value.trim(), k = names.includes(word) ? names.indexOf(word) : /^\d+$/.test(word) ? Number(word) : -1;
  if (k >= 0 && k < classes) teach([k]);
  else said(`Class '${word}'; expected a name, or a number below ${classes}.`, true);
};
at("names").onchange = () => {
  names = at("names").value.split("\n").map((name) => name.trim()).slice(0, classes);
  while (names.length && !names.at(-1)) names.pop();
  worker.postMessage({ names });
  if (at("guesses").children.length) for (const button of at("guesses").children)
    if (button.dataset.k) button.firstChild.textContent = called(button.dataset.k);
};
at("forget").onclick = () => worker.postMessage({ forget: true });
