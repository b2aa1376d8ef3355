// Converts pictures, drawings, sounds and table rows to the network's inputs, with the formulas of
// edgetrain's data sources (edgetrain/data/sources).

const even = (v) => { // Python's round
  const low = Math.floor(v), rest = v - low;
  return rest > .5 || (rest === .5 && low % 2) ? low + 1 : low;
};

/** [channels, height, width, whether channels come last]; undefined if it isn't a picture. */
export function pictureOf(shape) {
  if (shape.length === 1) {
    const side = Math.round(Math.sqrt(shape[0]));
    return side >= 8 && side * side === shape[0] ? [1, side, side, false] : undefined;
  }
  const plane = (n) => n === 1 || n === 3;
  if (shape.length === 2) return [1, ...shape, false];
  if (shape.length === 3 && plane(shape[0])) return [...shape, false];
  if (shape.length === 3 && plane(shape[2])) return [shape[2], shape[0], shape[1], true];
}

/** [mels, frames] or [time]; undefined if it isn't a sound. */
export function soundOf(shape) {
  const wide = shape.length > 1 && shape[0] === 1 ? shape.slice(1) : shape;
  return wide.length <= 2 && (wide.length === 2 || wide[0] >= 200) ? wide : undefined;
}

// Weights of a triangle filter, like Pillow's BILINEAR: 22-bit integers.
function weights(from, first, last, to) {
  const scale = (last - first) / to, support = Math.max(1, scale), out = [];
  for (let k = 0; k < to; k++) {
    const centre = first + (k + .5) * scale;
    const begin = Math.max(0, Math.trunc(centre - support + .5));
    const end = Math.min(from, Math.trunc(centre + support + .5)), row = [];
    for (let x = begin; x < end; x++)
      row.push(Math.max(0, 1 - Math.abs((x - centre + .5) / support)));
    const sum = row.reduce((a, b) => a + b, 0);
    out.push([begin, row.map((w) => Math.trunc(.5 + (sum ? w / sum : w) * 4194304))]);
  }
  return out;
}
const clipped = (sum) => Math.min(255, Math.max(0, Math.floor((sum + 2097152) / 4194304)));

/** Resize `box` (left, top, right, bottom) of a plane of bytes [h, w] to [height, width]. */
export function resized(plane, w, h, width, height, box = [0, 0, w, h]) {
  if (width !== w || box[0] || box[2] !== w) {
    const rows = weights(w, box[0], box[2], width), out = new Uint8Array(width * h);
    for (let y = 0; y < h; y++) rows.forEach(([begin, row], x) => {
      let sum = 0;
      for (let k = 0; k < row.length; k++) sum += plane[y * w + begin + k] * row[k];
      out[y * width + x] = clipped(sum);
    });
    plane = out;
  }
  if (height !== h || box[1] || box[3] !== h) {
    const rows = weights(h, box[1], box[3], height), out = new Uint8Array(width * height);
    rows.forEach(([begin, row], y) => {
      for (let x = 0; x < width; x++) {
        let sum = 0;
        for (let k = 0; k < row.length; k++) sum += plane[(begin + k) * width + x] * row[k];
        out[y * width + x] = clipped(sum);
      }
    });
    plane = out;
  }
  return plane;
}

/** RGBA pixels as bytes [channels, height, width]: scaled to cover that size, then cropped. */
export function covering(pixels, w, h, channels, height, width) {
  const count = w * h, planes = [];
  for (let c = 0; c < channels; c++) {
    const plane = new Uint8Array(count);
    for (let k = 0; k < count; k++)
      plane[k] = channels === 3 ? pixels[4 * k + c]
        : (pixels[4 * k] * 19595 + pixels[4 * k + 1] * 38470 + pixels[4 * k + 2] * 7471 + 32768) >>> 16;
    planes.push(plane);
  }
  const out = new Uint8Array(channels * height * width), factor = Math.max(width / w, height / h);
  const size = [Math.max(width, even(w * factor)), Math.max(height, even(h * factor))];
  planes.forEach((plane, c) => {
    const at = c * height * width;
    if (w === width && h === height) { out.set(plane, at); return; }
    if (size[0] * size[1] > Math.max(2 ** 25, width * height)) { // a strip: only its middle
      const sides = [width / factor, height / factor], left = (w - sides[0]) / 2, top = (h - sides[1]) / 2;
      out.set(resized(plane, w, h, width, height, [left, top, left + sides[0], top + sides[1]]), at);
      return;
    }
    const whole = resized(plane, w, h, ...size);
    const left = Math.floor((size[0] - width) / 2), top = Math.floor((size[1] - height) / 2);
    for (let y = 0; y < height; y++)
      out.set(whole.subarray((top + y) * size[0] + left, (top + y) * size[0] + left + width), at + y * width);
  });
  return out;
}

