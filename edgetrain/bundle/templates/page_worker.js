// Trains, and saves the state in IndexedDB after each minibatch, in the older of two slots.
const { init, samplesOf: fileOf, madeUp, check, facts } = await import(MODULE);
let net, base, data, database, newest = { sequence: 0, slot: 1 }, training = false, busy = false, most = Infinity;
let before, drawn_ = 0, told = 0, from = 0, seen = 0, filled = 0, evaluated = -1, samples = "";
let own = [], names = NAMES, look = {}, shown, left = Infinity, lesson = 0, between = [];
const EVERY = 100; // minibatches between evaluations
const LESSON = 20; // minibatches after a correction
const NAME = facts.name, { elements, shape } = facts.inputs[0], { target } = facts;
const TYPE = target.type === "i32" ? Int32Array : Float32Array;

const asked = (request) => new Promise((done, failed) => {
  request.onsuccess = () => done(request.result);
  request.onerror = () => failed(request.error);
});
// Only one tab at a time writes the slots; the lock is released when this worker ends.
async function alone() {
  if (!navigator.locks) return;
  const waiting = setTimeout(() => postMessage({ said: "Another tab is training this network. Waiting for it." }), 500);
  await new Promise((held) => navigator.locks
    .request(`edgetrain ${HOME}/${NAME}`, () => (held(), new Promise(() => {})))
    .catch(held)); // pages without storage have no locks
  clearTimeout(waiting);
}
// Without storage, `database` stays undefined: the page says so, and trains anyway.
async function opened() {
  const request = indexedDB.open(`edgetrain ${HOME}/${NAME}`, 2);
  request.onupgradeneeded = () => {
    const { result } = request, there = result.objectStoreNames;
    for (const [name, options] of [["slots"], ["own", { autoIncrement: true }], ["names"]])
      if (!there.contains(name)) result.createObjectStore(name, options);
  };
  database = await asked(request);
}
const store = (name, mode) => database.transaction(name, mode).objectStore(name);
async function restored() {
  const slots = store("slots");
  const found = (await Promise.all([0, 1].map((slot) => asked(slots.get(slot)))))
    .map((kept, slot) => ({ ...kept, slot })).filter((kept) => kept.bytes)
    .sort((a, b) => b.sequence - a.sequence);
  newest = found.find((kept) => net.load(kept.bytes)) ?? { sequence: 0, slot: 1 };
  own = await asked(store("own").getAll());
  names = (await asked(store("names").get(0))) ?? NAMES;
}
function saved() {
  if (!database) return;
  const bytes = net.save(), slot = 1 - newest.slot, sequence = newest.sequence + 1;
  return new Promise((done, failed) => {
    const work = database.transaction("slots", "readwrite");
    work.objectStore("slots").put({ sequence, bytes }, slot);
    work.oncomplete = () => { newest = { sequence, slot }; done(); };
    work.onerror = work.onabort = () => failed(work.error);
  });
}
async function fetched() {
  if (SAMPLES) return based(fileOf(SAMPLES.buffer), `${NAME}.samples`);
  if (MODULE.startsWith("data:")) return;
  const answer = await fetch(`${HOME}/${NAME}.samples`).catch(() => undefined);
  if (answer?.ok) based(fileOf(await answer.arrayBuffer()), `${NAME}.samples`);
}
const simple = !facts.lengths && facts.inputs.length === 1 && facts.inputs[0].type === "f32";
const classes = target.type === "i32" && target.elements === 1 ? target.limit : 0;
/** A total, also of counts by length. */
const sum = (counts) => [counts].flat().reduce((all, n) => all + n, 0);
const held = () => sum(data.held ?? (data.heldY ? data.heldY.length / target.elements : 0));

