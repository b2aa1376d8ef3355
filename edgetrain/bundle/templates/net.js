// Trains a neural network in a page, a worker, Node.js or Deno.
// Written by edgetrain. Types are in the .d.ts file next to this one.

const NET = null; /* facts of this network */

const DONE = 0, MORE = -6;
const MESSAGES = {
  "-1": "a sample's value is not finite, or an integer is out of range",
  "-2": "a minibatch is unfinished: poll until it is done",
  "-3": "no saved state of this network",
  "-4": "the saved state could not be read back",
  "-5": "an argument is out of range, or there is no data: call data() first",
  "-7": "a failed step changed weights: load a saved state, then call skip()",
};
const SCHEDULES = NET.schedules;
const TYPES = { f32: Float32Array, i32: Int32Array };
const F32 = 0, U8 = 4;

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
  return Net.open(await compiled(options.wasm), options);
}

class Net {
  #module; #x; #net; #fill; #store; #scratch; #user; #thrown; #scale; #slots = [null, null];

  static async open(module, options) {
    const net = new Net();
    net.#module = module;
    net.#x = (await WebAssembly.instantiate(module, { env: net.#env() })).exports;
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
    if (!Number.isInteger(train)) throw new RangeError(`train: ${train}; expected a number`);
    this.#check("data", this.#x.net_data(this.#net, this.#fill, 0, BigInt(train), BigInt(held)));
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
    const number = SCHEDULES.indexOf(kind);
    if (number < 0) throw new RangeError(`schedule ${kind}: expected one of ${SCHEDULES.join(", ")}`);
    const view = this.#view(), at = this.#scratch;
    const whole = [number, totalSteps, warmupSteps, drops.length || size, patience, cooldown];
    for (let k = 0; k < 8; k++) whole.push(drops[k] ?? 0);
    whole.forEach((value, k) => view.setBigInt64(at + 8 * k, BigInt(value), true));
    [lr, gamma, threshold, minLr, rise, first, last].forEach((value, k) =>
      view.setFloat64(at + 8 * (whole.length + k), value, true));
    this.#check("schedule or its totalSteps", this.#x.net_schedule(this.#net, at));
  }

  /** Train on one minibatch. */
  step() {
    this.#check("step", this.#called(() => this.#x.net_step(this.#net)));
    return this.progress;
  }

  /** Train on the next piece of a minibatch; returns a report when the minibatch is done. */
  poll() {
    const code = this.#called(() => this.#x.net_poll(this.#net));
    if (code === MORE) return undefined;
    this.#check("poll", code);
    return this.progress;
  }

