
/** Samples of any length up to the longest of facts.lengths; each is used at the smallest that holds it. */
export interface Lengths {
  /** The dimension's name. */
  name: string;
  /** The shortest first. Shapes are those of the inputs, then of the target. */
  sets: { length: number; minibatch: number; taken: number; shapes: number[][]; output: number[] }[];
}
export interface Facts {
  /** Sizes in `inputs`, `target`, `output` and `minibatch` are those of the longest. */
  lengths: Lengths;
}
/** Of each sample an array, or one array with samples that have the same size. */
export type Column = Values | Values[];
/** Inputs named mask, attention_mask, lengths or length may be missing: they are made. */
export type Columns = Column | { [name: string]: Column };
export interface Samples {
  x?: Columns; y?: Column; heldX?: Columns; heldY?: Column;
  /** How long the samples are. Default: as long as their arrays. */
  lengths?: ArrayLike<number>; heldLengths?: ArrayLike<number>;
  /** Writes sample `index` into x and y, which are as long as the smallest length that holds it and
      full of padding. */
  sample?: (index: number, x: any, y: any, training: boolean) => void;
  /** Instead of `lengths`: how many samples there are of each length. `index` then counts through
      all of them, the shortest length first. */
  train?: number[]; held?: number[];
  /** Of bytes: a value becomes byte * factor + shift. */
  factor?: number; shift?: number;
}
export interface Net {
  /** Outputs of one sample, as long as the sample. */
  predict(x: Inputs): Float32Array;
  /** Outputs of a list of samples, of any lengths. */
  predict(x: Values[] | { [name: string]: Values[] }): Float32Array[];
  /** Outputs of samples of one length, one after the other. */
  predict(x: Inputs, length: number): Float32Array;
}

/** Made-up samples, the same everywhere; `count` of each length. */
export function madeUp(count?: number, spike?: number): Samples;
