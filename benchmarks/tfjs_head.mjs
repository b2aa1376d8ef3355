// One contender of benchmarks/tfjs_head.py: trains the head of a frozen MobileNetV2 in Node.js.
// usage: node tfjs_head.mjs CONTENDER FOLDER STEPS
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";
import { gzipSync } from "node:zlib";
import { said, status, timed } from "./tfjs_timing.mjs";

const [contender, folder, count] = process.argv.slice(2), steps = Number(count);
const { minibatch, lr, momentum, size, classes, samples, rows, stem, last } =
  JSON.parse(readFileSync(`${folder}/task.json`, "utf8"));
const each = 3 * size * size, x = new Float32Array(samples * each), y = new Int32Array(samples);
for (let k = 0; k < x.length; k++) x[k] = Math.sin(k * k); // made up: what a step takes is the same
for (let k = 0; k < samples; k++) y[k] = k % classes;

async function ours(name) {
  const { init } = await import(pathToFileURL(`${folder}/${name}/head.js`));
  const net = await init({ data: { x, y } });
  const times = await timed(steps, () => net.step(), () => net.step());
  return { times, peak: status("VmHWM"), own: net.memoryBytes };
}

async function theirs(backend) {
  const require = createRequire(`${folder}/npm/package.json`);
  const tf = require("@tensorflow/tfjs");
  if (backend === "wasm") require("@tensorflow/tfjs-backend-wasm");
  if (!(await tf.setBackend(backend))) throw new Error(`no backend ${backend}`);
  await tf.ready();
  const features = mobilenet(tf), head = tf.sequential();
  head.add(tf.layers.dense({ units: classes, inputShape: [last] }));
  const loss = (target, found) => tf.losses.softmaxCrossEntropy(target, found);
  head.compile({ optimizer: tf.train.momentum(lr, momentum, true), loss });
  const step = async (k) => {
    const chosen = Array.from({ length: minibatch }, (_, row) => (k * minibatch + row) % samples);
    const some = new Float32Array(minibatch * each);
    chosen.forEach((at, row) => some.set(x.subarray(at * each, (at + 1) * each), row * each));
    const input = tf.tensor(some, [minibatch, size, size, 3]), found = features.predict(input);
    const target = tf.oneHot(tf.tensor1d(chosen.map((at) => y[at]), "int32"), classes);
    await head.trainOnBatch(found, target);
    tf.dispose([input, found, target]);
  };
  const times = await timed(steps, step, step);
  const peak = status("VmHWM"), { peakBytes: own } = await tf.profile(() => step(0));
  const saved = await new Promise((done) => features.save(tf.io.withSaveHandler(async (parts) => {
    done(parts);
    return { modelArtifactsInfo: { dateSaved: new Date(), modelTopologyType: "JSON" } };
  })));
  const weights = gzipSync(new Uint8Array(saved.weightData)).length; // which a page fetches too
  return { times, peak, own, weights };
}

/** The features of examples/zoo/mobilenet.py, frozen, with weights of its own. */
function mobilenet(tf) {
  const { layers } = tf, input = tf.input({ shape: [size, size, 3] });
  const normed = (layer, from) => layers.batchNormalization().apply(layer.apply(from));
  const act = (from) => layers.reLU({ maxValue: 6 }).apply(from);
  const conv = (filters, kernelSize, strides) =>
    layers.conv2d({ filters, kernelSize, strides, padding: "same", useBias: false });
  let at = act(normed(conv(stem, 3, 2), input)), channels = stem;
  for (const [expansion, filters, repeats, first] of rows) {
    for (let k = 0; k < repeats; k++) {
      const strides = k ? 1 : first, kept = at;
      if (expansion > 1) at = act(normed(conv(channels * expansion, 1, 1), at));
      const deep = { kernelSize: 3, strides, padding: "same", useBias: false };
      at = act(normed(layers.depthwiseConv2d(deep), at));
      at = normed(conv(filters, 1, 1), at);
      if (strides === 1 && channels === filters) at = layers.add().apply([kept, at]);
      channels = filters;
    }
  }
  at = layers.globalAveragePooling2d({}).apply(act(normed(conv(last, 1, 1), at)));
  return tf.model({ inputs: input, outputs: at });
}

const [kind, which] = contender.split(":");
await said(() => (kind === "ours" ? ours(which) : theirs(which)));