  /** Make the pieces of `poll` up to `parts` times shorter. Results stay bit-identical. */
  split(parts) { this.#check("split", this.#x.net_split(this.#net, parts)); }

  /** Skip the next minibatch, which failed before (networks with fused updates). */
  skip() {
    if (!this.#x.net_pass) throw new Error("skip: for networks with fused updates");
    this.#check("skip", this.#called(() => this.#x.net_pass(this.#net)));
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
    this.#check("evaluate", this.#called(() => this.#x.net_eval(this.#net, at, at + 8)));
    const view = this.#view(), accuracy = view.getFloat64(at + 8, true);
    const found = { loss: view.getFloat64(at, true), ...(NET.counts ? { accuracy } : {}) };
    if (!NET.losses[0].label) return found;
    const right = at + 8 * NET.losses.length;
    this.#check("evaluate", this.#x.net_losses(this.#net, at, right));
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
    const inputs = ArrayBuffer.isView(x) ? [x] : fields.map(({ name }) => x[name]);
    const samples = Math.ceil(inputs[0].length / fields[0].elements);
    const small = areBytes(inputs[0]);
    fields.forEach(({ name, elements }, k) => {
      if (inputs[k].length !== samples * elements)
        throw new RangeError(`input ${name}: ${inputs[k].length} values; expected ${elements} per sample`);
    });
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
    this.#check("get", this.#x.net_get(this.#net, k, at));
    return new Float32Array(this.#x.memory.buffer, at, size).slice();
  }

  /** Replace a weight's values. */
  set(name, values) {
    const k = indexOf(name), { size } = NET.values[k], at = this.#room(4 * size);
    if (values.length !== size)
      throw new RangeError(`${name}: ${values.length} values; expected ${size}`);
    new Float32Array(this.#x.memory.buffer, at, size).set(values);
    this.#check("set", this.#x.net_set(this.#net, k, at));
  }

  /** The training state as bytes. Call it between two minibatches. */
  save() {
    this.#slots = [null, null];
    try {
      this.#check("save", this.#x.net_save(this.#net, this.#store));
      return this.#slots[0];
    } finally {
      this.#slots = [null, null];
    }
  }

  /** Continue from a saved state. False: damaged, or from another network. */
  load(bytes) {
    if (bytes.byteLength !== NET.stored) return false;
    this.#slots = [new Uint8Array(bytes), null];
    try {
      const code = this.#x.net_load(this.#net, this.#store);
      if (code === -3) return false;
      this.#check("load", code);
      return true;
    } finally {
      this.#slots = [null, null];
    }
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
    const places = small ? [U8, at, at + 4] : [F32, 0, 0];
    this.#check("data", this.#x.net_input(this.#net, 0, ...places, 1, 1));
  }

  #predicted(fields, inputs, small, first, count, out) {
    const sizes = fields.map(({ elements }) => elements), up = (bytes) => (bytes + 15) & ~15;
    const total = sizes.reduce((sum, size) => sum + up(4 * count * size), 4 * count * NET.output);
    const pointers = this.#room(up(4 * sizes.length) + total);
    let at = pointers + up(4 * sizes.length);
    sizes.forEach((size, k) => {
      this.#view().setUint32(pointers + 4 * k, at, true);
      const kind = small && k === 0 ? Uint8Array : TYPES[fields[k].type];
      new kind(this.#x.memory.buffer, at, count * size)
        .set(inputs[k].subarray(first * size, (first + count) * size));
      at += up(4 * count * size);
    });
    const x = sizes.length === 1 ? this.#view().getUint32(pointers, true) : pointers;
    this.#check("predict", this.#x.net_predict(this.#net, x, BigInt(count), at));
    out.set(new Float32Array(this.#x.memory.buffer, at, count * NET.output), first * NET.output);
  }

  #filled(split, sample, x, y) {
    try {
      const at = (k) => NET.inputs.length === 1 ? x : this.#view().getUint32(x + 4 * k, true);
      const views = NET.inputs.map(({ type, elements }, k) => this.#scale && k === 0
        ? this.#bytes(at(k), elements) : this.#typed(type, at(k), elements));
      const target = this.#typed(NET.target.type, y, NET.target.elements);
      const named = () => Object.fromEntries(NET.inputs.map(({ name }, k) => [name, views[k]]));
      if (this.#user(sample, views.length === 1 ? views[0] : named(), target, split === 1)?.then)
        throw new TypeError("the sample callback is asynchronous");
      return 0;
    } catch (error) {
      this.#thrown = error;
      return 1;
    }
  }

/* end places */
  #typed(type, at, elements) { return new TYPES[type](this.#x.memory.buffer, at, elements); }

  #called(work) {
    this.#thrown = undefined;
    const code = work();
    if (this.#thrown !== undefined) throw this.#thrown;
    return code;
  }

  #check(what, code) { if (code !== DONE) throw new TrainingError(what, code); }
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

function indexOf(name) {
  const k = NET.values.findIndex((value) => value.name === name);
  if (k < 0) throw new RangeError(`${name}: no weight of ${NET.name} has this name`);
  return k;
}

/* begin sources */
/** Samples in typed arrays, as `data` expects them. */
function arrays(x, y, heldX, heldY) {
  const parts = [[heldX, heldY], [x, y]].map(([x, y], k) => {
    if (x && y ? !viewsOf(x, y).every((one) => one?.subarray) : x || y || k)
      throw new TypeError("data: expected typed arrays x and y, or sample and train");
    return x && viewsOf(x, y);
  });
  const counts = parts.map((part) => (part ? part.at(-1).length / NET.target.elements : 0));
  parts.forEach((part, split) => part && NET.inputs.forEach(({ name, elements }, k) => {
    if (part[k].length !== counts[split] * elements)
      throw new RangeError(`input ${name}: ${part[k].length} values for ${counts[split]} targets; ` +
        `expected ${elements} per sample`);
  }));
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
  const fields = [...NET.inputs, NET.target];
  const sample = (index, x, y) => {
    viewsOf(x, y).forEach((view, number) => {
      const { type, limit } = fields[number], key = mixed(Math.imul(index, 0x9e3779b9) + number);
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