/** Look of samples: the range of values; for grey ones also the size of the ink. Drawings are scaled
 *  to the mean height of the ink in `samples`. */
export function looks(samples, shape) {
  let low = Infinity, high = -Infinity;
  for (const x of samples) for (const v of x) { if (v < low) low = v; if (v > high) high = v; }
  if (!(high > low)) return { low: 0, high: 1, inverted: false };
  const [channels, height, width] = pictureOf(shape) ?? [0];
  if (channels !== 1) return { low, high, inverted: false };
  let border = 0, tall = 0, wide = 0, inked = 0;
  for (const x of samples)
    for (let k = 0; k < width; k++) border += (x[k] + x[(height - 1) * width + k]) / 2 / width;
  const inverted = border / samples.length > (low + high) / 2;
  for (const x of samples) {
    let [left, right, top, bottom] = [width, -1, height, -1];
    for (let y = 0; y < height; y++) for (let c = 0; c < width; c++) {
      const ink = (x[y * width + c] - low) / (high - low);
      if ((inverted ? 1 - ink : ink) < .25) continue;
      [left, right] = [Math.min(left, c), Math.max(right, c)];
      [top, bottom] = [Math.min(top, y), Math.max(bottom, y)];
    }
    if (right < 0) continue;
    inked++;
    tall += bottom - top + 1;
    wide = Math.max(wide, right - left + 1);
  }
  return { low, high, inverted, ...(inked ? { tall: tall / inked, wide } : {}) };
}

/** Strokes (lines of points from 0 to 1) as bytes [height, width]; `look`: from `looks`. */
export function drawn(strokes, height, width, look = {}) {
  const points = strokes.flat(), pen = .07 * height; // half its width
  if (!points.length) return new Uint8Array(height * width).fill(look.inverted ? 255 : 0);
  const box = [0, 1].map((axis) => points.map((p) => p[axis])).map((v) => [Math.min(...v), Math.max(...v)]);
  const [across, down] = box.map(([first, last]) => last - first);
  let scale = [width, height], shift = [0, 0];
  if (look.tall && Math.max(across, down) > .05) { // as large as the samples' ink
    const most = Math.min((look.tall - 2 * pen) / (down || 1e-9), (look.wide - 2 * pen) / (across || 1e-9));
    scale = [most, most];
    shift = [width, height].map((side, axis) => side / 2 - most * (box[axis][0] + box[axis][1]) / 2);
  }
  const lines = strokes.map((line) => line.map((p) => p.map((v, axis) => v * scale[axis] + shift[axis])));
  const parts = height * width <= 4096 ? 4 : 1, out = new Uint8Array(height * width);
  for (let y = 0; y < height; y++) for (let x = 0; x < width; x++) {
    let ink = 0;
    for (let k = 0; k < parts * parts; k++) {
      const at = [x + (k % parts + .5) / parts, y + (Math.floor(k / parts) + .5) / parts];
      ink += Math.min(1, Math.max(0, parts * (pen - distance(at, lines)) + .5));
    }
    ink = Math.round(255 * ink / parts / parts);
    out[y * width + x] = look.inverted ? 255 - ink : ink;
  }
  return out;
}
function distance([x, y], lines) {
  let least = Infinity;
  for (const line of lines) for (let k = 0; k < line.length; k++) {
    const [ax, ay] = line[k], [bx, by] = line[k + 1] ?? line[k], [dx, dy] = [bx - ax, by - ay];
    const share = Math.min(1, Math.max(0, ((x - ax) * dx + (y - ay) * dy) / (dx * dx + dy * dy || 1)));
    least = Math.min(least, Math.hypot(x - ax - share * dx, y - ay - share * dy));
  }
  return least;
}

