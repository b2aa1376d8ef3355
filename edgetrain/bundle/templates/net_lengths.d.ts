
/** Samples of any length up to the longest in facts.lengths; each is padded to the shortest that fits. */
export interface Lengths {
  /** The dimension's name. */
  name: string;
  /** The shortest first. `shapes`: of the inputs, then of the target. */
  sets: { length: number; minibatch: number; taken: number; shapes: number[][]; output: number[] }[];
}
export interface Facts {
  /** `inputs`, `target`, `output` and `minibatch` have the sizes of the longest length. */
  lengths: Lengths;
}
/** One array per sample, or one array of samples of equal size. */
export type Column = Values | Values[];
/** Inputs named mask, attention_mask, lengths or length may be omitted: they are generated. */
export type Columns = Column | { [name: string]: Column };
export interface Samples {
  x?: Columns; y?: Column; heldX?: Columns; heldY?: Column;
  /** Length of each sample. Default: that of its array. */
  lengths?: ArrayLike<number>; heldLengths?: ArrayLike<number>;
  /** Writes sample `index` into x and y, which have the shortest length that fits it and are filled
      with padding. */
  sample?: (index: number, x: any, y: any, training: boolean) => void;
  /** In place of `lengths`: number of samples of each length. `index` then counts through all of
      them, the shortest length first. */
  train?: number[]; held?: number[];
  /** For bytes: value = byte * factor + shift. */
  factor?: number; shift?: number;
}
export interface Net {
  /** Outputs of one sample, of the sample's length. */
  predict(x: Inputs): Float32Array;
  /** Outputs of several samples of any lengths. */
  predict(x: Values[] | { [name: string]: Values[] }): Float32Array[];
  /** Outputs of consecutive samples of one length. */
  predict(x: Inputs, length: number): Float32Array;
}

/** Generated samples, the same everywhere; `count` of each length. */
export function madeUp(count?: number, spike?: number): Samples;