/** A sample in the network's types. */
function taken(data, k, training) {
  const x = new Float32Array(elements), y = new TYPE(target.elements);
  if (data.sample) data.sample(k, x, y, training);
  else {
    const [all, targets] = training ? [data.x, data.y] : [data.heldX, data.heldY];
    const some = all.subarray(k * elements, (k + 1) * elements);
    const factor = Math.fround(data.factor), shift = Math.fround(data.shift);
    if (some instanceof Uint8Array) some.forEach((v, e) => { x[e] = Math.fround(v * factor) + shift; });
    else x.set(some);
    y.set(targets.subarray(k * target.elements, (k + 1) * target.elements));
  }
  return { x, y };
}
function based(given, name) {
  [base, samples] = [given, name];
  const count = base.train ?? base.y.length / target.elements;
  if (simple) look = looks(Array.from({ length: Math.min(count, 500) }, (_, k) => taken(base, k, true).x), shape);
}
/** Training samples: the file's and the user's own, or generated ones if there are none. */
function given() {
  const fit = own.filter(({ x, bytes, y }) => !facts.lengths && (x ?? bytes).length === elements &&
    y.length === target.elements && (!classes || y[0] < classes));
  if (!fit.length) return base ?? (OWN ? undefined : madeUp());
  const counted = base ? { train: base.train ?? base.y.length / target.elements,
    held: base.held ?? (base.heldY ? base.heldY.length / target.elements : 0) } : { train: 0, held: 0 };
  const one = (k, training) => taken(base, k, training);
  return mixed(counted, fit.map((own) => ({ get x() { return inputOf(own); }, y: own.y })), one, facts.minibatch);
}
function renewed() {
  data = given() ?? { train: 0, held: 0, sample: () => {} };
  const { sample } = data;
  if (facts.lengths) data = { ...data, sample: (index, x, y, training) => {
    filled += training;
    sample(index, x, y, training);
  } };
  net.data(data);
  const count = own.length ? `${own.length} of your own samples` : "";
  postMessage({ own: own.length, names, look,
    samples: [base ? samples : "", count].filter(Boolean).join(" and ") || (OWN ? "" : "generated samples") });
}

function drawnArena() {
  const arena = net.arena, size = 64 * Math.max(1, Math.ceil(arena.length / 64 / 8192));
  const words = new Uint32Array(arena.buffer, arena.byteOffset, arena.length / 4).slice();
  const cells = new Uint8Array(Math.ceil(arena.length / size));
  if (before) for (let k = 0; k < words.length; k++)
    if (words[k] !== before[k]) cells[Math.floor(4 * k / size)] = 1;
  before = words;
  return { cells, size };
}
function predicted() {
  if (!facts.output || !simple || !data.train && !data.y) return;
  const training = !held(), count = Math.min(12, training ? data.train ?? 12 : held());
  return Array.from({ length: count }, (_, k) => {
    const one = taken(data, k, training);
    return { ...one, out: net.predict(one.x) };
  });
}
function tell(force) {
  const now = performance.now();
  if (!force && now - told < 100) return;
  const report = net.progress;
  const speed = seen && now > from ? (1000 * seen) / (now - from) : undefined;
  const message = { report, speed, training, memory: net.memoryBytes, arena: drawnArena() };
  if (held() && (force || Math.floor(report.step / EVERY) !== evaluated)) {
    evaluated = Math.floor(report.step / EVERY);
    message.evaluation = net.evaluate();
  }
  if (force || now - drawn_ > 1000) { message.predictions = predicted(); drawn_ = now; }
  if (!training) message.digest = net.digest();
  told = now;
  postMessage(message);
}
const rest = () => new Promise((done) => { const c = new MessageChannel(); c.port1.onmessage = done; c.port2.postMessage(0); });
const failed = (error) => postMessage({ error: String(error.message ?? error) });
/** Do something between two minibatches. */
function calmly(work) {
  between.push(work);
  run();
}
/** Do pending work, then train minibatch by minibatch. */
async function run() {
  if (busy) return;
  busy = true;
  let steps = 0;
  try {
    for (;;) {
      while (between.length) try { await between.shift()(); } catch (error) { failed(error); }
      if (!training || net.progress.step >= most || left <= 0) {
        training = false;
        if (!lesson) break;
        guessed();
        postMessage({ learned: lesson });
        lesson = 0;
        continue;
      }
      if (!steps++) [from, seen] = [performance.now(), 0];
      await minibatch();
    }
  } catch (error) {
    failed(error);
    training = false;
  }
  busy = false;
  if (steps) tell(true);
  const { loss } = net.progress;
  if (steps && !Number.isFinite(loss))
    failed(new Error(`The loss is ${loss}. Start over; if it happens again, compile with a lower --lr.`));
  if (between.length) run();
}
async function minibatch() {
  let report, turn = performance.now();
  while (!(report = net.poll()))
    if (performance.now() - turn > 20) { await rest(); turn = performance.now(); }
  await saved();
  seen += facts.lengths ? filled : facts.minibatch;
  filled = 0;
  left--;
  postMessage({ loss: report.loss, step: report.step });
  tell(false);
}