/** A picture's bytes, scaled to the range of the network's samples. */
export function valuesOf(bytes, shape, { low = 0, high = 1 } = {}) {
  const [channels, height, width, last] = pictureOf(shape), out = new Float32Array(bytes.length);
  for (let k = 0; k < bytes.length; k++) {
    const to = last ? (k % (height * width)) * channels + Math.floor(k / height / width) : k;
    out[to] = low === 0 && high === 1 ? Math.fround(bytes[k] * Math.fround(1 / 255))
      : low + bytes[k] * (high - low) / 255;
  }
  return out;
}

/** `count` samples: the middle of a longer sound; a shorter one is followed by silence. */
export function fitted(samples, count) {
  const out = new Float32Array(count), start = Math.max(0, Math.floor((samples.length - count) / 2));
  out.set(samples.subarray(start, start + count));
  return out;
}
const lengths = (rate) => [Math.max(2, even(rate * .025)), Math.max(1, even(rate * .01))];

/** Sound samples per input. */
export function spanned(shape, rate) {
  const [first, frames] = soundOf(shape), [window, hop] = lengths(rate);
  return frames === undefined ? first : window + (frames - 1) * hop;
}

/** A sound as network input: samples, or log-mel features [mels, frames]. */
export function soundValues(samples, rate, shape) {
  const [mels, frames] = soundOf(shape), part = fitted(samples, spanned(shape, rate));
  return frames === undefined ? part : logMel(part, rate, mels, frames);
}
function logMel(samples, rate, mels, frames) {
  const [window, hop] = lengths(rate), out = new Float32Array(mels * frames);
  let size = 2;
  while (size < window) size *= 2;
  const hann = Array.from({ length: window }, (_, k) => .5 - .5 * Math.cos(2 * Math.PI * k / window));
  const triangles = melTriangles(rate, size, mels);
  for (let frame = 0; frame < frames; frame++) {
    const re = new Float64Array(size), im = new Float64Array(size);
    for (let k = 0; k < window; k++) re[k] = samples[frame * hop + k] * hann[k];
    transform(re, im);
    triangles.forEach((row, mel) => {
      let sum = 0;
      row.forEach((weight, k) => { if (weight) sum += weight * (re[k] ** 2 + im[k] ** 2); });
      out[mel * frames + frame] = Math.log(Math.max(sum, 1e-6));
    });
  }
  return out;
}
function melTriangles(rate, size, mels) {
  const mel = (f) => 2595 * Math.log10(1 + f / 700), low = mel(20), high = mel(rate / 2);
  const edges = Array.from({ length: mels + 2 }, (_, k) =>
    700 * (10 ** ((low + k * (high - low) / (mels + 1)) / 2595) - 1));
  return Array.from({ length: mels }, (_, m) => Float64Array.from({ length: size / 2 + 1 }, (_, k) => {
    const f = k * rate / size, [a, b, c] = edges.slice(m, m + 3);
    return Math.max(0, Math.min((f - a) / (b - a), (c - f) / (c - b)));
  }));
}
function transform(re, im) { // in place: a fast Fourier transform of a power of two
  const n = re.length;
  for (let k = 1, j = 0; k < n; k++) {
    let bit = n >> 1;
    for (; j & bit; bit >>= 1) j ^= bit;
    j ^= bit;
    if (k < j) [re[k], re[j], im[k], im[j]] = [re[j], re[k], im[j], im[k]];
  }
  for (let half = 1; half < n; half *= 2)
    for (let k = 0; k < half; k++) {
      const wr = Math.cos(Math.PI * k / half), wi = -Math.sin(Math.PI * k / half);
      for (let a = k; a < n; a += 2 * half) {
        const b = a + half, tr = wr * re[b] - wi * im[b], ti = wr * im[b] + wi * re[b];
        [re[b], im[b], re[a], im[a]] = [re[a] - tr, im[a] - ti, re[a] + tr, im[a] + ti];
      }
    }
}

