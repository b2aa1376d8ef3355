// Parts of net.js for a network of several lengths.
/* begin data */
  /** For evaluation samples, then training samples: one past the last number of each length. */
  #ends = [[], []];
  #bytesScale;

  /** Set the source of samples: a callback, or typed arrays. Each sample is padded to the shortest
      length that fits it. */
  data(given) {
    if ((given.factor ?? 1) !== 1 || given.shift)
      if (given.sample || !bytesIn(given.x)) throw new RangeError("factor and shift are for bytes");
    const own = given.sample && !given.lengths && !given.heldLengths ? given : byLength(given);
    const at = this.#room(16 * SETS.length), view = this.#view();
    const ends = [own.held, own.train].map((counts, split) => {
      let end = 0;
      return SETS.map((_, k) => {
        const count = counts?.[k] ?? 0;
        view.setBigInt64(at + 8 * (split * SETS.length + k), BigInt(count), true);
        return end += count;
      });
    });
    this.#call("data", this.#fill, 0, at + 8 * SETS.length, at);
    this.#ends = ends;
    this.#bytesScale = [given.factor ?? 1, given.shift ?? 0].map(Math.fround);
    this.#user = own.sample;
  }

/* end data */
/* begin predictions */
  /** Outputs, of the samples' lengths: an array for one sample, a list for a list of samples; with
      `length`, one array for consecutive samples of this length. */
  predict(x, length) {
    if (!NET.output) throw new Error(NET.unpredicted);
    const fields = FIELDS.slice(0, NET.predicts), given = named(x);
    const some = fields.map(({ name }) => given[name]).find((column) => column !== undefined);
    const list = Array.isArray(some), alone = !list && length === undefined;
    const of = alone ? Object.fromEntries(Object.entries(given).map(([name, one]) => [name, [one]])) : given;
    const { which, ends, fill } = columns(fields, of, length === undefined ? undefined : (count) => Array(count).fill(length), this.#bytesScale);
    const out = [];
    SETS.forEach((_, number) => {
      const own = ends.map((_, k) => k).filter((k) => which[k] === number);
      if (own.length) this.#predicted(fields, number, own, ends, fill, out);
    });
    if (alone) return out[0];
    if (list) return out;
    const size = out[0]?.length ?? 0, all = new Float32Array(size * out.length);
    out.forEach((one, k) => all.set(one, k * size));
    return all;
  }

/* end predictions */
/* begin places */
  /** Predict the samples `own`, all of one length, into `out`. */
  #predicted(fields, number, own, ends, fill, out) {
    const { length, taken, output } = SETS[number], sizes = SIZES[number].slice(0, fields.length);
    const up = (bytes) => (bytes + 15) & ~15, wide = size(output), { cut } = NET.lengths;
    const each = 4 * sizes.reduce((sum, one) => sum + one, wide);
    const free = this.memoryBytes - this.#heap() - 32 * (1 + sizes.length);
    const most = Math.max(taken, Math.floor(free / each / taken) * taken);
    this.#call("length", BigInt(length));
    for (let done = 0; done < own.length; done += most) {
      const some = own.slice(done, done + most), first = up(4 * sizes.length);
      const places = [first];
      sizes.forEach((one, k) => places.push(places[k] + up(4 * some.length * one)));
      const pointers = this.#room(places.at(-1) + 4 * some.length * wide), at = pointers + places.at(-1);
      this.#bytes(pointers, places.at(-1)).fill(0);
      sizes.forEach((_, k) => this.#view().setUint32(pointers + 4 * k, pointers + places[k], true));
      some.forEach((sample, row) => fill(sample, number, fields.map(({ type }, k) =>
        this.#typed(type, pointers + places[k] + 4 * row * sizes[k], sizes[k]))));
      const x = sizes.length === 1 ? pointers + first : pointers;
      this.#call("predict", x, BigInt(some.length), at);
      some.forEach((sample, row) => {
        const end = ends[sample], shape = output.map((n, k) => (cut.includes(k) ? end : n));
        placed(this.#typed("f32", at + 4 * row * wide, wide), length,
          out[sample] = new Float32Array(size(shape)), shape, cut, end);
      });
    }
  }

  #filled(split, sample, x, y) {
    try {
      const sizes = SIZES[this.#ends[split].findIndex((end) => sample < end)];
      const at = (k) => NET.inputs.length === 1 ? x : this.#view().getUint32(x + 4 * k, true);
      const views = NET.inputs.map(({ type }, k) => this.#typed(type, at(k), sizes[k]));
      const target = this.#typed(NET.target.type, y, sizes.at(-1));
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
/* begin sources */
const size = (shape) => shape.reduce((product, n) => product * n, 1);
const SETS = NET.lengths.sets, SIZES = SETS.map(({ shapes }) => shapes.map(size));
/** Inputs, then the target: axes that depend on the length, and the padding value. */
const FIELDS = [...NET.inputs, NET.target].map((field, k) => ({ ...field, ...NET.lengths.fields[k], k }));
const NAME = NET.lengths.name;

/** Inputs by name; a single required input may also be passed alone. */
function named(x) {
  const needed = FIELDS.slice(0, NET.inputs.length).filter(({ made }) => !made);
  const plain = Array.isArray(x) || ArrayBuffer.isView(x);
  return plain ? { [(needed.length === 1 ? needed[0] : NET.inputs[0]).name]: x } : x;
}

/** Whether the first input has samples of bytes. */
function bytesIn(x) {
  const first = named(x ?? {})[NET.inputs[0].name];
  return areBytes(first) || (Array.isArray(first) && first.some(areBytes));
}

/** Copy a sample whose `axes` have length `own` into an array of `shape`; `kept`: sizes copied. */
function placed(from, own, to, shape, axes, kept) {
  const last = Math.max(-1, ...axes), strides = shape.map(() => [1, 1]);
  if (last < 0) return to.set(from);
  for (let k = shape.length - 2; k >= 0; k--)
    strides[k] = strides[k + 1].map((n, side) => n * (side || !axes.includes(k + 1) ? shape[k + 1] : own));
  const walk = (axis, a, b) => {
    const [source, target] = strides[axis], count = axes.includes(axis) ? Math.min(kept, shape[axis], own) : shape[axis];
    if (axis === last) return to.set(from.subarray(a, a + count * source), b);
    for (let k = 0; k < count; k++) walk(axis + 1, a + k * source, b + k * target);
  };
  walk(0, 0, 0);
}

/** Length of the variable axes of a field's sample, from its number of values. */
function longOf({ name, axes, k }, count, sample) {
  const { shapes } = SETS.at(-1), rest = size(shapes[k].filter((_, axis) => !axes.includes(axis)));
  const own = axes.length ? Math.round((count / rest) ** (1 / axes.length)) : 1;
  if (rest * own ** axes.length === count) return own;
  throw new RangeError(`${name}: sample ${sample} has ${count} values; expected ` +
    (axes.length ? `${rest} for each of ${NAME}` : `${rest}`));
}

/** The number of the smallest length that holds a sample. */
function numberOf(length, sample) {
  const number = SETS.findIndex((set) => set.length >= length);
  if (number >= 0 && length >= 1) return number;
  throw new RangeError(`sample ${sample}: length ${length}; expected 1 to ${NAME}=${SETS.at(-1).length}`);
}

/** Samples of arrays: for each field a list of them, or one array with samples of the same size.
 *  `lengths`: of the samples, for so many of them; undefined: their longest input's.
 *  Returns their lengths, the numbers of these, and what writes one to views. */
function columns(fields, given, lengths, scale) {
  const there = fields.filter(({ name }) => given[name] !== undefined);
  const missing = fields.find(({ name, made }) => given[name] === undefined && !made);
  if (missing) throw new RangeError(`${missing.name}: no values; expected some for each sample`);
  const list = there.find(({ name }) => Array.isArray(given[name]));
  const plain = there.find(({ axes }) => !axes.length) ?? there[0];
  const told = Array.isArray(lengths) ? lengths.length : undefined;
  const each = typeof lengths === "function" ? size(shapeAt(plain, lengths(1)[0])) : SIZES.at(-1)[plain.k];
  const count = told ?? (list ? given[list.name].length : given[plain.name].length / each);
  const parts = there.map((field) => {
    const all = given[field.name], several = Array.isArray(all), step = several ? 0 : all.length / count;
    if (!Number.isInteger(count) || (several && all.length !== count) || !Number.isInteger(step))
      throw new RangeError(`${field.name}: ${all.length} ${several ? "samples" : "values"} for ${count} samples`);
    const at = (sample) => (several ? all[sample] : all.subarray(sample * step, (sample + 1) * step));
    return { field, at, long: (sample) => longOf(field, at(sample).length, sample) };
  });
  const wide = parts.filter(({ field }) => field.axes.length && field.k < NET.inputs.length);
  const ends = typeof lengths === "function" ? lengths(count)
    : lengths ?? Array.from({ length: count }, (_, sample) => Math.max(1, ...wide.map(({ long }) => long(sample))));
  const which = ends.map(numberOf);
  for (const { field, at, long } of parts) ends.forEach((end, sample) => {
    long(sample);
    integers(field, at(sample));
    if (field.pads && field.exact && field.axes.length && wide.length)
      fitting(field, at(sample), long(sample), sample, Math.max(...wide.map(({ long }) => long(sample))), end);
    if (field.counted && end !== SETS[which[sample]].length)
      throw new RangeError(`sample ${sample}: length ${end}; expected one of ${NAME}=` +
        `${SETS.map((set) => set.length).join(", ")}: the loss would count padding of ${field.name}`);
  });
  const made = fields.filter((field) => !there.includes(field));
  const fill = (sample, number, views) => {
    for (const { k, axes } of made)
      if (axes.length) views[k].fill(1, 0, ends[sample]);
      else views[k].fill(ends[sample]);
    for (const { field, at, long } of parts) written(field, at(sample), long(sample), number, ends[sample], views[field.k], sample, scale);
  };
  return { ends, which, fill };
}
const shapeAt = ({ axes, k }, length) => SETS.at(-1).shapes[k].map((n, axis) => (axes.includes(axis) ? length : n));

/** How many values are no padding. */
const others = ({ pads, fill }, some) => some.reduce((sum, v) => sum + ((pads ?? [fill]).includes(v) ? 0 : 1), 0);

/** Refuse targets that are longer or shorter than their sample: `width` positions, the first `end` of them counted. */
function fitting(field, values, own, sample, width, end) {
  const { axes, each, name } = field, shape = shapeAt(field, width), cut = new Float64Array(size(shape)).fill(field.fill);
  if (each && own < Math.min(width, end))
    throw new RangeError(`${name}: sample ${sample}: targets for ${own} positions; expected ${Math.min(width, end)}`);
  placed(values, own, cut, shape, axes, own);
  if (own > width && others(field, values) !== others(field, cut))
    throw new RangeError(`${name}: sample ${sample}: targets for more than the sample's ${width} positions`);
}

/** Write a field of a sample to its view, which is as long as its length says. */
function written(field, values, own, number, end, view, sample, scale) {
  const { axes, exact, ignores, k } = field, shape = SETS[number].shapes[k];
  const scaled = scale && k === 0 && areBytes(values);
  const from = scaled ? Float32Array.from(values, (v) => Math.fround(Math.fround(v * scale[0]) + scale[1])) : values;
  placed(from, own, view, shape, axes, exact && ignores ? end : own);
  if (!exact && axes.some((axis) => own > shape[axis]) && others(field, from) !== others(field, view))
    throw new RangeError(`${field.name}: sample ${sample}: more values than length ${SETS[number].length} has room for`);
}

/** Samples by length, the shortest first: what `data` takes. */
function byLength({ lengths, heldLengths, sample, x, y, heldX, heldY, factor = 1, shift = 0 }) {
  const scale = [factor, shift].map(Math.fround), target = NET.target.name;
  const parts = [[heldX, heldY, heldLengths], [x, y, lengths]].map(([x, y, lengths]) => {
    const told = lengths && Array.from(lengths);
    if (sample) return { ends: told ?? [], which: (told ?? []).map(numberOf) };
    return x === undefined ? { ends: [], which: [] } : columns(FIELDS, { ...named(x), [target]: y }, told, scale);
  });
  const orders = parts.map(({ which }) => SETS.map((_, k) => [...which.keys()].filter((own) => which[own] === k)));
  const [held, train] = orders.map((order) => order.map((own) => own.length)), flat = orders.map((order) => order.flat());
  const made = FIELDS.slice(0, NET.inputs.length).filter((field) => field.made);
  return { train, held, sample: (index, x, y, training) => {
    const split = training ? 1 : 0, own = flat[split][index], { ends, which, fill } = parts[split], views = viewsOf(x, y);
    if (fill) return fill(own, which[own], views);
    for (const { k, axes } of made)
      if (axes.length) views[k].fill(1, 0, ends[own]);
      else views[k].fill(ends[own]);
    return sample(own, x, y, training);
  } };
}

/** Samples from a file written by `edgetrain bundle --data`, as `data` expects them. */
export function samplesOf(buffer) {
  const view = new DataView(buffer), bytes = new Uint8Array(buffer), parts = [];
  let end = 0;
  SIZES.forEach((sizes) => {
    const [magic, train, held, , , , width] = Array.from({ length: 8 }, (_, k) =>
      end + 32 <= view.byteLength ? view.getUint32(end + 4 * k, true) : 0);
    if (magic !== 0x4d534445 || width !== 4 * sizes.reduce((sum, n) => sum + n))
      throw new Error(`not a file of samples from edgetrain with ${NAME}=${SETS.map(({ length }) => length).join(", ")}`);
    parts.push({ counts: [held, train], at: end + 32, width });
    end += 32 + (train + held) * width;
  });
  if (view.byteLength !== end) throw new Error("the file of samples is truncated");
  const sample = (index, x, y, training) => {
    const split = training ? 1 : 0;
    const part = parts.find(({ counts }) => index < counts[split] || ((index -= counts[split]), false));
    let at = part.at + (training ? index : part.counts[1] + index) * part.width;
    for (const to of viewsOf(x, y))
      new Uint8Array(to.buffer, to.byteOffset, to.byteLength).set(bytes.subarray(at, at += to.byteLength));
  };
  const [held, train] = [0, 1].map((split) => parts.map(({ counts }) => counts[split]));
  return { train, held, sample };
}

/* end sources */
/* begin made up */
export function madeUp(count, spike = 0) {
/* end made up */
/* begin made up counts */
  return { train: SETS.map(({ minibatch }) => count ?? 4 * minibatch), sample };
/* end made up counts */
