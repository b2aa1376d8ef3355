// One contender of benchmarks/tfjs.py: trains the digits in Node.js and prints what it took.
// usage: node tfjs.mjs CONTENDER FOLDER STEPS
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const [contender, folder, count] = process.argv.slice(2), steps = Number(count), WARM = 1000; // ms
const { minibatch, lr, momentum } = JSON.parse(readFileSync(`${folder}/task.json`, "utf8"));
const floats = (name) => new Float32Array(new Uint8Array(readFileSync(`${folder}/${name}`)).buffer);
const whole = (name) => new Int32Array(new Uint8Array(readFileSync(`${folder}/${name}`)).buffer);
const [x, y, heldX, heldY] = [floats("x"), whole("y"), floats("held_x"), whole("held_y")];
const status = (field) => // bytes; the most of getrusage would count the parent's, too
  1024 * Number(readFileSync("/proc/self/status", "utf8").match(new RegExp(`${field}:\\s+(\\d+)`))[1]);
const before = status("VmRSS"), times = [];

/** Time steps, after others of a network of its own, for which engines compile the code. */
async function timed(warm, step) {
  for (const start = performance.now(); performance.now() - start < WARM;) {
    await warm(0);
    await new Promise((done) => setTimeout(done)); // what was compiled is taken up
  }
  for (let k = 0; k < steps; k++) {
    const start = performance.now();
    await step(k);
    times.push(performance.now() - start);
  }
}

async function ours(name) {
  const { init } = await import(pathToFileURL(`${folder}/${name}/digits.js`));
  const data = { x, y, heldX, heldY }, net = await init({ data });
  const other = await init({ data, wasm: net.module });
  await timed(() => other.step(), () => net.step());
  const peak = status("VmHWM");
  return { peak, own: net.memoryBytes, accuracy: net.evaluate().accuracy };
}

async function theirs(backend) {
  const require = createRequire(`${folder}/npm/package.json`);
  const tf = require("@tensorflow/tfjs");
  if (backend === "wasm") require("@tensorflow/tfjs-backend-wasm");
  if (!(await tf.setBackend(backend))) throw new Error(`no backend ${backend}`);
  await tf.ready();
  const [warm, model] = [made(tf), made(tf)], train = y.length, each = 64;
  const step = async (model, k) => {
    const chosen = Array.from({ length: minibatch }, (_, row) => (k * minibatch + row) * 7 % train);
    const some = new Float32Array(minibatch * each);
    chosen.forEach((at, row) => some.set(x.subarray(at * each, (at + 1) * each), row * each));
    const input = tf.tensor(some, [minibatch, 8, 8, 1]);
    const target = tf.oneHot(tf.tensor1d(chosen.map((at) => y[at]), "int32"), 10);
    await model.trainOnBatch(input, target);
    tf.dispose([input, target]);
  };
  await timed((k) => step(warm, k), (k) => step(model, k));
  warm.dispose();
  const peak = status("VmHWM"), { peakBytes: own } = await tf.profile(() => step(model, 0));
  const found = await model.predict(tf.tensor(heldX, [heldY.length, 8, 8, 1])).argMax(1).data();
  return { peak, own, accuracy: found.filter((k, row) => k === heldY[row]).length / heldY.length };
}

/** The network of examples/digits/make_model.py, with weights of its own. */
function made(tf) {
  const { layers } = tf, model = tf.sequential();
  [8, 16, 24].forEach((filters, k) => {
    const first = k ? {} : { inputShape: [8, 8, 1] };
    model.add(layers.conv2d({ filters, kernelSize: 3, padding: "same", useBias: false, ...first }));
    model.add(layers.batchNormalization({ momentum: .9 }));
    model.add(layers.reLU());
    if (k < 2) model.add(layers.maxPooling2d({ poolSize: 2 }));
  });
  model.add(layers.globalAveragePooling2d({}));
  model.add(layers.dense({ units: 10 }));
  const loss = (target, found) => tf.losses.softmaxCrossEntropy(target, found);
  model.compile({ optimizer: tf.train.momentum(lr, momentum, true), loss });
  return model;
}

const [kind, which] = contender.split(":");
try {
  const found = await (kind === "ours" ? ours(which) : theirs(which));
  const counted = times.sort((a, b) => a - b);
  const ms = counted[counted.length >> 1];
  console.log(JSON.stringify({ ...found, ms, grown: found.peak - before, peak: undefined }));
} catch (error) {
  console.log(JSON.stringify({ error: String(error.message ?? error).split("\n")[0].slice(0, 200) }));
}
