
export interface Samples {
  /** Number of samples for training and for evaluation. Not needed with typed arrays. */
  train?: number; held?: number;
  /** Writes sample `index` into x and y. */
  sample?: (index: number, x: any, y: any, training: boolean) => void;
  x?: Inputs; y?: Values; heldX?: Inputs; heldY?: Values;
  /** For bytes: value = byte * factor + shift. */
  factor?: number; shift?: number;
}
export interface Net {
  predict(x: Inputs | number[] | { [name: string]: Values | number[] }): Float32Array;
}

/** Generated samples, the same everywhere. */
export function madeUp(count?: number, spike?: number): Samples;
