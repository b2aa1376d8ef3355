// One contender of benchmarks/tfjs.py: trains the digits in Node.js and prints what it took.
// usage: node tfjs.mjs CONTENDER FOLDER STEPS
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";
import { said, status, timed } from "./tfjs_timing.mjs";

const [contender, folder, count] = process.argv.slice(2), steps = Number(count);
const { minibatch, lr, momentum } = JSON.parse(readFileSync(`${folder}/task.json`, "utf8"));
const floats = (name) => new Float32Array(new Uint8Array(readFileSync(`${folder}/${name}`)).buffer);
const whole = (name) => new Int32Array(new Uint8Array(readFileSync(`${folder}/${name}`)).buffer);
const [x, y, heldX, heldY] = [floats("x"), whole("y"), floats("held_x"), whole("held_y")];

async function ours(name) {
  const { init } = await import(pathToFileURL(`${folder}/${name}/digits.js`));
  const data = { x, y, heldX, heldY }, net = await init({ data });
  const other = await init({ data, wasm: net.module });
  const times = await timed(steps, () => other.step(), () => net.step());
  const peak = status("VmHWM");
  return { times, peak, own: net.memoryBytes, accuracy: net.evaluate().accuracy };
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
  const times = await timed(steps, (k) => step(warm, k), (k) => step(model, k));
  warm.dispose();
  const peak = status("VmHWM"), { peakBytes: own } = await tf.profile(() => step(model, 0));
  const found = await model.predict(tf.tensor(heldX, [heldY.length, 8, 8, 1])).argMax(1).data();
  return { times, peak, own, accuracy: found.filter((k, row) => k === heldY[row]).length / heldY.length };
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
await said(() => (kind === "ours" ? ours(which) : theirs(which)));
