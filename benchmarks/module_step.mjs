// A step of a WebAssembly module for each line that comes in; says its milliseconds.
// usage: node module_step.mjs FOLDER
import { readFileSync } from "node:fs";
import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";

const folder = process.argv[2];
const floats = (name) => new Float32Array(new Uint8Array(readFileSync(`${folder}/${name}`)).buffer);
const { init } = await import(pathToFileURL(`${folder}/net.js`));
const net = await init({ data: { x: floats("x"), y: new Int32Array(floats("y")) } });
for await (const line of createInterface({ input: process.stdin })) {
  const start = performance.now();
  for (let k = 0; k < Number(line); k++) net.step();
  console.log((performance.now() - start) / Number(line));
}
