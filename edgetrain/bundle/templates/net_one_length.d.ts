
export interface Samples {
  /** How many there are to train on, and to evaluate on. Typed arrays say so themselves. */
  train?: number; held?: number;
  /** Writes sample `index` into x and y. */
  sample?: (index: number, x: any, y: any, training: boolean) => void;
  x?: Inputs; y?: Values; heldX?: Inputs; heldY?: Values;
  /** Of bytes: a value becomes byte * factor + shift. */
  factor?: number; shift?: number;
}
export interface Net {
  predict(x: Inputs): Float32Array;
}

/** Made-up samples, the same everywhere. */
export function madeUp(count?: number, spike?: number): Samples;
