// Written by edgetrain; types are in the .d.ts file.

const NET = null; /* facts of this network */

const DONE = 0, MORE = -6;
const MESSAGES = {
  "-1": "a sample's value is not finite, or an integer is out of range",
  "-2": "a minibatch is unfinished (poll until it is done), or the sample callback runs",
  "-4": "the saved state could not be read back",
  "-5": "an argument is out of range, or there is no data: call data() first",
  "-7": "a failed step changed weights: load a saved state, then call skip()",
};
const TASKS = { input: "predict", schedule: "schedule or its totalSteps", pass: "skip", eval: "evaluate",
  length: "predict" };
const TYPES = { f32: Float32Array, i32: Int32Array };
const U8 = 4;

/** An error of the network; `code` is the C library's error code. */
export class TrainingError extends Error {
  constructor(what, code) {
    super(`${NET.name}: ${what}: ${MESSAGES[code] ?? `the sample callback returned ${code}`}`);
    this.name = "TrainingError";
    this.code = code;
  }
}

async function compiled(source) {
  if (source instanceof WebAssembly.Module) return source;
  if (source instanceof ArrayBuffer || ArrayBuffer.isView(source)) return WebAssembly.compile(source);
  const url = new URL(source ?? `./${NET.name}.wasm`, import.meta.url);
  if (url.protocol === "file:" && typeof process === "object" && process.versions?.node) {
    const { readFile } = await import("node:fs/promises");
    return WebAssembly.compile(await readFile(url));
  }
  const answer = await fetch(url);
  if (!answer.ok) throw new Error(`${url}: ${answer.status} ${answer.statusText}`);
  return WebAssembly.compile(await answer.arrayBuffer());
}

/** The network with its initial weights. */
export async function init(options = {}) {
  return Net.open(options);
}

class Net {
  #module; #x; #net; #fill; #store; #scratch; #user; #thrown; #busy; #scale; #slots = [];

