/** Trains a neural network where this module runs. Written by edgetrain. */

export type Values = Float32Array | Int32Array | Uint8Array;
/** One array where the network has one input; of several, by their names. */
export type Inputs = Values | { [name: string]: Values };

export interface Field { name: string; elements: number; shape: number[]; type: "f32" | "i32"; limit: number }
export interface Facts {
  name: string; model: string; version: string;
  minibatch: number; lr: number;
  /** Of several losses, the targets after the first are behind the inputs. */
  inputs: Field[]; target: Field;
  losses: { output: string | null; name: string; weight: number; label: string }[];
  /** Numbers of a sample's output; 0 where there is no prediction. */
  output: number;
  /** Samples that predict and evaluate take together. */
  taken: number;
  /** Bytes of the arena, and of a saved state. */
  arena: number; stored: number;
  values: { name: string; shape: number[]; size: number }[];
  schedules: string[];
  check: { steps: number; digest: string };
}
export interface Report {
  /** Minibatches done. */
  step: number;
  /** The last minibatch moved nothing: a gradient was not finite. */
  skipped: boolean;
  loss: number; gradNorm: number; lr: number; lossScale: number;
}
export interface Schedule {
  kind?: "constant" | "step" | "cosine" | "exponential" | "inverse_sqrt" | "multistep"
    | "one_cycle" | "plateau";
  lr?: number; totalSteps?: number; warmupSteps?: number; size?: number; drops?: number[];
  patience?: number; cooldown?: number; gamma?: number; threshold?: number; minLr?: number;
  rise?: number; first?: number; last?: number;
}
export interface Options {
  /** The .wasm file: its address, bytes or compiled module. Default: the file beside this one. */
  wasm?: string | URL | BufferSource | WebAssembly.Module;
  schedule?: Schedule; data?: Samples;
}

export class TrainingError extends Error { code: number }

export interface Net {
  readonly facts: Facts;
  readonly module: WebAssembly.Module;
  readonly memoryBytes: number;
  readonly arena: Uint8Array;
  readonly progress: Report;
  readonly parameters: { name: string; shape: number[] }[];
  data(samples: Samples): void;
  schedule(schedule: Schedule): void;
  /** Train on one minibatch. */
  step(): Report;
  /** Train on the next piece of a minibatch; a report when it is done. */
  poll(): Report | undefined;
  /** Cut pieces of `poll` up to `parts` times shorter. */
  split(parts: number): void;
  skip(): Report;
  evaluate(): {
    loss: number; accuracy?: number;
    /** Of several losses each, without its weight. */
    losses?: { output: string; name: string; label: string; loss: number; accuracy?: number }[];
  };
  get(name: string): Float32Array;
  set(name: string, values: ArrayLike<number>): void;
  /** The state of training, between two minibatches. */
  save(): Uint8Array;
  /** Go on from a saved state. False: damaged, or of another network. */
  load(bytes: Uint8Array): boolean;
  digest(): string;
}

/** The network with its initial weights. */
export function init(options?: Options): Promise<Net>;
/** Samples of a file that `edgetrain bundle --data` wrote. */
export function samplesOf(buffer: ArrayBuffer): Samples;
/** The digest after a few steps of made-up samples, and the one that Python has. */
export function check(options?: { steps?: number; spike?: number; wasm?: Options["wasm"] }):
  Promise<{ digest: string; expected?: string }>;
export const facts: Facts;
