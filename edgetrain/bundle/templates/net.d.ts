/** Trains a neural network in this module's process. Written by edgetrain. */

export type Values = Float32Array | Int32Array | Uint8Array;
/** One array if the network has one input, else arrays by input name. */
export type Inputs = Values | { [name: string]: Values };

export interface Field { name: string; elements: number; shape: number[]; type: "f32" | "i32"; limit: number }
export interface Facts {
  name: string; model: string; version: string;
  minibatch: number; lr: number;
  /** With several losses, the other targets follow the inputs. */
  inputs: Field[]; target: Field;
  losses: { output: string | null; name: string; weight: number; label: string }[];
  /** Values in a sample's output; 0 if the network cannot predict. */
  output: number;
  /** Samples that predict and evaluate process together. */
  taken: number;
  /** Sizes in bytes: arena, saved state. */
  arena: number; stored: number;
  values: { name: string; shape: number[]; size: number }[];
  schedules: string[];
  check: { steps: number; digest: string };
}
export interface Report {
  /** Minibatches done. */
  step: number;
  /** The last minibatch changed no weight: a gradient was not finite. */
  skipped: boolean;
  loss: number; gradNorm: number; lr: number; lossScale: number;
}
/** A learning rate schedule. Fields of other kinds are ignored. // newer kinds */
export interface Schedule {
  /** Default: "constant". */
  kind?: string; // kinds
  lr?: number; totalSteps?: number; warmupSteps?: number;
  /** step: steps between drops; plateau: steps per window; inverse_sqrt: steps, 0: warmupSteps
      or 10000. */
  size?: number;
  /** multistep: steps at which the rate drops, ascending; at most 8. */
  drops?: number[];
  /** plateau: windows without progress before a drop; windows ignored after a drop. */
  patience?: number; cooldown?: number;
  /** step, multistep, plateau: factor per drop; exponential: factor per step. */
  gamma?: number;
  /** plateau: smallest relative progress; smallest rate. */
  threshold?: number; minLr?: number;
  /** one_cycle: fraction that rises; factors of lr at both ends. */
  rise?: number; first?: number; last?: number;
}
export interface Options {
  /** The .wasm file: URL, bytes or compiled module. Default: the file next to this one. */
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
  /** Train on the next piece of a minibatch; returns a report when the minibatch is done. */
  poll(): Report | undefined;
  /** Make the pieces of `poll` up to `parts` times shorter. */
  split(parts: number): void;
  skip(): Report;
  evaluate(): {
    loss: number; accuracy?: number;
    /** Each of several losses, without its weight. */
    losses?: { output: string; name: string; label: string; loss: number; accuracy?: number }[];
  };
  get(name: string): Float32Array;
  set(name: string, values: ArrayLike<number>): void;
  /** The training state. Call it between two minibatches. */
  save(): Uint8Array;
  /** Continue from a saved state. False: damaged, or from another network. */
  load(bytes: Uint8Array): boolean;
  digest(): string;
}

/** The network with its initial weights. */
export function init(options?: Options): Promise<Net>;
/** Samples from a file written by `edgetrain bundle --data`. */
export function samplesOf(buffer: ArrayBuffer): Samples;
/** The digest after a few steps on generated samples, and the digest Python got. */
export function check(options?: { steps?: number; spike?: number; wasm?: Options["wasm"] }):
  Promise<{ digest: string; expected?: string }>;
export const facts: Facts;