  static async open(options) {
    const net = new Net();
    net.#module = await compiled(options.wasm);
    net.#x = (await WebAssembly.instantiate(net.#module, { env: net.#env() })).exports;
    net.#store = net.#x.net_links.value;
    net.#scratch = net.#x.net_scratch.value;
    net.#fill = net.#view().getUint32(net.#store + 16, true);
    const values = net.#view().getUint32(net.#store + 20, true);
    if (NET.planes > 1) turned(new Uint32Array(net.#x.memory.buffer, values, NET.initial / 4));
    net.#net = net.#x.net_start();
    net.schedule(options.schedule);
    if (options.data) net.data(options.data);
    return net;
  }

  #env() {
    return {
      fill: (_, split, sample, x, y) => this.#filled(split, Number(sample), x, y),
      erase: (_, slot) => { this.#slots[slot] = new Uint8Array(NET.stored).fill(255); return 0; },
      write: (_, slot, at, from, bytes) => {
        if (!this.#slots[slot]) return 1;
        this.#slots[slot].set(this.#bytes(from, bytes), at);
        return 0;
      },
      read: (_, slot, at, to, bytes) => {
        if (!this.#slots[slot]) return 1;
        this.#bytes(to, bytes).set(this.#slots[slot].subarray(at, at + bytes));
        return 0;
      },
    };
  }

  /** Facts about the network: inputs, outputs, sizes in bytes, names of weights. */
  get facts() { return NET; }
  /** The compiled module; it can be sent to a worker. */
  get module() { return this.#module; }
  /** Bytes of all memory: constants, stack and arena. */
  get memoryBytes() { return this.#x.memory.buffer.byteLength; }
  /** The arena's current contents. Do not keep this view: the memory may move. */
  get arena() { return this.#bytes(this.#net + NET.arena_at, NET.arena); }

/* begin data */
  /** Set the source of samples: a callback, or typed arrays. */
  data({ train, held = 0, sample, x, y, heldX, heldY, factor = 1, shift = 0 }) {
    let small = false;
    if (!sample) ({ train, held, sample, small } = arrays(x, y, heldX, heldY));
    if (!small && (factor !== 1 || shift)) throw new RangeError("factor and shift are for bytes");
    integers({ name: "train" }, [train]);
    integers({ name: "held" }, [held]);
    this.#call("data", this.#fill, 0, BigInt(train), BigInt(held));
    this.#scale = small ? [factor, shift] : undefined;
    this.#input(small);
    this.#user = sample;
  }

/* end data */
  /** Learning rate and schedule. Call it before the first step. */
  schedule(given = {}) {
    const { kind = "constant", lr = NET.lr, totalSteps = 0, warmupSteps = 0, size = 0,
      patience = 0, cooldown = 0, drops = [], gamma = 0, threshold = 0, minLr = 0,
      rise = 0, first = 0, last = 0, ...rest } = given;
    for (const name in rest) throw new RangeError(`schedule: unknown ${name}`);
    const number = NET.schedules.indexOf(kind);
    if (number < 0) throw new RangeError(`schedule ${kind}: expected one of ${NET.schedules.join(", ")}`);
    if (!Array.isArray(drops) && !ArrayBuffer.isView(drops))
      throw new RangeError(`schedule drops: ${drops}; expected a list of integers`);
    const counts = { totalSteps, warmupSteps, size: drops.length || size, patience, cooldown };
    for (let k = 0; k < 8; k++) counts[`drops[${k}]`] = drops[k] ?? 0;
    const numbers = { lr, gamma, threshold, minLr, rise, first, last };
    for (const name in counts)
      if (!Number.isSafeInteger(counts[name])) throw new RangeError(`schedule ${name}: ${counts[name]}; expected an integer`);
    for (const name in numbers)
      if (!Number.isFinite(numbers[name])) throw new RangeError(`schedule ${name}: ${numbers[name]}; expected a number`);
    const view = this.#view(), at = this.#scratch, whole = [number, ...Object.values(counts)];
    whole.forEach((value, k) => view.setBigInt64(at + 8 * k, BigInt(value), true));
    Object.values(numbers).forEach((value, k) => view.setFloat64(at + 8 * (whole.length + k), value, true));
    this.#call("schedule", at);
  }

  /** Train on one minibatch. */
  step() {
    this.#call("step");
    return this.progress;
  }

  /** Train on the next piece of a minibatch; returns a report when the minibatch is done. */
  poll() {
    return this.#call("poll") === MORE ? undefined : this.progress;
  }

  /** Make the pieces of `poll` up to `parts` times shorter. Results stay bit-identical. */
  split(parts) {
    integers({ name: "split" }, [parts]);
    this.#call("split", parts);
  }

  /** Skip the next minibatch, which failed before (networks with fused updates). */
  skip() {
    if (!this.#x.net_pass) throw new Error("skip: for networks with fused updates");
    this.#call("pass");
    return this.progress;
  }

  /** Results of the last minibatch. */
  get progress() {
    const at = this.#scratch;
    this.#x.net_progress(this.#net, at);
    const view = this.#view(), real = (k) => view.getFloat64(at + 8 * k, true);
    return {
      step: Number(view.getBigInt64(at, true)),
      skipped: view.getBigInt64(at + 8, true) !== 0n,
      loss: real(2), gradNorm: real(3), lr: real(4), lossScale: real(5),
    };
  }

  /** Mean loss and accuracy over the evaluation samples; with several losses also each of them,
      without its weight. */
  evaluate() {
    const at = this.#scratch;
    this.#call("eval", at, at + 8);
    const view = this.#view(), accuracy = view.getFloat64(at + 8, true);
    const found = { loss: view.getFloat64(at, true), ...(NET.counts ? { accuracy } : {}) };
    if (!NET.losses[0].label) return found;
    const right = at + 8 * NET.losses.length;
    this.#call("losses", at, right);
    const real = (k) => this.#view().getFloat64(at + 8 * k, true);
    const losses = NET.losses.map(({ output, name, label, counts }, k) =>
      ({ output, name, label, loss: real(k), ...(counts ? { accuracy: real(k + NET.losses.length) } : {}) }));
    return { ...found, losses };
  }

/* begin predictions */
  /** Outputs of samples: NET.output values each, in one Float32Array. */
  predict(x) {
    if (!NET.output) throw new Error(NET.unpredicted);
    const fields = NET.inputs.slice(0, NET.predicts);
    const inputs = (ArrayBuffer.isView(x) || Array.isArray(x) ? [x] : fields.map(({ name }) => x?.[name]))
      .map((one) => (Array.isArray(one) ? Float64Array.from(one) : one));
    const samples = Math.ceil(inputs[0]?.length / fields[0].elements);
    const small = areBytes(inputs[0]);
    fields.forEach((field, k) => fitting(field, inputs[k], samples));
    const out = new Float32Array(samples * NET.output);
    const each = 4 * NET.inputs.reduce((sum, { elements }) => sum + elements, NET.output);
    const free = this.memoryBytes - this.#heap() - 32 * inputs.length;
    const fit = Math.floor(free / each / NET.taken) * NET.taken;
    const most = Math.min(Math.max(fit, NET.taken), samples);
    this.#input(small);
    try {
      for (let done = 0; done < samples; done += most)
        this.#predicted(fields, inputs, small, done, Math.min(most, samples - done), out);
    } finally {
      this.#input(this.#scale !== undefined);
    }
    return out;
  }

/* end predictions */
  /** Names and shapes of the values for get and set. */
  get parameters() { return NET.values.map(({ name, shape }) => ({ name, shape: [...shape] })); }

  /** A weight's values, as float32. */
  get(name) {
    const k = indexOf(name), { size } = NET.values[k], at = this.#room(4 * size);
    this.#call("get", k, at);
    return this.#typed("f32", at, size).slice();
  }

  /** Replace a weight's values. */
  set(name, values) {
    const k = indexOf(name), { size } = NET.values[k], at = this.#room(4 * size);
    if (values.length !== size)
      throw new RangeError(`${name}: ${values.length} values; expected ${size}`);
    this.#typed("f32", at, size).set(values);
    this.#call("set", k, at);
  }

  /** The training state as bytes. Call it between two minibatches. */
  save() {
    this.#slots = [];
    this.#call("save", this.#store);
    const [state] = this.#slots;
    this.#slots = [];
    return state;
  }

  /** Continue from a saved state. False: damaged, or from another network. */
  load(bytes) {
    if (bytes.byteLength !== NET.stored) return false;
    this.#slots = [new Uint8Array(bytes)];
    const code = this.#call("load", this.#store);
    this.#slots = [];
    return code === DONE;
  }

  /** CRC-32 of the state, as 8 hexadecimal digits: equal bits have equal digests. */
  digest() { return (this.#x.net_digest(this.#net) >>> 0).toString(16).padStart(8, "0"); }

  #view() { return new DataView(this.#x.memory.buffer); }
  #bytes(at, count) { return new Uint8Array(this.#x.memory.buffer, at, count); }
  #heap() { return (this.#x.__heap_base.value + 15) & ~15; }

  /** Address of `bytes` free bytes after everything else; grows the memory if needed. */
  #room(bytes) {
    const at = this.#heap(), short = at + bytes - this.memoryBytes;
    if (short > 0) this.#x.memory.grow(Math.ceil(short / 65536));
    return at;
  }

/* begin places */
  /** Set the type of the first input's values: bytes (`small`), or the network's type. */
  #input(small) {
    if (!small && NET.inputs[0].type !== "f32") return;
    const [factor, shift] = this.#scale ?? [1, 0], view = this.#view(), at = this.#scratch + 240;
    view.setFloat32(at, factor, true); // read later
    view.setFloat32(at + 4, shift, true);
    const places = small ? [U8, at, at + 4] : [0, 0, 0];
    this.#call("input", 0, ...places, 1, 1);
  }

  #predicted(fields, inputs, small, first, count, out) {
    const sizes = fields.map(({ elements }) => elements), up = (bytes) => (bytes + 15) & ~15;
    const total = sizes.reduce((sum, size) => sum + up(4 * count * size), 4 * count * NET.output);
    const pointers = this.#room(up(4 * sizes.length) + total);
    let at = pointers + up(4 * sizes.length);
    sizes.forEach((size, k) => {
      this.#view().setUint32(pointers + 4 * k, at, true);
      (small && k === 0 ? this.#bytes(at, count * size) : this.#typed(fields[k].type, at, count * size))
        .set(inputs[k].subarray(first * size, (first + count) * size));
      at += up(4 * count * size);
    });
    const x = sizes.length === 1 ? this.#view().getUint32(pointers, true) : pointers;
    this.#call("predict", x, BigInt(count), at);
    out.set(this.#typed("f32", at, count * NET.output), first * NET.output);
  }

  #filled(split, sample, x, y) {
    try {
      const at = (k) => NET.inputs.length === 1 ? x : this.#view().getUint32(x + 4 * k, true);
      const views = NET.inputs.map(({ type, elements }, k) => this.#scale && k === 0
        ? this.#bytes(at(k), elements) : this.#typed(type, at(k), elements));
      const target = this.#typed(NET.target.type, y, NET.target.elements);
      const inputs = views[1] ? Object.fromEntries(NET.inputs.map(({ name }, k) => [name, views[k]])) : views[0];
      if (this.#user(sample, inputs, target, split === 1)?.then)
        throw new TypeError("the sample callback is asynchronous");
      return 0;
    } catch (error) {
      this.#thrown = error;
      return 1;
    }
  }

/* end places */
  #typed(type, at, elements) { return new TYPES[type](this.#x.memory.buffer, at, elements); }

  /** Call a function of the module; the sample callback cannot. Returns a code that is no error: DONE,
      MORE, or -3 if there is no state to load. */
  #call(name, ...given) {
    const what = TASKS[name] ?? name;
    if (this.#busy) throw new TrainingError(what, -2);
    this.#thrown = undefined;
    this.#busy = true;
    try {
      const code = this.#x[`net_${name}`](this.#net, ...given);
      if (this.#thrown !== undefined) throw this.#thrown;
      if (code > 0 || MESSAGES[code]) throw new TrainingError(what, code);
      return code;
    } finally {
      this.#busy = false;
    }
  }
}

/** Join byte planes to words: all highest bytes first, then the next, ...; the sign is a word's last bit. */
function turned(words) {
  const count = words.length, planes = new Uint8Array(words.slice().buffer);
  words.forEach((_, k) => {
    const word = planes[k] << 24 | planes[count + k] << 16 | planes[2 * count + k] << 8 | planes[3 * count + k];
    words[k] = word >>> 1 | word << 31;
  });
}

/** Whether the first input's values are bytes that become floats. */
const areBytes = (x) => NET.inputs[0].type === "f32" && (x instanceof Uint8Array || x instanceof Uint8ClampedArray);

/** A callback's views: of the inputs, then of the target. */
const viewsOf = (x, y) => [...(NET.inputs.length === 1 ? [x] : NET.inputs.map(({ name }) => x[name])), y];

/** Refuse values that a field of integers cannot hold. */
function integers({ name, type }, values) {
  for (const v of type === "f32" ? [] : values)
    if (v !== (v | 0)) throw new RangeError(`${name}: ${v}; expected 32-bit integers`);
}

function indexOf(name) {
  const k = NET.values.findIndex((value) => value.name === name);
  if (k < 0) throw new RangeError(`${name}: no weight of ${NET.name} has this name`);
  return k;
}

/* begin sources */
const FIELDS = [...NET.inputs, NET.target];

/** Refuse values that are not those of `count` samples. */
function fitting(field, values, count) {
  const { name, elements } = field, found = values?.length;
  if (found !== count * elements)
    throw new RangeError(`input ${name}: ${found} values for ${count} samples; expected ${elements} per sample`);
  integers(field, values);
}

/** Samples in typed arrays, as `data` expects them. */
function arrays(x, y, heldX, heldY) {
  const parts = [[heldX, heldY], [x, y]].map(([x, y], k) => {
    if (x && y ? !viewsOf(x, y).every((one) => one?.subarray) : x || y || k)
      throw new TypeError("data: expected typed arrays x and y, or sample and train");
    return x && viewsOf(x, y);
  });
  const counts = parts.map((part) => (part ? part.at(-1).length / NET.target.elements : 0));
  parts.forEach((part, split) => part?.forEach((values, k) => fitting(FIELDS[k], values, counts[split])));
  const [held, own] = parts.map((part) => part && areBytes(part[0]));
  if (parts[0] && held !== own) throw new TypeError("x and heldX: expected the same type");
  const sample = (index, x, y, training) => viewsOf(x, y).forEach((to, k) =>
    to.set(parts[training ? 1 : 0][k].subarray(index * to.length, (index + 1) * to.length)));
  return { train: counts[1], held: counts[0], sample, small: own };
}

/** Samples from a file written by `edgetrain bundle --data`, as `data` expects them. */
export function samplesOf(buffer) {
  const view = new DataView(buffer), word = (k) => view.getUint32(4 * k, true);
  if (view.byteLength < 32 || word(0) !== 0x4d534445) throw new Error("not a file of samples from edgetrain");
  const [train, held, type, width] = [word(1), word(2), word(3), word(6)];
  if (view.byteLength !== 32 + (train + held) * width) throw new Error("the file of samples is truncated");
  const bytes = new Uint8Array(buffer);
  const small = type === U8, size = NET.inputs[0].elements, { elements } = NET.target;
  if (width !== NET.inputs.reduce((sum, one) => sum + (small ? 1 : 4) * one.elements, 4 * elements))
    throw new Error("the file has samples of another network");
  const sample = (index, x, y, training) => {
    let at = 32 + (training ? index : train + index) * width;
    for (const to of viewsOf(x, y))
      new Uint8Array(to.buffer, to.byteOffset, to.byteLength).set(bytes.subarray(at, at += to.byteLength));
  };
  const factor = view.getFloat32(16, true), shift = view.getFloat32(20, true);
  if (!small) return { train, held, sample };
  const all = (count, training) => {
    const x = new Uint8Array(count * size), y = new TYPES[NET.target.type](count * elements);
    for (let k = 0; k < count; k++)
      sample(k, x.subarray(k * size, (k + 1) * size), y.subarray(k * elements, (k + 1) * elements), training);
    return [x, y];
  };
  const [x, y] = all(train, true), [heldX, heldY] = all(held);
  return { x, y, heldX, heldY, factor, shift };
}

/* end sources */
/** Generated samples, the same everywhere; `spike`: magnitude of sample 0's values. */
/* begin made up */
export function madeUp(count = 4 * NET.minibatch, spike = 0) {
/* end made up */
  const mixed = (v) => {
    v = Math.imul(v ^ (v >>> 16), 0x21f0aaad);
    v = Math.imul(v ^ (v >>> 15), 0x735a2d97);
    return (v ^ (v >>> 15)) >>> 0;
  };
  const sample = (index, x, y) => {
    viewsOf(x, y).forEach((view, number) => {
      const { type, limit } = FIELDS[number], key = mixed(Math.imul(index, 0x9e3779b9) + number);
      for (let e = 0; e < view.length; e++) {
        const bits = mixed(key + e), share = (bits >>> 8) / 16777216;
        const value = 2 * share - 1, large = spike && index === 0;
        view[e] = type === "i32" ? bits % Math.max(limit, 2)
          : limit === -1 ? share : large ? (value < 0 ? -spike : spike) : value;
      }
    });
  };
/* begin made up counts */
  return { train: count, held: 0, sample };
/* end made up counts */
}

/** The digest after a few steps on generated samples, and the digest Python got. */
export async function check(options = {}) {
  const steps = options.steps ?? NET.check.steps;
  const data = madeUp(undefined, options.spike);
  const net = await init({ wasm: options.wasm, schedule: { totalSteps: steps }, data });
  for (let k = 0; k < steps; k++) net.step();
  const known = steps === NET.check.steps && !options.spike;
  return { digest: net.digest(), expected: known ? NET.check.digest : undefined };
}

export const facts = NET;