/** Rows of a csv file as {x, y}; y is undefined if a row has only inputs.
 *  `size`: values per input; `target`: {elements, type, limit}; `names`: class names; new words
 *  are added while there are unnamed classes. `label`: the target column's name in the header;
 *  "": the last column. */
export function rowsOf(text, size, target, names = [], classes = target.limit, label = "") {
  const lines = text.replace(/^\ufeff/, "").split(/\r?\n/).map((line, k) => [k + 1, line])
    .filter(([, line]) => line.trim());
  if (!lines.length) throw new Error("the table is empty");
  const mark = [",", ";", "\t"].find((mark) => lines[0][1].includes(mark)) ?? /\s+/;
  const cells = lines.map(([number, line]) =>
    [number, (mark === "\t" ? line : line.trim()).split(mark).map((cell) => cell.trim().replace(/^"(.*)"$/, "$1"))]);
  const plain = (cell) => /^[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?$/i.test(cell) && Number.isFinite(Math.fround(Number(cell)));
  const whole = target.type === "i32";
  const named = cells[0][1].every((cell, k) => !plain(cell) || cell === String(k)) && !cells[0][1].every(plain);
  const words = new Set(cells.slice(1).map(([, row]) => row.at(-1)).filter((cell) => !plain(cell)));
  const sample = cells[0][1].filter((cell) => !plain(cell)).length === 1 && words.has(cells[0][1].at(-1));
  const header = named && !sample ? cells.shift()[1] : [], own = header.indexOf(label);
  if (label && own < 0 && cells.some(([, row]) => row.length > size))
    throw new Error(`no column '${label}'; ` + (header.length ? `found ${header.join(", ")}` : "the table has no header"));
  const rows = cells.map(([number, all]) => {
    const row = own < 0 ? all : [...all.slice(0, own), ...all.slice(own + 1), all[own]];
    if (row.length !== size && row.length !== size + target.elements)
      throw new Error(`line ${number}: ${row.length} columns; expected ${size}, or ` +
        `${size + target.elements} with the target last`);
    const bad = row.slice(0, whole ? size : row.length).find((cell) => !plain(cell));
    if (bad !== undefined) throw new Error(`line ${number}: '${bad}'; expected a number`);
    return { number, x: Float32Array.from(row.slice(0, size), Number), told: row.slice(size) };
  });
  const told = [...new Set(rows.flatMap((row) => row.told))];
  const numbered = told.every(plain), known = [...names], word = told.find((cell) => !plain(cell));
  if (whole && !numbered && told.some((cell) => plain(cell) && !names.includes(cell))) {
    const { number } = rows.find((row) => row.told.includes(word));
    throw new Error(`line ${number}: '${word}'; expected a number, as in other lines`);
  }
  if (whole && !numbered)
    for (const word of told.filter((word) => !known.includes(word)).sort()) known.push(word);
  return { names: known, rows: rows.map(({ number, x, told }) => {
    if (!told.length) return { x };
    const y = told.map((cell) => !whole ? Number(cell) : numbered ? Number(cell) : known.indexOf(cell));
    const wrong = whole ? y.findIndex((k) => !Number.isInteger(k) || k < 0 || k >= classes) : -1;
    if (wrong >= 0) throw new Error(`line ${number}: class '${told[wrong]}'; the network has ` +
      `${classes} classes` + (names.length ? `: ${names.join(", ")}` : ""));
    return { x, y: whole ? Int32Array.from(y) : Float32Array.from(y) };
  }) };
}

/** A file's samples and the user's own, which make up a third of the training samples. */
export function mixed(base, own, taken, minibatch) {
  const times = Math.ceil(Math.max(minibatch, base.train / 2) / own.length);
  const sample = (index, x, y, training) => {
    const one = training && index >= base.train ? own[(index - base.train) % own.length]
      : taken(index, training);
    x.set(one.x);
    y.set(one.y);
  };
  return { train: base.train + times * own.length, held: base.held, sample };
}
