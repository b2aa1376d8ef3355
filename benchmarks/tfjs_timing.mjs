// What scripts of benchmarks/tfjs*.py share: bytes of this process, and the time of steps.
import { readFileSync } from "node:fs";

const WARM = 1000; // ms

/** Bytes; the most of getrusage would count the parent's, too. */
export const status = (field) =>
  1024 * Number(readFileSync("/proc/self/status", "utf8").match(new RegExp(`${field}:\\s+(\\d+)`))[1]);

/** Milliseconds of each of `steps`, after others of a network of its own, for which engines compile
    the code. */
export async function timed(steps, warm, step) {
  const times = [];
  for (const start = performance.now(); performance.now() - start < WARM;) {
    await warm(0);
    await new Promise((done) => setTimeout(done)); // what was compiled is taken up
  }
  for (let k = 0; k < steps; k++) {
    const start = performance.now();
    await step(k);
    times.push(performance.now() - start);
  }
  return times.sort((a, b) => a - b);
}

/** Print what a contender took as JSON, or its error. */
export async function said(work) {
  const before = status("VmRSS");
  try {
    const { times, peak, ...found } = await work();
    console.log(JSON.stringify({ ...found, ms: times[times.length >> 1], grown: peak - before }));
  } catch (error) {
    console.log(JSON.stringify({ error: String(error.message ?? error).split("\n")[0].slice(0, 200) }));
  }
}