/** The page's sample. Pictures stay bytes, which take a quarter of the memory. */
function sampleOf({ values, pixels, strokes, sound }) {
  if (values) return { x: Float32Array.from(values) };
  if (sound) return { x: soundValues(sound.samples, sound.rate, shape) };
  const [channels, height, width] = pictureOf(shape);
  const bytes = pixels ? covering(pixels.bytes, pixels.width, pixels.height, channels, height, width)
    : repeated(drawn(strokes, height, width, look), channels);
  return { bytes, range: { low: look.low, high: look.high } };
}
const repeated = (plane, channels) => {
  const out = new Uint8Array(channels * plane.length);
  for (let c = 0; c < channels; c++) out.set(plane, c * plane.length);
  return out;
};
const inputOf = ({ x, bytes, range }) => x ?? valuesOf(bytes, shape, range);
function guessed(id) {
  if (!shown) return;
  const x = inputOf(shown);
  postMessage({ guess: net.predict(x), x, id });
}
/** Add samples, and train on all samples for a while. */
async function learn(some) {
  await Promise.all(some.map((one) => database && asked(store("own", "readwrite").add(one))));
  for (const one of some) own.push(one);
  renewed();
  if (!training) [training, left, lesson] = [true, LESSON, some.length];
  else if (lesson) [left, lesson] = [LESSON, lesson + some.length];
  else postMessage({ learned: some.length, meanwhile: true });
}
async function renamed(given) {
  names = given;
  if (database) await asked(store("names", "readwrite").put(names, 0));
}
async function table({ text, label }) {
  const found = rowsOf(text, elements, target, names, classes, label);
  if (found.names.length > names.length) await renamed(found.names);
  const told = found.rows.filter(({ y }) => y);
  if (told.length) return learn(told);
  postMessage({ table: found.rows.map(({ x }) => ({ x, out: net.predict(x) })) });
}

function answered(asks) {
  if (asks.steps) most = asks.steps;
  if (asks.train === false) training = false;
  if (asks.train) calmly(() => {
    if (data.train === 0) throw new Error("No samples yet: " +
      (simple ? "show some, and label them." : "choose a file."));
    [training, left, lesson] = [true, Infinity, 0];
  });
  if (asks.samples) calmly(() => {
    based(fileOf(asks.samples), asks.name);
    return begun(false);
  });
  if (asks.again) calmly(async () => {
    if (database) await asked(store("slots", "readwrite").clear());
    await begun(false);
    guessed();
  });
  if (asks.keep) calmly(() => postMessage({ kept: net.save() }));
  if (asks.look) calmly(() => { shown = sampleOf(asks.look); guessed(asks.id); });
  if (asks.learn) calmly(() => shown && learn([{ ...shown, y: TYPE.from(asks.learn) }]));
  if (asks.table) calmly(() => table(asks.table));
  if (asks.names) calmly(() => renamed(asks.names));
  if (asks.forget) calmly(async () => {
    if (database) await asked(store("own", "readwrite").clear());
    own = [];
    renewed();
    training = false;
  });
}
onmessage = ({ data: asks }) => answered(asks);
async function begun(restoring) {
  net = await init({ wasm: net?.module ?? WASM });
  training = false;
  before = undefined;
  evaluated = -1;
  if (restoring) await restored();
  renewed();
  postMessage({ ready: true, facts, classes, base: Boolean(base), step: net.progress.step });
  tell(true);
}
try {
  await alone();
  await opened().catch(() => postMessage({ fleeting: true }));
  await fetched();
  await begun(Boolean(database));
  postMessage({ check: await check({ wasm: net.module }) });
} catch (error) {
  failed(error);
}
